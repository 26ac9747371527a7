"""A group of target nodes -> how far it is from being a known category: source and target nodes where it lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recoslip.findings.growth import least_growth
from recoslip.graph.split import Mask
from recoslip.wording import at_least, counted

NEAREST = 5  # members of the group that a node must have near it, to lie where the group lies
MAX_MEMBERS = 1000  # of the group that nodes are compared with
BLOCK = 2048  # nodes compared at a time
MIN_GROWTH = 1.1  # a smaller bound is no evidence
TIE = 1e-6  # similarities that differ by less are equal


@dataclass(frozen=True)
class Evidence:
    """Source and target nodes where a group lies, and what follows from them."""

    source: int
    target: int
    least_growth: float  # if they are known, such nodes are this many times as frequent as in the source, or more

    @property
    def is_convincing(self) -> bool:
        """Whether known nodes would have had to grow to be so many."""
        return self.least_growth >= MIN_GROWTH

    def sentence(self) -> str:
        """Say what follows."""
        similar = f"{counted(self.source, 'source node')} and {self.target:,} target nodes are similar to this group."
        if not self.is_convincing:
            return f"{similar} These counts do not show that it is novel."
        return (
            f"{similar} If it is known, such nodes are at least {at_least(self.least_growth)} times as frequent as in "
            "the source (95 % bound, not corrected for the selection of the group)."
        )


def group_evidence(similarity: NDArray[np.float32], members: NDArray[np.int64], is_target: Mask) -> Evidence:
    """Count the nodes that have as many members of a group near them as its typical member has.

    Near is what the fifth nearest member is to a member, in the median. If the group is known, the source nodes there
    are a sample of the same categories, and their number bounds how much these must have grown.

    Args:
        similarity: (nodes, width) vectors whose inner products are similarities.
        members: the target nodes of the group, two or more.
        is_target: (nodes,).

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal([[1.0, 0.0]] * 60 + [[0.0, 1.0]] * 40, 0.05).astype(np.float32)
    >>> is_target = np.arange(100) >= 50
    >>> evidence = group_evidence(x / np.linalg.norm(x, axis=1, keepdims=True), np.arange(60, 100), is_target)
    >>> evidence.source, evidence.least_growth > 1
    (0, True)
    """
    compared = members[:: -(-len(members) // MAX_MEMBERS)]
    nearest = min(NEAREST, len(compared) - 1)
    among = similarity[compared] @ similarity[compared].T
    np.fill_diagonal(among, -np.inf)
    near = float(np.median(np.partition(among, -nearest, axis=1)[:, -nearest])) - TIE
    own = np.full(len(similarity), -1)
    own[compared] = np.arange(len(compared))
    inside = np.zeros(len(similarity), dtype=bool)
    for begin in range(0, len(similarity), BLOCK):
        rows = slice(begin, begin + BLOCK)
        alike = similarity[rows] @ similarity[compared].T >= near
        is_member = np.flatnonzero(own[rows] >= 0)
        alike[is_member, own[rows][is_member]] = False
        inside[rows] = alike.sum(axis=1) >= nearest
    source, target = int((inside & ~is_target).sum()), int((inside & is_target).sum())
    return Evidence(source, target, least_growth(source, target, int((~is_target).sum()), int(is_target.sum())))
