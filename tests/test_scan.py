"""The scan: counts in bins that know no domain, and a student taught by them."""

import copy
import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import recoslip
from recoslip import NodeGraph, detector
from recoslip.data.datasets.block_model import csbm
from recoslip.data.partitions import Partitions, share_bound
from recoslip.data.vectors import Reducer, Vectors
from recoslip.inference.metrics import auroc
from recoslip.learning.base import learn as learn_here
from recoslip.learning.loading import load_detector
from recoslip.learning.scan import FOLDS, Ranks, _folds, _student_values, _teach

NO_EDGES = np.empty((2, 0), dtype=int)
EASY = partial(csbm, nodes=600, categories=5, seed=0)


def points(x, is_target=None, edges=NO_EDGES):
    return NodeGraph(x, edges, np.arange(len(x)) % 2 == 1 if is_target is None else is_target)


def planted(seed=0):
    """Three known clusters of both domains, and a pure target cluster of 40 nodes; (graph, which nodes are in it)."""
    rng = np.random.default_rng(seed)
    centre = np.repeat([[0, 0, 6], [6, 0, 0], [0, 6, 0], [-6, -6, -6]], [100, 100, 100, 40], axis=0)
    novel = np.arange(340) >= 300
    order = rng.permutation(340)
    x = centre + rng.normal(size=(340, 3))
    return points(x[order], (novel | (rng.random(340) < 0.5))[order]), novel[order]


@pytest.fixture
def calls(monkeypatch):
    """The names of what was computed, in their order."""
    found = []

    def counted(cls, name):
        original = getattr(cls, name).__func__
        monkeypatch.setattr(cls, name, classmethod(lambda *args: found.append(cls.__name__) or original(*args)))

    counted(Partitions, "fit")
    counted(Reducer, "fit")
    return found


# What it scores


@pytest.mark.parametrize("student", ["linear", None])
def test_a_pure_target_cluster_ranks_on_top(student):
    for seed in range(3):
        graph, novel = planted(seed)
        scores = detector("scan", student=student).fit(graph).scores_
        assert scores[novel].min() > scores[~novel].max()


def test_without_a_student_the_score_is_the_rank_of_the_bin_that_says_most():
    graph, _ = planted()
    fitted = detector("scan", student=None, trees=2, confidence=0.7, random_state=5).fit(graph)
    partitions, target = Partitions.of(graph, 5, 2), graph.is_target
    value = np.zeros(340)
    for tree in partitions.leaf:
        bins = tree.astype(np.int64)
        while (partitions.parent[bins] >= 0).any():  # the bin that holds all nodes does not count
            for place in np.unique(bins[partitions.parent[bins] >= 0]):
                inside = bins == place
                source = np.array([(inside & ~target).sum()])
                bound = share_bound(source, np.array([inside.sum()]), 0.7)[0]
                value[inside] = np.maximum(value[inside], -np.log(bound))
            shallow = partitions.depth[bins] < partitions.depth[bins].max()
            bins = np.where(shallow, bins, partitions.parent[bins])
    np.testing.assert_allclose(fitted.scores_, Ranks.of(value)(value), atol=1e-9)


def test_the_student_moves_scores_and_the_scan_ranks_alike_with_and_without_it():
    graph = EASY(noise=2.0)
    alone, both = (detector("scan", student=student).fit(graph) for student in (None, "linear"))
    assert np.corrcoef(alone.scores_, both.scores_)[0, 1] > 0.5
    assert (alone.scores_ != both.scores_).any()
    assert alone.model_.weights is None
    assert both.model_.weights.shape == (FOLDS, Vectors.of(graph).beside().shape[1] + 1)


