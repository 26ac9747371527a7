"""What a loaded detector may be set to, and when a graph was encoded in another way."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCN

import recoslip
from recoslip import NodeGraph, Split, detector, load_detector
from recoslip.base.errors import Diverged, GraphError, ModelFileError, OutOfMemory
from recoslip.inference.p_values import threshold

QUICK = {"hidden_channels": 8, "out_channels": 8, "head_channels": 4, "epochs": 10, "device": "cpu"}


@pytest.fixture(scope="module")
def graph():
    return recoslip.load_dataset("csbm", nodes=200, categories=4, features=8, split_seed=1).graph


@pytest.fixture(scope="module")
def fitted(graph):
    return detector("reco-slip-plus", **QUICK).fit(graph)


@pytest.fixture
def folder(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "settings",
    [{"rounds": 1}, {"smoothing": 0.0}, {"folds": 2}, {"core": 0.2}, {"random_state": 9}, {"epochs": 3},
     {"encoder": "mlp"}, {"hidden_channels": 9}],
)  # fmt: skip
def test_what_was_learned_from_cannot_be_changed_on_loading(folder, settings):
    (name,) = settings
    with pytest.raises(ModelFileError, match=f"{name} was .* when it was fitted and cannot be .*; fit again"):
        load_detector(folder, **settings)


def test_what_nothing_learned_depends_on_can_be_changed(folder, fitted, graph):
    again = load_detector(folder, device="cpu", batch_size=50, rounds=fitted.rounds)
    assert again.batch_size == 50
    np.testing.assert_allclose(again.decision_function(graph), fitted.scores_, atol=1e-5)


def test_another_max_fpr_gives_another_threshold(graph, tmp_path):
    fitted = recoslip.calibrate(detector("scan"), graph, rotations=3)
    fitted.save(tmp_path / "model")
    again = recoslip.Calibrated.load(tmp_path / "model", max_fpr=0.4)
    assert again.threshold() == threshold(fitted.scores[fitted.calibration], 0.4) != fitted.threshold()
    assert again.select().sum() > fitted.select().sum()


def test_an_encoder_of_the_users_own_is_given_again(graph, tmp_path):
    fitted = detector("domain-discriminator", **QUICK | {"encoder": GCN(8, 6, 2)}).fit(graph)
    fitted.save(tmp_path / "model")
    again = load_detector(tmp_path / "model", encoder=GCN(8, 6, 2))
    np.testing.assert_allclose(again.decision_function(graph), fitted.scores_, atol=1e-6)


def number(median=0.0, mean=0.0, scale=1.0, weight=1.0):
    return {"encoding": "number", "median": median, "mean": mean, "scale": scale, "weight": weight}


def columns(**changed):
    """The states of eight encoders, one per feature of the graph."""
    return {f"x{k}": number() for k in range(8)} | changed


def encoded(graph, encoding):
    return NodeGraph(graph.x, graph.edge_index, graph.is_target, feature_names=list(columns()), encoding=encoding)


@pytest.fixture(scope="module")
def of_tables(graph):
    return detector("domain-discriminator", **QUICK).fit(encoded(graph, columns()))


def test_a_graph_whose_columns_were_encoded_by_other_statistics_is_refused(of_tables, graph, tmp_path):
    of_tables.save(tmp_path / "model")
    for model in (of_tables, load_detector(tmp_path / "model")):
        assert model.encoding_ == columns()
        np.testing.assert_array_equal(model.decision_function(encoded(graph, columns())), model.scores_)
        rounded = columns(x2=number(scale=1 + 1e-12))
        np.testing.assert_array_equal(model.decision_function(encoded(graph, rounded)), model.scores_)
        with pytest.raises(GraphError, match=r"'x2' encoded by other statistics \(number: median 0, mean 0, scale 1\)"):
            model.decision_function(encoded(graph, columns(x2=number(scale=2.0))))
        with pytest.raises(GraphError, match=r"column 'x3' encoded by other statistics"):
            model.decision_function(encoded(graph, columns(x3=number(weight=2.0))))
        with pytest.raises(GraphError, match=r"column 'colour' .*\(not used\)"):
            model.decision_function(encoded(graph, columns(colour=number())))
        assert np.isfinite(model.decision_function(graph)).all()  # nothing is known of a graph that is not from tables


def test_pu_gnn_where_near_and_far_are_both_empty_in_a_subset():
    # Near: one training node and no validation node; far: the other way round.
    graph = NodeGraph(np.random.default_rng(0).random((8, 3)), [[0], [4]], np.arange(8) >= 4)
    split = Split(np.isin(np.arange(8), [0, 1, 4]), np.isin(np.arange(8), [2, 3, 5]), np.isin(np.arange(8), [6, 7]))
    fitted = detector("pu-gnn", prior_epochs=3, **QUICK).fit(graph, split)
    assert np.isfinite(fitted.scores_).all()


def test_memory_that_runs_out_after_a_restart_is_said_in_our_words(graph, monkeypatch):
    model = detector("domain-discriminator", **QUICK)
    problems = iter([Diverged("non-finite"), torch.OutOfMemoryError("CUDA out of memory")])

    def fail(*arguments, **more):
        raise next(problems)

    monkeypatch.setattr(type(model), "_learn", fail)
    with pytest.raises(OutOfMemory, match="out of memory"):
        model.fit(graph)
