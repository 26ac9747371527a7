"""What every detector promises. A new one joins by being in the registry."""

import inspect

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import recoslip
from recoslip import NodeGraph, Split, detector
from recoslip.detectors import DETECTORS
from recoslip.detectors.base import memory_errors
from recoslip.errors import GraphError, OutOfMemory, RecoslipWarning, SettingError

QUICK = {
    "epochs": 12,
    "round_epochs": 6,
    "prior_epochs": 5,
    "em_steps": 3,
    "patience": 5,
    "categories": 3,
    "negatives_per_edge": 2,
    "hidden_channels": 8,
    "out_channels": 8,
    "head_channels": 4,
    "max_fpr": 1.0,
    "random_state": 3,
    "device": "cpu",
}


@pytest.fixture(params=list(DETECTORS))
def quick(request):
    """A detector with settings that make it fast, as far as it has them."""
    name = request.param
    known = detector(name).get_params()
    return detector(name, **{key: value for key, value in QUICK.items() if key in known})


def truth(method, graph):
    """What a method's fit asks for beyond the graph: nothing, but for the oracle some truth."""
    if not method.requires_truth:
        return {}
    return {"novel": graph.is_target.numpy() & (graph.x[:, 0].numpy() > 0)}


def fit(method, graph, split=None, **more):
    return method.fit(graph, split, **truth(method, graph), **more)


def test_the_constructor_only_stores(quick):
    for name in inspect.signature(type(quick).__init__).parameters:
        assert name == "self" or hasattr(quick, name)
    assert not [name for name in vars(quick) if name.endswith("_")]


def test_clone_gives_an_unfitted_equal(quick, graph, split):
    fit(quick, graph, split)
    copy = clone(quick)
    assert copy.get_params() == quick.get_params()
    with pytest.raises(NotFittedError, match=r"call fit\(graph\) first"):
        copy.decision_function()


def test_fit_returns_self_and_leaves_parameters_alone(quick, graph, split):
    before = quick.get_params()
    assert fit(quick, graph, split) is quick
    assert quick.get_params() == before


def test_scores_are_finite_and_between_zero_and_one_and_one_per_node(quick, graph, split):
    scores = fit(quick, graph, split).scores_
    assert scores.shape == (graph.num_nodes,)
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()


def test_same_seed_same_scores_and_other_seed_others(quick, graph, split):
    first, second = fit(clone(quick), graph, split), fit(clone(quick), graph, split)
    assert np.array_equal(first.scores_, second.scores_)
    other = fit(clone(quick).set_params(random_state=4), graph, split)
    assert np.array_equal(first.scores_, other.scores_) == (not quick.trains)


def test_a_seed_in_company_is_the_seed_alone(quick, graph, split):
    together = quick.fit_seeds(graph, [3, 4, 5], split, **truth(quick, graph))
    alone = fit(clone(quick).set_params(random_state=4), graph, split)
    assert together[1].random_state == 4
    np.testing.assert_allclose(together[1].scores_, alone.scores_, atol=1e-4)


def test_fit_makes_its_own_split_from_the_seed(quick, graph):
    first, second = fit(clone(quick), graph), fit(clone(quick), graph)
    assert np.array_equal(first.split_.train, second.split_.train)
    assert np.array_equal(first.scores_, second.scores_)


def test_the_fitted_graph_and_no_graph_give_the_same_scores(quick, graph, split):
    fit(quick, graph, split)
    np.testing.assert_allclose(quick.decision_function(graph), quick.decision_function(), atol=1e-6)
    assert np.array_equal(quick.predict(graph), quick.predict())


def test_a_node_permuted_graph_gets_the_permuted_scores(quick, graph, split):
    fit(quick, graph, split)
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    np.testing.assert_allclose(quick.decision_function(graph.permuted(order)), quick.scores_[order], atol=1e-5)


def test_a_new_graph_with_the_same_features_is_scored(quick, graph, split):
    other = recoslip.load_dataset("csbm", nodes=120, categories=4, features=8, split_seed=9).graph
    assert fit(quick, graph, split).decision_function(other).shape == (120,)


