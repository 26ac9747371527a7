"""Vectors -> partitions of the nodes at all scales, as trees of bins; and counts of domains in the bins.

No domain enters the partitions. A tree divides all nodes into a few bins by k-means, each of these again, and so on,
until bins hold a dozen nodes. Each level is a partition of the nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recoslip.data.graph import NodeGraph
from recoslip.data.ids import derived
from recoslip.data.vectors import F32, Vectors

BRANCHES = 4  # bins that a bin is divided into
FIRST = (4, 5, 6, 7, 8, 10, 12, 14)  # bins that all nodes are divided into, tree by tree, for sizes of all kinds
SMALLEST = 12  # nodes that the smallest bins hold, about
STEPS = 4  # of k-means
SAMPLE = 64  # nodes that a centre is fitted on, about, at most
TREES = 16  # of each view, in a graph of up to so many nodes:
NODES_OF_ALL_TREES = 125_000
FAR = 1e12  # coordinates of a centre that nothing is near to
BLOCK = 2**16  # rows compared with centres at a time
ALIKE = 1e-5  # difference of two inner products up to which a row is as near to one centre as to the other


@dataclass(frozen=True, eq=False)
class Partitions:
    """Trees of bins. Bins are numbered over all trees, a bin before the bins that it is divided into."""

    leaf: NDArray[np.int32]  # (trees, nodes) the smallest bin of each node
    parent: NDArray[np.int32]  # (bins,) the bin around it; -1 of a tree's first bin, which holds all nodes
    first: NDArray[np.int32]  # (bins,) the first of the bins that it is divided into, which follow each other; or -1
    view: NDArray[np.int8]  # (bins,) which of `Vectors.views` it was made by
    centre: F32  # (bins, width)

    @classmethod
    def of(cls, graph: NodeGraph, seed: int = 0, trees: int = TREES, first: Sequence[int] = FIRST) -> Partitions:
        """Return the partitions of a graph, which are computed once for a seed and kept with the graph."""
        Vectors.of(graph)  # before the nodes are put in the order of ids, so that they are kept with the graph, too
        count = max(1, min(trees, trees * NODES_OF_ALL_TREES // max(1, graph.num_nodes)))

        def make(ordered: NodeGraph) -> Partitions:
            return cls.fit(Vectors.of(ordered).views(), count, seed, first)

        return derived(graph, f"partitions {seed} {trees} {first}", make)

    @classmethod
    def fit(cls, views: Sequence[F32], trees: int, seed: int, first: Sequence[int] = FIRST) -> Self:
        """Grow trees for each view; `first` says into how many bins all nodes are divided, tree by tree."""
        grown = [
            _grow(x, first[tree % len(first)], np.random.default_rng([seed, view, tree]))
            for view, x in enumerate(views)
            for tree in range(trees)
        ]
        start = np.cumsum([0, *(len(parent) for _, parent, _, _ in grown)])
        leaf, parent, inside, centre = zip(*grown, strict=True)

        def numbered(parts: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
            return [np.where(part < 0, -1, part + begin) for part, begin in zip(parts, start, strict=False)]

        return cls(
            np.stack(numbered(leaf)).astype(np.int32),
            np.concatenate(numbered(parent)).astype(np.int32),
            np.concatenate(numbered(inside)).astype(np.int32),
            np.repeat(np.arange(len(views), dtype=np.int8), trees).repeat(np.diff(start)),
            np.concatenate(centre),
        )

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """How many bins lie around each bin, (bins,)."""
        depth = np.where(self.parent < 0, 0, -1)
        while len(todo := np.flatnonzero(depth < 0)):
            around = depth[self.parent[todo]]
            depth[todo] = np.where(around < 0, -1, around + 1)
        return depth

    def levels(self) -> list[NDArray[np.int64]]:
        """Return the bins level by level, those that hold all nodes left out, the largest first."""
        order = np.argsort(self.depth, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.depth))[:-1])[1:]

    def count(self, group: NDArray[np.integer] | NDArray[np.bool_], groups: int = 2) -> NDArray[np.int64]:
        """Count the nodes of each group in every bin, (bins, groups); counts of several sites, or batches, add up.

        Args:
            group: (nodes,) the group of each node, such as its domain; negative numbers are left out.
            groups: how many there are.
        """
        bins, chosen = len(self.parent), group >= 0
        flat = np.zeros(bins * groups, dtype=np.int64)
        for leaf in self.leaf:
            flat += np.bincount(leaf[chosen] * np.int64(groups) + group[chosen], minlength=bins * groups)
        counts = flat.reshape(bins, groups)
        for level in reversed(self.levels()):
            np.add.at(counts, self.parent[level], counts[level])
        return counts

    def strongest(self, value: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return, of each bin, the bin with the highest value among itself and those around it, (bins,).

        The bins that hold all nodes do not count; of equal ones, the largest is taken.
        """
        strongest = np.arange(len(self.parent))
        for level in self.levels():
            around = strongest[self.parent[level]]
            wins = (self.parent[around] >= 0) & (value[around] >= value[level])
            strongest[level] = np.where(wins, around, level)
        return strongest

    def at_depth(self, depth: int) -> NDArray[np.int32]:
        """Return a partition by the last view's first tree: each node's bin with at most so many bins around it."""
        roots = np.flatnonzero(self.parent < 0)
        bins: NDArray[np.int32] = self.leaf[np.argmax(self.view[roots])]
        for _ in range(int(self.depth.max())):
            bins = np.where(self.depth[bins] > depth, self.parent[bins], bins).astype(np.int32)
        return bins

    def at_size(self, largest: float) -> NDArray[np.int64]:
        """Return the largest bin of each node, tree by tree, that holds at most so many nodes: (trees, nodes).

        It is the smallest bin where that holds more already, and never the one that holds all nodes if it is divided.
        """
        size = self.count(np.zeros(self.leaf.shape[1], dtype=np.int64), groups=1)[:, 0]
        chosen = np.arange(len(self.parent))
        for level in self.levels():
            around = chosen[self.parent[level]]
            fits = (self.parent[around] >= 0) & (size[around] <= largest)
            chosen[level] = np.where(fits, around, level)
        return np.asarray(chosen[self.leaf])

    def among(self, graph: NodeGraph, vectors: Vectors) -> Partitions:
        """Return the same bins with a graph's nodes in them, which are assigned once and kept with the graph."""
        kept = [each for each in graph.kept(Partitions) if np.shares_memory(each.parent, self.parent)]
        name = f"partitions by {self.parent.ctypes.data}"  # which no others have while these are kept
        return kept[0] if kept else graph.derived(name, lambda: replace(self, leaf=self.assign(vectors.views())))

    def assign(self, views: Sequence[F32]) -> NDArray[np.int32]:
        """Return the smallest bin of other nodes in every tree, (trees, nodes)."""
        roots, inside = np.flatnonzero(self.parent < 0), np.bincount(self.parent + 1)
        result = np.empty((len(roots), len(views[0])), dtype=np.int32)
        for tree, root in enumerate(roots):
            x = views[self.view[root]]
            todo = [(int(root), np.arange(len(x)))]
            while todo:
                place, rows = todo.pop()
                begin = self.first[place]
                if begin < 0:
                    result[tree, rows] = place
                    continue
                nearest = _nearest(x, rows, self.centre[begin : begin + inside[place + 1]])
                todo += [(begin + k, rows[nearest == k]) for k in np.unique(nearest)]
        return result

    def without_nodes(self) -> Self:
        """Return the same bins with no nodes in them."""
        return replace(self, leaf=np.empty((0, 0), np.int32))

    def permuted(self, order: NDArray[np.int64]) -> Self:
        """Return the partitions of the same nodes in another order."""
        return replace(self, leaf=self.leaf[:, order])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the bins, to save; who is in them is left out."""
        return {name: getattr(self, name) for name in ("parent", "first", "view", "centre")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build from what `arrays` returned, without any nodes."""
        return cls(np.empty((0, 0), np.int32), *(arrays[name] for name in ("parent", "first", "view", "centre")))


