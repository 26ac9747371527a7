"""The same nodes in another order get the same scores: every draw follows the ids."""

import numpy as np
import polars as pl
import pytest

import recoslip
from recoslip import NodeGraph, Split, detector, load_dataset, read_graph
from recoslip.base.errors import GraphError
from recoslip.base.memory import Memory
from recoslip.data.ids import id_order
from recoslip.learning.methods import DETECTORS

QUICK = {
    "epochs": 12, "prior_epochs": 5, "em_steps": 2, "patience": 5, "categories": 3,
    "negatives_per_edge": 2, "hidden_channels": 8, "out_channels": 8, "head_channels": 4,
    "random_state": 3, "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def graph():
    drawn = load_dataset("csbm", nodes=160, categories=4, features=8, split_seed=1).graph
    ids = [f"node {k:03}" for k in range(160)]
    weight = np.random.default_rng(0).random(drawn.edge_index.shape[1]) + 0.1
    return NodeGraph(drawn.x, drawn.edge_index, drawn.is_target, ids=ids, edge_weight=weight)


def shuffled(graph):
    order = np.random.default_rng(5).permutation(graph.num_nodes)
    return graph.permuted(order), order


def quick(name, **more):
    known = detector(name).get_params()
    return detector(name, **{key: value for key, value in (QUICK | more).items() if key in known})


def fit(method, graph, **more):
    truth = {"novel": graph.is_target & (graph.x[:, 0] > 0)} if method.requires_truth else {}
    return method.fit(graph, **truth, **more)


@pytest.mark.parametrize("name", list(DETECTORS))
def test_another_order_of_the_nodes_gives_the_same_result(name, graph):
    other, order = shuffled(graph)
    first, second = fit(quick(name), graph), fit(quick(name), other)
    assert np.array_equal(second.scores_, first.scores_[order])
    assert np.array_equal(second.split_.train, first.split_.train[order])
    for attribute in ("uncertainty_", "propensity_"):
        if hasattr(first, attribute):
            assert np.array_equal(getattr(second, attribute), getattr(first, attribute)[order])
    np.testing.assert_allclose(second.decision_function(other), second.scores_, atol=1e-6)


@pytest.mark.parametrize("name", ["scan", "lp-pul", "nnpu"])
def test_another_order_of_the_nodes_is_calibrated_alike(name, graph):
    other, order = shuffled(graph)
    first, second = (recoslip.calibrate(quick(name), each, rotations=3) for each in (graph, other))
    assert np.array_equal(second.scores, first.scores[order])
    assert np.array_equal(second.p_values(), first.p_values()[order], equal_nan=True)
    assert np.array_equal(second.select(max_fpr=0.2), first.select(max_fpr=0.2)[order])
    assert np.array_equal(second.calibration, first.calibration[order])


@pytest.mark.parametrize("name", ["reco-slip-plus", "reco-slip", "nnpu"])
def test_batches_follow_the_ids_too(name, graph):
    other, order = shuffled(graph)
    first, second = (fit(quick(name, batch_size=40), each) for each in (graph, other))
    assert np.array_equal(second.scores_, first.scores_[order])


def test_a_split_that_is_given_goes_with_the_nodes(graph):
    subset = np.random.default_rng(0).integers(0, 3, 160)
    split = Split(*(subset == number for number in range(3)))
    other, order = shuffled(graph)
    first, second = quick("reco-slip").fit(graph, split), quick("reco-slip").fit(other, split.permuted(order))
    assert np.array_equal(second.scores_, first.scores_[order])
    assert np.array_equal(second.split_.validation, split.validation[order])


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([10, 9, 2], [2, 1, 0]),
        (["b", "c", "a"], [2, 0, 1]),
        ([2, "1", (0,)], [0, 1, 2]),  # by type, then as text: int, str, tuple
        ([("b",), ("a",), 7], [2, 1, 0]),
        ([1, 2, 3], None),
    ],
)
def test_the_order_is_that_of_the_ids(ids, expected):
    order = id_order(NodeGraph([[0.0], [1.0], [2.0]], [[0], [1]], [False, True, True], ids=ids))
    assert order is None if expected in (None, [0, 1, 2]) else order.tolist() == expected


def test_nodes_that_cannot_be_sorted_in_memory_stay_as_they_are(graph, monkeypatch, caplog):
    other, _ = shuffled(graph)
    monkeypatch.setattr("recoslip.data.ids.memory", lambda *_: Memory(1000, 1000))
    with caplog.at_level("INFO", "recoslip"):
        assert id_order(other) is None
    assert "another order has other draws" in caplog.text


def table_of(graph):
    """A table of nodes with numbers of many sizes, categories and words, and a table of edges."""
    rng = np.random.default_rng(1)
    nodes = pl.DataFrame(
        {
            "id": graph.ids.tolist(),
            "domain": graph.is_target,
            "price": np.exp(rng.normal(0, 3, 160)),
            "colour": rng.choice(["red", "green", "blue"], 160),
            "title": [" ".join(rng.choice(["new", "old", "large", "small", "fast"], 3)) for _ in range(160)],
        }
    )
    ends = [[graph.ids[k] for k in side] for side in graph.edge_index.tolist()]
    return nodes, pl.DataFrame({"a": ends[0], "b": ends[1]})


def test_another_order_of_the_rows_of_a_table_gives_the_same_scores(graph):
    nodes, edges = table_of(graph)
    scores = []
    for seed in (None, 1, 2):
        if seed is not None:
            nodes, edges = (each.sample(fraction=1, shuffle=True, seed=seed) for each in (nodes, edges))
        read = read_graph(nodes, edges, text=["title"])
        fitted = recoslip.calibrate(quick("reco-slip-plus"), read, rotations=3)
        scores.append(dict(zip(read.ids.tolist(), fitted.scores.tolist(), strict=True)))
    assert scores[0] == scores[1] == scores[2]


def test_some_of_the_rows_are_scored_by_their_own_statistics_and_so_refused(graph):
    nodes, edges = table_of(graph)
    fitted = quick("domain-discriminator").fit(read_graph(nodes, edges, text=["title"]))
    again = fitted.decision_function(read_graph(nodes.reverse(), edges, text=["title"]))
    np.testing.assert_allclose(again[::-1], fitted.scores_, atol=1e-6)
    some = read_graph(nodes.head(100), edges, text=["title"], drop_unknown=True)
    with pytest.raises(GraphError, match=r"column 'price' encoded by other statistics \(number: .*read the nodes with"):
        fitted.decision_function(some)
