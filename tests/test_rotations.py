"""Every source node is hidden once, and target nodes are compared with the hidden ones."""

import numpy as np
import pytest

import recoslip
from recoslip import NodeGraph, detector
from recoslip.base.errors import ModelFileError, SettingError
from recoslip.data.datasets.block_model import csbm
from recoslip.data.split import present, rotate
from recoslip.inference.calibrated import mean_uncertainty
from recoslip.inference.p_values import p_values_within, weights

CHEAP = {"epochs": 20, "hidden_channels": 8, "out_channels": 8, "head_channels": 8}


def test_every_source_node_is_hidden_once():
    graph = csbm(nodes=200, seed=0)
    parts = np.array(rotate(graph, 3, seed=1))
    assert (parts.sum(axis=0) == ~graph.is_target).all()
    assert np.ptp(parts.sum(axis=1)) <= 1
    assert (np.array(rotate(graph, 3, seed=2)) != parts).any()


def test_hidden_nodes_are_presented_as_target_and_nothing_else_changes():
    graph = csbm(nodes=100, seed=0)
    hidden = rotate(graph, 2, seed=0)[0]
    presented, split = present(graph, None, hidden, np.random.default_rng(0), 0)
    assert (presented.is_target == (graph.is_target | hidden)).all()
    assert (split.train | split.validation).all()


@pytest.mark.parametrize("count", [3, 4, 5])
def test_few_source_nodes_rotate_as_long_as_two_are_left(count):
    graph = NodeGraph(np.arange(10.0)[:, None], np.empty((2, 0), dtype=int), [False] * count + [True] * (10 - count))
    parts = rotate(graph, 3, seed=0)
    assert all(count - part.sum() >= 2 for part in parts)


def test_too_few_source_nodes_and_impossible_rotations_are_refused():
    two = NodeGraph(np.arange(6.0)[:, None], np.empty((2, 0), dtype=int), [False] * 2 + [True] * 4)
    with pytest.raises(SettingError, match="3 source nodes"):
        recoslip.calibrate(detector("lp-pul"), two, rotations=3)
    three = NodeGraph(np.arange(6.0)[:, None], np.empty((2, 0), dtype=int), [False] * 3 + [True] * 3)
    with pytest.raises(SettingError, match="too few for 2 rotations"):
        recoslip.calibrate(detector("lp-pul"), three, rotations=2)
    for rotations in (0, 21, 1.5):
        with pytest.raises(SettingError, match="rotations"):
            recoslip.calibrate(detector("lp-pul"), csbm(nodes=60, seed=0), rotations=rotations)


@pytest.mark.parametrize("name", ["lp-pul", "domain-discriminator", "reco-slip-plus"])
def test_scores_are_means_of_target_nodes_and_those_of_the_fit_that_hid_a_source_node(name):
    graph = csbm(nodes=150, seed=0)
    settings = {"lp-pul": {}, "domain-discriminator": CHEAP, "reco-slip-plus": CHEAP}[name]
    fitted = recoslip.calibrate(detector(name, **settings), graph, rotations=3, hiding="random")
    target = graph.is_target
    assert len(fitted.fits) == 3
    assert (fitted.calibration == ~target).all()
    np.testing.assert_allclose(
        fitted.scores[target], np.mean([fit.scores_[target] for fit in fitted.fits], axis=0), atol=1e-12
    )
    for fit, hidden in zip(fitted.fits, fitted.hidden, strict=True):
        np.testing.assert_array_equal(fitted.scores[hidden], fit.scores_[hidden])
    presented = [
        graph.with_target(target | hidden) if fit.scores_need_source else graph
        for fit, hidden in zip(fitted.fits, fitted.hidden, strict=True)
    ]
    again = [fit.decision_function(own) for fit, own in zip(fitted.fits, presented, strict=True)]
    np.testing.assert_allclose(fitted.decision_function(graph), np.mean(again, axis=0))
    expected = p_values_within(list(zip(fitted.fit_scores, fitted.hidden, strict=True)), np.zeros(150, int), target)
    np.testing.assert_array_equal(fitted.p_values(), expected)
    assert (fitted.select() == (expected <= fitted.max_fpr)).all()


