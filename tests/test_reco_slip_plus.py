"""Networks judge what they did not learn from, and learning from the highest ranked finds the rest."""

import numpy as np
import pytest
import torch

from recoslip import RecoSlipPlus, analyse, detector, load, load_dataset
from recoslip.detectors.panel import (
    LIMIT,
    NO_FOLD,
    Opinion,
    choose_examples,
    example_weights,
    folds_of,
    is_grown,
    judge,
    smooth,
)
from recoslip.graph import Neighbours, NodeGraph
from recoslip.insight.metrics import auroc
from recoslip.shift import random_split

QUICK = {"hidden_channels": 32, "out_channels": 32, "head_channels": 16, "epochs": 150, "round_epochs": 60}


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


def test_a_node_is_judged_by_the_networks_without_its_fold():
    margins = np.array([[0.0, 7.0, 1.0], [5.0, 1.0, 1.0], [2.0, 2.0, 90.0]])
    opinion = judge(margins, np.array([0, 1, 0]), np.array([0, 1, 0]))
    np.testing.assert_allclose(opinion.margin, [0.5, 1, (2 + LIMIT) / 2])  # networks 0 and 2; 1; 0 and 2
    half_distance = (sigmoid([1, LIMIT]) - sigmoid([0, 2])) / 2
    np.testing.assert_allclose(opinion.disagreement, [half_distance[0], 0, half_distance[1]], atol=1e-12)
    np.testing.assert_allclose(opinion.f, sigmoid(opinion.margin))
    everyone = judge(margins, np.array([0, 1, 0]), np.full(3, NO_FOLD))
    np.testing.assert_allclose(everyone.margin, margins.clip(-LIMIT, LIMIT).mean(axis=1))


def test_smoothing_weighs_neighbours_and_leaves_the_isolated_alone():
    graph = NodeGraph(np.zeros((4, 1)), [[0, 0], [1, 2]], [False, False, True, True], edge_weight=[3.0, 1.0])
    own = np.array([0.0, 4.0, 8.0, -5.0])
    expected = own
    for _ in range(3):
        expected = np.array([(3 * expected[1] + expected[2]) / 8, 2 + expected[0] / 2, 4 + expected[0] / 2, -5.0])
    np.testing.assert_allclose(smooth(own, Neighbours(graph), 0.5), expected)
    np.testing.assert_allclose(smooth(own, Neighbours(graph), 0.0), own)


def test_who_judges_did_not_learn_from_the_node():
    data = load_dataset("csbm", nodes=200, categories=3, features=4)
    fitted = detector("reco-slip-plus", epochs=3, round_epochs=2).fit(data.graph)
    assert not fitted.grown_
    fold = folds_of(data.graph.ids, 3, fitted.seed_)
    for node in range(10):
        judges = fitted.judges(data.graph.ids[node])
        assert judges == [fold[node], fold[node] + 3]  # two networks for each of three folds
    alone = detector("reco-slip-plus", epochs=3, rounds=0).fit(data.graph)
    assert alone.judges("anybody") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("settings", [{"rounds": 0}, {"folds": 1, "rounds": 1}])
def test_networks_that_judge_what_they_learned_do_without_validation(settings):
    rng = np.random.default_rng(0)
    target = np.arange(600) % 2 == 0
    noise = NodeGraph(rng.normal(size=(600, 200)), np.empty((2, 0), dtype=int), target)
    split = random_split(noise.is_target, torch.Generator().manual_seed(0))
    fitted = detector("reco-slip-plus", encoder="mlp", input_dropout=0, dropout=0, **settings).fit(noise, split)
    unseen = split.test & target
    assert 0.4 < auroc(target, fitted.scores_, unseen | (split.validation & ~target)) < 0.6
    assert auroc(target, fitted.scores_, unseen | (split.train & ~target)) > 0.65


def test_with_calibration_validation_nodes_have_nothing_else_to_do(monkeypatch):
    seen, learn = [], RecoSlipPlus._learn

    def spy(self, graph, split, *arguments, **given):
        seen.append(split)
        return learn(self, graph, split, *arguments, **given)

    monkeypatch.setattr(RecoSlipPlus, "_learn", spy)
    graph = load_dataset("csbm", nodes=200, categories=3, features=4).graph
    for share in (0.0, 0.3):
        fitted = RecoSlipPlus(epochs=2, round_epochs=2, rounds=1).fit(graph, calibration=share)
        assert fitted.split_.validation.any()
        assert seen[-1].validation.any() == (share == 0)
        assert ((seen[-1].train | seen[-1].validation) == (fitted.split_.train | fitted.split_.validation)).all()


def test_a_fold_follows_the_id_and_not_the_place():
    ids = np.array([f"node {k}" for k in range(900)], dtype=object)
    folds = folds_of(ids, 3, seed=1)
    order = np.random.default_rng(0).permutation(900)
    assert np.array_equal(folds_of(ids[order], 3, seed=1), folds[order])
    assert (np.bincount(folds) > 250).all()
    assert not np.array_equal(folds_of(ids, 3, seed=2), folds)
    assert np.array_equal(folds_of(np.arange(50), 4, 0), folds_of(np.arange(50).astype(object), 4, 0))