def test_ranks_lie_between_0_and_1_share_ties_and_keep_the_order():
    ranks = Ranks.of(np.array([3.0, 1.0, 1.0, 2.0]))
    assert ranks(np.array([1.0, 2.0, 3.0])).tolist() == [1 / 6, 2 / 3, 1.0]
    assert ranks(np.array([-9.0, 1.5, 9.0])).tolist() == pytest.approx([1 / 6, 5 / 12, 1.0])
    assert Ranks.of(np.full(7, 2.0))(np.array([2.0])).tolist() == [0.5]
    many = np.random.default_rng(0).normal(size=50_000)
    rank = Ranks.of(many)(many)
    assert (np.diff(rank[np.argsort(many)]) >= 0).all()
    np.testing.assert_allclose(rank[np.argsort(many)], np.linspace(0, 1, 50_000), atol=1e-3)


def test_the_student_scores_a_node_by_the_fold_that_did_not_learn_from_it():
    graph = EASY()
    fold = _folds(graph)
    assert np.bincount(fold).min() > 150
    order = np.random.default_rng(0).permutation(600)
    assert (_folds(graph.permuted(order)) == fold[order]).all()
    target, features = graph.is_target, Vectors.of(graph).beside()
    value = np.random.default_rng(1).random(600)
    changed = np.where(fold[:, None] == 0, np.random.default_rng(2).normal(size=features.shape), features)
    one, other = (_teach(each.astype(np.float32).__getitem__, target, value, fold) for each in (features, changed))
    assert [bool((a == b).all()) for a, b in zip(one, other, strict=True)] == [True, False, False]


def test_the_student_scores_a_node_by_its_own_fold_and_half_by_its_neighbours(monkeypatch):
    graph = NodeGraph(np.zeros((4, 1)), [[0], [1]], [False, True, False, True])
    features = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [3.0, 1.0]], np.float32)
    weights = np.array([[1.0, 2.0, 10.0], [3.0, -1.0, 20.0], [0.0, 1.0, 30.0]], np.float32)
    monkeypatch.setattr("recoslip.learning.scan._folds", lambda graph: np.array([0, 1, 2, 1]))
    margins = _student_values(Vectors(features, None, None, features, None), weights, graph)
    assert margins.tolist() == [(11 + 19) / 2, (11 + 19) / 2, 32.0, 28.0]


# Rotations


@pytest.mark.parametrize("ids", [None, [f"n{k}" for k in range(300)]])
def test_rotations_count_again_in_the_same_bins(calls, ids):
    graph = csbm(nodes=300, seed=0)
    graph = NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=ids)
    fitted = recoslip.calibrate(detector("scan"), graph, rotations=5)
    assert sorted(calls) == ["Partitions", "Reducer"]
    learned = [fit.model_ for fit in fitted.fits]
    assert all(each.partitions.parent is learned[0].partitions.parent for each in learned)
    assert all((each.novelty != learned[0].novelty).any() for each in learned[1:])
    assert {fit.seed_ for fit in fitted.fits} == {fit.random_state for fit in fitted.fits} == {0}


def test_each_rotation_is_the_fit_of_the_graph_as_it_presents_it():
    graph = csbm(nodes=300, seed=0)
    fitted = recoslip.calibrate(detector("scan", trees=2), graph, rotations=3)
    for fit, hidden in zip(fitted.fits, fitted.hidden, strict=True):
        presented = graph.with_target(graph.is_target | hidden)
        again = detector("scan", trees=2).fit(presented)
        np.testing.assert_array_equal(again.scores_, fit.scores_)


def test_rotations_that_are_learned_elsewhere_one_by_one_have_the_same_bits():
    def learn(own, shown, progress):
        """As the machines of a cluster do, each of which has a copy of the graph."""
        copies = [each._replace(graph=copy.deepcopy(each.graph)) for each in shown]
        return [attributes for each in copies for attributes in learn_here(own, [each], progress)]

    graph = csbm(nodes=300, seed=0)
    here = recoslip.calibrate(detector("scan", trees=2), graph, rotations=3)
    elsewhere = recoslip.calibrate(detector("scan", trees=2), copy.deepcopy(graph), rotations=3, learn=learn)
    assert (elsewhere.scores == here.scores).all()


