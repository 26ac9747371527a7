"""Seconds of `detect`'s five fits, trained together, against one fit with a fifth of the source hidden, in one run.

    python benchmarks/rotations_speed.py --root data --datasets cora-s blogcatalog-mixed0

Each time is that of fit and analysis, as `detect` does them; the two ways take turns, and medians are compared.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Sequence
from typing import Any

import recoslip
from recoslip.base.errors import RecoslipWarning
from recoslip.data.datasets.load import load_labelled
from recoslip.data.datasets.panel import panel_case
from recoslip.data.graph import NodeGraph
from recoslip.inference.analysis import analyse


def load(name: str, root: str | None) -> NodeGraph:
    """Load a dataset, or a case of a graph of the panel."""
    graph, _, case = name.rpartition("-")
    if case in ("s", "ms", "ns", "r") or not graph:
        return recoslip.load_dataset(name, root=root).graph
    return panel_case(graph, load_labelled(graph, root), case).graph


def seconds(graph: NodeGraph, **options: Any) -> float:
    """Fit and analyse once."""
    start = time.perf_counter()
    analyse(recoslip.detector("reco-slip-plus").fit(graph, **options), graph)
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s", "digits"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--root", default=None)
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore", RecoslipWarning)
    print(f"{'dataset':20} {'one fit, s':>12} {'five fits, s':>13} {'ratio':>6}")
    for name in args.datasets:
        graph = load(name, args.root)
        times = [(seconds(graph, calibration=0.2), seconds(graph, rotations=5)) for _ in range(args.repeats)]
        once, rotated = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:20} {once:>12.1f} {rotated:>13.1f} {rotated / once:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