def test_examples_of_proposals_and_of_rounds():
    margin = np.array([-2.0, -1.5, 2.0, 1.5, 0.3, -0.5, -1.0, 3.0])
    is_target = np.array([False, False, True, True, True, True, True, True])
    nodes = np.array([True] * 7 + [False])  # the last is not to be learned from, high as it is
    opinion = Opinion(margin, np.zeros(8))
    novel, known = choose_examples(opinion, is_target, nodes, core=0.2, known_below=None, source_weight=0.3)
    assert novel.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert known.tolist() == [0.3, 0.3, 0, 0, 0, 1, 1, 0]  # the source, and the lower half of the target
    novel, known = choose_examples(opinion, is_target, nodes, core=0.2, known_below=0.3, source_weight=0.3)
    assert novel.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert known.tolist() == [0.3, 0.3, 0, 0, 0, 0, 1, 0]  # σ(-1) = 0.27 is known, σ(-0.5) = 0.38 waits


def test_examples_of_its_own_fold_weigh_nothing():
    count = np.array([1.0, 0.5, 1.5, 0.0])
    weights = example_weights(count, np.array([0, 1, 1, 0]), np.array([0, 1, NO_FOLD])).numpy()
    np.testing.assert_allclose(weights, [[0, 1, 1 / 3], [0.25, 0, 1 / 6], [0.75, 0, 0.5], [0, 0, 0]])
    alone = example_weights(np.array([1.0, 0.0]), np.array([0, 1]), np.array([0])).numpy()
    np.testing.assert_allclose(alone, [[1], [0]])  # better than learning from nobody


def test_rounds_find_more_than_the_proposals():
    gains = []
    for seed in range(3):
        data = load_dataset("csbm", nodes=1200, features=24, noise=1.6, homophily=0.7, split_seed=seed)
        proposals, final = (
            detector("reco-slip-plus", rounds=rounds, **QUICK).fit(data.graph, data.split) for rounds in (0, 2)
        )
        gains.append([auroc(data.novel, fitted.scores_, data.split.test) for fitted in (proposals, final)])
    before, after = np.mean(gains, axis=0)
    assert after > before


def test_what_it_reports(small):
    fitted = detector("reco-slip-plus", rounds=2, core=0.1, **QUICK).fit(small.graph, small.split)
    learning = (small.split.train | small.split.validation) & small.graph.is_target.numpy()
    assert fitted.rounds_["novel"].to_list() == [round(0.1 * learning.sum())] * 2
    assert fitted.rounds_["known"][0] == learning.sum() // 2
    assert fitted.rounds_["looks_novel"].is_between(0, 1).all()
    assert fitted.uncertainty_.shape == (small.graph.num_nodes,)
    assert (fitted.uncertainty_ >= 0).all()
    assert fitted.uncertainty_.max() > 0
    np.testing.assert_allclose(fitted.uncertainty(small.graph), fitted.uncertainty_, atol=1e-6)


def test_a_known_kind_that_grew_ends_the_rounds(small, tmp_path, monkeypatch):
    monkeypatch.setattr("recoslip.detectors.reco_slip_plus.is_grown", lambda *_: True)
    told = []
    model = detector("reco-slip-plus", rounds=3, folds=2, **QUICK)
    fitted = model.fit(small.graph, small.split, calibration=0.2, progress=lambda *step: told.append(step))
    assert fitted.grown_
    assert fitted.rounds_.height == 1
    assert fitted.fleet_.members == 2 * 3  # new proposals: restarts of each recall target
    assert fitted.fleet_.architecture.input_dropout == 0
    assert told[-1] == (2 * 150 + 60,) * 2
    assert [done for done, _ in told[:-1]] == list(range(1, 2 * 150 + 60 + 1))
    assert all(done < total for done, total in told[:-2])
    np.testing.assert_allclose(fitted.decision_function(small.graph), fitted.scores_, atol=1e-6)
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.grown_
    np.testing.assert_array_equal(loaded.decision_function(small.graph), fitted.decision_function(small.graph))
    assert any(
        "of a kind that the source has" in warning for warning in analyse(fitted, small.graph).diagnosis.warnings
    )


def test_of_several_seeds_only_those_whose_kind_grew_end_early(small, monkeypatch):
    said = iter([True, False])
    monkeypatch.setattr("recoslip.detectors.reco_slip_plus.is_grown", lambda *_: next(said))
    grown, other = detector("reco-slip-plus", rounds=2, **QUICK).fit_seeds(small.graph, [1, 2], small.split)
    monkeypatch.setattr("recoslip.detectors.reco_slip_plus.is_grown", lambda *_: False)
    alone = detector("reco-slip-plus", rounds=2, random_state=2, **QUICK).fit(small.graph, small.split)
    assert (grown.grown_, other.grown_) == (True, False)
    np.testing.assert_allclose(other.scores_, alone.scores_, atol=1e-4)


def test_what_counts_as_grown():
    is_target = np.arange(1500) < 1000
    everyone = np.ones(1500, dtype=bool)
    margin = np.where(is_target, 0.0, -5.0) + np.linspace(1, 0, 1500)
    margin[:50] += 3  # the core

    def with_source_like(count: int, how: float) -> bool:
        own = margin.copy()
        own[1000 : 1000 + count] = how
        return is_grown(Opinion(own, own), is_target, everyone, 0.05)

    assert not with_source_like(0, 5.0)
    assert not with_source_like(2, 5.0)  # fewer than three prove nothing
    assert with_source_like(3, 5.0)
    assert not with_source_like(40, margin[45])  # in the core, and not in its top
