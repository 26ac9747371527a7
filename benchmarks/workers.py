"""What a block of a scan costs, task by task; and the scan of a packed graph by several processes of a Ray cluster.

    python benchmarks/workers.py --folder one                       # of a graph that packed.py --folder one has made
    python benchmarks/workers.py --folder one --workers 1 2

The table has processor seconds, so that it says the same on a busy machine. All runs give the same bits.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import recoslip
from recoslip.data.blocks import ROWS, Blocks, using
from recoslip.products import cluster


class Measured(Blocks):
    """Calls functions here, and notes the processor seconds of each."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def each(self, task: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return what a function returns for the arguments of each job."""
        results = []
        for arguments in jobs:
            start = time.process_time()
            results.append(task(*arguments))
            named = next((each for each in arguments if callable(each) and hasattr(each, "__name__")), task)
            self.seconds[named.__name__.strip("_")].append(time.process_time() - start)
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="that benchmarks/packed.py was given")
    parser.add_argument("--workers", type=int, nargs="*", default=[])
    arguments = parser.parse_args()
    graph = recoslip.open_packed(arguments.folder / "graph")
    measured, start = Measured(), time.process_time()
    with using(measured):
        alone = recoslip.calibrate(recoslip.Scan(), graph, rotations=5)
    total = time.process_time() - start
    print(f"{graph!r}, blocks of {ROWS:,} rows\n\n| task | tasks | processor s of each | in all |\n{'|---' * 4}|")
    for name, seconds in measured.seconds.items():
        print(f"| {name} | {len(seconds)} | {np.mean(seconds):.3f} | {sum(seconds):.1f} |")
    rest = total - sum(map(sum, measured.seconds.values()))
    print(f"| the process that calls them | | | {rest:.1f} |\n", flush=True)
    for workers in arguments.workers:
        with cluster.cluster(cluster.LOCAL, workers):
            start, cpu = time.perf_counter(), time.process_time()
            fitted = cluster.fit(recoslip.Scan(), arguments.folder / "graph", workers=workers)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        same = "the same bits" if (fitted.scores == alone.scores).all() else "OTHER BITS"
        print(
            f"{workers} workers on {os.cpu_count()} cores: {seconds:.1f} s, {cpu:.1f} processor s of the caller, {same}"
        )


if __name__ == "__main__":
    main()