def test_other_seeds_have_other_scores_and_the_same_seed_the_same_bits():
    graph = EASY(noise=2.0)
    one, again, other = (detector("scan", trees=4, random_state=k).fit(copy.copy(graph)).scores_ for k in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    assert auroc(graph.categories == 4, one) == pytest.approx(auroc(graph.categories == 4, other), abs=0.05)


@pytest.mark.parametrize("ids", [None, [f"n{k}" for k in range(300)]])
def test_the_order_of_nodes_changes_no_bit_of_scores_and_p_values(ids):
    graph = csbm(nodes=300, seed=0)
    graph = NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=ids)
    order = np.random.default_rng(0).permutation(300)
    one, other = (
        recoslip.calibrate(detector("scan", trees=2), each, rotations=2) for each in (graph, graph.permuted(order))
    )
    assert (other.scores == one.scores[order]).all()
    np.testing.assert_array_equal(other.p_values(), one.p_values()[order])


SCORES = """
import sys
from recoslip import Scan
from recoslip.data.datasets.block_model import csbm
sys.stdout.buffer.write(Scan(trees=2).fit(csbm(nodes=2000, features=300, seed=0)).scores_.tobytes())
"""


def test_the_number_of_cores_changes_no_bit():
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCORES],
            env=environment | {"OMP_NUM_THREADS": cores},
            capture_output=True,
            check=True,
        ).stdout
        for cores in ("1", "2", "3")
    }
    assert len(outputs) == 1


# p-values with nothing novel


def drawn(seed, share=0.5, nodes=300):
    """A graph of five known categories, the domain of each node drawn."""
    base = csbm(nodes=nodes, categories=5, novel_share=0.15, seed=seed % 4)
    return base.with_target(np.random.default_rng([seed, 1]).random(nodes) > share)


def within_error(fractions, level):
    """Whether their mean is at most the level, but for Monte-Carlo error."""
    return np.mean(fractions) <= level + 3 * np.std(fractions) / np.sqrt(len(fractions))


def test_with_nothing_novel_p_values_are_no_smaller_than_they_may_be_and_half_of_them_below_a_half():
    levels, small = (0.01, 0.05, 0.5), []
    for seed in range(25):
        graph = drawn(seed)
        p = recoslip.calibrate(detector("scan", trees=4, random_state=seed), graph, rotations=3).p_values()
        small.append([(p[graph.is_target] <= level).mean() for level in levels])
    for fractions, level in zip(np.transpose(small), levels, strict=True):
        assert within_error(fractions, level)
    assert np.mean(small, axis=0)[2] > 0.45  # known target nodes score as hidden source nodes do


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_with_nothing_novel_rotations_have_valid_p_values_and_empty_lists(share):
    small, lists = [], 0
    for seed in range(12):
        graph = drawn(seed, share)
        fitted = recoslip.calibrate(detector("scan", trees=4), graph, rotations=5)
        p = fitted.p_values()[graph.is_target]
        small.append([(p <= 0.01).mean(), (p <= 0.05).mean()])
        lists += fitted.select(fdr=0.1).any()
    for fractions, level in zip(np.transpose(small), (0.01, 0.05), strict=True):
        assert within_error(fractions, level)
    assert lists == 0


def test_a_novel_category_is_listed_at_a_low_false_discovery_rate():
    graph = csbm(nodes=900, categories=5, shift=0.3, novel_share=0.2, seed=0)
    fitted = recoslip.calibrate(detector("scan"), graph, rotations=5)
    listed, novel = fitted.select(fdr=0.1), graph.categories == 4
    assert listed[novel].mean() > 0.8
    assert novel[listed].mean() > 0.8


# Saved, and asked about other nodes


def unlike_the_fitted(graph):
    """Graphs of other nodes: some of them, none of their edges, in another order."""
    yield graph.subgraph(np.arange(40, 90))
    yield graph.without_edges()
    yield graph.permuted(np.random.default_rng(0).permutation(graph.num_nodes))


