"""Bins of similar nodes -> how much a known category would have to have grown to explain a group of listed nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recoslip.base.text import at_least, counted
from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import Partitions, share_bound

MIN_GROWTH = 1.1  # a smaller bound is no evidence
ERROR = 0.05  # probability that any bin's bound is wrong


@dataclass(frozen=True)
class Evidence:
    """Source and target nodes in the bin that says most about a group."""

    source: int
    target: int
    least_growth: float  # if they are known, such nodes are this many times as frequent as in the source, or more

    @property
    def is_convincing(self) -> bool:
        """Whether known nodes would have had to grow to be so many."""
        return self.least_growth >= MIN_GROWTH

    def sentence(self) -> str:
        """Say what follows."""
        are = "is" if self.source == 1 else "are"
        similar = f"Of {counted(self.source + self.target, 'node')} like these, {self.source:,} {are} source."
        if not self.is_convincing:
            return f"{similar} These counts do not show that they are novel."
        return (
            f"{similar} If they are known, such nodes are at least {at_least(self.least_growth)} times as frequent as "
            "in the source (95 % bound for all groups of similar nodes at once, assuming that a node's domain does not "
            "depend on its neighbours')."
        )


@dataclass(frozen=True, eq=False)
class BinCounts:
    r"""Counts of source and target nodes in all bins, and what growth of known categories they exclude.

    A known category that is g times as frequent in the target as in the source has a source share of $S / (S + g T)$,
    where S and T are the sizes of the domains. In every bin the share is at most its exact upper bound u, all bins at
    once (Bonferroni), so that $g \ge S (1 - u) / (T u)$.
    """

    partitions: Partitions
    counts: NDArray[np.int64]  # (bins, 2) source and target nodes

    @classmethod
    def of(cls, graph: NodeGraph) -> BinCounts:
        """Count the domains of a graph in its bins."""
        partitions = Partitions.of(graph)
        return cls(partitions, partitions.count(graph.is_target))

    @cached_property
    def least_growth(self) -> NDArray[np.float64]:
        """Lower bound of the growth of known categories that would explain each bin, (bins,)."""
        sources, targets = self.counts[self.partitions.parent < 0][0]
        u = share_bound(self.counts[:, 0], self.counts.sum(axis=1), 1 - ERROR / len(self.counts))
        return np.asarray(sources * (1 - u) / np.maximum(targets * u, 1e-300))

    def evidence(self, members: NDArray[np.int64]) -> Evidence:
        """Return the evidence that a set of nodes is new: of the bins with half of them, the one that excludes most."""
        inside = np.zeros(self.partitions.leaf.shape[1], dtype=bool)
        inside[members] = True
        with_half = 2 * self.partitions.count(inside)[:, 1] >= len(members)
        chosen = int(np.argmax(np.where(with_half, self.least_growth, -1.0)))
        source, target = self.counts[chosen]
        return Evidence(int(source), int(target), float(self.least_growth[chosen]))

    def of_nodes(self, nodes: NDArray[np.int64]) -> list[Evidence]:
        """Return the evidence of the bin of each node that excludes most growth."""
        best = self.partitions.strongest(self.least_growth)[self.partitions.leaf[:, nodes]]
        chosen = np.take_along_axis(best, self.least_growth[best].argmax(axis=0)[None], axis=0)[0]
        return [
            Evidence(int(source), int(target), float(growth))
            for (source, target), growth in zip(self.counts[chosen], self.least_growth[chosen], strict=True)
        ]
