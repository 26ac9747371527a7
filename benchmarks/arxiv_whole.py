"""ogbn-arxiv whole, 169,343 papers: training in batches against training on the whole graph, on a real graph.

    python benchmarks/arxiv_whole.py --root data
    python benchmarks/arxiv_whole.py --root data --epochs 0.5 --batch-size 2048    # in batches alone

The root's files need OGB's edges, categories and years alone: features are made from the edges (singular vectors of the
normalised adjacency matrix), so figures are not comparable with others on this graph. Source are papers before 2018.
Those of one category before 2018 are left out, so that it is novel; it is never shown to the method.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl
import scipy.sparse as sp

import recoslip
from recoslip.data.neighbours import gcn_adjacency
from recoslip.inference.metrics import auroc

FIRST_TARGET_YEAR = 2018


def column(path: Path, name: str) -> np.ndarray:
    """Read a file of one column without a header."""
    return pl.read_csv(path, has_header=False, new_columns=[name])[name].to_numpy()


def load(root: Path, novel: int, width: int) -> recoslip.NodeGraph:
    """Build the graph."""
    from sklearn.utils.extmath import randomized_svd

    folder = root / "ogbn_arxiv" / "raw"
    category = column(folder / "node-label.csv.gz", "category")
    is_target = column(folder / "node_year.csv.gz", "year") >= FIRST_TARGET_YEAR
    edges = pl.read_csv(folder / "edge.csv.gz", has_header=False).to_numpy().T
    kept = np.flatnonzero(is_target | (category != novel))
    position = np.full(len(category), -1)
    position[kept] = np.arange(len(kept))
    edges = position[edges]
    edges = edges[:, (edges >= 0).all(axis=0)]
    plain = recoslip.NodeGraph(np.zeros((len(kept), 1)), edges, is_target[kept])
    left, singular, _ = randomized_svd(sp.csr_matrix(gcn_adjacency(plain)), width, random_state=0)
    x = left * singular
    x = (x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-12)).astype(np.float32)
    return recoslip.NodeGraph(x * np.sqrt(width), edges, is_target[kept], categories=category[kept])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--novel", type=int, default=24, help="the category that is novel, by its number")
    parser.add_argument("--width", type=int, default=64, help="singular vectors")
    parser.add_argument("--epochs", type=float, default=1.0, help="times as many as by default")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[2048, 0])
    parser.add_argument("--method", default="reco-slip-plus")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    graph = load(arguments.root, arguments.novel, arguments.width)
    assert graph.categories is not None
    novel = (graph.categories == arguments.novel) & graph.is_target
    print(f"{graph!r}, {novel.sum():,} of them novel", flush=True)
    model = recoslip.detector(arguments.method, device=arguments.device)
    epochs = {name: round(value * arguments.epochs) for name, value in model.get_params().items() if "epochs" in name}
    print("| batch size | seed | AU-ROC | s |\n|---|---|---|---|", flush=True)
    for batch_size in arguments.batch_size:
        for seed in range(arguments.seeds):
            start = time.perf_counter()
            model.set_params(batch_size=batch_size, random_state=seed, **epochs).fit(graph)
            value = auroc(novel, model.scores_, graph.is_target)
            print(f"| {batch_size or 'whole'} | {seed} | {value:.3f} | {time.perf_counter() - start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
