"""Groups of listed nodes -> what a reader wants to know of each: exemplars, features that set it apart, edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recoslip.detectors.base import Scores
from recoslip.findings.explanations import FeatureStatistics, Trait
from recoslip.findings.groups import Partition
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import Neighbours
from recoslip.shift import Mask

MAX_EXEMPLARS = 12


@dataclass(frozen=True)
class Group:
    """A group of listed nodes."""

    number: int  # its label in the partition
    size: int
    exemplars: tuple[int, ...]  # nodes, the highest scores first
    traits: tuple[Trait, ...]  # against the source
    internal_edges: int
    edges_to_listed: int  # to listed nodes outside the group
    edges_to_target: int  # to target nodes that are not listed
    edges_to_source: int


def profile_groups(graph: NodeGraph, scores: Scores, listed: Mask, partition: Partition) -> tuple[Group, ...]:
    """Describe each group of a partition of the listed nodes."""
    features, neighbours = FeatureStatistics(graph), Neighbours(graph)
    is_target, label = graph.is_target.numpy(), partition.label
    groups = []
    for number in range(1, partition.count + 1):
        members = np.flatnonzero(label == number)
        _, far_ends = neighbours.of(members)  # internal edges occur twice
        by_score = members[np.argsort(-scores[members], kind="stable")]
        groups.append(
            Group(
                number=number,
                size=len(members),
                exemplars=tuple(by_score[:MAX_EXEMPLARS].tolist()),
                traits=tuple(features.traits(members.tolist())),
                internal_edges=int((label[far_ends] == number).sum()) // 2,
                edges_to_listed=int((listed[far_ends] & (label[far_ends] != number)).sum()),
                edges_to_target=int((is_target[far_ends] & ~listed[far_ends]).sum()),
                edges_to_source=int((~is_target[far_ends]).sum()),
            )
        )
    return tuple(groups)
