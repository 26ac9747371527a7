"""A graph with categories -> the cases of the panel: which category is novel, and how the others are divided.

The paper's datasets have one novel category and one shift each. The panel asks the same question of every graph in
several ways, always the same ones, so that a method is not judged by the case it was tuned to.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import DatasetError
from recoslip.data.alignment import reduced_features
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask

CASES: Mapping[str, str] = MappingProxyType(
    {
        "mixed0": "a category is novel; every other has its own source share, between 15 and 85 %",
        "mixed1": "the same with another novel category and other shares",
        "mixed2": "the same with a third",
        "grown": "as mixed0, with shares between 30 and 70 %; one known category has 4 % of its nodes in the source",
        "unshifted": "as mixed0, with half of every known category in the source",
        "rare": "as mixed0, with the novel nodes nearest to each other alone, so that 1.5 % of the target are novel",
        "common": "as mixed0, with known target nodes moved to the source until 45 % of the target are novel",
        "faces": "the novel categories of mixed0 and mixed1 at once, with the shares of mixed0",
        "edgeless": "as mixed0, without edges",
        "narrow": "as mixed0, with the first eight singular vectors as features",
        "rewired": "as mixed0, with one end of eight in ten edges drawn at random: edges hardly follow categories",
    }
)
NOTHING = "nothing"  # as mixed0 with other shares, and no category is novel: there is nothing to rank
NATURAL: Mapping[str, str] = MappingProxyType(  # cases whose domains are not drawn for each node by itself
    {
        "clinging": "domains follow the edges: of each category, nodes that are near each other are target",
        "clinging_nothing": "the same, and no category is novel",
        "by_year": "nodes of the last years, half of those with a year at most, are target",
        "by_year_nothing": "the same, and no category is novel",
    }
)
SEED = 7  # of the domains, unless another is asked for
SMALLEST = 60  # nodes of a category that may be novel
LARGEST = 0.3  # fraction of all nodes of such a category
TRIES = 16  # sets of novel nodes of which rare keeps one
LARGEST_CHANGE = 0.18  # of the AU-ROC of the degree, by what rare leaves out
WALK = 40  # steps of the walks that tell which nodes are near each other
RESTART = 0.1  # probability of a restart at each step
FIRST_YEAR = 2000  # years before it mean that the year is not known
FEWEST = 5  # source nodes of a known category, where years are the domains


class Labelled(NamedTuple):
    """A graph whose nodes have categories and no domain."""

    x: Any  # features, dense or sparse
    edge_index: NDArray[np.int64]
    categories: NDArray[np.int64]
    years: NDArray[np.int64] | None = None


class Case(NamedTuple):
    """A graph with domains, and who is novel."""

    graph: NodeGraph
    novel: Mask


def read_labelled(path: Path) -> Labelled:
    """Read a graph from a NumPy archive.

    It has features as CSR (data, indices, indptr, shape), edges e, categories y, and perhaps a year for every node.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            x = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
            years = file["year"].astype(np.int64) if "year" in file else None
            return Labelled(x.astype(np.float32), file["e"].astype(np.int64), file["y"].astype(np.int64), years)
    except (OSError, KeyError, ValueError, EOFError) as problem:
        raise DatasetError(f"{path} is no graph of the panel: {problem}; it needs data, indices, ...") from problem


