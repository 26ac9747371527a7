"""Vectors -> partitions of the nodes at all scales, as trees of bins; and counts of domains in the bins.

No domain enters the partitions. A tree divides all nodes into a few bins by k-means, each of these again, and so on,
until bins hold a dozen nodes. Each level is a partition of the nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from recoslip.data.blocks import current, cut, one_thread
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import derived
from recoslip.data.vectors import F32, FEATURES, Vectors

BRANCHES = 4  # bins that a bin is divided into
FIRST = (4, 5, 6, 7, 8, 10, 12, 14)  # bins that all nodes are divided into, tree by tree, for sizes of all kinds
SMALLEST = 12  # nodes that the smallest bins hold, about
STEPS = 4  # of k-means
SAMPLE = 64  # nodes that a centre is fitted on, about, at most
TREES = 16  # of each view, in a graph of up to so many nodes:
NODES_OF_ALL_TREES = 125_000
FAR = 1e12  # coordinates of a centre that nothing is near to
BLOCK = 2**16  # rows compared with centres at a time
PART = 2**17  # nodes that a tree is grown of at once; of more, it is first divided by a sample of as many
COUNTED = 2**24  # nodes counted at a time
ALIKE = 1e-5  # difference of two inner products up to which a row is as near to one centre as to the other


@dataclass(frozen=True, eq=False)
class Partitions:
    """Trees of bins. Bins are numbered over all trees, a bin before the bins that it is divided into."""

    leaf: NDArray[np.int32]  # (trees, nodes) the smallest bin of each node
    parent: NDArray[np.int32]  # (bins,) the bin around it; -1 of a tree's first bin, which holds all nodes
    first: NDArray[np.int32]  # (bins,) the first of the bins that it is divided into, which follow each other; or -1
    view: NDArray[np.int8]  # (bins,) which of `Vectors.views` it was made by
    centre: F32  # (bins, width)
    names: tuple[str, ...] = ()  # what the nodes of a bin are alike in, of each view; not saved

    @classmethod
    def of(cls, graph: NodeGraph, seed: int = 0, trees: int = TREES, first: Sequence[int] = FIRST) -> Partitions:
        """Return the partitions of a graph, which are computed once for a seed and kept with the graph."""
        Vectors.of(graph)  # before the nodes are put in the order of ids, so that they are kept with the graph, too
        count = max(1, min(trees, trees * NODES_OF_ALL_TREES // max(1, graph.num_nodes)))

        def make(ordered: NodeGraph) -> Partitions:
            vectors = Vectors.of(ordered)
            return replace(cls.fit(vectors.views(), count, seed, first), names=vectors.names)

        return derived(graph, f"partitions {seed} {trees} {first}", make)

    @classmethod
    def fit(cls, views: Sequence[F32], trees: int, seed: int, first: Sequence[int] = FIRST) -> Self:
        """Grow trees for each view; `first` says into how many bins all nodes are divided, tree by tree."""
        grown = list(
            _grow_trees(
                [
                    (x, first[tree % len(first)], [seed, view, tree])
                    for view, x in enumerate(views)
                    for tree in range(trees)
                ]
            )
        )
        start = np.cumsum([0, *(len(tree.parent) for tree in grown)])
        leaf = current().create((len(grown), len(views[0])), np.int32)
        for row, tree, begin in zip(leaf, grown, start.tolist(), strict=False):
            np.add(tree.leaf, begin, out=row, casting="same_kind")

        def numbered(parts: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
            moved = [np.where(part < 0, -1, part + begin) for part, begin in zip(parts, start, strict=False)]
            return np.concatenate(moved).astype(np.int32)

        return cls(
            leaf,
            numbered([tree.parent for tree in grown]),
            numbered([tree.first for tree in grown]),
            np.repeat(np.arange(len(views), dtype=np.int8), trees).repeat(np.diff(start)),
            np.concatenate([tree.centre for tree in grown]),
        )

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """How many bins lie around each bin, (bins,)."""
        depth = np.where(self.parent < 0, 0, -1)
        while len(todo := np.flatnonzero(depth < 0)):
            around = depth[self.parent[todo]]
            depth[todo] = np.where(around < 0, -1, around + 1)
        return depth

    @cached_property
    def levels(self) -> list[NDArray[np.int64]]:
        """The bins level by level, those that hold all nodes left out, the largest first."""
        order = np.argsort(self.depth, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.depth))[:-1])[1:]

    def count(self, group: NDArray[np.integer] | NDArray[np.bool_], groups: int = 2) -> NDArray[np.int64]:
        """Count the nodes of each group in every bin, (bins, groups); counts of several sites, or batches, add up.

        Args:
            group: (nodes,) the group of each node, such as its domain; negative numbers are left out.
            groups: how many there are.
        """
        start = np.append(np.flatnonzero(self.parent < 0), len(self.parent))
        counts = np.zeros((len(self.parent), groups), dtype=np.int64)
        places = [(tree, rows) for tree in range(len(self.leaf)) for rows in cut(self.leaf.shape[1], COUNTED)]
        jobs = [(self.leaf, group, tree, rows, start[tree], start[tree + 1], groups) for tree, rows in places]
        for (tree, _), found in zip(places, current().each(_count, jobs), strict=True):
            counts[start[tree] : start[tree + 1]] += found
        return self._with_inner(counts)

    def count_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count a few nodes, given by their positions, in every bin: (bins,)."""
        return self._with_inner(np.bincount(self.leaf[:, nodes].ravel(), minlength=len(self.parent)))

    @cached_property
    def tree(self) -> NDArray[np.int64]:
        """Which tree each bin is of, (bins,)."""
        return np.cumsum(self.parent < 0) - 1

    def members(self, place: int) -> tuple[NDArray[np.int64], int]:
        """Return the nodes of a bin, and its tree."""
        inside = np.arange(len(self.parent)) == place
        for level in self.levels:
            inside[level] |= inside[self.parent[level]]
        tree = int(self.tree[place])
        return np.flatnonzero(inside[self.leaf[tree]]), tree

    @property
    def is_own(self) -> NDArray[np.bool_]:
        """Which bins were made by the nodes' own vectors, (bins,)."""
        return self.view <= (self.names.index(FEATURES) if self.names else 0)

    def where(self, kept: NDArray[np.bool_]) -> Self:
        """Return some of the trees: those of which the bins, (bins,), are kept."""
        trees = kept[self.parent < 0]
        number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)

        def renumbered(bins: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.where(bins < 0, -1, number[bins]).astype(np.int32)

        centre, first = self.centre[kept], renumbered(self.first[kept])
        parent, leaf = renumbered(self.parent[kept]), number[self.leaf[trees]]
        return type(self)(leaf, parent, first, self.view[kept], centre, self.names)

    def _with_inner(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add the counts of bins to those around them."""
        for level in reversed(self.levels):
            np.add.at(counts, self.parent[level], counts[level])
        return counts

    def largest(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest value of the smallest bins that each node lies in, (nodes,)."""
        return current().fill(self.leaf.shape[1:], np.float64, _largest, self.leaf, value)

    def strongest(self, value: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return, of each bin, the bin with the highest value among itself and those around it, (bins,).

        The bins that hold all nodes do not count; of equal ones, the largest is taken.
        """
        strongest = np.arange(len(self.parent))
        for level in self.levels:
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
        for level in self.levels:
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
        result = current().create((len(roots), len(views[0])), np.int32)
        for row, root in zip(result, roots.tolist(), strict=True):
            x, bins = views[self.view[root]], (self.first, inside, self.centre)
            row[:] = current().fill((len(x),), np.int32, _assigned, x, root, *bins)
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
        parent, first, view, centre = (arrays[name] for name in ("parent", "first", "view", "centre"))
        return cls(np.empty((0, 0), np.int32), parent, first, view, centre)


def share_bound(
    source: NDArray[np.integer | np.floating], size: NDArray[np.integer | np.floating], confidence: float
) -> NDArray[np.float64]:
    r"""Return the upper confidence bound of the source share of bins, $B^{-1}(c;\, s + 1,\, m - s)$ (Clopper-Pearson).

    The source share of a bin is that of the population which its nodes are drawn from; with probability c it is at most
    the bound. Counts that were divided by a factor are no integers.

    >>> share_bound(np.array([0, 0, 1]), np.array([1, 20, 20]), 0.8).round(3).tolist()
    [0.8, 0.077, 0.142]
    """
    from scipy.stats import beta

    pairs, place = np.unique(source + 1j * size, return_inverse=True)
    s, m = pairs.real, pairs.imag
    bound = np.where(s < m, beta.ppf(confidence, s + 1, np.where(s < m, m - s, 1.0)), 1.0)
    return np.asarray(bound[place.reshape(-1)])


class Tree(NamedTuple):
    """One tree; its bins are numbered from 0."""

    leaf: NDArray[np.int32]  # (nodes,)
    parent: NDArray[np.int32]  # (bins,)
    first: NDArray[np.int32]  # (bins,)
    centre: F32  # (bins, width)


def _grow_trees(wanted: Sequence[tuple[F32, int, list[int]]]) -> Iterator[Tree]:
    """Grow trees of the rows of arrays, given with the first number of bins and the seed of each tree."""
    if len(wanted[0][0]) <= PART:
        yield from current().each(_grow, [(x, None, branches, seed) for x, branches, seed in wanted])
        return
    for x, branches, seed in wanted:
        yield _grow_in_parts(x, branches, seed)


def _grow_in_parts(x: F32, branches: int, seed: list[int]) -> Tree:
    """Grow the top of a tree of a sample of the rows, and divide each of its smallest bins by the rows in it."""
    rows = np.sort(np.random.default_rng(seed).choice(len(x), PART, replace=False, shuffle=False))
    with one_thread():
        top = _grow(x, rows, branches, seed, least=PART * PART // len(x))
    inside = np.bincount(top.parent + 1)
    leaf = current().fill((len(x),), np.int32, _assigned, x, 0, top.first, inside, top.centre)
    size = np.bincount(leaf, minlength=len(top.parent))
    members = np.split(np.argsort(leaf, kind="stable").astype(np.int32), np.cumsum(size)[:-1])
    places = np.flatnonzero(size).tolist()
    grown = current().each(_grow, [(x, members[place], BRANCHES, [*seed, place]) for place in places])
    parents, firsts, centres, bins = [top.parent], [top.first.copy()], [top.centre], len(top.parent)
    for place, part in zip(places, grown, strict=True):  # its first bin, which holds all of its rows, is the place
        number = np.append(place, np.arange(bins, bins + len(part.parent) - 1)).astype(np.int32)
        leaf[members[place]] = number[part.leaf]
        first = np.where(part.first < 0, -1, number[part.first])
        firsts[0][place] = first[0]
        parents.append(number[part.parent[1:]])
        firsts.append(first[1:].astype(np.int32))
        centres.append(part.centre[1:])
        bins += len(part.parent) - 1
    return Tree(leaf, np.concatenate(parents), np.concatenate(firsts), np.concatenate(centres))


def _grow(x: F32, among: NDArray[np.int64] | None, branches: int, seed: list[int], least: int = 0) -> Tree:
    """Grow one tree of all or some of the rows of an array.

    All rows are divided into so many `branches`, and each bin again while it has enough rows that are not all alike,
    and more than `least`.
    """
    x = x if among is None else x[among]
    leaf = np.zeros(len(x), dtype=np.int32)
    parent, first, centres = [-1], [-1], [np.zeros((1, x.shape[1]), np.float32)]
    rows = np.random.default_rng(seed).permutation(len(x))  # in random order, so that the first ones are a sample
    todo = deque([(0, rows)])
    while todo:
        place, rows = todo.popleft()
        leaf[rows] = place
        count = min(branches, max(2, len(rows) // SMALLEST)) if place == 0 else BRANCHES
        if len(rows) < max(count * SMALLEST, least + 1):
            continue
        sample = x[rows[: count * SAMPLE]]
        centre, nearest = _k_means(sample, count)
        if nearest is None or len(sample) < len(rows):
            nearest = _nearest(x, rows, centre) if len(sample) < len(rows) else _nearest_of(sample, centre)
        sizes = np.bincount(nearest, minlength=count)
        if sizes.max() == len(rows):
            continue
        centre[sizes == 0] = FAR  # nothing is near to nothing
        first[place] = len(parent)
        todo += [(len(parent) + k, rows[nearest == k]) for k in range(count)]
        parent += [place] * count
        first += [-1] * count
        centres.append(centre)
    return Tree(leaf, np.array(parent, np.int32), np.array(first, np.int32), np.concatenate(centres))


def _k_means(x: F32, count: int) -> tuple[F32, NDArray[np.int64] | None]:
    """Return so many centres, the first rows after a few steps of k-means; and the nearest of each row, if known."""
    centre, numbers, before = x[:count].copy(), np.arange(count), None
    for _ in range(STEPS):
        nearest = _nearest_of(x, centre)
        if before is not None and (nearest == before).all():
            return centre, nearest
        near, before = (nearest[:, None] == numbers).astype(np.float32), nearest
        size = near.sum(axis=0)
        used = size > 0
        centre[used] = (near.T @ x)[used] / size[used, None]
    return centre, None


def _nearest(x: F32, rows: NDArray[np.int64] | slice, centre: F32) -> NDArray[np.int64]:
    """Return which centre each of some rows is nearest to; of equally near ones the first."""
    if isinstance(rows, slice):
        return _nearest_of(x[rows], centre)
    return np.concatenate([_nearest_of(x[rows[part]], centre) for part in cut(len(rows), BLOCK)])


def _nearest_of(x: F32, centre: F32) -> NDArray[np.int64]:
    nearness = x @ centre.T
    nearness -= np.einsum("kd,kd->k", centre, centre) / 2
    nearness = nearness.T.copy()  # a row for each centre, over which NumPy is several times as fast
    far = nearness < nearness.max(axis=0) - ALIKE
    so_far = far[0]
    nearest = so_far.astype(np.int64)  # how many of the first centres are far
    for other in far[1:-1]:
        so_far = so_far & other
        nearest += so_far
    return np.asarray(nearest)


def _assigned(
    rows: slice, x: F32, root: int, first: NDArray[np.int32], inside: NDArray[np.int64], centre: F32
) -> NDArray[np.int32]:
    """Return the smallest bin of some rows below a bin, when bin k has `inside[k + 1]` bins."""
    x = x[rows]
    result = np.empty(len(x), dtype=np.int32)
    todo = [(root, np.arange(len(x)))]
    while todo:
        place, here = todo.pop()
        begin = first[place]
        if begin < 0:
            result[here] = place
            continue
        nearest = _nearest(x, here, centre[begin : begin + inside[place + 1]])
        todo += [(int(begin + k), here[nearest == k]) for k in np.unique(nearest)]
    return result


def _count(
    leaf: NDArray[np.int32], group: NDArray[Any], tree: int, rows: slice, begin: int, end: int, groups: int
) -> NDArray[np.int64]:
    """Count some nodes of each group in the smallest bins of one tree, whose bins are those from `begin` to `end`."""
    bins, own = leaf[tree, rows], group[rows]
    chosen = own >= 0
    flat = (bins[chosen] - np.int64(begin)) * groups + own[chosen]
    return np.bincount(flat, minlength=(end - begin) * groups).reshape(-1, groups)


def _largest(rows: slice, leaf: NDArray[np.int32], value: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(value[leaf[:, rows]].max(axis=0))
