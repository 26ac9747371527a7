"""Pack tables and look at the packed graph: seconds, bytes on disk, and peak memory that is not pages of files.

python benchmarks/packed.py                     # 300,000 nodes
python benchmarks/packed.py --nodes 1000000
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl

import recoslip


class Peak:
    """The most anonymous memory that this process had while it was watched; Linux alone tells."""

    def __enter__(self) -> Peak:
        self.bytes, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        self.begin = time.perf_counter()
        return self

    def _watch(self) -> None:
        while not self.ended.wait(0.05):
            line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon"))
            self.bytes = max(self.bytes, 1024 * int(line.split()[1]))

    def __exit__(self, *problem: object) -> None:
        self.seconds = time.perf_counter() - self.begin
        self.ended.set()
        self.thread.join()


def write_tables(folder: Path, nodes: int, features: int, degree: int) -> None:
    """Write tables of random nodes and edges, with a novel kind in the target."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 8, nodes)
    target = rng.random(nodes) < np.where(kind == 7, 1.0, 0.5)
    means = rng.normal(size=(8, features))
    x = (means[kind] + 3 * rng.normal(size=(nodes, features))).astype(np.float32)
    pl.DataFrame({"id": np.arange(nodes), "domain": target.astype(int), "x": x}).write_parquet(folder / "nodes.parquet")
    first = rng.integers(0, nodes, nodes * degree // 2)
    order = np.argsort(kind, kind="stable")
    start = np.searchsorted(kind[order], np.arange(9))
    alike = order[(start[kind[first]] + rng.random(len(first)) * np.diff(start)[kind[first]]).astype(int)]
    second = np.where(rng.random(len(first)) < 0.8, alike, rng.integers(0, nodes, len(first)))
    pl.DataFrame({"a": first, "b": second}).write_parquet(folder / "edges.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--degree", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tables(folder, arguments.nodes, arguments.features, arguments.degree)
        with Peak() as packing:
            recoslip.pack(folder / "nodes.parquet", folder / "edges.parquet", folder / "graph", features=["x"])
        size = sum(path.stat().st_size for path in (folder / "graph").iterdir())
        with Peak() as opening:
            graph = recoslip.open_packed(folder / "graph")
        with Peak() as fitting:
            fitted = recoslip.detector(
                "auto", batch_size=2048, epochs=arguments.epochs, round_epochs=arguments.epochs // 3, device="cpu"
            ).fit(graph, calibration=0.2)
        with Peak() as analysing:
            recoslip.analyse(fitted, graph)
        print(f"{graph!r}\non disk: {size / 2**30:.2f} GiB\n\n| | s | peak GiB |\n|---|---|---|")
        for name, peak in (("pack", packing), ("open", opening), ("fit", fitting), ("analyse", analysing)):
            print(f"| {name} | {peak.seconds:.1f} | {peak.bytes / 2**30:.2f} |")


if __name__ == "__main__":
    main()
