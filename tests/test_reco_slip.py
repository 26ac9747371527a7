import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import recoslip
from recoslip import NodeGraph, RecoSlip
from recoslip.base.errors import RecoslipWarning, SettingError
from recoslip.inference.metrics import auroc
from recoslip.inference.p_values import empirical_threshold
from recoslip.learning.networks.reco_slip import select

QUICK = {"epochs": 12, "hidden_channels": 8, "out_channels": 8, "head_channels": 4, "max_fpr": 1.0, "device": "cpu"}


@pytest.fixture(scope="module")
def shifted():
    return recoslip.load_dataset("csbm", nodes=1200, noise=0.4, homophily=0.9, split_seed=0)


def test_it_finds_the_novel_category_where_the_domain_alone_misleads(shifted):
    fitted = RecoSlip(hidden_channels=32, out_channels=16, head_channels=8, epochs=400, random_state=1).fit(
        shifted.graph, shifted.split
    )
    assert auroc(shifted.novel, fitted.scores_, shifted.split.test) > 0.97


def one_bit_world() -> tuple[NodeGraph, recoslip.Split]:
    """One binary feature, no edges: it is 1 for a tenth of the source and half of the target."""
    bit = np.concatenate([np.arange(500) % 10 == 0, np.arange(500) % 2 == 0])
    target = np.arange(1000) >= 500
    graph = NodeGraph(np.stack([bit, ~bit], axis=1), np.empty((2, 0)), target)
    train = np.arange(1000) % 100 < 80  # keeps both shares exact
    return graph, recoslip.Split(train, ~train, np.zeros(1000, dtype=bool))


def test_the_constrained_problem_is_solved_at_its_known_optimum():
    r"""Minimise 0.9 f₀ + 0.1 f₁ subject to (f₀ + f₁)/2 ≥ α̃, a linear programme.

    Its solution is f₀ = 0, f₁ = 2α̃, so FPR 0.2 α̃ and recall α̃, and its multiplier λ* = 0.1 / 0.5 = 0.2.
    The saddle point is circled, so the mean over the second half of the epochs is compared.
    """
    graph, split = one_bit_world()
    fitted = RecoSlip(
        recall_targets=(0.2, 0.3),
        dual="soft",
        encoder="mlp",
        dropout=0,
        max_fpr=1,
        learning_rate=0.003,
        dual_learning_rate=0.003,
        epochs=3000,
        hidden_channels=8,
        out_channels=8,
        head_channels=8,
    ).fit(graph, split)
    late = fitted.history_.filter(fitted.history_["epoch"] > 1000)
    for target, rows in late.group_by("recall_target"):
        assert rows["multiplier"].mean() == pytest.approx(0.2, abs=0.03), target
    soft = fitted.scores_
    bit = graph.x[:, 0] == 1
    assert soft[~bit].mean() < 0.05  # f₀ = 0


def test_the_hard_constraint_is_met_in_training(shifted):
    fitted = RecoSlip(hidden_channels=16, out_channels=16, head_channels=8, epochs=300, multiplier=1.0, max_fpr=1).fit(
        shifted.graph, shifted.split
    )
    late = fitted.history_.filter(fitted.history_["epoch"] > 200)
    for target, rows in late.group_by("recall_target"):
        assert rows["recall"].mean() >= target[0] - 0.02


def test_the_multiplier_never_goes_below_zero(graph, split):
    fitted = RecoSlip(**QUICK | {"epochs": 60, "multiplier": 0.0, "dual_learning_rate": 0.1}).fit(graph, split)
    assert fitted.history_["multiplier"].min() == 0
    assert fitted.history_["multiplier"].max() > 0


def test_diverged_training_is_said(graph, split):
    with pytest.raises(SettingError, match="training diverged"):
        RecoSlip(**QUICK | {"learning_rate": 1e30}).fit(graph, split)


def test_the_multiplier_in_the_table_is_the_one_the_weights_were_kept_with(graph, split):
    fitted = RecoSlip(**QUICK | {"epochs": 1}, dual_learning_rate=0.01).fit(graph, split)
    moved = np.abs(fitted.candidates_["multiplier"].to_numpy() - 0.1)
    assert moved.tolist() == pytest.approx([0.01] * 5, abs=1e-4)


class Rates:
    def __init__(self, fpr, recall):
        self.fpr, self.recall = fpr, recall


def test_selection_takes_the_highest_recall_under_the_limit():
    solutions = [Rates(0.0, 0.05), Rates(0.01, 0.2), Rates(0.02, 0.9)]
    assert select(solutions, 0.01) == 1
    assert select(solutions, 0.05) == 2
    assert select(solutions, 0.0) == 0


def test_selection_falls_back_to_the_lowest_fpr():
    assert select([Rates(0.3, 0.9), Rates(0.2, 0.1), Rates(0.2, 0.4)], 0.1) == 2


def test_ties_go_to_the_lower_fpr():
    assert select([Rates(0.01, 0.2), Rates(0.0, 0.2)], 0.05) == 1


