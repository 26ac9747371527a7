"""Listed nodes -> groups: those that many trees hold in one bin; and a profile of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.data.graph import NodeGraph
from recoslip.data.ids import id_hashes
from recoslip.data.neighbours import Neighbours
from recoslip.data.partitions import Partitions
from recoslip.data.split import Mask
from recoslip.inference.diagnosis import DEPTH
from recoslip.inference.evidence import BinCounts, Evidence
from recoslip.inference.traits import FeatureStatistics, Trait
from recoslip.learning.base import Scores

LARGEST_BIN = 0.5  # of the bins that are looked at: nodes, against those that are listed,
LEAST_BIN = 0.03  # or against all nodes: a short list may hold a part of a category alone
MIN_SHARED = 0.05  # fraction of the trees that hold two nodes of one group in one bin, on average
MAX_COMPARED = 2000  # nodes that are compared with each other; the others join the group that they share most bins with
MIN_GROUP_SIZE = 5


@dataclass(frozen=True)
class Grouping:
    """The listed nodes divided into groups."""

    label: NDArray[np.int64]  # (nodes,) from 1; 0: listed, in no group; -1: not listed
    count: int  # of groups

    @property
    def has_structure(self) -> bool:
        """Whether there is more than one group; if not, all listed nodes are group 1."""
        return self.count > 1

    def renumbered(self, order: Sequence[int]) -> Grouping:
        """Return the same groups with other numbers: the first of `order` becomes 1."""
        number = np.zeros(self.count + 1, dtype=np.int64)
        number[list(order)] = np.arange(1, self.count + 1)
        return replace(self, label=np.where(self.label > 0, number[self.label], self.label))


def find_groups(graph: NodeGraph, listed: Mask) -> Grouping:
    """Divide the listed nodes by how many trees hold two of them in one bin: average linkage, the largest group first.

    Bins that hold more nodes than a category may have would join categories, and much smaller ones would divide one.
    """
    nodes = np.flatnonzero(listed)
    nodes = nodes[np.argsort(id_hashes(graph.ids)[nodes], kind="stable")]  # the order of rows does not matter
    if len(nodes) < 2 * MIN_GROUP_SIZE:
        return single_group(listed)
    largest = max(LARGEST_BIN * len(nodes), LEAST_BIN * graph.num_nodes)
    bins = Partitions.of(graph).at_size(largest)[:, nodes]
    membership = _linked(_incidence(bins))
    sizes = np.bincount(membership)
    large = np.flatnonzero(sizes >= MIN_GROUP_SIZE)
    if len(large) < 2:
        return single_group(listed)
    number = np.zeros(len(sizes), dtype=np.int64)  # of each group
    number[large[np.argsort(-sizes[large], kind="stable")]] = np.arange(1, len(large) + 1)
    label = np.full(len(listed), -1, dtype=np.int64)
    label[nodes] = number[membership]
    return Grouping(label, len(large))


def single_group(listed: Mask) -> Grouping:
    """Take all listed nodes for one group."""
    return Grouping(np.where(listed, 1, -1), int(listed.any()))


def _incidence(bins: NDArray[np.integer]) -> sp.csr_array:
    """Return which bins hold each node, (nodes, bins); a product of two rows is the fraction of trees with one bin."""
    trees, nodes = bins.shape
    held, place = np.unique(bins.T.ravel(), return_inverse=True)
    value = np.full(trees * nodes, trees**-0.5, np.float32)
    return sp.csr_array((value, place, np.arange(0, trees * nodes + 1, trees)), shape=(nodes, len(held)))


def _linked(held: sp.csr_array) -> NDArray[np.int64]:
    """Return the group of each node, by average linkage of the first ones."""
    from scipy.cluster.hierarchy import average, fcluster
    from scipy.spatial.distance import squareform

    first, others = held[:MAX_COMPARED], held[MAX_COMPARED:]
    distance = np.maximum(0, 1 - (first @ first.T).toarray())
    joined = average(squareform(distance, checks=False))
    group: NDArray[np.int64] = fcluster(joined, 1 - MIN_SHARED, "distance").astype(np.int64) - 1
    if not others.shape[0]:
        return group
    members = sp.csr_array((np.ones(len(group), np.float32), (group, np.arange(len(group)))))
    shared = (others @ (members @ first).T).toarray() / np.bincount(group)
    return np.concatenate([group, shared.argmax(axis=1)])


MAX_EXEMPLARS = 12
INSPECT_FIRST = 10  # nodes to look at first
REFERENCES = 50  # source nodes that a group is compared with
NEAREST = 15  # of these, which say what it is most like
TRAITS = 6  # of a group
TYPICAL = 3  # members that stand for a group, and source nodes that are most like it


@dataclass(frozen=True)
class Group:
    """A group of listed nodes."""

    number: int  # its label in the partition
    size: int
    name: str | None  # the features that it has more of than the source, where features have names
    exemplars: tuple[int, ...]  # nodes, the highest scores first
    typical: tuple[int, ...]  # nodes, those that are most like all others first
    nearest_bin: int  # the coarse bin that holds most of the source nodes that are most like it
    nearest: tuple[int, ...]  # source nodes of that bin, those that are most like the group first
    traits: tuple[Trait, ...]  # against the source nodes most like it
    references: int  # how many those are
    internal_edges: int
    edges_to_listed: int  # to listed nodes outside the group
    edges_to_target: int  # to target nodes that are not listed
    edges_to_source: int
    evidence: Evidence | None  # that it is new; None for a few nodes, and where no more are listed than by chance

    def to_dict(self) -> dict[str, Any]:
        """Return what is said of it in every place, as JSON values."""
        evidence = None if self.evidence is None else self.evidence.sentence(of_group=True)
        return {"number": self.number, "size": self.size, "name": self.name, "evidence": evidence}


def profile_groups(
    graph: NodeGraph,
    scores: Scores,
    listed: Mask,
    partition: Grouping,
    similarity: NDArray[np.float32],
    features: FeatureStatistics,
    bins: BinCounts | None,
) -> tuple[Group, ...]:
    """Describe each group of a partition of the listed nodes, those with the most evidence of being new first.

    Without counts in bins there is no evidence: nodes that are listed by chance lie where no source node is, by chance.
    """
    neighbours, coarse = Neighbours(graph), Partitions.of(graph).at_depth(DEPTH)
    is_target, label = graph.is_target, partition.label
    groups = []
    for number in range(1, partition.count + 1):
        members = np.flatnonzero(label == number)
        _, far_ends = neighbours.of(members)  # internal edges occur twice
        references = most_like(similarity, members, np.flatnonzero(~is_target), REFERENCES)
        own = coarse[references[:NEAREST]]
        nearest_bin = int(np.bincount(own).argmax()) if len(own) else -1
        nearest = references[:NEAREST][own == nearest_bin]
        others = np.flatnonzero(listed & (label != number))
        by_score = members[np.argsort(-scores[members], kind="stable")]
        groups.append(
            Group(
                number=number,
                size=len(members),
                name=features.name(members),
                exemplars=tuple(by_score[:MAX_EXEMPLARS].tolist()),
                typical=tuple(most_like(similarity, members, members, TYPICAL).tolist()),
                nearest=tuple(nearest[:TYPICAL].tolist()),
                nearest_bin=nearest_bin,
                traits=tuple(features.traits(members.tolist(), references.tolist(), TRAITS)),
                references=len(references),
                internal_edges=int((label[far_ends] == number).sum()) // 2,
                edges_to_listed=int((listed[far_ends] & (label[far_ends] != number)).sum()),
                edges_to_target=int((is_target[far_ends] & ~listed[far_ends]).sum()),
                edges_to_source=int((~is_target[far_ends]).sum()),
                evidence=bins.evidence(members, others) if bins and len(members) >= MIN_GROUP_SIZE else None,
            )
        )
    return tuple(sorted(groups, key=lambda group: -(group.evidence.least_growth if group.evidence else 0.0)))


def most_like(
    similarity: NDArray[np.float32], members: NDArray[np.int64], among: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return those of some nodes that are most like the members of a group, on average."""
    with np.errstate(invalid="ignore"):  # which products of finite numbers may raise after another library's
        alike = similarity[among] @ similarity[members].mean(axis=0)
    return among[np.argsort(-alike, kind="stable")[:count]]


def inspect_first(groups: Sequence[Group], count: int = INSPECT_FIRST, *, every: bool = False) -> tuple[int, ...]:
    """Choose a few nodes across groups: the highest of each group in turn, groups with the most evidence first.

    Groups of which nothing says that they are new are left out, unless `every` group is wanted.
    """
    convincing = [group.exemplars for group in groups if every or (group.evidence and group.evidence.is_convincing)]
    return tuple(node for nodes in zip_longest(*convincing) for node in nodes if node is not None)[:count]
