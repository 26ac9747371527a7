"""Listed nodes -> groups: Leiden communities, with feature neighbours where edges are few; and a profile of each."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.data.partitions import Partitions
from recoslip.data.split import Mask
from recoslip.inference.evidence import BinCounts, Evidence
from recoslip.inference.traits import FeatureStatistics, Trait
from recoslip.learning.base import Scores

NEAREST = 8  # a node with fewer edges among the listed nodes is also linked to so many with the nearest features
RESOLUTIONS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # tried from the coarsest on
RESAMPLES = 8  # of the stability check
SAMPLE_FRACTION = 0.8  # of the nodes, in each of its samples
MIN_STABILITY = 0.6  # mean adjusted Rand index from which on a partition counts
STABILITY_TOLERANCE = 0.03  # a coarser partition is preferred if it is less stable by no more than this
MIN_EXCESS_STABILITY = 0.1  # by how much the stability must exceed that of nodes without structure
NULL_DRAWS = 4  # random graphs that the latter is measured on
DEPTH = 2  # of the bins of source nodes that groups are compared with: about 16 of them
MAX_TUNING_NODES = 3000  # nodes that the resolution is chosen on
MAX_COMPARED = 50_000  # nodes that each is compared with at most, for the nearest
MIN_GROUP_SIZE = 5


@dataclass(frozen=True)
class Partition:
    """The listed nodes divided into groups."""

    label: NDArray[np.int64]  # (nodes,) from 1; 0: listed, in no group; -1: not listed
    count: int  # of groups
    stability: float  # mean adjusted Rand index with partitions of samples of the nodes, the best that was tried
    has_structure: bool  # whether there is more than one group; if not, all listed nodes are group 1

    def renumbered(self, order: Sequence[int]) -> Partition:
        """Return the same groups with other numbers: the first of `order` becomes 1."""
        number = np.zeros(self.count + 1, dtype=np.int64)
        number[list(order)] = np.arange(1, self.count + 1)
        return replace(self, label=np.where(self.label > 0, number[self.label], self.label))


def find_groups(
    graph: NodeGraph,
    listed: Mask,
    similarity: NDArray[np.float32],
    *,
    seed: int = 0,
) -> Partition:
    """Partition the listed nodes by the Leiden algorithm, at the resolution whose partition is the most stable.

    Modularity divides any large sparse graph, even that of a single category. A real division is found again when some
    of the nodes are left out, so the resolution is chosen by that; if no partition into two or more groups is stable,
    there is no structure. Communities that are more like each other than like any cluster of the source are one group:
    the source shows how unlike two categories are.

    Args:
        graph: the whole graph.
        listed: (nodes,) the nodes to partition.
        similarity: (nodes, width) vectors whose inner products are similarities.
        seed: of the algorithm and the resampling.
    """
    nodes = np.flatnonzero(listed)
    if len(nodes) < 2 * MIN_GROUP_SIZE:
        return single_group(listed)
    rng = np.random.default_rng(seed)
    is_large = len(nodes) > MAX_TUNING_NODES
    tuning = np.sort(rng.choice(nodes, MAX_TUNING_NODES, replace=False)) if is_large else nodes
    neighbours = Neighbours(graph)
    x, edges = similarity[tuning], neighbours.subgraph(tuning)
    weights = _affinity(edges, x)
    tried: list[tuple[float, float]] = []  # stability, resolution
    for resolution in RESOLUTIONS:
        membership = _leiden(weights, resolution, seed)
        if _is_divided(membership):
            tried.append((_stability(weights, membership, resolution, seed), resolution))
    best = max((stability for stability, _ in tried), default=0.0)
    if best < MIN_STABILITY:
        return single_group(listed, best)
    stability, resolution = next(each for each in tried if each[0] >= best - STABILITY_TOLERANCE)
    if stability < _null_stability(edges, x, resolution, seed) + MIN_EXCESS_STABILITY:
        return single_group(listed, best)
    if is_large:
        weights = _affinity(neighbours.subgraph(nodes), similarity[nodes])
    membership = _leiden(weights, resolution, seed)
    membership = merge_alike_communities(membership, similarity[nodes], _source_means(graph, similarity))
    if not _is_divided(membership):
        return single_group(listed, stability)
    sizes = np.bincount(membership)
    large = np.flatnonzero(sizes >= MIN_GROUP_SIZE)
    number = np.zeros(len(sizes), dtype=np.int64)  # of the group that each community is
    number[large[np.argsort(-sizes[large], kind="stable")]] = np.arange(1, len(large) + 1)
    label = np.full(len(listed), -1, dtype=np.int64)
    label[nodes] = number[membership]
    return Partition(label, len(large), stability, has_structure=True)


def single_group(listed: Mask, stability: float = 0.0) -> Partition:
    """Take all listed nodes for one group."""
    return Partition(np.where(listed, 1, -1), int(listed.any()), stability, has_structure=False)


def merge_alike_communities(
    membership: NDArray[np.int64], similarity: NDArray[np.floating], references: NDArray[np.floating]
) -> NDArray[np.int64]:
    """Merge communities that are more like each other than like any reference, those with the widest gap first.

    Args:
        membership: (nodes,) the community of each node.
        similarity: (nodes, width) vectors whose inner products are similarities.
        references: (references, width) means of such vectors over other sets of nodes.

    >>> similarity = np.array([[1, 0.1], [1, 0.2], [0.2, 1]])
    >>> merge_alike_communities(np.array([0, 1, 2]), similarity, np.array([[0.7, 0.7]])).tolist()
    [0, 0, 2]
    """
    merged = membership.copy()
    sizes = np.bincount(merged).astype(float)
    means = np.stack(
        [similarity[merged == k].mean(axis=0) if size else 0 * references[0] for k, size in enumerate(sizes)]
    )
    known = (means @ references.T).max(axis=1)  # likeness to the nearest reference
    alike = means @ means.T
    np.fill_diagonal(alike, -np.inf)
    alike[sizes == 0] = alike[:, sizes == 0] = -np.inf
    while True:
        gap = alike - np.maximum(known, known[:, None])
        keep, drop = sorted(np.unravel_index(gap.argmax(), gap.shape))
        if not gap[keep, drop] > 0:
            return merged
        merged[merged == drop] = keep
        means[keep] = (sizes[keep] * means[keep] + sizes[drop] * means[drop]) / (sizes[keep] + sizes[drop])
        sizes[keep] += sizes[drop]
        known[keep] = (references @ means[keep]).max()
        left = np.isfinite(alike[keep])
        alike[keep] = alike[:, keep] = np.where(left, means @ means[keep], -np.inf)
        alike[drop] = alike[:, drop] = -np.inf


def _source_means(graph: NodeGraph, similarity: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the mean of the source nodes in each coarse bin."""
    source = np.flatnonzero(~graph.is_target)
    label = Partitions.of(graph).at_depth(DEPTH)[source]
    return np.stack([similarity[source[label == k]].mean(axis=0) for k in np.unique(label)])


