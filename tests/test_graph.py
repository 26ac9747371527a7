import copy
import logging
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from arrays import dense_x
from torch_geometric.data import Data

from recoslip import NodeGraph
from recoslip.base.errors import GraphError
from recoslip.data import alignment as neighbourhood
from recoslip.data.alignment import match_moments
from recoslip.data.neighbours import Neighbours

X = np.eye(4, dtype=np.float32)
TARGET = [False, False, True, True]


def test_edges_become_simple_and_undirected_and_every_repair_is_counted():
    edges = [[0, 1, 0, 0, 2, 3], [1, 0, 2, 2, 2, 1]]  # 0-1 both ways, 0->2 twice, loop at 2, 3->1
    graph = NodeGraph(X, edges, TARGET)
    assert graph.edge_index.tolist() == [[0, 0, 1, 1, 2, 3], [1, 2, 0, 3, 0, 1]]
    assert (graph.repairs.mirrored, graph.repairs.merged, graph.repairs.loops) == (2, 1, 1)
    assert graph.num_edges == 3


def test_repairs_are_reported_once(caplog):
    with caplog.at_level(logging.INFO, logger="recoslip"):
        NodeGraph(X, [[0, 1], [1, 2]], TARGET)
    assert [record.message for record in caplog.records] == ["edges: 2 one-way edges mirrored"]


def test_weights_add_up_over_repetitions_and_average_over_directions():
    edges = [[0, 0, 1, 1], [1, 1, 0, 2]]
    graph = NodeGraph(X, edges, TARGET, edge_weight=[1.0, 2.0, 5.0, 4.0])
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.edge_weight.tolist() == [4.0, 4.0, 4.0, 4.0]  # ((1 + 2) + 5) / 2, and 4 mirrored


@pytest.mark.parametrize(
    "make", [np.asarray, torch.tensor, sp.csr_array, sp.coo_matrix, lambda x: torch.tensor(x).to_sparse_coo()]
)
def test_features_of_every_type_give_the_same_graph(make):
    x = np.array([[0, 2.0], [1, 0], [0, 0], [3, 4]], dtype=np.float32)
    graph = NodeGraph(make(x), [[0], [1]], TARGET)
    dense = dense_x(graph)
    assert dense.tolist() == x.tolist()
    assert graph.x.dtype == np.float32


def test_sparse_features_stay_sparse():
    assert sp.issparse(NodeGraph(sp.csr_array(X), [[0], [1]], TARGET).x)


def test_a_graph_can_be_copied_and_pickled():
    graph = NodeGraph(sp.csr_array(X), [[0], [1]], TARGET, ids=list("abcd"))
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert np.array_equal(other.edge_index, graph.edge_index)
        assert other.ids.tolist() == list("abcd")


def test_isolated_nodes_and_no_edges_are_legal():
    assert NodeGraph(X, np.empty((2, 0)), TARGET).num_edges == 0
    assert NodeGraph(X, [[0], [1]], TARGET).num_edges == 1


