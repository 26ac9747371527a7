"""Every source node calibrates once, and target nodes are compared with the source nodes of their own region."""

import numpy as np
import pytest

import recoslip
from recoslip import NodeGraph, detector
from recoslip.base.errors import SettingError
from recoslip.data.datasets.block_model import csbm
from recoslip.data.split import present, rotate
from recoslip.learning.p_values import benjamini_hochberg, regional_p_values
from recoslip.learning.regions import merge_alike, source_regions

CHEAP = {"epochs": 20, "hidden_channels": 8, "out_channels": 8, "head_channels": 8}
CHEAP_PLUS = CHEAP | {"domain_epochs": 10, "round_epochs": 10}


def grown(seed, *, novel=80):
    """Two known kinds, of which the rare one is 16 times as frequent in the target, and a novel one, as points."""
    rng = np.random.default_rng(seed)
    sizes = {"source": (570, 30), "target": (100, 100)}
    x, is_target, is_novel = [], [], []
    for domain, (common, rare) in sizes.items():
        for centre, count in (((0, 0), common), ((4, 0), rare), ((0, 4), novel if domain == "target" else 0)):
            x.append(rng.normal(centre, 0.7, (count, 2)))
            is_target += [domain == "target"] * count
            is_novel += [centre == (0, 4)] * count
    graph = NodeGraph(np.concatenate(x), np.empty((2, 0), dtype=int), is_target)
    return graph, np.array(is_novel)


def test_every_source_node_is_hidden_once_and_evenly_in_every_stratum():
    graph = csbm(nodes=200, seed=0)
    source = ~graph.is_target
    strata = np.random.default_rng(0).integers(0, 4, 200)
    parts = np.array(rotate(graph, 3, strata, seed=1))
    assert (parts.sum(axis=0) == source).all()
    for stratum in range(4):
        counts = parts[:, strata == stratum].sum(axis=1)
        assert np.ptp(counts) <= 1
    assert (np.array(rotate(graph, 3, strata, seed=2)) != parts).any()


def test_hidden_nodes_are_presented_as_target_and_nothing_else_changes():
    graph = csbm(nodes=100, seed=0)
    hidden = rotate(graph, 2, np.zeros(100, dtype=int), seed=0)[0]
    presented, split = present(graph, None, hidden, np.random.default_rng(0), 0)
    assert (presented.is_target == (graph.is_target | hidden)).all()
    assert (split.train | split.validation).all()


@pytest.mark.parametrize("count", [3, 4, 5])
def test_few_source_nodes_rotate_as_long_as_two_are_left(count):
    graph = NodeGraph(np.arange(10.0)[:, None], np.empty((2, 0), dtype=int), [False] * count + [True] * (10 - count))
    parts = rotate(graph, 3, np.zeros(10, dtype=int), seed=0)
    assert all(count - part.sum() >= 2 for part in parts)


def test_too_few_source_nodes_and_impossible_rotations_are_refused():
    two = NodeGraph(np.arange(6.0)[:, None], np.empty((2, 0), dtype=int), [False] * 2 + [True] * 4)
    with pytest.raises(SettingError, match="3 source nodes"):
        detector("lp-pul").fit(two, rotations=3)
    three = NodeGraph(np.arange(6.0)[:, None], np.empty((2, 0), dtype=int), [False] * 3 + [True] * 3)
    with pytest.raises(SettingError, match="too few for 2 rotations"):
        detector("lp-pul").fit(three, rotations=2)
    for rotations in (0, 21, 1.5):
        with pytest.raises(SettingError, match="rotations"):
            detector("lp-pul").fit(csbm(nodes=60, seed=0), rotations=rotations)


@pytest.mark.parametrize("name", ["lp-pul", "domain-discriminator", "reco-slip-plus"])
def test_scores_are_means_of_target_nodes_and_those_of_the_fit_that_hid_a_source_node(name):
    graph = csbm(nodes=150, seed=0)
    settings = {"lp-pul": {}, "domain-discriminator": CHEAP, "reco-slip-plus": CHEAP_PLUS}[name]
    fitted = detector(name, **settings).fit(graph, rotations=3)
    target = graph.is_target
    assert len(fitted.fits) == 3
    assert (fitted.calibration_ == ~target).all()
    np.testing.assert_allclose(
        fitted.scores_[target], np.mean([fit.scores_[target] for fit in fitted.fits], axis=0), atol=1e-12
    )
    for fit in fitted.fits:
        np.testing.assert_array_equal(fitted.scores_[fit.calibration_], fit.scores_[fit.calibration_])
    np.testing.assert_allclose(
        fitted.decision_function(graph), np.mean([fit.decision_function(graph) for fit in fitted.fits], axis=0)
    )
    expected = regional_p_values(
        [(fit.scores_, fit.calibration_) for fit in fitted.fits], fitted.region_, graph.is_target
    )
    np.testing.assert_array_equal(fitted.p_values(), expected)
    assert (fitted.predict() == (expected <= fitted.max_fpr)).all()


