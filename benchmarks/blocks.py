"""Blocks of a table, with and without weights: whether numbers that say nothing drown words, and the other way round.

python benchmarks/blocks.py
python benchmarks/blocks.py --fit     # RECO-SLIP+ on each, some minutes

*Topics*: 1,200 texts of six topics beside numbers of noise. *Numbers*: 32 numbers of a block model beside texts of
noise. Without weights every column is as its encoder gives it: numbers with variance 1, texts with norm 1.
"""

from __future__ import annotations

import argparse

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from recoslip import NodeGraph, detector, read_graph
from recoslip.data.alignment import HOPS, reduced_features
from recoslip.data.datasets.block_model import csbm
from recoslip.data.neighbours import Neighbours, diffuse

SEEDS = 3


def topics(seed: int, numbers: int) -> tuple[pl.DataFrame, None, NDArray[np.int64]]:
    """Return a table of texts and noise, no edges, and categories, of which the last is novel."""
    rng = np.random.default_rng(seed)
    kinds, words, half = 6, 600, 600
    first, second = (rng.dirichlet(np.full(kinds - 1, 3.0)) for _ in range(2))
    target = np.where(rng.random(half) < 0.15, kinds - 1, rng.choice(kinds - 1, half, p=second))
    category = np.concatenate([rng.choice(kinds - 1, half, p=first), target])
    topic, common = rng.dirichlet(np.full(words, 0.03), kinds), rng.dirichlet(np.full(words, 0.5))
    texts = [" ".join(f"w{k}" for k in rng.choice(words, 10, p=0.4 * topic[c] + 0.6 * common)) for c in category]
    noise = {f"n{k}": rng.standard_normal(2 * half) for k in range(numbers)}
    domain = np.repeat(["source", "target"], half)
    return pl.DataFrame({"id": np.arange(2 * half), "domain": domain, "text": texts, **noise}), None, category


def numbers(seed: int, texts: int) -> tuple[pl.DataFrame, pl.DataFrame, NDArray[np.int64]]:
    """Return a table of a block model's features and texts of noise, its edges, and categories."""
    graph = csbm(nodes=1500, noise=4.0, homophily=0.6, features=32, seed=seed)
    assert graph.categories is not None
    rng = np.random.default_rng(seed)
    noise = {"text": [" ".join(f"w{k}" for k in rng.integers(0, 2000, 10)) for _ in range(1500)]} if texts else {}
    left, right = graph.edge_index
    domain = np.where(graph.is_target, "target", "source")
    features = {f"f{k}": graph.x[:, k] for k in range(32)}
    frame = pl.DataFrame({"id": np.arange(1500), "domain": domain, **features, **noise})
    return frame, pl.DataFrame({"a": left, "b": right}), graph.categories


def read(frame: pl.DataFrame, edges: pl.DataFrame | None, weighted: bool) -> NodeGraph:
    """Read the tables, with the weights that blocks have by default, or without any."""
    text = ["text"] if "text" in frame.columns else []
    graph = read_graph(frame, edges, text=text)
    if weighted or graph.encoding is None:
        return graph
    weights = {state["encoding"]: 1 / state["weight"] for state in graph.encoding.values()}
    return read_graph(frame, edges, text=text, block_weights=weights)


def alike(x: NDArray[np.floating], category: NDArray[np.int64]) -> float:
    """Return the fraction of a node's ten nearest that are of its category."""
    near = NearestNeighbors(n_neighbors=10).fit(x).kneighbors(return_distance=False)
    return float((category[near] == category[:, None]).mean())


def similarity_features(graph: NodeGraph) -> NDArray[np.float32]:
    """Vectors whose inner products are the similarities of nodes, by their features and their neighbours'.

    They are tf-idf weighted features, reduced and averaged with those of the neighbours, two hops far, of length 1, or
    0 for a node that has none.
    """
    neighbours = Neighbours(graph)
    x = diffuse(
        reduced_features(graph, tf_idf=True),
        neighbours.mean,
        0.5,
        HOPS,
        restart=False,
        isolated=neighbours.degree[:, None] == 0,
    )
    length = np.linalg.norm(x, axis=1, keepdims=True)
    x /= np.where(length > 0, length, 1)
    return x.astype(np.float32, copy=False)


def main() -> None:
    """Print, for each table, the nearest of one's own category, and the AU-ROC of RECO-SLIP+."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    for make, besides in ((topics, (0, 1, 5)), (numbers, (0, 1))):
        for count in besides:
            for weighted in (False, True):
                found: list[list[float]] = []
                for seed in range(SEEDS):
                    frame, edges, category = make(seed, count)
                    graph = read(frame, edges, weighted)
                    values = [alike(view(graph), category) for view in (reduced_features, similarity_features)]
                    if arguments.fit:
                        scores = detector("reco-slip-plus", random_state=seed).fit(graph).scores_
                        target = graph.is_target
                        values.append(float(roc_auc_score((category == category.max())[target], scores[target])))
                    found.append(values)
                means = " ".join(f"{value:.3f}" for value in np.mean(found, axis=0))
                print(
                    f"{make.__name__}, {count} noise columns, {'weighted' if weighted else 'plain'}: {means}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