def test_a_graph_cannot_be_changed():
    x = X.copy()
    graph = NodeGraph(x, [[0], [1]], TARGET, ids=["a", "b", "c", "d"])
    x[:] = 7
    assert graph.x.max() == 1
    with pytest.raises(AttributeError, match="immutable"):
        graph.x = torch.zeros(4, 4)
    with pytest.raises(ValueError, match="read-only"):
        graph.ids[0] = "z"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros(4)}, r"shape \(nodes, features\)"),
        ({"x": [["a"], ["b"], ["c"], ["d"]]}, "must hold numbers"),
        ({"x": np.array([[0, np.nan], [0, 0], [np.inf, 0], [0, 0]])}, r"2 of 4 rows \(first: \[0, 2\]\) and 2 of 2"),
        ({"x": sp.csr_array([[0, np.nan], [0, 0], [0, 0], [1, 0]])}, r"1 of 4 rows \(first: \[0\]\)"),
        ({"edge_index": [[0], [4]]}, r"positions 0\.\.3; got \[4\]"),
        ({"edge_index": [[0], [-1]]}, r"got \[-1\]"),
        ({"edge_index": [[0, 1], [1, 2], [2, 3]]}, "looks transposed"),
        ({"edge_index": [[0.5], [1.0]]}, "whole numbers"),
        ({"is_target": [True] * 4}, "no source node"),
        ({"is_target": [False] * 4}, "no target node"),
        ({"is_target": [0, 1, 2, 1]}, "0/1"),
        ({"is_target": [True, False]}, r"shape \(4,\)"),
        ({"edge_weight": [0.0]}, "positive"),
        ({"edge_weight": [1.0, 1.0]}, "one per edge"),
        ({"ids": ["a", "b", "a", "d"]}, "1 are repeated .first: 'a'"),
        ({"ids": ["a"]}, "each of the 4 nodes"),
        ({"categories": [1, 2]}, "one per node"),
        ({"feature_names": ["a"]}, "each of the 4 features"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(change, message):
    good = {"x": X, "edge_index": [[0], [1]], "is_target": TARGET}
    with pytest.raises(GraphError, match=message):
        NodeGraph(**(good | change))


def test_pyg_round_trip():
    data = Data(
        x=torch.rand(4, 3),
        edge_index=torch.tensor([[0, 1, 2], [1, 0, 3]]),
        edge_weight=torch.tensor([1.0, 1.0, 2.0]),
        y=torch.tensor([0, 1, 1, 2]),
        new=torch.tensor(TARGET),
    )
    graph = NodeGraph.from_pyg(data, is_target="new")
    again = NodeGraph.from_pyg(graph.to_pyg(), is_target="is_target")
    assert np.array_equal(graph.x, data.x.numpy())
    assert np.array_equal(again.edge_index, graph.edge_index)
    assert np.array_equal(again.edge_weight, graph.edge_weight)
    assert again.categories.tolist() == [0, 1, 1, 2]
    with pytest.raises(GraphError, match="no field 'old'"):
        NodeGraph.from_pyg(data, is_target="old")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_graphs_with_other_domains_or_no_edges_share_the_features(make):
    graph = NodeGraph(make(np.eye(4)), [[0, 1], [1, 2]], [False, False, True, True])
    for other in (graph.with_target([True, False, False, True]), graph.without_edges()):
        assert other.x is graph.x
    assert graph.is_target.tolist() == [False, False, True, True]
    assert graph.num_edges == 2


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_permuted_graph_is_the_same_graph(make):
    graph = NodeGraph(make(X), [[0, 1], [1, 2]], TARGET, ids=list("abcd"), categories=[0, 1, 2, 3])
    order = [2, 0, 3, 1]
    with pytest.raises(GraphError, match="each of the 4 nodes once"):
        graph.permuted([0, 0, 1, 2])
    other = graph.permuted(order)
    assert other.ids.tolist() == ["c", "a", "d", "b"]
    assert other.is_target.tolist() == [True, False, True, False]

    def named(g):
        return {(str(g.ids[a]), str(g.ids[b])) for a, b in g.edge_index.T.tolist()}

    assert named(other) == named(graph)


def test_vectors_of_a_large_graph_are_in_single_precision_and_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 90))
    ends = rng.integers(0, 280, (2, 900))  # the last nodes have no edge
    graph = NodeGraph(x, ends, np.arange(300) % 2 == 0, edge_weight=rng.random(900) + 0.1)

    def vectors():
        return [neighbourhood.neighbourhood_features(graph)]

    small = vectors()
    monkeypatch.setattr(neighbourhood, "MAX_DOUBLE", 100)
    monkeypatch.setattr(Neighbours, "BLOCK", 64)
    large = vectors()
    assert [each.dtype for each in small + large] == [np.float64, np.float32]
    for ours, theirs in zip(small, large, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_moments_of_millions_of_rows_in_single_precision_are_matched():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 0.7, (6_000_000, 1)).astype(np.float32)
    matched = match_moments(x, np.arange(len(x)) < 1_000_000)  # the same distribution: nothing to move
    assert np.abs(matched - x).max() < 1e-3
