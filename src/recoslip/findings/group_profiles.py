"""Groups of listed nodes -> what a reader wants to know of each: exemplars, features that set it apart, edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recoslip.detectors.base import Scores
from recoslip.findings.evidence import BinCounts, Evidence
from recoslip.findings.explanations import FeatureStatistics, Trait
from recoslip.findings.groups import MIN_GROUP_SIZE, Partition
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import Neighbours
from recoslip.graph.split import Mask

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
    *,
    with_evidence: bool,
) -> tuple[Group, ...]:
    """Describe each group of a partition of the listed nodes, those with the most evidence of being new first.

    Nodes that are listed by chance lie where, by chance, no source node is; of these no evidence is given.
    """
    neighbours, bins = Neighbours(graph), BinCounts.of(graph)
    is_target, label = graph.is_target.numpy(), partition.label
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
                evidence=bins.evidence(members) if with_evidence and len(members) >= MIN_GROUP_SIZE else None,
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