def test_a_graph_with_other_features_is_refused(quick, graph, split):
    def named(names):
        return NodeGraph(graph.x, graph.edge_index, graph.is_target, feature_names=names)

    fit(quick, named("abcdefgh"), split)
    assert np.isfinite(quick.decision_function(named("abcdefgh"))).all()
    with pytest.raises(GraphError, match="it knows 'g' where the graph has 'h'"):
        quick.decision_function(named("abcdefhg"))


def test_only_target_nodes_are_called_novel(quick, graph, split):
    novel = fit(quick, graph, split).predict()
    assert novel.dtype == bool
    assert not novel[~graph.is_target.numpy()].any()
    assert np.array_equal(novel, (quick.scores_ > quick.threshold_) & graph.is_target.numpy())


def test_true_categories_do_not_matter(quick, graph, split):
    kept = fit(clone(quick), graph, split).scores_
    bare = NodeGraph(graph.x, graph.edge_index, graph.is_target)
    assert np.array_equal(fit(clone(quick), bare, split).scores_, kept)


def test_graphs_without_edges_and_tiny_graphs_are_fine(quick, graph):
    if quick.requires_truth:
        pytest.skip("two validation nodes cannot hold both kinds of truth")
    target = np.arange(12) >= 6
    quick.fit(NodeGraph(graph.x[:12], np.empty((2, 0)), target))
    assert np.isfinite(quick.scores_).all()
    quick.fit(NodeGraph(graph.x[:4], [[0, 2], [1, 3]], [False, False, True, True]))
    assert np.isfinite(quick.scores_).all()


def test_saved_and_loaded_it_is_the_same_detector(quick, graph, split, tmp_path):
    fit(quick, graph, split).save(tmp_path / "model")
    again = recoslip.load(tmp_path / "model")
    assert type(again) is type(quick)
    assert again.get_params() == quick.get_params()
    assert np.array_equal(again.scores_, quick.scores_)
    assert np.array_equal(again.predict(), quick.predict())
    np.testing.assert_allclose(again.decision_function(graph), quick.decision_function(graph), atol=1e-7)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes", OutOfMemory),
        ("CUDA out of memory. Tried to allocate 9 GiB", OutOfMemory),
        ("CUDA error: an illegal memory access was encountered", RuntimeError),
    ],
)
def test_want_of_memory_is_told_from_other_trouble_with_it(said, expected):
    with pytest.raises(expected), memory_errors():
        raise RuntimeError(said)


def test_an_interrupted_fit_leaves_it_unfitted(quick, graph, split):
    fit(quick, graph, split)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(quick, graph, split, progress=interrupt)
    with pytest.raises(NotFittedError):
        quick.decision_function()
    assert np.isfinite(fit(quick, graph, split).scores_).all()


def test_progress_is_reported_up_to_the_end(quick, graph, split):
    seen = []
    fit(quick, graph, split, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_errors_are_clear(quick, graph, split):
    with pytest.raises(GraphError, match="expected a NodeGraph"):
        quick.fit("graph")
    with pytest.raises(SettingError, match="random_state must be a whole number"):
        fit(clone(quick).set_params(random_state=-1), graph, split)
    with pytest.raises(SettingError, match="device 'abacus'"):
        fit(clone(quick).set_params(device="abacus"), graph, split)
    with pytest.raises(SettingError, match="the split is for 2 nodes"):
        quick.fit(graph, Split(*(np.array(m) for m in ([True, False], [False, True], [False, False]))))
    fit(quick, graph, split)
    narrow = NodeGraph(graph.x[:, :3], graph.edge_index, graph.is_target)
    with pytest.raises(SettingError, match="random_state must be a whole number of at most"):
        clone(quick).set_params(random_state=2**63).fit(graph, split)
    with pytest.raises(GraphError, match="fitted with 8 features; the graph has 3"):
        quick.decision_function(narrow)


def test_the_global_random_state_is_left_alone(quick, graph, split):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    fit(quick, graph, split)
    assert torch.equal(torch.rand(3), expected)


def test_unknown_names_and_settings_have_suggestions():
    with pytest.raises(SettingError, match="did you mean 'reco-slip'"):
        detector("reko-slip")
    with pytest.raises(SettingError, match="did you mean 'epochs'"):
        detector("reco-slip", epoch=5)
    assert issubclass(RecoslipWarning, UserWarning)