def test_p_values_are_counted_by_hand():
    first, second = np.array([0.9, 0.2, 0.6, 0.5, 0.5]), np.array([0.1, 0.7, 0.4, 0.8, 0.3])
    hidden = np.array([[True, False, False, False, False], [False, True, True, False, False]])
    target = np.array([False, False, False, True, True])
    region = np.array([0, 0, 1, 0, 1])
    p = p_values_within([(first, hidden[0]), (second, hidden[1])], region, target)
    # Node 3 (region 0): 0.9 ≥ 0.5 in the first fit, 0.7 < 0.8 in the second. Node 4 (region 1): 0.4 ≥ 0.3.
    np.testing.assert_allclose(p[3:], [(1 + 1) / (1 + 2), (1 + 1) / (1 + 1)])
    assert np.isnan(p[:3]).all()


def test_a_node_that_is_hidden_in_several_fits_counts_once_in_all():
    rng = np.random.default_rng(0)
    scores, target = rng.random((4, 50)), np.arange(50) >= 30
    hidden = (rng.random((4, 50)) < 0.5) & ~target
    fits = list(zip(scores, hidden, strict=True))
    weight = weights(hidden)
    assert np.sum([weight[each].sum() for each in hidden]) == pytest.approx(hidden.any(axis=0).sum())
    p = p_values_within(fits, np.zeros(50, int), target)
    by_hand = [
        (1 + sum(weight[hid][own[hid] >= own[node]].sum() for own, hid in fits)) / (1 + hidden.any(axis=0).sum())
        for node in np.flatnonzero(target)
    ]
    np.testing.assert_allclose(p[target], by_hand)
    np.testing.assert_allclose(p_values_within(fits * 3, np.zeros(50, int), target), p)  # nothing new is hidden
    order = rng.permutation(50)
    again = p_values_within([(own[order], hid[order]) for own, hid in fits], np.zeros(50, int), target[order])
    np.testing.assert_allclose(again, p[order])


def test_p_values_are_uniform_at_most_where_overlapping_parts_were_hidden_at_random():
    rng, small = np.random.default_rng(0), []
    for _ in range(400):
        score, target = rng.normal(size=160), np.arange(160) >= 80
        fits = []
        for _ in range(12):
            hidden = np.isin(np.arange(160), rng.choice(80, 20, replace=False))
            fits.append((score + 0.3 * rng.normal(size=160), hidden))
        small.append((p_values_within(fits, np.zeros(160, int), target)[target] <= 0.1).mean())
    assert 0.05 < np.mean(small) <= 0.1 + 3 * np.std(small) / 20


def test_rotations_survive_saving(tmp_path):
    graph = csbm(nodes=150, seed=0)
    fitted = recoslip.calibrate(detector("reco-slip-plus", **CHEAP), graph, rotations=3)
    fitted.save(tmp_path / "model")
    again = recoslip.Calibrated.load(tmp_path / "model")
    np.testing.assert_array_equal(again.p_values(), fitted.p_values())
    np.testing.assert_array_equal(mean_uncertainty(again), mean_uncertainty(fitted))
    np.testing.assert_allclose(again.decision_function(graph), fitted.decision_function(graph), atol=1e-6)
    assert (again.select() == fitted.select()).all()
    assert recoslip.Calibrated.load(tmp_path / "model", max_fpr=0.2).select().sum() >= fitted.select().sum()
    with pytest.raises(ModelFileError, match="3 fits"):
        recoslip.load_detector(tmp_path / "model")


def test_nodes_in_another_order_get_the_same_scores_and_p_values():
    graph = csbm(nodes=120, seed=0)
    order = np.random.default_rng(0).permutation(120)
    one = recoslip.calibrate(detector("domain-discriminator", **CHEAP), graph, rotations=3)
    other = recoslip.calibrate(detector("domain-discriminator", **CHEAP), graph.permuted(order), rotations=3)
    np.testing.assert_allclose(other.scores, one.scores[order], atol=1e-6)
    np.testing.assert_array_equal(other.p_values(), one.p_values()[order])
    assert (other.hidden[1] == one.hidden[1][order]).all()


def test_all_scores_tied_and_one_cluster_promise_nothing_and_list_nobody():
    graph = NodeGraph(np.ones((60, 2)), np.empty((2, 0), dtype=int), [False] * 30 + [True] * 30)
    fitted = recoslip.calibrate(detector("domain-discriminator", **CHEAP), graph, rotations=3)
    assert not fitted.select(fdr=0.2).any()