def _is_divided(membership: NDArray[np.int64]) -> bool:
    """Whether two communities or more are large enough to be groups."""
    return bool((np.bincount(membership) >= MIN_GROUP_SIZE).sum() > 1)


def _stability(weights: sp.csr_array, membership: NDArray[np.int64], resolution: float, seed: int) -> float:
    """Mean adjusted Rand index between a partition and those of samples of the nodes."""
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(seed)
    agreement = []
    for k in range(RESAMPLES):
        sample = np.sort(rng.choice(len(membership), int(SAMPLE_FRACTION * len(membership)), replace=False))
        found = _leiden(weights[sample][:, sample], resolution, seed + 1 + k)
        agreement.append(adjusted_rand_score(membership[sample], found))
    return float(np.mean(agreement))


def _null_stability(edges: sp.csr_array, x: NDArray[np.floating], resolution: float, seed: int) -> float:
    """Stability without structure: of as many nodes in one Gaussian cloud of the same shape, their edges rewired."""
    rng = np.random.default_rng(seed)
    stabilities = []
    for _ in range(NULL_DRAWS):
        cloud = rng.multivariate_normal(x.mean(axis=0), np.atleast_2d(np.cov(x.T)), len(x), method="svd")
        weights = _affinity(_rewired(edges, rng), cloud)
        membership = _leiden(weights, resolution, seed)
        divided = _is_divided(membership)
        stabilities.append(_stability(weights, membership, resolution, seed) if divided else 0.0)
    return max(stabilities)


def _rewired(edges: sp.csr_array, rng: np.random.Generator) -> sp.csr_array:
    """Join the ends of all edges at random, so that nodes keep their degrees but for loops and repeated edges."""
    upper = sp.triu(edges, k=1).tocoo()
    ends = rng.permutation(np.concatenate([upper.row, upper.col])).reshape(2, -1)
    ends = ends[:, ends[0] != ends[1]]
    one_way = sp.coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=edges.shape).tocsr()
    both = sp.csr_array(one_way + one_way.T)
    both.data[:] = 1
    return both


def _affinity(edges: sp.csr_array, x: NDArray[np.floating]) -> sp.csr_array:
    """Weights between nodes: 1 for an edge, plus up to 1 for the nearest features where a node lacks edges."""
    lacking = np.clip(1 - np.diff(edges.indptr) / NEAREST, 0, 1)
    rows = np.flatnonzero(lacking)
    if len(x) < 2 or not len(rows):
        return edges
    nearest = _nearest(x, rows, min(NEAREST, len(x) - 1))
    ends = np.repeat(rows, nearest.shape[1]), nearest.ravel()
    similar = sp.csr_array((np.repeat(lacking[rows], nearest.shape[1]), ends), shape=edges.shape)
    return sp.csr_array(edges + similar.maximum(similar.T))


