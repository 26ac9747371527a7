"""Pack tables, open, fit and analyse the packed graph, make its page: processor seconds, seconds, and peak memory.

python benchmarks/packed.py --nodes 100000
python benchmarks/packed.py --nodes 1000000
python benchmarks/packed.py --nodes 10000000 --folder ten    # keeps the tables and the graph
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import recoslip
from recoslip.data.partitions import Partitions
from recoslip.data.vectors import Vectors
from recoslip.inference.analysis import find_novel
from recoslip.pipeline.result import Result

CATEGORIES = 8  # the last one is novel: it occurs in the target alone


CHUNK = 2**20  # rows of a table that are made at a time


class Measurement:
    """Print processor seconds, seconds, and the peak of anonymous memory (not pages of files) of a block; on Linux."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Measurement:
        self.peak_bytes, self.finished = 0, threading.Event()
        self.thread = threading.Thread(target=self._sample_memory)
        self.thread.start()
        self.start, self.cpu_start = time.perf_counter(), time.process_time()
        return self

    def _sample_memory(self) -> None:
        while not self.finished.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            anonymous = next(line for line in lines if line.startswith("RssAnon"))
            self.peak_bytes = max(self.peak_bytes, 1024 * int(anonymous.split()[1]))

    def __exit__(self, *exception: object) -> None:
        cpu, seconds = time.process_time() - self.cpu_start, time.perf_counter() - self.start
        self.finished.set()
        self.thread.join()
        print(f"| {self.name} | {cpu:.1f} | {seconds:.1f} | {self.peak_bytes / 2**30:.2f} |", flush=True)


def write_tables(folder: Path, nodes: int, features: int, degree: int) -> None:
    """Write tables of random nodes and edges, a chunk at a time; four of five edges join nodes of the same category."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, CATEGORIES, nodes).astype(np.int8)
    target = rng.random(nodes, dtype=np.float32) < np.where(category == CATEGORIES - 1, 1.0, 0.5)
    means = rng.normal(size=(CATEGORIES, features)).astype(np.float32)
    vectors = pa.list_(pa.float32(), features)
    with pq.ParquetWriter(
        folder / "nodes.parquet", pa.schema({"id": pa.int64(), "domain": pa.int8(), "x": vectors})
    ) as file:
        for begin in range(0, nodes, CHUNK):
            rows = slice(begin, min(begin + CHUNK, nodes))
            x = means[category[rows]] + 3 * rng.standard_normal((rows.stop - begin, features), dtype=np.float32)
            columns = [
                np.arange(begin, rows.stop),
                target[rows].astype(np.int8),
                pa.FixedSizeListArray.from_arrays(x.ravel(), features),
            ]
            file.write_table(pa.table(dict(zip(file.schema.names, columns, strict=True)), schema=file.schema))
    by_category = np.argsort(category, kind="stable")
    offset = np.searchsorted(category[by_category], np.arange(CATEGORIES + 1))
    with pq.ParquetWriter(folder / "edges.parquet", pa.schema({"a": pa.int64(), "b": pa.int64()})) as file:
        for begin in range(0, nodes * degree // 2, CHUNK):
            left = rng.integers(0, nodes, min(CHUNK, nodes * degree // 2 - begin))
            size = np.diff(offset)[category[left]]
            same_category = by_category[(offset[category[left]] + rng.random(len(left)) * size).astype(int)]
            right = np.where(rng.random(len(left)) < 0.8, same_category, rng.integers(0, nodes, len(left)))
            file.write_table(pa.table({"a": left, "b": right}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--degree", type=int, default=20)
    parser.add_argument(
        "--folder", type=Path, default=None, help="keep tables and packed graph there, and use those there are"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "graph").exists():
            # In a process of its own, whose memory is not counted.
            making = multiprocessing.get_context("spawn").Process(
                target=write_tables, args=(folder, arguments.nodes, arguments.features, arguments.degree)
            )
            making.start()
            making.join()
            with Measurement("pack"):
                recoslip.pack(folder / "nodes.parquet", folder / "edges.parquet", folder / "graph", features=["x"])
        size = sum(path.stat().st_size for path in (folder / "graph").iterdir())
        with Measurement("open"):
            graph = recoslip.open_packed(folder / "graph")
        print(f"{graph!r}; on disk: {size / 2**30:.2f} GiB", flush=True)
        with Measurement("vectors"):
            Vectors.of(graph)
        with Measurement("partitions"):
            Partitions.of(graph)
        with Measurement("five rotations"):
            fitted = recoslip.calibrate(recoslip.Scan(), graph, rotations=5)
        with Measurement("analysis"):
            findings = find_novel(fitted, graph)
        with Measurement("page"):
            Result.of(findings).report()
        print(findings.verdict.sentence)


if __name__ == "__main__":
    main()
