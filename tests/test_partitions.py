"""Partitions of the nodes at all scales: nested bins that know no domain, and counts in them."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from recoslip import NodeGraph
from recoslip.data import partitions as partitions_module
from recoslip.data.datasets.block_model import csbm
from recoslip.data.partitions import BRANCHES, FIRST, SMALLEST, Partitions, _nearest, share_bound
from recoslip.data.vectors import Vectors

NO_EDGES = np.empty((2, 0), dtype=int)
SMALL = partial(csbm, nodes=300, seed=0)


def points(x, **more):
    x = np.asarray(x, dtype=float)
    return NodeGraph(x, NO_EDGES, np.arange(len(x)) % 2 == 1, **more)


def sizes(partitions):
    """How many nodes each bin holds."""
    return partitions.count(np.zeros(partitions.leaf.shape[1], dtype=np.int64), 1)[:, 0]


def around(partitions, place):
    """The bins around a bin, from the inside to the outside."""
    found = []
    while (place := int(partitions.parent[place])) >= 0:
        found.append(place)
    return found


def members(partitions):
    """The nodes in each bin, found one node at a time."""
    found = [set() for _ in partitions.parent]
    for leaf in partitions.leaf:
        for node, place in enumerate(leaf.tolist()):
            for each in (place, *around(partitions, place)):
                found[each].add(node)
    return found


@pytest.fixture(scope="module")
def small():
    return Partitions.of(SMALL(), trees=4)


@pytest.fixture(scope="module")
def large():
    graph = csbm(nodes=20_000, seed=0)
    return graph, Partitions.of(graph, trees=2)


# Bins


def check_trees(partitions, nodes):
    """Each node lies in one smallest bin of each tree, and the bins of a division follow each other."""
    bins, (trees, columns) = len(partitions.parent), partitions.leaf.shape
    roots = np.flatnonzero(partitions.parent < 0)
    assert (len(roots), columns) == (trees, nodes)
    assert (partitions.first[partitions.leaf] < 0).all()
    for tree, root in enumerate(roots):
        end = roots[tree + 1] if tree + 1 < trees else bins
        assert ((partitions.leaf[tree] >= root) & (partitions.leaf[tree] < end)).all()
    inner = np.flatnonzero(partitions.first >= 0)
    for place in inner[:300]:
        inside = np.flatnonzero(partitions.parent == place)
        assert inside[0] == partitions.first[place] > place
        assert (np.diff(inside) == 1).all()
    assert len(partitions.centre) == len(partitions.view) == len(partitions.first) == bins
    assert (np.bincount(partitions.parent + 1, minlength=bins + 1)[1:][partitions.first < 0] == 0).all()
    assert (sizes(partitions)[roots] == nodes).all()


def test_every_node_lies_in_one_smallest_bin_of_each_tree(small, large):
    check_trees(small, 300)
    check_trees(large[1], 20_000)


def test_bins_are_the_disjoint_union_of_the_bins_inside(small):
    found = members(small)
    for place in np.flatnonzero(small.first >= 0):
        inside = [found[k] for k in np.flatnonzero(small.parent == place)]
        assert set().union(*inside) == found[place]
        assert sum(map(len, inside)) == len(found[place])


def test_smallest_bins_hold_about_a_dozen_nodes_in_small_and_in_large_graphs(small, large):
    for partitions in (small, large[1]):
        smallest = sizes(partitions)[partitions.first < 0]
        assert smallest.max() < BRANCHES * SMALLEST
        assert SMALLEST <= np.median(smallest[smallest > 0]) <= 2 * SMALLEST
        inner = sizes(partitions)[(partitions.first >= 0) & (partitions.parent >= 0)]
        assert inner.min() >= BRANCHES * SMALLEST
    assert len(np.unique(np.log2(sizes(large[1])[large[1].first >= 0]).round())) >= 7  # bins of all scales


def test_trees_begin_with_different_numbers_of_bins(small):
    roots = np.flatnonzero(small.parent < 0)
    assert [int((small.parent == root).sum()) for root in roots] == list(FIRST[:4]) * 4
    assert small.view[roots].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4


def test_depth_counts_the_bins_around_and_levels_go_from_large_to_small(small):
    assert small.depth.tolist() == [len(around(small, place)) for place in range(len(small.parent))]
    levels = small.levels
    assert sorted(np.concatenate(levels).tolist()) == np.flatnonzero(small.parent >= 0).tolist()
    assert [set(small.depth[level].tolist()) for level in levels] == [{k + 1} for k in range(len(levels))]


def test_bins_at_a_size_are_the_largest_that_are_no_larger_or_the_smallest_there_are(small):
    size = small.count(np.zeros(small.leaf.shape[1], dtype=int), groups=1)[:, 0]
    for largest in (1, 20, 60, 10_000):
        for tree, found in enumerate(small.at_size(largest)):
            for node, place in enumerate(found.tolist()):
                leaf = int(small.leaf[tree, node])
                chain = [leaf, *around(small, leaf)]
                fitting = [each for each in chain if small.parent[each] >= 0 and size[each] <= largest]
                assert place == (fitting[-1] if fitting else leaf)


def test_a_partition_at_a_depth_is_of_the_bins_there_and_of_smallest_bins_above(small):
    first = int(np.argmax(small.view[small.parent < 0]))  # tree of the last view
    for depth in range(4):
        for node, place in enumerate(small.at_depth(depth).tolist()):
            leaf = int(small.leaf[first, node])
            chain = [leaf, *around(small, leaf)][::-1]
            assert place == chain[min(depth, len(chain) - 1)]


@pytest.mark.parametrize("part", [400, 1500])
def test_a_tree_that_is_grown_in_parts_has_bins_of_all_scales_too(monkeypatch, part):
    graph = csbm(nodes=3000, seed=0)
    whole = Partitions.of(copy.copy(graph), trees=2)
    monkeypatch.setattr(partitions_module, "PART", part)
    partitions = Partitions.of(copy.copy(graph), trees=2)
    check_trees(partitions, 3000)
    smallest = sizes(partitions)[partitions.first < 0]
    assert smallest.max() < BRANCHES * SMALLEST
    assert SMALLEST <= np.median(smallest[smallest > 0]) <= 2 * SMALLEST
    assert abs(len(partitions.parent) / len(whole.parent) - 1) < 0.1
    assert (partitions.assign(Vectors.of(graph).views()) != partitions.leaf).mean() < 1e-3
    assert same(arrays_of(partitions), arrays_of(Partitions.of(copy.copy(graph), trees=2)))


# What they depend on


def arrays_of(partitions):
    return [partitions.leaf, *partitions.arrays().values()]


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True))


def test_the_seed_decides(small):
    assert same(arrays_of(small), arrays_of(Partitions.of(SMALL(), trees=4)))
    assert not np.array_equal(small.leaf, Partitions.of(SMALL(), seed=1, trees=4).leaf)
    assert Partitions.of(SMALL(), seed=2**63 - 1, trees=1).leaf.shape == (4, 300)


@pytest.mark.parametrize("ids", [None, [f"n{k}" for k in range(300)]])
def test_the_order_of_nodes_does_not_matter(ids):
    graph = SMALL()
    graph = NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=ids)
    order = np.random.default_rng(0).permutation(300)
    one, other = (Partitions.of(each, trees=2) for each in (graph, copy.copy(graph).permuted(order)))
    assert same(arrays_of(one.permuted(order)), arrays_of(other))
    assert same(arrays_of(other), arrays_of(Partitions.of(graph.permuted(order), trees=2)))


def test_domains_do_not_enter(small):
    graph = copy.copy(SMALL())
    other = graph.with_target(np.random.default_rng(0).random(300) < 0.3)
    assert same(arrays_of(small), arrays_of(Partitions.of(other, trees=4)))
    graph = copy.copy(graph)
    for name in ("is_target", "categories"):
        object.__delattr__(graph, name)  # reading it raises AttributeError now
    assert same(arrays_of(small), arrays_of(Partitions.of(graph, trees=4)))


@pytest.mark.parametrize("ids", [None, [f"n{k}" for k in range(300)]])
def test_vectors_and_partitions_are_computed_once_and_kept_for_all_domains(monkeypatch, ids):
    calls, fit, compute = [], Partitions.fit.__func__, Vectors._compute.__func__
    monkeypatch.setattr(Partitions, "fit", classmethod(lambda *args: calls.append("partitions") or fit(*args)))
    monkeypatch.setattr(Vectors, "_compute", classmethod(lambda *args: calls.append("vectors") or compute(*args)))
    graph = SMALL()
    graph = NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=ids)
    first = Partitions.of(graph, trees=1)
    assert Partitions.of(graph.with_target(~graph.is_target), trees=1) is first
    Vectors.of(graph)
    assert sorted(calls) == ["partitions", "vectors"]
    Partitions.of(graph, seed=1, trees=1)
    assert sorted(calls) == ["partitions", "partitions", "vectors"]


# Counts


def test_counts_are_those_by_hand_and_those_of_parts_add_up(small):
    rng = np.random.default_rng(0)
    group = rng.integers(-1, 3, 300)
    counts = small.count(group, 3)
    expected = [[sum(group[node] == k for node in inside) for k in range(3)] for inside in members(small)]
    assert counts.tolist() == expected
    part = rng.random(300) < 0.4
    parts = [small.count(np.where(chosen, group, -1), 3) for chosen in (part, ~part)]
    assert (parts[0] + parts[1] == counts).all()
    blocks = [replace(small, leaf=small.leaf[:, rows]).count(group[rows], 3) for rows in (slice(0, 90), slice(90, 300))]
    assert (blocks[0] + blocks[1] == counts).all()
    domain = rng.random(300) < 0.5
    assert (small.count(domain) == small.count(domain.astype(int), 2)).all()


@pytest.mark.parametrize("ties", [False, True])
def test_the_strongest_of_the_bins_around_is_that_by_brute_force(small, ties):
    rng = np.random.default_rng(0)
    value = rng.normal(size=len(small.parent)).round(0 if ties else 9)
    for place, found in enumerate(small.strongest(value).tolist()):
        chain = [each for each in (place, *around(small, place)) if small.parent[each] >= 0]
        if not chain:
            assert found == place
            continue
        highest = max(value[each] for each in chain)
        assert found == [each for each in chain if value[each] == highest][-1]  # the largest of equal ones


# New nodes


def test_fitted_nodes_are_assigned_to_their_own_bins_again(small, large):
    assert (small.assign(Vectors.of(SMALL()).views()) == small.leaf).all()
    graph, partitions = large
    views = Vectors.of(graph).views()
    assert (partitions.assign(views) != partitions.leaf).mean() < 1e-5  # but for rounding
    some = np.random.default_rng(0).permutation(20_000)[:99]
    assert (partitions.assign([view[some] for view in views]) == partitions.leaf[:, some]).all()


def test_nodes_as_near_to_two_bins_but_for_rounding_belong_to_the_first():
    centre = np.array([[0.6, 0.8], [0.6, 0.8], [0.8, 0.6]], np.float32)
    centre[1] *= np.float32(1 + 2e-6)
    x = np.array([[1.0, 1.2], [1.0, 0.0]], np.float32)
    assert _nearest(x, slice(None), centre).tolist() == [0, 2]
    assert _nearest(x, np.array([1, 0]), centre).tolist() == [2, 0]


def test_bins_are_saved_without_nodes_and_assign_alike(small):
    again = Partitions.from_arrays({name: array.copy() for name, array in small.arrays().items()})
    assert again.leaf.size == 0
    views = Vectors.of(SMALL()).views()
    assert (again.assign(views) == small.leaf).all()
    assert (replace(again, leaf=small.leaf).count(np.zeros(300, int)) == small.count(np.zeros(300, int))).all()


# Few nodes, and nodes that are alike


@pytest.mark.parametrize(
    "x",
    [
        np.ones((500, 2)),
        np.zeros((500, 3)),
        np.repeat([[1.0, 2.0], [3.0, -1.0], [0.0, 4.0]], 200, axis=0),
        np.where(np.arange(500)[:, None] < 5, np.arange(500)[:, None], 7.0),
        np.random.default_rng(0).integers(0, 2, (400, 1)),
        np.random.default_rng(0).normal(size=(400, 1)),
    ],
)
def test_equal_nodes_stay_together_and_division_ends(x):
    graph = points(x)
    partitions = Partitions.of(graph, trees=8)
    check_trees(partitions, len(x))
    kinds = np.unique(np.asarray(x), axis=0, return_inverse=True)[1].reshape(-1)
    for kind in np.unique(kinds):
        assert (partitions.leaf[:, kinds == kind] == partitions.leaf[:, kinds == kind][:, :1]).all()
    assert (partitions.assign(Vectors.of(graph).views()) == partitions.leaf).all()


def test_many_duplicates_do_not_hide_those_that_differ():
    x = np.where(np.arange(600)[:, None] < 60, 5 + np.random.default_rng(0).normal(size=(600, 2)), 0.0)
    partitions = Partitions.of(points(x), trees=8)
    assert all(len(set(leaf[:60]) & set(leaf[60:])) == 0 for leaf in partitions.leaf)


@pytest.mark.parametrize("nodes", [2, 3, 10, 47, 48])
def test_few_nodes_have_partitions_too(nodes):
    graph = points(np.random.default_rng(0).normal(size=(nodes, 2)))
    partitions = Partitions.of(graph)
    check_trees(partitions, nodes)
    assert (len(partitions.levels) > 0) == (nodes >= 2 * SMALLEST)
    assert (partitions.strongest(np.ones(len(partitions.parent))) >= 0).all()
    assert (partitions.at_depth(1) >= 0).all()


# The bound of a bin's source share


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 1 - 1e-6])
def test_so_few_source_nodes_have_the_remaining_probability_at_the_bound(confidence):
    size = np.repeat([1, 2, 5, 12, 48, 300, 20_000], 20)
    source = (size * np.tile(np.arange(20) / 19, 7)).astype(int)
    bound = share_bound(source, size, confidence)
    whole = source == size
    assert (bound[whole] == 1).all()
    np.testing.assert_allclose(binom.cdf(source, size, bound)[~whole], 1 - confidence, rtol=1e-6)
    assert (bound[~whole] > (source / size)[~whole]).all()


def test_the_bound_falls_with_the_size_and_rises_with_the_source_nodes():
    grid = np.arange(1, 40)
    assert (np.diff(share_bound(np.zeros(39, int), grid, 0.8)) < 0).all()
    assert (np.diff(share_bound(np.arange(39), np.full(39, 40), 0.8)) > 0).all()
    assert share_bound(np.array([0]), np.array([0]), 0.8).tolist() == [1.0]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_bound_holds_as_often_as_it_says(share, confidence):
    rng = np.random.default_rng(0)
    for size in (12, 48, 400):
        source = rng.binomial(size, share, 20_000)
        holds = (share_bound(source, np.full(20_000, size), confidence) >= share).mean()
        assert holds >= confidence - 4 * np.sqrt(confidence * (1 - confidence) / 20_000)
        if size * min(share, 1 - share) > 20:
            assert holds <= confidence + 0.05  # and not much oftener
