"""Kinds of nodes and edges, and features of edges, tell what features and edges alone do not."""

import numpy as np
import polars as pl
import pytest
import torch
from arrays import same_x
from sklearn.metrics import roc_auc_score
from torch_geometric.data import HeteroData
from typer.testing import CliRunner

from recoslip import NodeGraph, detector, pack, read_graph
from recoslip.base.errors import GraphError, TableError
from recoslip.products.cli.commands import app


@pytest.fixture(scope="module")
def world():
    """Three categories with the same features and degrees, one of them novel; each prefers one kind of edges."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, 3, 600)
    is_target = (category == 2) | (rng.random(600) < 0.4)
    nodes = pl.DataFrame(
        {"id": range(600), "domain": np.where(is_target, "target", "source"), "size": rng.normal(size=600)}
    )
    ends = np.stack([rng.permutation(np.tile(np.arange(600), 8)) for _ in range(2)])
    preferred = np.array(["buys", "rents", "lends"])
    kind = np.where(rng.random(4800) < 0.8, preferred[category[ends[0]]], rng.choice(preferred, 4800))
    amount = rng.normal(size=4800) + 2 * (category[ends[0]] == 2)
    edges = pl.DataFrame({"a": ends[0], "b": ends[1], "kind": kind, "amount": amount, "way": kind})
    return nodes, edges, is_target, category == 2


def ranks(graph, is_target, novel) -> float:
    scores = detector("domain-discriminator", epochs=100).fit(graph).scores_
    return float(roc_auc_score(novel[is_target], scores[is_target]))


def test_relations_tell_a_category_that_features_and_edges_do_not(world):
    nodes, edges, is_target, novel = world
    assert ranks(read_graph(nodes, edges), is_target, novel) < 0.6
    graph = read_graph(nodes, edges, relation="kind")
    assert "buys: log(1 + edges)" in graph.feature_names
    assert ranks(graph, is_target, novel) > 0.7


@pytest.mark.parametrize("name", ["amount", "way"])
def test_what_edges_are_like_tells_it_too(world, name):
    nodes, edges, is_target, novel = world
    graph = read_graph(nodes, edges, edge_features=[name])
    assert ranks(graph, is_target, novel) > 0.7


def test_means_over_edges_are_those_of_a_hand_computed_case():
    nodes = pl.DataFrame({"id": list("abc"), "domain": ["source", "source", "target"], "size": [0.0, 3.0, 6.0]})
    edges = pl.DataFrame({"u": list("aab"), "v": list("bcc"), "kind": list("xyx"), "hours": [1.0, 5.0, 3.0]})
    graph = read_graph(nodes, edges, relation="kind", edge_features=["hours"])
    encoding = graph.encoding
    column = graph.feature_names.index("x: mean hours")
    state, raw = encoding["x: mean hours"], {}
    for k, name in enumerate("abc"):
        raw[name] = graph.x[k, column].item() / state["weight"] * state["scale"] + state["mean"] + state["median"]
    assert raw == pytest.approx({"a": 1.0, "b": 2.0, "c": 3.0}, abs=1e-5)
    assert "y: mean hours" not in graph.feature_names  # b has the average, so that all nodes have the same


def test_nodes_of_another_kind_describe_those_that_are_scored(world):
    nodes, _, is_target, novel = world
    rng = np.random.default_rng(1)
    taste = rng.integers(0, 2, 60)
    users = pl.DataFrame({"id": range(1000, 1060), "age": 3.0 * taste + rng.normal(size=60)})
    table = pl.concat(
        [nodes.with_columns(type=pl.lit("product")), users.with_columns(type=pl.lit("user"))], how="diagonal"
    )
    product = rng.integers(0, 600, 5000)
    user = np.where(
        rng.random(5000) < 0.7, rng.choice(np.flatnonzero(taste), 5000), rng.choice(np.flatnonzero(taste == 0), 5000)
    )
    user = np.where(novel[product], user, rng.integers(0, 60, 5000))
    bought = pl.DataFrame({"user": 1000 + user, "product": product})
    graph = read_graph(table, bought, node_type="type", scored="product")
    assert graph.num_nodes == 600
    assert graph.num_edges == 0
    assert {"size", "edges user: neighbours[0]", "edges user: shared neighbours[0]"} <= set(graph.feature_names)
    assert ranks(graph, is_target, novel) > 0.65
    with pytest.raises(TableError, match="scored must be one of the kinds of nodes in 'type', 'product', 'user'"):
        read_graph(table, bought, node_type="type", scored="products")
    with pytest.raises(TableError, match="need both"):
        read_graph(table, bought, node_type="type")


def test_a_heterogeneous_graph_of_pytorch_geometric_is_its_tables():
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x, data["paper"].new = torch.randn(40, 3, generator=generator), torch.arange(40) >= 25
    data["author"].x = torch.randn(10, 2, generator=generator)
    data["paper", "cites", "paper"].edge_index = torch.randint(0, 40, (2, 90), generator=generator)
    written = torch.stack([torch.randint(0, 10, (80,), generator=generator), torch.arange(80) % 40])
    data["author", "writes", "paper"].edge_index = written
    with pytest.raises(GraphError, match=r"read_graph\(data, scored=\.\.\., domain=\.\.\.\)"):
        NodeGraph.from_pyg(data, "new")
    graph = read_graph(data, scored="paper", domain="new")
    assert graph.ids[0] == "paper:0"
    assert np.array_equal(graph.is_target, data["paper"].new)
    papers = pl.DataFrame(
        {"id": [f"p{k}" for k in range(40)], "kind": "paper", "new": data["paper"].new.numpy()}
    ).with_columns(pl.Series("paper x", data["paper"].x.numpy(), dtype=pl.Array(pl.Float64, 3)))
    authors = pl.DataFrame({"id": [f"a{k}" for k in range(10)], "kind": "author"}).with_columns(
        pl.Series("author x", data["author"].x.numpy(), dtype=pl.Array(pl.Float64, 2))
    )
    cites = data["paper", "cites", "paper"].edge_index.tolist()
    edges = pl.DataFrame(
        {
            "a": [f"p{k}" for k in cites[0]] + [f"a{k}" for k in written[0].tolist()],
            "b": [f"p{k}" for k in cites[1]] + [f"p{k}" for k in written[1].tolist()],
            "relation": ["cites"] * 90 + ["writes"] * 80,
        }
    )
    same = read_graph(
        pl.concat([papers, authors], how="diagonal"),
        edges,
        domain="new",
        node_type="kind",
        scored="paper",
        relation="relation",
    )
    assert same.feature_names == graph.feature_names
    assert same_x(same, graph)
    assert np.array_equal(same.edge_index, graph.edge_index)


def test_detect_takes_relations_and_bad_ones_are_refused(world, tmp_path, monkeypatch):
    nodes, edges, *_ = world
    monkeypatch.chdir(tmp_path)
    nodes.write_csv("nodes.csv")
    edges.write_csv("edges.csv")
    given = ["detect", "nodes.csv", "edges.csv", "--method", "nearest-source", "--out"]
    result = CliRunner().invoke(app, [*given, "out", "--relation", "kind", "--edge-features", "amount"])
    assert result.exit_code == 0, result.output
    for arguments, message in (
        (["--relation", "sort"], "the edges table has no column 'sort'"),
        (["--relation", "amount"], "expected at most 50"),
        (["--node-type", "kind"], "need both"),
    ):
        result = CliRunner().invoke(app, [*given, "other", *arguments])
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.output.split())
    with pytest.raises(TableError, match="cannot be packed"):
        pack("nodes.csv", "edges.csv", "packed", relation="kind")