def test_missing_the_limit_is_said(graph, split):
    mixed = NodeGraph(torch.zeros(graph.num_nodes, 2), graph.edge_index, graph.is_target)
    settings = QUICK | {"max_fpr": 0.0, "multiplier": 9.0, "epochs": 40, "learning_rate": 0.05}
    with pytest.warns(RecoslipWarning, match="no recall target reached a validation FPR of 0 or less"):
        RecoSlip(**settings).fit(mixed, split)


def test_candidates_and_history_tell_what_happened(graph, split):
    fitted = RecoSlip(**QUICK, recall_targets=(0.1, 0.3)).fit(graph, split)
    table = fitted.candidates_
    assert table["recall_target"].to_list() == [0.1, 0.3]
    assert table["chosen"].sum() == 1
    assert table["epoch"].min() > 6  # kept after T/2
    assert fitted.history_.height == 2 * 12
    target = graph.is_target
    single = RecoSlip(**QUICK, recall_targets=(0.2,)).fit(graph, split)
    f = single.scores_
    row = single.candidates_.row(0, named=True)
    assert row["fpr"] == pytest.approx((f[split.validation & ~target] > 0.5).mean())
    assert row["recall"] == pytest.approx((f[split.validation & target] > 0.5).mean())


def test_the_threshold_keeps_the_fpr_on_held_out_source_nodes(shifted):
    fitted = RecoSlip(hidden_channels=16, out_channels=16, head_channels=8, epochs=100, max_fpr=0.05).fit(
        shifted.graph, shifted.split
    )
    held_out = fitted.scores_[shifted.split.validation & ~shifted.graph.is_target]
    threshold = empirical_threshold(held_out, 0.05)
    assert (held_out > threshold).mean() <= 0.05
    assert (held_out >= threshold).mean() > 0.05  # and no lower threshold does


def test_threshold_limits():
    scores = np.array([0.2, 0.2, 0.4])
    assert empirical_threshold(scores, 0.0) == 0.4
    assert (scores > empirical_threshold(scores, 0.5)).sum() == 1
    assert (scores > empirical_threshold(scores, 1.0)).all()


@pytest.mark.parametrize("links", ["selective", "target", "all", "none"])
def test_every_link_variant_trains_and_changes_the_result(graph, split, links):
    fitted = RecoSlip(**QUICK | {"links": links, "link_weight": 1.0}).fit(graph, split)
    assert (fitted.history_["link_loss"].max() == 0) == (links == "none")
    without = RecoSlip(**QUICK | {"links": "none"}).fit(graph, split)
    assert np.array_equal(fitted.scores_, without.scores_) == (links == "none")


@pytest.mark.parametrize("encoder", ["gcn", "sage", "mlp"])
def test_every_encoder_trains(graph, split, encoder):
    assert np.isfinite(RecoSlip(**QUICK | {"encoder": encoder}).fit(graph, split).scores_).all()


class TwoLayers(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.one, self.two = GCNConv(features, 8), GCNConv(8, 6)

    def forward(self, x, edge_index, edge_weight=None):
        return self.two(self.one(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


def test_a_users_encoder_fits_saves_and_loads(graph, split, tmp_path):
    fitted = RecoSlip(**QUICK | {"encoder": TwoLayers(graph.num_features)}, recall_targets=(0.1, 0.2)).fit(graph, split)
    fitted.save(tmp_path / "m")
    again = recoslip.load_detector(tmp_path / "m", encoder=TwoLayers(graph.num_features))
    np.testing.assert_allclose(again.decision_function(graph), fitted.scores_, atol=1e-6)
    with pytest.raises(recoslip.base.errors.ModelFileError, match="encoder"):
        recoslip.load_detector(tmp_path / "m")


def test_an_encoder_that_cannot_be_reset_is_refused(graph, split):
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8, 4))

        def forward(self, x, edge_index):
            return x @ self.weight

    with pytest.raises(SettingError, match="reset_parameters"):
        RecoSlip(**QUICK | {"encoder": Fixed()}).fit(graph, split)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("recall_targets", (), "one or more numbers"),
        ("recall_targets", (0.0,), "between 0 and 1"),
        ("recall_targets", "0.1", "one or more numbers"),
        ("max_fpr", 2, "in 0 to 1"),
        ("links", "some", "one of selective, target, all, none"),
        ("dual", "firm", "one of hard, soft"),
        ("encoder", "gat", "one of gcn, sage, mlp"),
        ("epochs", 0, "at least 1"),
        ("epochs", 1.5, "whole number"),
        ("hidden_channels", True, "whole number"),
        ("dropout", 1.0, "in 0 to 0.99"),
        ("learning_rate", 0, "between 0 and inf"),
        ("multiplier", -1, "in 0 to inf"),
        ("multiplier", float("nan"), "in 0 to inf"),
        ("link_weight", float("inf"), "in 0 to inf"),
    ],
)
def test_settings_that_cannot_be_are_refused(graph, split, setting, value, message):
    with pytest.raises(SettingError, match=message):
        RecoSlip(**QUICK | {setting: value}).fit(graph, split)
