"""Counts in bins of similar nodes -> how many of any nodes are new, and how much known categories would have to grow.

Bins know no domain. If no known category is more than g times as frequent in the target as in the source, each known
node of a bin is target with probability gT / (gT + S) at most, where S and T are the sizes of the domains. So with s
source nodes in it, a bin holds few known target nodes, and the others are new. These bounds hold for all bins at once,
so they hold for any nodes that are chosen afterwards (Durand, Blanchard, Neuvial and Roquain 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recoslip.base.text import at_least, counted, times
from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import Partitions, share_bound
from recoslip.data.split import Mask
from recoslip.inference.hiding import PART, Hiding

MIN_GROWTH = 1.1  # a smaller bound is no evidence
ALLOWED_GROWTH = 3.0  # of known categories, where nothing else is said
MAX_GROWTH = 2.0**10  # that is tried
ERROR = 0.05  # probability that any bin's bound is wrong
FIELDS = 30  # hidden parts by which the spread of counts is measured
OWN = 0  # the view of the nodes' own vectors
VIEWS = ("features", "neighbours", "neighbours of neighbours", "features and neighbours")  # that nodes are alike in


@dataclass(frozen=True)
class Evidence:
    """Source and target nodes in the bin that says most about a group."""

    source: int
    target: int
    least_growth: float  # if they are known, such nodes are this many times as frequent as in the source, or more
    view: int = OWN  # what they are alike in: a place of `VIEWS`

    @property
    def is_convincing(self) -> bool:
        """Whether known nodes would have had to grow to be so many."""
        return self.least_growth >= MIN_GROWTH

    def sentence(self) -> str:
        """Say what follows."""
        are = "is" if self.source == 1 else "are"
        similar = (
            f"Of {counted(self.source + self.target, 'node')} with similar {VIEWS[self.view]}, {self.source:,} {are} "
            "source."
        )
        if not self.is_convincing:
            return f"{similar} These counts do not show that they are novel."
        return (
            f"{similar} If they are known, such nodes are at least {at_least(self.least_growth)} times as frequent as "
            "in the source (95 % bound for all groups of similar nodes at once)."
        )


@dataclass(frozen=True)
class Bound:
    """How many of some nodes are new, whichever nodes were chosen."""

    size: int  # target nodes among them
    new: int  # at least, if no known category grew more than `max_growth` times
    max_growth: float
    holds_up_to: float  # growth of known categories up to which at least one is new; 1: none, even without growth

    @property
    def sentence(self) -> str:
        """Say what follows."""
        these = f"these {counted(self.size, 'target node')}"
        if self.new:
            return (
                f"At least {self.new:,} of {these} are new (95 % confidence), unless a known category is more than "
                f"{times(self.max_growth)} times as frequent as in the source."
            )
        if self.holds_up_to > 1:
            return (
                f"Some of {these} are new (95 % confidence), unless a known category is more than "
                f"{at_least(self.holds_up_to)} times as frequent as in the source."
            )
        return f"Counts of similar nodes do not show that any of {these} are new."


@dataclass(frozen=True, eq=False)
class BinCounts:
    r"""Counts of source and target nodes in all bins, and how many known target nodes they allow.

    Among s source and k known target nodes of a bin, the number of source nodes is at least
    $\mathrm{Bin}(s + k, S / (gT + S))$ distributed, so with probability $1 - \alpha$ k is at most the quantile of the
    negative binomial distribution of s + 1 such source nodes. $\alpha$ is the error divided by the number of bins that
    could say anything if they held target nodes alone (Tarone 1990).

    Where the domains follow the edges, counts spread more: they are divided by the factor by which the counts of hidden
    parts spread more than those of nodes drawn one by one. Neighbours then tell where a node is and not only what it
    is, so that bins of the nodes' own vectors alone count.
    """

    partitions: Partitions
    counts: NDArray[np.int64]  # (bins, 2) source and target nodes
    is_target: Mask  # (nodes,)
    spread: NDArray[np.float64]  # (bins,) variance of counts, against that of nodes drawn one by one
    hiding: Hiding

    @classmethod
    def of(cls, graph: NodeGraph, hiding: Hiding | None = None) -> BinCounts:
        """Count the domains of a graph in its bins."""
        partitions, hiding = Partitions.of(graph), hiding or Hiding()
        counts = partitions.count(graph.is_target)
        spread = np.ones(len(counts))
        if hiding.follows_edges:
            parts = [hiding.part(graph, 0, number) for number in range(FIELDS)]
            spread = _spread(partitions, counts[:, 0], parts)
        return cls(partitions, counts, graph.is_target, spread, hiding)

    @cached_property
    def domains(self) -> tuple[int, int]:
        """The numbers of source and target nodes."""
        source, target = self.counts[self.partitions.parent < 0][0].tolist()
        return source, target

    @cached_property
    def _levels(self) -> dict[bool, tuple[Mask, float]]:
        """The bins that count, and the error of each; for own vectors alone (True), and for all."""
        return {own: self._usable(own) for own in (True, False)}

    def _usable(self, own: bool) -> tuple[Mask, float]:
        partitions, (sources, targets) = self.partitions, self.domains
        candidates = (partitions.parent >= 0) & ((partitions.view == OWN) | (not own))
        size, tests = self.counts.sum(axis=1), int(candidates.sum())
        while True:
            least = self.spread * _most_known(0, 1.0, ERROR / max(1, tests), sources, targets)
            usable = candidates & (size > least)
            if usable.sum() >= tests or not usable.any():
                return usable, ERROR / max(1, int(usable.sum()))
            tests = int(usable.sum())

    def most_known(self, growth: float, *, own: bool | None = None) -> NDArray[np.float64]:
        """Return how many target nodes of each bin may be known if categories grew so many times, (bins,).

        Args:
            growth: of known categories, at most.
            own: whether bins of own vectors alone count; by default, where the domains follow the edges.
        """
        usable, error = self._levels[self.hiding.follows_edges if own is None else own]
        most = np.full(len(self.counts), np.inf)
        source, place = np.unique(self.counts[usable, 0] / self.spread[usable], return_inverse=True)
        most[usable] = self.spread[usable] * _most_known(source, growth, error, *self.domains)[place]
        return most

    def least_new(self, nodes: Mask, growth: float, *, own: bool | None = None) -> int:
        """Return how many of some target nodes are new at least, if known categories grew up to so many times.

        Of disjoint bins the numbers add up; the tree that says most is taken.

        Args:
            nodes: (nodes,) whatever they were chosen by; source nodes do not count.
            growth: of known categories, at most.
            own: as for `most_known`.
        """
        return self._least_new(self._held(nodes), growth, own)

    def _held(self, nodes: Mask) -> NDArray[np.int64]:
        """Count the target nodes among some nodes in every bin, (bins,)."""
        return self.partitions.count(np.where(nodes & self.is_target, 0, -1), groups=1)[:, 0]

    def _least_new(self, held: NDArray[np.int64], growth: float, own: bool | None) -> int:
        alone = np.maximum(0.0, held - self.most_known(growth, own=own))
        inside = np.zeros(len(alone))  # of the bins that a bin is divided into, together
        for level in reversed(self.partitions.levels):
            np.add.at(inside, self.partitions.parent[level], np.maximum(alone[level], inside[level]))
        return int(np.ceil(inside[self.partitions.parent < 0].max(initial=0) - 1e-9))

    def bound(self, nodes: Mask, max_growth: float = ALLOWED_GROWTH) -> Bound:
        """Bound how many of any target nodes are new, (nodes,)."""
        held = self._held(nodes)
        low, high = 1.0, MAX_GROWTH
        for _ in range(12 if self._least_new(held, 1.0, None) else 0):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if self._least_new(held, middle, None) else (low, middle)
        size = int(held[self.partitions.parent < 0].max(initial=0))
        return Bound(size, self._least_new(held, max_growth, None), float(max_growth), low)

    @cached_property
    def least_growth(self) -> NDArray[np.float64]:
        """Lower bound of the growth of known categories that would explain each bin, (bins,)."""
        (usable, error), (sources, targets) = self._levels[self.hiding.follows_edges], self.domains
        source, size = (each / self.spread for each in (self.counts[:, 0], self.counts.sum(axis=1)))
        u = share_bound(source, size, 1 - error)
        return np.asarray(np.where(usable, sources * (1 - u) / np.maximum(targets * u, 1e-300), 0.0))

    def holds_up_to(self, *, own: bool | None = None) -> float:
        """Return the growth of known categories up to which some target node is new; 1 if none is shown to be."""
        usable, _ = self._levels[self.hiding.follows_edges if own is None else own]
        return float(max(1.0, self.least_growth[usable].max(initial=0)))

    def of_each(self) -> NDArray[np.float64]:
        """Return the growth that known nodes would need in the bin that says most about each node, (nodes,)."""
        return np.maximum(1.0, self.partitions.largest(self.least_growth[self._strongest]))

    @cached_property
    def _strongest(self) -> NDArray[np.int64]:
        return self.partitions.strongest(self.least_growth)

    def evidence(self, members: NDArray[np.int64]) -> Evidence:
        """Return the evidence that a set of nodes is new: of the bins with half of them, the one that excludes most."""
        inside = np.zeros(self.partitions.leaf.shape[1], dtype=bool)
        inside[members] = True
        with_half = 2 * self._held(inside) >= len(members)
        return self._of_bins([int(np.argmax(np.where(with_half, self.least_growth, -1.0)))])[0]

    def of_nodes(self, nodes: NDArray[np.int64]) -> list[Evidence]:
        """Return the evidence of the bin of each node that excludes most growth."""
        best = self._strongest[self.partitions.leaf[:, nodes]]
        return self._of_bins(np.take_along_axis(best, self.least_growth[best].argmax(axis=0)[None], axis=0)[0])

    def _of_bins(self, bins: Sequence[int] | NDArray[np.int64]) -> list[Evidence]:
        return [
            Evidence(int(source), int(target), float(growth), int(view))
            for (source, target), growth, view in zip(
                self.counts[bins], self.least_growth[bins], self.partitions.view[bins], strict=True
            )
        ]


def _most_known(
    source: NDArray[np.floating] | float, growth: float, error: float, sources: int, targets: int
) -> NDArray[np.float64]:
    """Return the most known target nodes that a bin with so many source nodes may hold, but for an error.

    >>> float(_most_known(0, 1.0, 0.05, 500, 500))  # none of 5 known nodes is source with probability 1/32
    4.0
    """
    from scipy.stats import nbinom

    if sources == 0 or targets == 0:
        return np.full(np.shape(source), np.inf)
    return np.asarray(nbinom.isf(error, np.asarray(source) + 1.0, sources / (growth * targets + sources)), np.float64)


def _spread(partitions: Partitions, source: NDArray[np.int64], parts: Sequence[Mask]) -> NDArray[np.float64]:
    """Return the variance of the hidden nodes of each bin, against that of nodes drawn one by one: (bins,), 1 or more.

    It is that of all bins of one view with about as many source nodes.
    """
    expected, squares = source * PART, np.zeros(len(source))
    for hidden in parts:
        squares += (partitions.count(np.where(hidden, 0, -1), groups=1)[:, 0] - expected) ** 2
    kind = partitions.view.astype(np.int64) * 64 + np.log2(np.maximum(source, 1)).astype(np.int64)
    inner = partitions.parent >= 0
    total = np.bincount(kind[inner], (squares / len(parts))[inner], minlength=kind.max() + 1)
    by_chance = np.bincount(kind[inner], (expected * (1 - PART))[inner], minlength=kind.max() + 1)
    return np.maximum(1.0, (total / np.maximum(by_chance, 1e-12))[kind])