def archive_digest(path: Path) -> str:
    """Hash an archive, so that records of other data are told apart."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def panel_case(name: str, labelled: Labelled, case: str, seed: int = SEED) -> Case:
    """Divide a graph's nodes into source and target.

    Args:
        name: of the graph; novel categories and shares are drawn from it.
        labelled: the graph.
        case: a key of `CASES` or of `NATURAL`, or `NOTHING`.
        seed: of the domains.
    """
    novel, share = _plan(name, labelled.categories, case)
    is_novel = np.isin(labelled.categories, novel)
    is_target = _domains(name, labelled, case, share, seed)
    edges = np.empty((2, 0), dtype=np.int64) if case == "edgeless" else labelled.edge_index
    if case == "rewired":
        edges = _rewired(edges, len(is_target), seed)
    kept = np.ones(len(is_target), dtype=bool)
    if case == "common":
        known = np.random.default_rng([seed, 1]).permutation(np.flatnonzero(is_target & ~is_novel))
        is_target[known[round(is_novel.sum() * 55 / 45) :]] = False
    elif case == "rare":
        kept = _rare(name, labelled, is_target, is_novel, seed)
    elif case.startswith("by_year"):
        kept = _comparable(labelled, is_target, is_novel)
    position = np.where(kept, np.cumsum(kept) - 1, -1)
    edges = position[edges]
    graph = NodeGraph(
        labelled.x[kept],
        edges[:, (edges >= 0).all(axis=0)],
        is_target[kept],
        categories=labelled.categories[kept],
        ids=np.flatnonzero(kept),
    )
    if case == "narrow":
        graph = NodeGraph(
            reduced_features(graph, 8), graph.edge_index, graph.is_target, categories=graph.categories, ids=graph.ids
        )
    return Case(graph, is_novel[kept])


def supported_cases(name: str, labelled: Labelled) -> list[str]:
    """Name the cases that a graph has enough categories for, and enough nodes near each other."""
    supported = []
    for case in CASES:
        with contextlib.suppress(DatasetError):
            _plan(name, labelled.categories, case)
            if case == "rare":
                panel_case(name, labelled, case)
            supported.append(case)
    return supported


def _plan(name: str, categories: NDArray[np.int64], case: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the novel categories and the source share of every category."""
    sizes = np.bincount(categories)
    large = np.flatnonzero(sizes >= SMALLEST)
    rng = np.random.default_rng(sum(map(ord, name)))
    novel = rng.permutation([c for c in large if sizes[c] <= LARGEST * len(categories)])[:3]
    needed = {"mixed1": 2, "faces": 2, "mixed2": 3}.get(case, 1)
    if len(novel) < needed:
        raise DatasetError(
            f"{name}-{case}: {needed} categories of {SMALLEST} nodes or more, and of 30 % of all at most, are needed; "
            f"there are {len(novel)}"
        )
    mixed = [rng.uniform(0.15, 0.85, sizes.size) for _ in novel]
    without_novel = rng.uniform(0.15, 0.85, sizes.size)
    if case == NOTHING:
        return np.empty(0, dtype=np.int64), without_novel
    if case.endswith("_nothing"):
        return np.empty(0, dtype=np.int64), rng.uniform(0.3, 0.7, sizes.size)
    chosen = novel[:2] if case == "faces" else novel[needed - 1 : needed]
    if case in ("grown", "clinging"):
        share = rng.uniform(0.3, 0.7, sizes.size)
        if case == "grown":
            share[next(c for c in large if c != novel[0])] = 0.04
    else:
        share = np.full(sizes.size, 0.5) if case == "unshifted" else mixed[0 if case == "faces" else needed - 1]
    share = share.copy()
    share[chosen] = 0
    return chosen, share


def _domains(name: str, labelled: Labelled, case: str, share: NDArray[np.float64], seed: int) -> Mask:
    """Return the target nodes: drawn one by one, or those of the last years, or nodes that are near each other."""
    categories, years = labelled.categories, labelled.years
    if case.startswith("by_year"):
        if years is None:
            raise DatasetError(f"{name}-{case}: the years of the nodes are needed; add the array year to the archive")
        return np.asarray(years > np.median(years[years >= FIRST_YEAR]))
    if not case.startswith("clinging"):
        return np.asarray(np.random.default_rng(seed).random(len(categories)) >= share[categories])
    noise = _diffused_noise(_adjacency(labelled.edge_index, len(categories)), np.random.default_rng([seed, 3]))
    is_target = np.zeros(len(categories), dtype=bool)
    for category in np.unique(categories):
        nodes = np.flatnonzero(categories == category)
        count = round(len(nodes) * (1 - share[category]))
        is_target[nodes[np.argsort(-noise[nodes], kind="stable")[:count]]] = True
    return is_target