def share_bound(source: NDArray[np.integer], size: NDArray[np.integer], confidence: float) -> NDArray[np.float64]:
    r"""Return the upper confidence bound of the source share of bins, $B^{-1}(c;\, s + 1,\, m - s)$ (Clopper-Pearson).

    The source share of a bin is that of the population which its nodes are drawn from; with probability c it is at most
    the bound.

    >>> share_bound(np.array([0, 0, 1]), np.array([1, 20, 20]), 0.8).round(3).tolist()
    [0.8, 0.077, 0.142]
    """
    from scipy.stats import beta

    pairs, place = np.unique(np.stack([source, size]), axis=1, return_inverse=True)
    s, m = pairs
    bound = np.where(s < m, beta.ppf(confidence, s + 1, np.maximum(m - s, 1)), 1.0)
    return np.asarray(bound[place.reshape(-1)])


def _grow(
    x: F32, branches: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], F32]:
    """Grow one tree: the smallest bin of each row; and of each bin the bin around it, the first inside, and the centre.

    All rows are divided into so many `branches`, and each bin again while it has enough rows that are not all alike.
    """
    leaf = np.zeros(len(x), dtype=np.int32)
    parent, first, centres = [-1], [-1], [np.zeros((1, x.shape[1]), np.float32)]
    todo = deque([(0, rng.permutation(len(x)))])  # rows in random order, so that the first ones are a sample
    while todo:
        place, rows = todo.popleft()
        leaf[rows] = place
        count = min(branches, max(2, len(rows) // SMALLEST)) if place == 0 else BRANCHES
        if len(rows) < count * SMALLEST:
            continue
        centre = _k_means(x[rows[: count * SAMPLE]], count)
        nearest = _nearest(x, rows, centre)
        sizes = np.bincount(nearest, minlength=count)
        if sizes.max() == len(rows):
            continue
        centre[sizes == 0] = FAR  # nothing is near to nothing
        first[place] = len(parent)
        todo += [(len(parent) + k, rows[nearest == k]) for k in range(count)]
        parent += [place] * count
        first += [-1] * count
        centres.append(centre)
    return leaf, np.array(parent, np.int32), np.array(first, np.int32), np.concatenate(centres)


def _k_means(x: F32, count: int) -> F32:
    """Return so many centres: the first rows, after a few steps of k-means."""
    centre = x[:count].copy()
    for _ in range(STEPS):
        near = (_nearest(x, slice(None), centre)[:, None] == np.arange(count)).astype(np.float32)
        size = near.sum(axis=0)
        used = size > 0
        centre[used] = (near.T @ x)[used] / size[used, None]
    return centre


def _nearest(x: F32, rows: NDArray[np.int64] | slice, centre: F32) -> NDArray[np.int64]:
    """Return which centre each row is nearest to; of equally near ones the first."""
    if isinstance(rows, slice):
        blocks = [x[rows]]
    else:
        blocks = [x[rows[begin : begin + BLOCK]] for begin in range(0, len(rows), BLOCK)]
    half = np.einsum("kd,kd->k", centre, centre) / 2
    found = []
    for block in blocks:
        nearness = block @ centre.T - half
        found.append(np.argmax(nearness >= nearness.max(axis=1, keepdims=True) - ALIKE, axis=1))
    return np.concatenate(found)
