"""Predictions are out of fold, and self-training on the highest ranked finds the rest."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCN

import recoslip
from recoslip import RecoSlipPlus, Scan, detector, load_dataset, load_detector
from recoslip.base.errors import ModelFileError, SettingError
from recoslip.base.randomness import Permutations
from recoslip.base.settings import check_params
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.data.split import random_split
from recoslip.inference.metrics import auroc
from recoslip.learning.base import Presentation
from recoslip.learning.networks.committee import (
    MARGIN_LIMIT,
    Round,
    assign_folds,
    choose_pseudo_labels,
    label_weights,
    out_of_fold_prediction,
    smooth,
)
from recoslip.learning.networks.reco_slip_plus import margins_of
from recoslip.learning.scan import Ranks

QUICK = {"hidden_channels": 32, "out_channels": 32, "head_channels": 16, "epochs": 60}
BRIEF = QUICK | {"epochs": 10}  # for what does not depend on what is found


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


def test_a_node_is_predicted_by_the_networks_that_held_its_fold_out():
    margins = np.array([[0.0, 7.0, 1.0], [5.0, 1.0, 1.0], [2.0, 2.0, 90.0]])
    prediction = out_of_fold_prediction(margins, np.array([0, 1, 0]), np.array([0, 1, 0]))
    np.testing.assert_allclose(prediction.margin, [0.5, 1, (2 + MARGIN_LIMIT) / 2])  # networks 0 and 2; 1; 0 and 2
    half_distance = (sigmoid([1, MARGIN_LIMIT]) - sigmoid([0, 2])) / 2
    np.testing.assert_allclose(prediction.disagreement, [half_distance[0], 0, half_distance[1]], atol=1e-12)
    np.testing.assert_allclose(prediction.f, sigmoid(prediction.margin))


def test_smoothing_weighs_neighbours_and_leaves_the_isolated_alone():
    graph = NodeGraph(np.zeros((4, 1)), [[0, 0], [1, 2]], [False, False, True, True], edge_weight=[3.0, 1.0])
    own = np.array([0.0, 4.0, 8.0, -5.0])
    expected = own
    for _ in range(3):
        expected = np.array([(3 * expected[1] + expected[2]) / 8, 2 + expected[0] / 2, 4 + expected[0] / 2, -5.0])
    np.testing.assert_allclose(smooth(own, Neighbours(graph), 0.5), expected)
    np.testing.assert_allclose(smooth(own, Neighbours(graph), 0.0), own)


def test_networks_remember_the_nodes_they_were_trained_on_and_others_predict_them():
    rng = np.random.default_rng(0)
    target = np.arange(600) % 2 == 0
    noise = NodeGraph(rng.normal(size=(600, 200)), np.empty((2, 0), dtype=int), target)
    split = random_split(noise.is_target, Permutations(0))
    fitted = RecoSlipPlus(encoder="mlp", rounds=1, folds=2, input_dropout=0, dropout=0).fit(noise, split)
    margins = margins_of(fitted._graph_input(noise, "mlp").evaluate(fitted.fleet_[0]))
    fold = assign_folds(noise.ids, 2, fitted.seed_)
    learned = split.train | split.validation
    assert margins[np.arange(600), 1 - fold][learned & ~target].max() < -3  # labelled known, and remembered
    assert 0.4 < auroc(target, margins[np.arange(600), fold], learned) < 0.6
    expected = out_of_fold_prediction(margins, fold, np.arange(2)).margin
    np.testing.assert_allclose(fitted.scores_, sigmoid(expected), atol=1e-6)


def test_with_calibration_validation_nodes_have_nothing_else_to_do(monkeypatch):
    seen, learn = [], RecoSlipPlus._learn

    def spy(self, shown, *arguments):
        seen.extend(each.split for each in shown)
        return learn(self, shown, *arguments)

    monkeypatch.setattr(RecoSlipPlus, "_learn", spy)
    graph = load_dataset("csbm", nodes=200, categories=3, features=4).graph
    recoslip.calibrate(RecoSlipPlus(epochs=2, rounds=1), graph, rotations=3)
    assert len(seen) == 3
    assert not any(split.validation.any() for split in seen)


def test_a_fold_follows_the_id_and_not_the_position():
    ids = np.array([f"node {k}" for k in range(900)], dtype=object)
    folds = assign_folds(ids, 3, seed=1)
    order = np.random.default_rng(0).permutation(900)
    assert np.array_equal(assign_folds(ids[order], 3, seed=1), folds[order])
    assert (np.bincount(folds) > 250).all()
    assert not np.array_equal(assign_folds(ids, 3, seed=2), folds)
    assert np.array_equal(assign_folds(np.arange(50), 4, 0), assign_folds(np.arange(50).astype(object), 4, 0))


def test_pseudo_labels_of_the_first_round_and_of_later_ones():
    margin = np.array([-2.0, -1.5, 2.0, 1.5, 0.3, -0.5, -1.0, 3.0])
    is_target = np.array([False, False, True, True, True, True, True, True])
    nodes = np.array([True] * 7 + [False])  # the last is not to be learned from, high as it is
    novel, known = choose_pseudo_labels(margin, is_target, nodes, core=0.2, known_below=None, source_weight=0.3)
    assert novel.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert known.tolist() == [0.3, 0.3, 0, 0, 0, 1, 1, 0]  # the source, and the lower half of the target
    novel, known = choose_pseudo_labels(margin, is_target, nodes, core=0.2, known_below=0.3, source_weight=0.3)
    assert novel.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert known.tolist() == [0.3, 0.3, 0, 0, 0, 0, 1, 0]  # σ(-1) = 0.27 is known, σ(-0.5) = 0.38 waits


def test_the_scan_has_a_say_in_what_is_labelled_novel_and_none_in_what_is_known():
    margin, is_target = np.array([3.0, 2.0, 1.0, -5.0]), np.array([True, True, True, False])
    scan = np.array([0.0, 2.0, -9.0, 0.0])
    everyone = np.ones(4, dtype=bool)
    chosen = choose_pseudo_labels(margin, is_target, everyone, scan=scan, core=0.3, known_below=0.8, source_weight=0.3)
    assert chosen.novel.tolist() == [0, 1, 0, 0]
    assert chosen.known.tolist() == [0, 0, 1, 0.3]


def test_pseudo_labels_of_its_own_fold_weigh_nothing():
    count = np.array([1.0, 0.5, 1.5, 0.0])
    weights = label_weights(count, np.array([0, 1, 1, 0]), np.array([0, 1])).numpy()
    np.testing.assert_allclose(weights, [[0, 1], [0.25, 0], [0.75, 0], [0, 0]])
    alone = label_weights(np.array([1.0, 0.0]), np.array([0, 1]), np.array([0])).numpy()
    np.testing.assert_allclose(alone, [[1], [0]])  # better than learning from nobody


def test_a_network_has_the_same_seed_whoever_else_is_trained():
    seeds = Round(1).seeds(7, encoder=0, count=3)
    assert Round(1).seeds(7, encoder=0, count=4)[:3] == seeds
    others = [Round(2).seeds(7, 0, 3), Round(1).seeds(8, 0, 3), Round(1).seeds(7, 1, 3)]
    assert len({*seeds}.union(*others)) == 12


def test_the_rounds_mend_an_opinion_that_is_often_wrong(small):
    noise = np.random.default_rng(0).normal(size=small.graph.num_nodes)
    opinion = sigmoid(small.novel + noise)  # AU-ROC 0.76
    shown = Presentation(small.graph, small.split, 0)
    (learned,) = RecoSlipPlus(core=0.1, **QUICK)._co_train([shown], [opinion], lambda *_: None)
    before, after = (auroc(small.novel, values, small.split.test) for values in (opinion, learned["scores_"]))
    assert after > before + 0.05


def test_thorough_is_the_mean_rank_of_scan_student_and_committee(small, tmp_path):
    settings = {"rounds": 1, **BRIEF, "random_state": 3}
    scan = Scan(random_state=3).fit(small.graph).scores_
    committee = RecoSlipPlus(**settings).fit(small.graph, small.split).scores_
    fitted = detector("thorough", **settings).fit(small.graph, small.split)
    np.testing.assert_allclose(fitted.scores_, (2 * scan + Ranks.of(committee)(committee)) / 3, atol=1e-6)
    fitted.save(tmp_path / "model")
    loaded = load_detector(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(small.graph), fitted.decision_function(small.graph))


def test_what_it_reports(small):
    fitted = detector("reco-slip-plus", rounds=2, core=0.1, **QUICK).fit(small.graph, small.split)
    learning = (small.split.train | small.split.validation) & small.graph.is_target
    assert fitted.rounds_["novel"].to_list() == [round(0.1 * learning.sum())] * 2
    assert fitted.rounds_["known"][0] == learning.sum() // 2
    assert fitted.rounds_["looks_novel"].is_between(0, 1).all()
    assert fitted.uncertainty_.shape == (small.graph.num_nodes,)
    assert (fitted.uncertainty_ >= 0).all()
    assert fitted.uncertainty_.max() > 0


# The committee.


def test_a_committee_is_saved_whole(small, tmp_path):
    own = GCN(small.graph.num_features, 8, 2, 4)
    fitted = detector("reco-slip-plus", encoder=("gcn", "mlp", own), rounds=2, **BRIEF).fit(small.graph, small.split)
    assert len(fitted.fleet_) == 3
    fitted.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="give it again"):
        load_detector(tmp_path / "model")
    loaded = load_detector(tmp_path / "model", encoder=("gcn", "mlp", own))
    assert loaded.rounds_.equals(fitted.rounds_)
    np.testing.assert_array_equal(loaded.decision_function(small.graph), fitted.decision_function(small.graph))
    np.testing.assert_allclose(loaded.decision_function(small.graph), fitted.scores_, atol=1e-6)
    assert loaded.representation(small.graph).shape[0] == small.graph.num_nodes


@pytest.mark.parametrize("encoder", [(), ("gcn", "gnc"), 7, ("gcn", 7)])
def test_a_committee_of_nobody_or_of_strangers_is_refused(encoder):
    with pytest.raises(SettingError, match="encoder"):
        check_params(detector("reco-slip-plus", encoder=encoder))


def test_several_seeds_train_together_as_alone(small):
    together = detector("reco-slip-plus", rounds=2, **BRIEF).fit_seeds(small.graph, [1, 2], small.split)
    for seed, fitted in zip((1, 2), together, strict=True):
        alone = detector("reco-slip-plus", rounds=2, random_state=seed, **BRIEF).fit(small.graph, small.split)
        np.testing.assert_allclose(alone.scores_, fitted.scores_, atol=1e-3)


def test_a_large_graph_takes_more_steps_in_batches_and_a_whole_one_does_not(graph, split, monkeypatch):
    monkeypatch.setattr(
        "recoslip.learning.networks.reco_slip_plus.MEDIUM_GRAPH", graph.num_nodes / 16
    )  # twice as many steps
    for batch_size, factor in ((0, 1), (64, 2)):
        done = []
        model = RecoSlipPlus(batch_size=batch_size, epochs=3, rounds=2)
        model.fit(graph, split, progress=lambda now, total, done=done: done.append((now, total)))
        steps = factor * 3 * 2 * 2  # epochs, rounds and encoders
        assert done[-1] == (steps, steps)
        assert max(now for now, _ in done) == steps


def test_encoders_trained_side_by_side_rank_as_one_after_the_other(graph, split):
    before = torch.get_num_threads()
    try:
        scores = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            scores.append(recoslip.calibrate(RecoSlipPlus(epochs=10), graph, split, rotations=2).scores)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(*scores, atol=1e-3)  # rounding differs where a fleet has fewer networks
