"""A graph with categories -> the cases of the panel: which category is novel, and how the others are divided.

The paper's datasets have one novel category and one shift each. The panel asks the same question of every graph in
several ways, always the same ones, so that a method is not judged by the case it was tuned to.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.errors import DatasetError
from recoslip.graph import NodeGraph
from recoslip.graph.neighbourhood import reduced_features
from recoslip.graph.split import Mask

CASES: Mapping[str, str] = MappingProxyType(
    {
        "mixed0": "a category is novel; every other has its own source share, between 15 and 85 %",
        "mixed1": "the same with another novel category and other shares",
        "mixed2": "the same with a third",
        "grown": "as mixed0, with shares between 30 and 70 %; one known category has 4 % of its nodes in the source",
        "unshifted": "as mixed0, with half of every known category in the source",
        "rare": "as mixed0, and of the novel nodes only so many that they are 1.5 % of the target",
        "common": "as mixed0, and of the known target nodes only so many that 45 % of the target are novel",
        "faces": "the novel categories of mixed0 and mixed1 at once, with the shares of mixed0",
        "edgeless": "as mixed0, without edges",
        "narrow": "as mixed0, with the first eight singular vectors as features",
        "rewired": "as mixed0, with one end of eight in ten edges drawn at random: edges hardly follow categories",
    }
)
NOTHING = "nothing"  # as mixed0 with other shares, and no category is novel: there is nothing to rank
SEED = 7  # of the domains, unless another is asked for
SMALLEST = 60  # nodes of a category that may be novel
LARGEST = 0.3  # fraction of all nodes of such a category


class Labelled(NamedTuple):
    """A graph whose nodes have categories and no domain."""

    x: Any  # features, dense or sparse
    edge_index: NDArray[np.int64]
    categories: NDArray[np.int64]


class Case(NamedTuple):
    """A graph with domains, and who is novel."""

    graph: NodeGraph
    novel: Mask


def read_labelled(path: Path) -> Labelled:
    """Read a graph from a NumPy archive: features as CSR (data, indices, indptr, shape), edges e and categories y."""
    try:
        with np.load(path, allow_pickle=False) as file:
            x = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
            return Labelled(x.astype(np.float32), file["e"].astype(np.int64), file["y"].astype(np.int64))
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
        case: a key of `CASES`, or `NOTHING`.
        seed: of the domains.
    """
    novel, share = _plan(name, labelled.categories, case)
    is_target = np.random.default_rng(seed).random(len(labelled.categories)) >= share[labelled.categories]
    is_novel = np.isin(labelled.categories, novel)
    edges = np.empty((2, 0), dtype=np.int64) if case == "edgeless" else labelled.edge_index
    if case == "rewired":
        edges = _rewired(edges, len(is_target), seed)
    kept = _kept(case, is_target, is_novel, seed)
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


def supported_cases(name: str, categories: NDArray[np.int64]) -> list[str]:
    """Name the cases that a graph has enough categories for."""
    supported = []
    for case in CASES:
        with contextlib.suppress(DatasetError):
            _plan(name, categories, case)
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
    chosen = novel[:2] if case == "faces" else novel[needed - 1 : needed]
    if case == "grown":
        share = rng.uniform(0.3, 0.7, sizes.size)
        share[next(c for c in large if c != novel[0])] = 0.04
    else:
        share = np.full(sizes.size, 0.5) if case == "unshifted" else mixed[0 if case == "faces" else needed - 1]
    share = share.copy()
    share[chosen] = 0
    return chosen, share


def _kept(case: str, is_target: Mask, is_novel: Mask, seed: int) -> Mask:
    """Return the nodes that a case keeps."""
    kept = np.ones(len(is_target), dtype=bool)
    if case not in ("rare", "common"):
        return kept
    is_known = is_target & ~is_novel
    fewer, others, fraction = (is_novel, is_known, 0.015) if case == "rare" else (is_known, is_novel, 0.55)
    count = min(int(fewer.sum()), max(3, round(others.sum() * fraction / (1 - fraction))))
    dropped = np.random.default_rng([seed, 1]).permutation(np.flatnonzero(fewer))[count:]
    kept[dropped] = False
    return kept


def _rewired(edges: NDArray[np.int64], nodes: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng([seed, 2])
    ends = np.where(rng.random(edges.shape[1]) < 0.8, rng.integers(0, nodes, edges.shape[1]), edges[1])
    return np.stack([edges[0], ends])