def _nearest(x: NDArray[np.floating], rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the other nodes with the nearest features, of some nodes: (rows, count).

    Of very many nodes, they are looked for among every k-th.
    """
    from sklearn.neighbors import NearestNeighbors

    others = np.arange(0, len(x), -(-len(x) // MAX_COMPARED))
    found = NearestNeighbors(n_neighbors=min(count + 1, len(others))).fit(x[others])
    near = others[found.kneighbors(x[rows], return_distance=False)]
    own = near == rows[:, None]
    own[~own.any(axis=1), -1] = (
        True  # a node that is not among its nearest, for others have the same features, or are fewer
    )
    return np.asarray(near[~own].reshape(len(rows), -1))


def _leiden(weights: sp.csr_array, resolution: float, seed: int) -> NDArray[np.int64]:
    """Return the community of each node."""
    from sknetwork.clustering import Leiden

    if not weights.nnz:
        return np.arange(weights.shape[0])
    # The library also draws by C's rand(), whose state is the process's: unseeded, groups depend on what ran before.
    ctypes.CDLL("ucrtbase" if os.name == "nt" else None).srand(ctypes.c_uint(seed))
    # The algorithm runs over the nodes in their order, unless it shuffles them.
    leiden = Leiden(resolution, shuffle_nodes=True, random_state=seed)
    return np.asarray(leiden.fit_predict(sp.csr_matrix(weights)), dtype=np.int64)


MAX_EXEMPLARS = 12
INSPECT_FIRST = 10  # nodes to look at first
REFERENCES = 50  # source nodes that a group is compared with
TRAITS = 6  # of a group


@dataclass(frozen=True)
class Group:
    """A group of listed nodes."""

    number: int  # its label in the partition
    size: int
    name: str | None  # the features that it has more of than the source, where features have names
    exemplars: tuple[int, ...]  # nodes, the highest scores first
    traits: tuple[Trait, ...]  # against the source nodes most like it
    references: int  # how many those are
    internal_edges: int
    edges_to_listed: int  # to listed nodes outside the group
    edges_to_target: int  # to target nodes that are not listed
    edges_to_source: int
    evidence: Evidence | None  # that it is new; None for a few nodes, and where no more are listed than by chance

    def to_dict(self) -> dict[str, Any]:
        """Return what is said of it in every place, as JSON values."""
        evidence = None if self.evidence is None else self.evidence.sentence()
        return {"number": self.number, "size": self.size, "name": self.name, "evidence": evidence}


def profile_groups(
    graph: NodeGraph,
    scores: Scores,
    listed: Mask,
    partition: Partition,
    similarity: NDArray[np.float32],
    features: FeatureStatistics,
    bins: BinCounts | None,
) -> tuple[Group, ...]:
    """Describe each group of a partition of the listed nodes, those with the most evidence of being new first.

    Without counts in bins no evidence is given: nodes that are listed by chance lie where, by chance, no source node is.
    """
    neighbours = Neighbours(graph)
    is_target, label = graph.is_target, partition.label
    groups = []
    for number in range(1, partition.count + 1):
        members = np.flatnonzero(label == number)
        _, far_ends = neighbours.of(members)  # internal edges occur twice
        nearest = nearest_to_group(similarity, members, is_target)
        by_score = members[np.argsort(-scores[members], kind="stable")]
        groups.append(
            Group(
                number=number,
                size=len(members),
                name=features.name(members),
                exemplars=tuple(by_score[:MAX_EXEMPLARS].tolist()),
                traits=tuple(features.traits(members.tolist(), nearest.tolist(), TRAITS)),
                references=len(nearest),
                internal_edges=int((label[far_ends] == number).sum()) // 2,
                edges_to_listed=int((listed[far_ends] & (label[far_ends] != number)).sum()),
                edges_to_target=int((is_target[far_ends] & ~listed[far_ends]).sum()),
                edges_to_source=int((~is_target[far_ends]).sum()),
                evidence=bins.evidence(members) if bins and len(members) >= MIN_GROUP_SIZE else None,
            )
        )
    return tuple(sorted(groups, key=lambda group: -(group.evidence.least_growth if group.evidence else 0.0)))


def nearest_to_group(
    similarity: NDArray[np.float32], members: NDArray[np.int64], is_target: Mask, count: int = REFERENCES
) -> NDArray[np.int64]:
    """Return the source nodes that are most like the members of a group, on average."""
    source = np.flatnonzero(~is_target)
    alike = similarity[source] @ similarity[members].mean(axis=0)
    return source[np.argsort(-alike, kind="stable")[:count]]


def inspect_first(groups: Sequence[Group], count: int = INSPECT_FIRST) -> tuple[int, ...]:
    """Choose a few nodes across groups: the highest of each group in turn, groups with the most evidence first.

    Groups of which nothing says that they are new are left out.
    """
    convincing = [group.exemplars for group in groups if group.evidence and group.evidence.is_convincing]
    return tuple(node for nodes in zip_longest(*convincing) for node in nodes if node is not None)[:count]
