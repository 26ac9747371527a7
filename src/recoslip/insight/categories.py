"""Novel nodes -> candidate categories: communities of their subgraph, joined by features where edges are few."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

from recoslip.detectors.energy import neighbourhood_features
from recoslip.errors import RecoslipError
from recoslip.graph import Neighbours, NodeGraph
from recoslip.shift import Mask

NEIGHBOURS = 8  # a node with fewer edges inside the novel nodes gets edges to those most like it
RESOLUTIONS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # tried from the coarsest on
RESAMPLES, KEPT = 8, 0.8  # of the stability check
STABLE = 0.6  # mean adjusted Rand index from which on a partition counts
AS_STABLE = 0.03  # a coarser partition is taken if it is less stable by no more than this
BY_CHANCE = 0.1  # and by how much that must exceed the same of nodes without structure
LARGEST = 3000  # nodes the resolution is chosen on
SMALLEST = 5  # nodes of a candidate category


@dataclass(frozen=True)
class Categories:
    """A partition of the novel nodes."""

    label: NDArray[np.int64]  # (nodes,) from 1, the largest first; 0 of novel nodes in none; -1 of all others
    count: int
    stability: float  # mean adjusted Rand index with partitions of resampled nodes, of the best that was tried
    structure: bool  # whether there is more than one; if not, all novel nodes are category 1


def find_categories(graph: NodeGraph, novel: Mask, *, seed: int = 0) -> Categories:
    """Partition the novel nodes by Leiden's algorithm at the resolution whose partition holds best.

    Modularity divides any large sparse graph, a single category's too. What is real is found again when some of the
    nodes are left out, so the resolution is chosen by that; if no partition into two or more is stable, there is no
    structure.

    Args:
        graph: the whole graph.
        novel: who looks novel.
        seed: of the algorithm and the resampling.
    """
    nodes = np.flatnonzero(novel)
    if len(nodes) < 2 * SMALLEST:
        return one_category(graph, novel)
    rng = np.random.default_rng(seed)
    some = nodes if len(nodes) <= LARGEST else np.sort(rng.choice(nodes, LARGEST, replace=False))
    features, neighbours = neighbourhood_features(graph), Neighbours(graph)
    x, edges = features[some], neighbours.among(some)
    weights = _joined(edges, x)
    tried: list[tuple[float, float]] = []  # stability, resolution
    for resolution in RESOLUTIONS:
        found = _leiden(weights, resolution, seed)
        if (np.bincount(found) >= SMALLEST).sum() > 1:
            tried.append((_stability(weights, found, resolution, seed), resolution))
    best = max((stability for stability, _ in tried), default=0.0)
    if best < STABLE:
        return one_category(graph, novel, best)
    stability, resolution = next(each for each in tried if each[0] >= best - AS_STABLE)
    if stability < _chance(edges, x, resolution, seed) + BY_CHANCE:
        return one_category(graph, novel, best)
    if len(nodes) > LARGEST:
        weights = _joined(neighbours.among(nodes), features[nodes])
    found = _leiden(weights, resolution, seed)
    sizes = np.bincount(found)
    large = np.flatnonzero(sizes >= SMALLEST)
    name = np.zeros(len(sizes), dtype=np.int64)
    name[large[np.argsort(-sizes[large], kind="stable")]] = np.arange(1, len(large) + 1)
    return Categories(_spread(graph, nodes, name[found]), len(large), stability, True)


def one_category(graph: NodeGraph, novel: Mask, stability: float = 0.0) -> Categories:
    """Take all novel nodes for one category."""
    nodes = np.flatnonzero(novel)
    label = _spread(graph, nodes, np.ones(len(nodes), dtype=np.int64))
    return Categories(label, int(len(nodes) > 0), stability, False)


def _chance(edges: sp.csr_array, x: NDArray[np.float64], resolution: float, seed: int) -> float:
    """Stability that as many nodes reach by chance: in one Gaussian cloud of the same shape, their edges rewired."""
    import igraph

    rng = np.random.default_rng(seed)
    upper = sp.triu(edges, k=1).tocoo()
    values = []
    for draw in range(4):
        cloud = rng.multivariate_normal(x.mean(axis=0), np.atleast_2d(np.cov(x.T)), len(x), method="svd")
        network = igraph.Graph(n=len(x), edges=np.column_stack([upper.row, upper.col]))
        if network.ecount() > 1:
            with _seeded(seed + draw):
                network.rewire(n=10 * network.ecount())
        ends = np.array(network.get_edgelist(), dtype=np.int64).reshape(-1, 2).T
        one_way = sp.coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=edges.shape).tocsr()
        weights = _joined(sp.csr_array(one_way + one_way.T), cloud)
        found = _leiden(weights, resolution, seed)
        divided = (np.bincount(found) >= SMALLEST).sum() > 1
        values.append(_stability(weights, found, resolution, seed) if divided else 0.0)
    return max(values)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed Python's generator, which igraph draws from, and give it back as it was."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def _spread(graph: NodeGraph, nodes: NDArray[np.int64], names: NDArray[np.int64]) -> NDArray[np.int64]:
    label = np.full(graph.num_nodes, -1, dtype=np.int64)
    label[nodes] = names
    return label


def _stability(weights: sp.csr_array, found: NDArray[np.int64], resolution: float, seed: int) -> float:
    """Mean adjusted Rand index between a partition and those of samples of the nodes."""
    rng = np.random.default_rng(seed)
    agreement = []
    for k in range(RESAMPLES):
        kept = np.sort(rng.choice(len(found), int(KEPT * len(found)), replace=False))
        again = _leiden(weights[kept][:, kept], resolution, seed + 1 + k)
        agreement.append(adjusted_rand_score(found[kept], again))
    return float(np.mean(agreement))


def _joined(edges: sp.csr_array, x: NDArray[np.float64]) -> sp.csr_array:
    """Weights among nodes: 1 for an edge, and up to 1 for being nearest in features, for nodes that lack edges."""
    near = kneighbors_graph(x, min(NEIGHBOURS, len(x) - 1))
    lacking = np.clip(1 - np.diff(edges.indptr) / NEIGHBOURS, 0, 1)
    alike = sp.csr_array(sp.diags_array(lacking) @ sp.csr_array(near))
    return sp.csr_array(edges + alike.maximum(alike.T))


def _leiden(weights: sp.csr_array, resolution: float, seed: int) -> NDArray[np.int64]:
    try:
        import igraph
        import leidenalg
    except ImportError as problem:
        raise RecoslipError(
            "candidate categories need igraph and leidenalg: pip install 'recoslip[report]'"
        ) from problem
    upper = sp.triu(weights, k=1).tocoo()
    network = igraph.Graph(n=weights.shape[0], edges=np.column_stack([upper.row, upper.col]))
    found = leidenalg.find_partition(
        network,
        leidenalg.RBConfigurationVertexPartition,
        weights=upper.data.tolist(),
        resolution_parameter=resolution,
        seed=seed,
    )
    return np.asarray(found.membership, dtype=np.int64)