def test_p_values_are_counted_by_hand():
    first, second = np.array([0.9, 0.2, 0.6, 0.5, 0.5]), np.array([0.1, 0.7, 0.4, 0.8, 0.3])
    hidden = np.array([[True, False, False, False, False], [False, True, True, False, False]])
    target = np.array([False, False, False, True, True])
    region = np.array([0, 0, 1, 0, 1])
    p = regional_p_values([(first, hidden[0]), (second, hidden[1])], region, target)
    # Node 3 (region 0): 0.9 ≥ 0.5 in the first fit, 0.7 < 0.8 in the second. Node 4 (region 1): 0.4 ≥ 0.3.
    np.testing.assert_allclose(p[3:], [(1 + 1) / (1 + 2), (1 + 1) / (1 + 1)])
    assert np.isnan(p[:3]).all()


def test_rotations_survive_saving(tmp_path):
    graph = csbm(nodes=150, seed=0)
    fitted = detector("reco-slip-plus", **CHEAP_PLUS).fit(graph, rotations=3)
    fitted.save(tmp_path / "model")
    again = recoslip.load_detector(tmp_path / "model")
    np.testing.assert_array_equal(again.p_values(), fitted.p_values())
    np.testing.assert_array_equal(again.region_, fitted.region_)
    np.testing.assert_array_equal(again.uncertainty_, fitted.uncertainty_)
    np.testing.assert_allclose(again.decision_function(graph), fitted.decision_function(graph), atol=1e-6)
    assert (again.predict() == fitted.predict()).all()
    assert recoslip.load_detector(tmp_path / "model", max_fpr=0.2).predict().sum() >= fitted.predict().sum()


def test_nodes_in_another_order_get_the_same_scores_and_p_values():
    graph = csbm(nodes=120, seed=0)
    order = np.random.default_rng(0).permutation(120)
    one = detector("domain-discriminator", **CHEAP).fit(graph, rotations=3)
    other = detector("domain-discriminator", **CHEAP).fit(graph.permuted(order), rotations=3)
    np.testing.assert_allclose(other.scores_, one.scores_[order], atol=1e-6)
    np.testing.assert_array_equal(other.p_values(), one.p_values()[order])
    assert (other.fits[1].calibration_ == one.fits[1].calibration_[order]).all()


def test_regions_follow_the_source_and_merge_where_scores_are_alike():
    graph, _ = grown(0)
    source = ~graph.is_target
    x = graph.x
    region = source_regions(x, source)
    assert 2 <= region.max() + 1 <= 6  # 600 source nodes
    rare = x[:, 0] > 2
    alike = merge_alike(region, np.where(rare, 1.0, 0.0) + np.arange(len(x)) % 7 / 100, source)
    assert len(np.unique(alike)) <= len(np.unique(region))
    few = source_regions(x[:50], np.ones(50, dtype=bool))
    assert (few == 0).all()


def test_all_scores_tied_and_one_cluster_promise_nothing_and_list_nobody():
    graph = NodeGraph(np.ones((60, 2)), np.empty((2, 0), dtype=int), [False] * 30 + [True] * 30)
    fitted = detector("domain-discriminator", **CHEAP).fit(graph, rotations=3)
    assert (fitted.region_ == 0).all()
    assert not fitted.select(0.2).any()


def test_a_known_kind_that_grew_stays_off_the_list_that_it_fills_without_regions():
    """Distance from the source's mean ranks the grown kind as high as the novel one: only regions tell them apart."""
    with_regions, without, found = [], [], []
    for seed in range(40):
        graph, novel = grown(seed)
        target, x = graph.is_target, graph.x
        rng = np.random.default_rng(seed)
        parts = rotate(graph, 3, np.zeros(len(x), dtype=int), seed)
        scores = [
            np.linalg.norm(x - x[~target & ~part].mean(axis=0), axis=1) + rng.normal(0, 0.3, len(x)) for part in parts
        ]
        rotations = list(zip(scores, parts, strict=True))
        own = np.mean(scores, axis=0)
        region = merge_alike(source_regions(x, ~target, seed), own, ~target)
        for rates, regions in ((with_regions, region), (without, np.zeros_like(region))):
            p = regional_p_values(rotations, regions, target)
            listed = np.zeros_like(target)
            listed[target] = benjamini_hochberg(p[target], 0.1)
            rates.append((listed & ~novel).sum() / max(1, listed.sum()))
            if regions is region:
                found.append((listed & novel).sum() / novel.sum())
    assert np.mean(without) > 0.2
    assert np.mean(with_regions) <= 0.1 + 2.5 * np.std(with_regions) / np.sqrt(40)
    assert np.mean(found) > 0.5  # it is not won by saying nothing