@pytest.mark.parametrize("student", ["linear", None])
@pytest.mark.parametrize("rotations", [1, 3])
def test_a_saved_scan_scores_alike_other_nodes_too(tmp_path, student, rotations):
    graph, one = csbm(nodes=300, seed=0), detector("scan", trees=3, student=student)
    fitted = one.fit(graph) if rotations == 1 else recoslip.calibrate(one, graph, rotations=rotations)
    load = load_detector if rotations == 1 else recoslip.Calibrated.load
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert (loaded.decision_function() == fitted.decision_function()).all()
    for other in unlike_the_fitted(graph):
        scores = loaded.decision_function(other)
        assert (scores == fitted.decision_function(other)).all()
        assert ((scores >= 0) & (scores <= 1)).all()
    loaded.save(tmp_path / "again")
    assert (load(tmp_path / "again").decision_function(graph) == loaded.decision_function(graph)).all()


def test_a_saved_scan_holds_shared_arrays_once(tmp_path):
    graph = csbm(nodes=600, features=150, seed=0)
    detector("scan").fit(graph).save(tmp_path / "1")
    recoslip.calibrate(detector("scan"), graph, rotations=5).save(tmp_path / "5")
    one, five = (tmp_path / name / "model.safetensors" for name in ("1", "5"))
    assert five.stat().st_size < 1.3 * one.stat().st_size
    shared = json.loads((tmp_path / "5" / "model.json").read_text(encoding="utf-8"))["same"]
    names = {f"model_.partitions.{name}" for name in ("parent", "first", "view", "centre")}
    assert {f"{k}.{name}" for k in range(1, 5) for name in names} <= set(shared)
    assert {f"{k}.model_.reducer.basis" for k in range(1, 5)} <= set(shared)


def test_the_fitted_graph_given_again_scores_as_it_did_but_for_rounding():
    graph = EASY()
    fitted = detector("scan", trees=4).fit(graph)
    again = fitted.decision_function(graph)
    assert (abs(again - fitted.scores_) < 1e-4).mean() > 0.99
    new = fitted.decision_function(EASY(noise=0.9))
    assert auroc(graph.categories == 4, new) > 0.9


# Graphs that a program could stumble over


def hard_graphs():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    some = rng.integers(0, 60, (2, 150))  # of 120 nodes, half are isolated
    yield "no edges", points(x)
    yield "isolated nodes", points(x, edges=some)
    yield "one column", points(x[:, :1], edges=some)
    yield "duplicates", points(np.repeat(x[:6], 20, axis=0), edges=some)
    yield "all equal", points(np.ones((120, 3)), edges=some)
    yield "all zero", points(np.zeros((120, 3)))
    yield "constant column", points(np.column_stack([x, np.full(120, 7.0)]))
    yield "ten nodes", points(x[:10])
    yield "ten nodes, two target", points(x[:10], np.arange(10) < 2)
    yield "few source nodes", points(x, np.arange(120) >= 6)
    yield "few target nodes", points(x, np.arange(120) < 2, edges=some)
    yield "extreme", points(rng.choice([-3.4e38, 3.4e38, 1e-42, 0.0], (120, 4)), edges=some)
    yield "sparse", NodeGraph(sp.random(120, 300, 0.03, random_state=0), some, np.arange(120) % 2 == 1)
    yield "wide", points(rng.normal(size=(150, 200)))


HARD = dict(hard_graphs())


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("student", ["linear", None])
def test_scores_of_hard_graphs_lie_between_0_and_1(name, student, tmp_path):
    graph = HARD[name]
    fitted = recoslip.calibrate(detector("scan", trees=3, student=student), graph, rotations=2)
    p = fitted.p_values()
    assert ((fitted.scores >= 0) & (fitted.scores <= 1)).all()
    assert (np.isnan(p) == ~graph.is_target).all()
    assert ((p > 0) & (p <= 1))[graph.is_target].all()
    assert not fitted.select(fdr=0.05).any()
    fitted.save(tmp_path / "model")
    loaded = recoslip.Calibrated.load(tmp_path / "model")
    assert (loaded.decision_function(graph) == fitted.decision_function(graph)).all()


@pytest.mark.parametrize("name", ["all equal", "all zero"])
def test_equal_nodes_have_equal_scores(name):
    graph = HARD[name].without_edges()
    assert len(set(detector("scan", trees=2, student=None).fit(graph).scores_.tolist())) == 1
