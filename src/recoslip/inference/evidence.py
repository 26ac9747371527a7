"""Counts in bins of similar nodes -> how many of any nodes are new, and how much known categories would have to grow.

Bins know no domain. If no known category is more than g times as frequent in the target as in the source, each known
node of a bin is target with probability gT / (gT + S) at most, where S and T are the sizes of the domains. So with s
source nodes in it, a bin holds few known target nodes, and the others are new. These bounds hold for all bins at once,
so they hold for any nodes that are chosen afterwards (Durand, Blanchard, Neuvial and Roquain 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recoslip.base.text import PLAIN, Terms, at_least
from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import Partitions, share_bound
from recoslip.data.split import Mask
from recoslip.data.vectors import FEATURES
from recoslip.inference.hiding import Hiding

MIN_GROWTH = 1.1  # a smaller bound is no evidence
ALLOWED_GROWTH = 3.0  # of known categories, where nothing else is said
HIGHEST_GROWTH = 2.0**10  # that is tried
ERROR = 0.05  # probability that any bin's bound is wrong
PLACEBOS = 20  # parts of the source that are taken for target


@dataclass(frozen=True)
class Evidence:
    """Source and target nodes in the bin that says most about a group."""

    source: int
    target: int
    least_growth: float  # if they are known, such nodes are this many times as frequent as in the source, or more
    alike_in: str = FEATURES
    terms: Terms = field(default=PLAIN, repr=False)
    follows_edges: bool = False  # whether the domains do: then the bound has no confidence level

    @property
    def level(self) -> str:
        """The confidence, in brackets."""
        return "" if self.follows_edges else " (95 % confidence for all groups at once)"

    @property
    def is_convincing(self) -> bool:
        """Whether known nodes would have had to grow to be so many."""
        return self.least_growth >= MIN_GROWTH

    def sentence(self, *, of_group: bool = False) -> str:
        """Say what follows for a node that lies in the bin, or for a group of which at least half does."""
        are, terms = "is" if self.source == 1 else "are", self.terms
        similar = (
            f"Of {terms.nodes(self.source + self.target)} with similar {self.alike_in}"
            f"{', among them at least half of the group,' if of_group else ','} {self.source:,} {are} from "
            f"{terms.the_source}."
        )
        if not self.is_convincing:
            return f"{similar} These counts do not show that they are novel."
        return (
            f"{similar} If they are known, such {terms.noun} are at least {at_least(self.least_growth)} times as "
            f"frequent as {terms.in_source}{self.level}."
        )


@dataclass(frozen=True)
class Bound:
    """How many of some nodes are new, whichever nodes were chosen."""

    size: int  # target nodes among them
    new: int  # at least, if no known category grew more than `max_growth` times
    max_growth: float
    holds_up_to: float  # growth of known categories up to which at least one is new; 1: none, even without growth
    terms: Terms = field(default=PLAIN, repr=False)
    follows_edges: bool = False  # whether the domains do: then the bound has no confidence level

    @property
    def sentence(self) -> str:
        """Say what follows."""
        level, these = _level(self.follows_edges), f"these {self.terms.targets(self.size)}"
        if self.new:
            return some_are_new(f"{self.new:,}", these, self.max_growth, self.follows_edges, self.terms)
        if self.holds_up_to > 1:
            return (
                f"Some of {these} are new ({level}), unless a known category is more than "
                f"{at_least(self.holds_up_to)} times as frequent as {self.terms.in_source}."
            )
        return f"Counts of similar {self.terms.noun} do not show that any of {these} are new."


class TellingTree(NamedTuple):
    """The bins of a tree that hold more target nodes than may be known; a bin comes before those inside it."""

    around: NDArray[np.int64]  # (bins,) the place of the smallest such bin around each; -1 for none
    most_known: NDArray[np.int64]  # (bins,)
    nodes: NDArray[np.int64]  # target nodes in these bins
    inside: NDArray[np.int64]  # the place of the smallest such bin around each node


def some_are_new(new: str, these: str, max_growth: float, follows_edges: bool, terms: Terms) -> str:
    """Say how many of some nodes are new; both are given in words."""
    return (
        f"At least {new} of {these} are new ({_level(follows_edges)}), unless a known category is more than "
        f"{at_least(max_growth)} times as frequent as {terms.in_source}."
    )


def _level(follows_edges: bool) -> str:
    return "no confidence level, as the domains follow the edges" if follows_edges else "95 % confidence"


@dataclass(frozen=True, eq=False)
class BinCounts:
    r"""Counts of source and target nodes in all bins, and how many known target nodes they allow.

    Among s source and k known target nodes of a bin, the number of source nodes is at least
    $\mathrm{Bin}(s + k, S / (gT + S))$ distributed, so with probability $1 - \alpha$ k is at most the quantile of the
    negative binomial distribution of s + 1 such source nodes. $\alpha$ is the error divided by the number of bins that
    could say anything if they held target nodes alone (Tarone 1990).

    Where the domains follow the edges, neighbours tell where a node is and not only what it is, so that bins of the
    nodes' own vectors alone count. They follow the domains, too, if less. So known categories are allowed to grow as
    much as they seem to in placebos: parts of the source that follow the edges as much as the target does, taken for
    target. The target is no such part itself, so this has no confidence level.
    """

    partitions: Partitions
    counts: NDArray[np.int64]  # (bins, 2) source and target nodes
    is_target: Mask  # (nodes,)
    follows_edges: bool  # whether the domains do
    allowed: float  # growth of known categories, or what looks like it, that a verdict allows for
    terms: Terms = field(default=PLAIN, repr=False)

    @classmethod
    def of(cls, graph: NodeGraph, hiding: Hiding | None = None) -> BinCounts:
        """Count the domains of a graph in its bins."""
        partitions, is_target = Partitions.of(graph), graph.is_target
        if hiding is None or not hiding.follows_edges:
            return cls(partitions, partitions.count(is_target), is_target, False, ALLOWED_GROWTH, graph.terms)
        partitions = partitions.where(partitions.is_own)
        result = cls(partitions, partitions.count(is_target), is_target, True, ALLOWED_GROWTH, graph.terms)
        reached = [result._placebo(hiding.part(graph, 0, k, is_target.mean())) for k in range(PLACEBOS)]
        return replace(result, allowed=max(ALLOWED_GROWTH, *reached))

    def _placebo(self, hidden: Mask) -> float:
        """Return the growth that a part of the source would seem to need if it were the target."""
        counts = self.partitions.count(np.where(self.is_target, -1, hidden))
        return replace(self, counts=counts, is_target=hidden).holds_up_to

    def of_own_vectors(self) -> BinCounts:
        """Return the counts in bins of the nodes' own vectors alone."""
        kept = self.partitions.is_own
        return replace(self, partitions=self.partitions.where(kept), counts=self.counts[kept])

    @cached_property
    def own_hold_up_to(self) -> float:
        """The growth up to which bins of the nodes' own vectors alone show that some target node is new."""
        return self.of_own_vectors().holds_up_to

    @cached_property
    def domains(self) -> tuple[int, int]:
        """The numbers of source and target nodes."""
        source, target = self.counts[self.partitions.parent < 0][0].tolist()
        return source, target

    @cached_property
    def _usable(self) -> tuple[Mask, float]:
        """The bins that could say anything, and the error of each."""
        candidates = self.partitions.parent >= 0
        size, tests = self.counts.sum(axis=1), int(candidates.sum())
        while True:
            usable = candidates & (size > _most_known(0, 1.0, ERROR / max(1, tests), *self.domains))
            if usable.sum() >= tests or not usable.any():
                return usable, ERROR / max(1, int(usable.sum()))
            tests = int(usable.sum())

    def most_known(self, growth: float) -> NDArray[np.float64]:
        """Return how many target nodes of each bin may be known if categories grew up to so many times, (bins,)."""
        usable, error = self._usable
        most = np.full(len(self.counts), np.inf)
        source, place = np.unique(self.counts[usable, 0], return_inverse=True)
        most[usable] = _most_known(source, growth, error, *self.domains)[place]
        return most

    def bound(self, nodes: Mask, max_growth: float | None = None) -> Bound:
        """Bound how many of any nodes are new; source nodes do not count.

        Of disjoint bins the numbers add up; the tree that says most is taken.

        Args:
            nodes: (nodes,) whatever they were chosen by.
            max_growth: of known categories; by default what a verdict allows for.
        """
        chosen = np.flatnonzero(nodes & self.is_target)
        held = self.partitions.count_of(chosen)
        growth, low, high = self.allowed if max_growth is None else float(max_growth), 1.0, HIGHEST_GROWTH
        for _ in range(12 if self._least_new(held, 1.0) else 0):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if self._least_new(held, middle) else (low, middle)
        if len(chosen) == self.is_target.sum():
            low = max(1.0, self.holds_up_to * (1 - 1e-9))  # the same, exactly
        return Bound(len(chosen), self._least_new(held, growth), growth, low, self.terms, self.follows_edges)

    def _least_new(self, held: NDArray[np.int64], growth: float) -> int:
        """Return how many target nodes are new at least, of so many in each bin."""
        alone = np.maximum(0.0, held - self.most_known(growth))
        inside = np.zeros(len(alone))  # of the bins that a bin is divided into, together
        for level in reversed(self.partitions.levels):
            np.add.at(inside, self.partitions.parent[level], np.maximum(alone[level], inside[level]))
        return int(inside[self.partitions.parent < 0].max(initial=0))

    def telling(self, growth: float) -> list[TellingTree]:
        """Return what `bound` needs for any target nodes: of each tree, the bins that hold more than may be known."""
        most, parts = self.most_known(growth), self.partitions
        tells = self.counts[:, 1] > most
        inner = np.where(tells, np.arange(len(tells)), -1)  # the smallest such bin around each bin, or itself
        for level in parts.levels:
            inner[level] = np.where(tells[level], level, inner[parts.parent[level]])
        targets, found = np.flatnonzero(self.is_target), []
        for leaf in parts.leaf:
            own = inner[leaf[targets]]
            inside = own >= 0
            bins = np.flatnonzero(tells & (parts.tree == parts.tree[leaf[0]]))
            around = np.where(parts.parent[bins] < 0, -1, inner[parts.parent[bins]])
            place = np.where(around < 0, -1, np.searchsorted(bins, around))
            found.append(
                TellingTree(place, most[bins].astype(np.int64), targets[inside], np.searchsorted(bins, own[inside]))
            )
        return [tree for tree in found if len(tree.around)]

    def would_show(self, group: int, factor: float = 1.0) -> bool:
        """Return whether the other trees would show that a bin holds new nodes if all of its nodes were target.

        Args:
            group: the bin.
            factor: how many times as many the other source nodes would be.
        """
        from scipy.special import betainc

        nodes, tree = self.partitions.members(group)
        moved = self.partitions.count_of(nodes[~self.is_target[nodes]])
        usable, error = self._usable
        bins = np.flatnonzero(usable & (moved > 0) & (self.partitions.tree != tree))
        source, target = factor * (self.counts[bins, 0] - moved[bins]), self.counts[bins, 1] + moved[bins]
        sources = max(factor * (self.domains[0] - self.counts[group, 0]), 1e-9)
        targets = self.allowed * (self.domains[1] + self.counts[group, 0])
        return bool((betainc(target, source + 1, targets / (targets + sources)) <= error).any())

    @cached_property
    def least_growth(self) -> NDArray[np.float64]:
        """Lower bound of the growth of known categories that would explain each bin, (bins,)."""
        (usable, error), (sources, targets) = self._usable, self.domains
        u = share_bound(self.counts[:, 0], self.counts.sum(axis=1), 1 - error)
        return np.asarray(np.where(usable, sources * (1 - u) / np.maximum(targets * u, 1e-300), 0.0))

    @cached_property
    def holds_up_to(self) -> float:
        """The growth of known categories up to which some target node is new; 1 if none is shown to be."""
        return float(max(1.0, self.least_growth.max(initial=0)))

    def of_each(self) -> NDArray[np.float64]:
        """Return the growth that known nodes would need in the bin that says most about each node, (nodes,)."""
        return np.maximum(1.0, self.partitions.largest(self.least_growth[self._strongest]))

    @cached_property
    def _strongest(self) -> NDArray[np.int64]:
        return self.partitions.strongest(self.least_growth)

    def evidence(self, members: NDArray[np.int64], others: NDArray[np.int64] | None = None) -> Evidence:
        """Return the evidence that a set of nodes is new: of the bins with half of them, the one that excludes most.

        Args:
            members: the nodes.
            others: nodes of which the bin holds no more than of the members, or else it tells of those.
        """
        inside = self.partitions.count_of(members)
        fits = 2 * inside >= len(members)
        if others is not None:
            fits &= (self.partitions.count_of(others) <= inside) | (self.partitions.parent < 0)
        return self._of_bins([int(np.argmax(np.where(fits, self.least_growth, -1.0)))])[0]

    def of_nodes(self, nodes: NDArray[np.int64]) -> list[Evidence]:
        """Return the evidence of the bin of each node that excludes most growth."""
        best = self._strongest[self.partitions.leaf[:, nodes]]
        return self._of_bins(np.take_along_axis(best, self.least_growth[best].argmax(axis=0)[None], axis=0)[0])

    def _of_bins(self, bins: Sequence[int] | NDArray[np.int64]) -> list[Evidence]:
        names = self.partitions.names
        return [
            Evidence(int(source), int(target), float(growth), names[view], self.terms, self.follows_edges)
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
