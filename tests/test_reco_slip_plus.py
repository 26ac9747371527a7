"""Predictions are out of fold, and self-training on the highest ranked finds the rest."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCN

import recoslip
from recoslip import RecoSlipPlus, detector, load_dataset, load_detector
from recoslip.base.errors import ModelFileError, SettingError
from recoslip.base.randomness import Permutations
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.data.split import random_split
from recoslip.inference.analysis import analyse
from recoslip.inference.metrics import auroc
from recoslip.learning.networks.committee import domain_auroc, encoder_weights
from recoslip.learning.networks.ensemble import (
    MARGIN_LIMIT,
    NO_FOLD,
    Prediction,
    assign_folds,
    is_out_of_fold,
    out_of_fold_prediction,
    smooth,
)
from recoslip.learning.networks.nearness import Nearness
from recoslip.learning.networks.pseudo_labels import MAX_SOURCE_RATIO, choose_pseudo_labels, label_weights, source_ratio

QUICK = {"hidden_channels": 32, "out_channels": 32, "head_channels": 16, "epochs": 150, "round_epochs": 60}
BRIEF = QUICK | {"epochs": 20, "round_epochs": 10, "domain_epochs": 20}  # for what does not depend on what is found


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


def test_a_node_is_predicted_by_the_networks_that_held_its_fold_out():
    margins = np.array([[0.0, 7.0, 1.0], [5.0, 1.0, 1.0], [2.0, 2.0, 90.0]])
    prediction = out_of_fold_prediction(margins, np.array([0, 1, 0]), np.array([0, 1, 0]))
    np.testing.assert_allclose(prediction.margin, [0.5, 1, (2 + MARGIN_LIMIT) / 2])  # networks 0 and 2; 1; 0 and 2
    half_distance = (sigmoid([1, MARGIN_LIMIT]) - sigmoid([0, 2])) / 2
    np.testing.assert_allclose(prediction.disagreement, [half_distance[0], 0, half_distance[1]], atol=1e-12)
    np.testing.assert_allclose(prediction.f, sigmoid(prediction.margin))
    everyone = out_of_fold_prediction(margins, np.array([0, 1, 0]), np.full(3, NO_FOLD))
    np.testing.assert_allclose(everyone.margin, margins.clip(-MARGIN_LIMIT, MARGIN_LIMIT).mean(axis=1))


def test_smoothing_weighs_neighbours_and_leaves_the_isolated_alone():
    graph = NodeGraph(np.zeros((4, 1)), [[0, 0], [1, 2]], [False, False, True, True], edge_weight=[3.0, 1.0])
    own = np.array([0.0, 4.0, 8.0, -5.0])
    expected = own
    for _ in range(3):
        expected = np.array([(3 * expected[1] + expected[2]) / 8, 2 + expected[0] / 2, 4 + expected[0] / 2, -5.0])
    np.testing.assert_allclose(smooth(own, Neighbours(graph), 0.5), expected)
    np.testing.assert_allclose(smooth(own, Neighbours(graph), 0.0), own)


def test_predictions_are_out_of_fold():
    data = load_dataset("csbm", nodes=200, categories=3, features=4)
    fitted = detector("reco-slip-plus", epochs=3, round_epochs=2).fit(data.graph)
    assert not fitted.proposal_rejected_
    fold = assign_folds(data.graph.ids, 3, fitted.seed_)
    held_out = fitted.held_out_folds(fitted.scoring_stages(fitted.proposal_rejected_))
    for own, predicts in zip(fold, is_out_of_fold(fold, held_out), strict=True):
        assert np.flatnonzero(predicts).tolist() == [own, own + 3, own + 6]  # one for each of three rounds
    alone = detector("reco-slip-plus", rounds=0)
    assert is_out_of_fold(fold, alone.held_out_folds(alone.scoring_stages(False))).sum(axis=1).tolist() == [3] * 200


@pytest.mark.parametrize("settings", [{"rounds": 0}, {"folds": 1, "rounds": 1}])
def test_networks_that_predict_what_they_learned_do_without_validation(settings):
    rng = np.random.default_rng(0)
    target = np.arange(600) % 2 == 0
    noise = NodeGraph(rng.normal(size=(600, 200)), np.empty((2, 0), dtype=int), target)
    split = random_split(noise.is_target, Permutations(0))
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
        fitted = recoslip.calibrate(RecoSlipPlus(epochs=2, round_epochs=2, rounds=1), graph, rotations=3)
        assert fitted.split_.validation.any()
        assert seen[-1].validation.any() == (share == 0)
        assert ((seen[-1].train | seen[-1].validation) == (fitted.split_.train | fitted.split_.validation)).all()


def test_a_fold_follows_the_id_and_not_the_position():
    ids = np.array([f"node {k}" for k in range(900)], dtype=object)
    folds = assign_folds(ids, 3, seed=1)
    order = np.random.default_rng(0).permutation(900)
    assert np.array_equal(assign_folds(ids[order], 3, seed=1), folds[order])
    assert (np.bincount(folds) > 250).all()
    assert not np.array_equal(assign_folds(ids, 3, seed=2), folds)
    assert np.array_equal(assign_folds(np.arange(50), 4, 0), assign_folds(np.arange(50).astype(object), 4, 0))


def test_pseudo_labels_of_proposals_and_of_rounds():
    margin = np.array([-2.0, -1.5, 2.0, 1.5, 0.3, -0.5, -1.0, 3.0])
    is_target = np.array([False, False, True, True, True, True, True, True])
    nodes = np.array([True] * 7 + [False])  # the last is not to be learned from, high as it is
    prediction = Prediction(margin, np.zeros(8))
    novel, known = choose_pseudo_labels(prediction, is_target, nodes, core=0.2, known_below=None, source_weight=0.3)
    assert novel.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert known.tolist() == [0.3, 0.3, 0, 0, 0, 1, 1, 0]  # the source, and the lower half of the target
    novel, known = choose_pseudo_labels(prediction, is_target, nodes, core=0.2, known_below=0.3, source_weight=0.3)
    assert novel.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert known.tolist() == [0.3, 0.3, 0, 0, 0, 0, 1, 0]  # σ(-1) = 0.27 is known, σ(-0.5) = 0.38 waits


def test_pseudo_labels_of_its_own_fold_weigh_nothing():
    count = np.array([1.0, 0.5, 1.5, 0.0])
    weights = label_weights(count, np.array([0, 1, 1, 0]), np.array([0, 1, NO_FOLD])).numpy()
    np.testing.assert_allclose(weights, [[0, 1, 1 / 3], [0.25, 0, 1 / 6], [0.75, 0, 0.5], [0, 0, 0]])
    alone = label_weights(np.array([1.0, 0.0]), np.array([0, 1]), np.array([0])).numpy()
    np.testing.assert_allclose(alone, [[1], [0]])  # better than learning from nobody


def test_rounds_find_more_than_the_proposals():
    gains = []
    for seed in range(3):
        data = load_dataset("csbm", nodes=800, features=24, noise=1.6, homophily=0.7, split_seed=seed)
        proposals, final = (
            detector("reco-slip-plus", rounds=rounds, **QUICK).fit(data.graph, data.split) for rounds in (0, 2)
        )
        gains.append([auroc(data.novel, fitted.scores_, data.split.test) for fitted in (proposals, final)])
    before, after = np.mean(gains, axis=0)
    assert after > before


def test_what_it_reports(small):
    fitted = detector("reco-slip-plus", rounds=2, core=0.1, **QUICK).fit(small.graph, small.split)
    learning = (small.split.train | small.split.validation) & small.graph.is_target
    assert fitted.rounds_["novel"].to_list() == [round(0.1 * learning.sum())] * 2
    assert fitted.rounds_["known"][0] == learning.sum() // 2
    assert fitted.rounds_["looks_novel"].is_between(0, 1).all()
    assert fitted.uncertainty_.shape == (small.graph.num_nodes,)
    assert (fitted.uncertainty_ >= 0).all()
    assert fitted.uncertainty_.max() > 0
    np.testing.assert_allclose(fitted.uncertainty(small.graph), fitted.uncertainty_, atol=1e-6)


def test_a_known_category_that_grew_ends_the_rounds(small, tmp_path, monkeypatch):
    monkeypatch.setattr("recoslip.learning.networks.reco_slip_plus.CoTraining._is_even", lambda *_: True)
    monkeypatch.setattr("recoslip.learning.networks.reco_slip_plus.CoTraining._source_ratio", lambda *_: 1.0)
    reported = []
    model = detector("reco-slip-plus", encoder="gcn", rounds=3, folds=2, **BRIEF)
    fitted = recoslip.calibrate(
        model, small.graph, small.split, rotations=3, progress=lambda *step: reported.append(step)
    )
    assert fitted.proposal_rejected_
    assert fitted.rounds_.height == 1
    (fleet,) = fitted.fleet_
    assert fleet.members == 3  # new proposals: one for each recall target
    assert fleet.architecture.input_dropout == 0
    assert reported[-1] == (2 * 20 + 10,) * 2
    assert [done for done, _ in reported[:-1]] == list(range(1, 2 * 20 + 10 + 1))
    assert all(done < total for done, total in reported[:-2])
    np.testing.assert_allclose(fitted.decision_function(small.graph), fitted.scores, atol=1e-6)
    fitted.save(tmp_path / "model")
    loaded = load_detector(tmp_path / "model")
    assert loaded.proposal_rejected_
    np.testing.assert_array_equal(loaded.decision_function(small.graph), fitted.decision_function(small.graph))
    assert any("known category that grew" in warning for warning in analyse(fitted, small.graph).diagnosis.warnings)


def test_of_several_seeds_only_those_with_a_rejected_proposal_end_early(small, monkeypatch):
    ratios = iter([1.0, 0.0])
    monkeypatch.setattr("recoslip.learning.networks.reco_slip_plus.CoTraining._is_even", lambda *_: True)
    monkeypatch.setattr("recoslip.learning.networks.reco_slip_plus.CoTraining._source_ratio", lambda *_: next(ratios))
    grown, other = detector("reco-slip-plus", rounds=2, **BRIEF).fit_seeds(small.graph, [1, 2], small.split)
    monkeypatch.setattr("recoslip.learning.networks.reco_slip_plus.CoTraining._source_ratio", lambda *_: 0.0)
    alone = detector("reco-slip-plus", rounds=2, random_state=2, **BRIEF).fit(small.graph, small.split)
    assert (grown.proposal_rejected_, other.proposal_rejected_) == (True, False)
    np.testing.assert_allclose(other.scores_, alone.scores_, atol=1e-4)


def test_what_counts_as_grown():
    is_target = np.arange(1500) < 1000
    everyone = np.ones(1500, dtype=bool)
    margin = np.where(is_target, 0.0, -5.0) + np.linspace(1, 0, 1500)
    margin[:50] += 3  # the core

    def with_source_like(count: int, how: float) -> float:
        own = margin.copy()
        own[1000 : 1000 + count] = how
        return source_ratio(Prediction(own, own), is_target, everyone, 0.05)

    assert with_source_like(0, 5.0) == 0
    assert with_source_like(2, 5.0) == 0  # fewer than three prove nothing
    assert with_source_like(3, 5.0) == pytest.approx(3 / 500 / 0.05)
    assert with_source_like(3, 5.0) > MAX_SOURCE_RATIO
    assert with_source_like(40, margin[60]) == 0  # below the core
    assert with_source_like(40, margin[40]) == 0  # a novel category smaller than the core, and who comes after it


# The committee.


def test_an_encoder_has_weight_by_how_well_it_tells_unseen_nodes_apart():
    np.testing.assert_allclose(encoder_weights(np.array([0.8, 0.8])), [0.5, 0.5])
    np.testing.assert_allclose(encoder_weights(np.array([0.8, 0.78])), sigmoid([1, -1]), rtol=1e-6)
    assert encoder_weights(np.array([0.9, 0.7])).tolist() == [1, 0]  # too little to be trained
    folds, held_out = np.array([0, 0, 1, 1]), np.array([0, 1])
    is_target = np.array([False, True, False, True])
    memory = np.where(is_target[:, None], 5.0, -5.0) * (held_out != folds[:, None])  # nothing of unseen nodes
    honest = np.where(is_target[:, None], [0.1, 0.1], [-0.1, -0.1])
    everyone = np.ones(4, dtype=bool)
    assert domain_auroc([memory, honest, -honest], folds, held_out, is_target, everyone).tolist() == [0.5, 1, 0]


def noisy(homophily, noise, seed=0):
    return load_dataset("csbm", nodes=600, features=16, homophily=homophily, noise=noise, split_seed=seed)


def test_edges_that_mislead_and_features_that_say_nothing_are_not_heard():
    fast = {"epochs": 5, "round_epochs": 5, "rounds": 1}
    misleading = detector("reco-slip-plus", **fast).fit(noisy(0.2, 0.3).graph).encoders_
    assert misleading.filter(encoder="mlp")["weight"].item() > misleading.filter(encoder="gcn")["weight"].item()
    mute = detector("reco-slip-plus", **fast).fit(noisy(0.95, 4.0).graph).encoders_
    assert mute.filter(encoder="mlp")["weight"].item() == 0
    assert mute["weight"].sum() == pytest.approx(1)


def test_a_committee_is_saved_whole(small, tmp_path):
    own = GCN(small.graph.num_features, 8, 2, 4)
    fitted = detector("reco-slip-plus", encoder=("gcn", "mlp", own), rounds=2, **BRIEF).fit(small.graph, small.split)
    assert fitted.encoders_["encoder"].to_list() == ["gcn", "mlp", "GCN"]
    fitted.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="give it again"):
        load_detector(tmp_path / "model")
    loaded = load_detector(tmp_path / "model", encoder=("gcn", "mlp", own))
    assert loaded.encoders_.equals(fitted.encoders_)
    np.testing.assert_array_equal(loaded.decision_function(small.graph), fitted.decision_function(small.graph))
    np.testing.assert_allclose(loaded.decision_function(small.graph), fitted.scores_, atol=1e-6)
    assert loaded.representation(small.graph).shape[0] == small.graph.num_nodes


@pytest.mark.parametrize("encoder", [(), ("gcn", "gnc"), 7, ("gcn", 7)])
def test_a_committee_of_nobody_or_of_strangers_is_refused(encoder):
    with pytest.raises(SettingError, match="encoder"):
        detector("reco-slip-plus", encoder=encoder).check_params()


def test_several_seeds_train_together_as_alone(small):
    together = detector("reco-slip-plus", rounds=2, **BRIEF).fit_seeds(small.graph, [1, 2], small.split)
    for seed, fitted in zip((1, 2), together, strict=True):
        alone = detector("reco-slip-plus", rounds=2, random_state=seed, **BRIEF).fit(small.graph, small.split)
        np.testing.assert_allclose(alone.encoders_["weight"], fitted.encoders_["weight"], atol=1e-4)
        np.testing.assert_allclose(alone.scores_, fitted.scores_, atol=1e-3)


def test_isolation_counts_target_nodes_nearer_than_the_third_source_node():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)) + 2
    is_target = np.arange(60) % 3 > 0
    graph = NodeGraph(x, np.empty((2, 0), dtype=int), is_target)
    nodes = np.arange(60) < 55
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = []
    for node in np.flatnonzero(is_target):
        others = nodes & (np.arange(60) != node)
        cosine = unit @ unit[node]
        third = np.sort(cosine[others & ~is_target])[-3]
        expected.append((cosine[others & is_target] > third).sum())
    isolation = Nearness(graph, nodes).isolation()
    np.testing.assert_allclose(np.expm1(isolation[is_target]), expected, atol=1e-4)
    assert not isolation[~is_target].any()


def test_nodes_with_the_same_features_are_not_isolated_by_rounding():
    rng = np.random.default_rng(0)
    x = rng.random((3, 40))[np.arange(90) % 3] * rng.uniform(1, 3, size=(90, 1))  # three directions, many lengths
    isolation = Nearness(
        NodeGraph(x, np.empty((2, 0), dtype=int), np.arange(90) % 2 == 0), np.arange(90) >= 0
    ).isolation()
    assert not isolation.any()


def test_without_source_nodes_to_compare_with_nobody_is_isolated():
    graph = NodeGraph(np.random.default_rng(0).random((20, 3)), np.empty((2, 0), dtype=int), np.arange(20) > 1)
    assert not Nearness(graph, np.ones(20, dtype=bool)).isolation().any()


def test_of_a_grown_and_a_novel_category_the_novel_one_is_farther_from_the_source():
    rng = np.random.default_rng(1)
    centres = np.eye(8)[:3] * 4
    category = np.repeat([0, 1, 2], 300)
    x = centres[category] + rng.normal(size=(900, 8))
    source_share = np.array([0.8, 0.05, 0.0])[category]  # known, known and grown, novel
    is_target = rng.random(900) >= source_share
    isolation = Nearness(NodeGraph(x, np.empty((2, 0), dtype=int), is_target), np.ones(900, dtype=bool)).isolation()
    assert auroc(category == 2, isolation, is_target & (category > 0)) > 0.9


def test_pseudo_labels_prefer_the_isolated():
    margin, is_target = np.array([3.0, 2.0, 1.0, -5.0]), np.array([True, True, True, False])
    isolation = np.array([0.0, 2.0, 0.0, 0.0])
    chosen = choose_pseudo_labels(
        Prediction(margin, margin),
        is_target,
        is_target | True,
        isolation=isolation,
        core=0.3,
        known_below=0.8,
        source_weight=0.3,
    )
    assert chosen.novel.tolist() == [0, 1, 0, 0]
    assert chosen.known.tolist() == [0, 0, 1, 0.3]


def test_a_large_graph_takes_more_steps_in_batches_and_a_whole_one_does_not(graph, split, monkeypatch):
    monkeypatch.setattr(
        "recoslip.learning.networks.reco_slip_plus.MEDIUM_GRAPH", graph.num_nodes / 16
    )  # twice as many steps
    settings = {"domain_epochs": 2, "epochs": 4, "round_epochs": 3, "rounds": 1}
    for batch_size, factor in ((0, 1), (64, 2)):
        done = []
        model = RecoSlipPlus(batch_size=batch_size, **settings)
        model.fit(graph, split, progress=lambda now, total, done=done: done.append((now, total)))
        used = (model.encoders_["weight"] > 0).sum()
        steps = factor * (2 * 2 + used * (4 + (4 if model.proposal_rejected_ else 0) + 3))
        assert done[-1] == (steps, steps)
        assert max(now for now, _ in done) == steps


def test_encoders_trained_side_by_side_rank_as_one_after_the_other(graph, split):
    settings = {"domain_epochs": 5, "epochs": 20, "round_epochs": 10}
    before = torch.get_num_threads()
    try:
        scores = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            scores.append(recoslip.calibrate(RecoSlipPlus(**settings), graph, split, rotations=2).scores)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(*scores, atol=1e-3)  # rounding differs where a fleet has fewer networks
