"""Pack tables, open, fit and analyse the packed graph: seconds, bytes on disk, and peak anonymous memory.

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

CATEGORIES = 8  # the last one is novel: it occurs in the target alone


class Measurement:
    """Seconds and peak anonymous memory (memory that is not pages of files) of a block; needs Linux."""

    def __enter__(self) -> Measurement:
        self.peak_bytes, self.finished = 0, threading.Event()
        self.thread = threading.Thread(target=self._sample_memory)
        self.thread.start()
        self.start = time.perf_counter()
        return self

    def _sample_memory(self) -> None:
        while not self.finished.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            anonymous = next(line for line in lines if line.startswith("RssAnon"))
            self.peak_bytes = max(self.peak_bytes, 1024 * int(anonymous.split()[1]))

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.perf_counter() - self.start
        self.finished.set()
        self.thread.join()


def write_tables(folder: Path, nodes: int, features: int, degree: int) -> None:
    """Write tables of random nodes and edges; four of five edges connect nodes of the same category."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, CATEGORIES, nodes)
    target = rng.random(nodes) < np.where(category == CATEGORIES - 1, 1.0, 0.5)
    means = rng.normal(size=(CATEGORIES, features))
    x = (means[category] + 3 * rng.normal(size=(nodes, features))).astype(np.float32)
    pl.DataFrame({"id": np.arange(nodes), "domain": target.astype(int), "x": x}).write_parquet(folder / "nodes.parquet")
    left = rng.integers(0, nodes, nodes * degree // 2)
    by_category = np.argsort(category, kind="stable")
    offset = np.searchsorted(category[by_category], np.arange(CATEGORIES + 1))
    size = np.diff(offset)[category[left]]
    same_category = by_category[(offset[category[left]] + rng.random(len(left)) * size).astype(int)]
    right = np.where(rng.random(len(left)) < 0.8, same_category, rng.integers(0, nodes, len(left)))
    pl.DataFrame({"a": left, "b": right}).write_parquet(folder / "edges.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--degree", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tables(folder, arguments.nodes, arguments.features, arguments.degree)
        with Measurement() as packing:
            recoslip.pack(folder / "nodes.parquet", folder / "edges.parquet", folder / "graph", features=["x"])
        size = sum(path.stat().st_size for path in (folder / "graph").iterdir())
        with Measurement() as opening:
            graph = recoslip.open_packed(folder / "graph")
        with Measurement() as fitting:
            fitted = recoslip.detector(
                "auto", batch_size=2048, epochs=arguments.epochs, round_epochs=arguments.epochs // 3, device="cpu"
            ).fit(graph, calibration=0.2)
        with Measurement() as analysing:
            recoslip.analyse(fitted, graph)
        print(f"{graph!r}\non disk: {size / 2**30:.2f} GiB\n\n| | s | peak GiB |\n|---|---|---|")
        for name, measured in (("pack", packing), ("open", opening), ("fit", fitting), ("analyse", analysing)):
            print(f"| {name} | {measured.seconds:.1f} | {measured.peak_bytes / 2**30:.2f} |")


if __name__ == "__main__":
    main()