def _diffused_noise(adjacency: sp.csr_array, rng: np.random.Generator, hops: int = 3) -> NDArray[np.float64]:
    """Return random values that are similar at neighbours."""
    noise = rng.normal(size=adjacency.shape[0])
    for _ in range(hops):
        noise = (noise + adjacency @ noise) / (1 + adjacency.sum(axis=1))
    return np.asarray(noise)


def _comparable(labelled: Labelled, is_target: Mask, is_novel: Mask) -> Mask:
    """Return the nodes with a year, without the novel ones of the source and without categories that it hardly has."""
    assert labelled.years is not None
    kept = (labelled.years >= FIRST_YEAR) & (is_target | ~is_novel)
    in_source = np.bincount(labelled.categories[kept & ~is_target], minlength=labelled.categories.max() + 1)
    return np.asarray(kept & (is_novel | (in_source[labelled.categories] >= FEWEST)))


def _rare(name: str, labelled: Labelled, is_target: Mask, is_novel: Mask, seed: int) -> Mask:
    """Return the nodes that stay so that 1.5 % of the target are novel.

    Novel nodes drawn one by one would lose their neighbours, and their degree alone would tell them from the others. So
    those stay that are nearest to each other along their own edges. Several sets are made, each around a node drawn at
    random, and the one is taken that changes the AU-ROC of the degree least.
    """
    count = min(int(is_novel.sum()), max(3, round((is_target & ~is_novel).sum() * 0.015 / 0.985)))
    adjacency, rng = _adjacency(labelled.edge_index, len(is_target)), np.random.default_rng([seed, 1])
    before = _auroc_of_degree(adjacency, np.ones_like(is_novel), is_target, is_novel)
    tries: list[tuple[float, Mask]] = []
    for _ in range(TRIES):
        kept = ~is_novel
        kept[_nearest(adjacency, np.flatnonzero(is_novel), count, rng)] = True
        tries.append((abs(_auroc_of_degree(adjacency, kept, is_target, is_novel) - before), kept))
    change, kept = min(tries, key=lambda each: each[0])
    if change > LARGEST_CHANGE:
        raise DatasetError(
            f"{name}-rare: the {count} nodes that stay lose so many neighbours that the degree's AU-ROC changes by "
            f"{change:.2f}; at most {LARGEST_CHANGE} are allowed. Take another case, or a graph with fewer neighbours"
        )
    return kept


def _auroc_of_degree(adjacency: sp.csr_array, kept: Mask, is_target: Mask, is_novel: Mask) -> float:
    """Return how well the number of neighbours alone ranks the target nodes that are kept."""
    from sklearn.metrics import roc_auc_score

    degree, judged = adjacency @ kept, kept & is_target
    return float(roc_auc_score(is_novel[judged], degree[judged]))


def _nearest(adjacency: sp.csr_array, nodes: NDArray[np.int64], count: int, rng: np.random.Generator) -> Any:
    """Return the nodes that walks along the nodes' own edges, with restarts at one drawn at random, visit most often.

    Visits are divided by the degree. Nodes that no walk reaches follow, component by component.
    """
    nodes = rng.permutation(nodes)
    own = adjacency[nodes][:, nodes]
    component = sp.csgraph.connected_components(own, directed=False)[1]
    start = np.zeros(len(nodes))
    start[np.argmax(component == np.bincount(component).argmax())] = 1
    degree, visits = np.maximum(own.sum(axis=1), 1), start
    for _ in range(WALK):
        visits = RESTART * start + (1 - RESTART) * (own @ (visits / degree))
    return nodes[np.lexsort((component, -visits / degree))[:count]]


def _adjacency(edges: NDArray[np.int64], nodes: int) -> sp.csr_array:
    """Return the adjacency matrix, without weights and without loops."""
    ends = edges[:, edges[0] != edges[1]]
    adjacency = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(nodes, nodes))
    adjacency = sp.csr_array(adjacency + adjacency.T)
    adjacency.data[:] = 1
    return adjacency


def _rewired(edges: NDArray[np.int64], nodes: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng([seed, 2])
    ends = np.where(rng.random(edges.shape[1]) < 0.8, rng.integers(0, nodes, edges.shape[1]), edges[1])
    return np.stack([edges[0], ends])
