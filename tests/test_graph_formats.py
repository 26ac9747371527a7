"""A graph has the same scores in whatever form it comes, and goes back with them."""

import gzip
import json

import networkx as nx
import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from arrays import same_x
from torch_geometric.data import Data
from typer.testing import CliRunner

import recoslip
from recoslip import NodeGraph, detector, read_graph
from recoslip.base.errors import TableError
from recoslip.inference.analysis import find_novel
from recoslip.pipeline.folder import to_networkx
from recoslip.products.cli.commands import app

FORMATS = {"graphml": nx.write_graphml, "gexf": nx.write_gexf, "gml": nx.write_gml}


@pytest.fixture(scope="module")
def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    rng = np.random.default_rng(0)
    count = 150
    nodes = pl.DataFrame(
        {
            "id": [f"n{k}" for k in range(count)],
            "domain": np.where(np.arange(count) < 100, "source", "target"),
            "size": rng.normal(size=count).round(3),
            "kind": rng.choice(list("abc"), count),
            "flag": rng.random(count) < 0.5,
            "count": rng.integers(0, 9, count),
        }
    )
    ends = np.unique(np.sort(rng.integers(0, count, (500, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    edges = pl.DataFrame(
        {"a": nodes["id"][ends[:, 0]], "b": nodes["id"][ends[:, 1]], "weight": rng.random(len(ends)).round(4) + 0.1}
    )
    return nodes, edges


@pytest.fixture(scope="module")
def reference(tables) -> NodeGraph:
    return read_graph(*tables, weight="weight")


@pytest.fixture(scope="module")
def networkx_graph(tables) -> nx.Graph:
    nodes, edges = tables
    graph = nx.Graph()
    for row in nodes.iter_rows(named=True):
        graph.add_node(row.pop("id"), **row)
    graph.add_weighted_edges_from(edges.iter_rows())
    return graph


def assert_same(graph: NodeGraph, reference: NodeGraph) -> None:
    assert list(map(str, graph.ids)) == list(map(str, reference.ids))
    assert graph.feature_names == reference.feature_names
    for name in ("x", "edge_index", "edge_weight", "is_target"):
        assert np.array_equal(getattr(graph, name), getattr(reference, name)), name
    one, other = (detector("nearest-source").fit(each).scores_ for each in (graph, reference))
    assert (one == other).all()


@pytest.mark.parametrize("name", [*FORMATS, "graphml.gz"])
def test_a_graph_file_has_the_scores_of_its_tables_to_the_last_bit(name, networkx_graph, reference, tmp_path):
    path = tmp_path / f"graph.{name}"
    if name.endswith(".gz"):
        with gzip.open(path, "wb") as file:
            nx.write_graphml(networkx_graph, file)
    else:
        FORMATS[name](networkx_graph, path)
    assert_same(read_graph(path), reference)


def test_objects_of_other_libraries_have_the_scores_of_their_tables(tables, networkx_graph, reference):
    nodes, edges = tables
    assert_same(read_graph(networkx_graph), reference)
    igraph = pytest.importorskip("igraph")
    position = {name: k for k, name in enumerate(nodes["id"])}
    ends = [(position[a], position[b]) for a, b, _ in edges.iter_rows()]
    other = igraph.Graph(n=nodes.height, edges=ends)
    for name in nodes.columns:
        other.vs["name" if name == "id" else name] = nodes[name].to_list()
    other.es["weight"] = edges["weight"].to_list()
    assert_same(read_graph(other), reference)
    rows, columns = zip(*ends, strict=True)
    matrix = sp.csr_matrix((edges["weight"].to_numpy(), (rows, columns)), shape=(nodes.height, nodes.height))
    assert_same(read_graph(nodes, matrix), reference)
    assert_same(read_graph(nodes.to_pandas(), edges.to_pandas(), weight="weight"), reference)


def test_a_list_of_edges_without_a_header_is_read(tables, reference, tmp_path):
    nodes, edges = tables
    path = tmp_path / "graph.edgelist"
    lines = [f"{a}\t{b}  {weight}" for a, b, weight in edges.iter_rows()]
    path.write_text("\n".join(["# a comment", "", *lines]) + "\n")
    assert_same(read_graph(nodes, path), reference)
    path.write_text("\n".join(f"{a} {b}" for a, b, _ in edges.iter_rows()))
    assert read_graph(nodes, path).edge_weight is None
    path.write_text("n0 n1\nn0 n1 2 3\n")
    with pytest.raises(TableError, match="each line must hold two ids, or each also a weight; got 'n0 n1 2 3'"):
        read_graph(nodes, path)


def test_a_file_of_pytorch_geometric_is_its_graph_and_runs_no_code(graph, tmp_path):
    data = graph.to_pyg()
    data.edge_attr = torch.ones(data.num_edges, 2)
    torch.save(data, tmp_path / "graph.pt")
    read = read_graph(tmp_path / "graph.pt", domain="is_target")
    assert same_x(read, graph)
    assert np.array_equal(read.edge_index, graph.edge_index)
    with_edges = read_graph(data, domain="is_target", edge_features=["edge_attr[0]"])
    assert "edges: mean edge_attr[0]" in with_edges.feature_names
    witness = tmp_path / "witness"
    torch.save(_Hostile(witness), tmp_path / "hostile.pt")
    with pytest.raises(TableError, match=r"hostile.pt cannot be read as a graph that torch.save\(data, path\) wrote"):
        read_graph(tmp_path / "hostile.pt")
    assert not witness.exists()
    torch.save({"x": 1}, tmp_path / "other.pt")
    with pytest.raises(TableError, match="must hold a graph of PyTorch Geometric; got dict"):
        read_graph(tmp_path / "other.pt")
    with pytest.raises(TableError, match="needs x and edge_index"):
        read_graph(Data(x=torch.ones(3, 1)))


class _Hostile:
    """What runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.graphml", "<graphml><graph", "g.graphml cannot be read as graphml"),
        ("g.gexf", "not xml", "g.gexf cannot be read as gexf"),
        ("g.gml", "graph [", "g.gml cannot be read as gml"),
        ("g.h5ad", "not hdf5", "g.h5ad cannot be read as h5ad"),
        ("g.pt", "not a zip", "g.pt cannot be read as a graph"),
    ],
)
def test_a_damaged_graph_file_ends_with_code_2_and_nothing_written(name, content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    result = CliRunner().invoke(app, ["detect", name, "--out", "out"])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()
    missing = CliRunner().invoke(app, ["detect", f"missing-{name}", "--out", "out"])
    assert missing.exit_code == 2
    assert "there is no file" in missing.output


def test_detect_takes_a_graph_and_gives_it_back_with_scores(networkx_graph, tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nx.write_graphml(networkx_graph, "graph.graphml")
    tables[0].write_csv("nodes.csv")
    tables[1].write_csv("edges.csv")
    given = ["--method", "nearest-source", "--max-fpr", "0.1"]
    runs = {
        "a": ["graph.graphml", *given, "--keep", "kind"],
        "b": ["nodes.csv", "edges.csv", "--weight", "weight", *given, "--write-graph", "gexf"],
        "c": [*given, "nodes.csv", "edges.csv", "--weight=weight"],
    }
    for out, arguments in runs.items():
        result = CliRunner().invoke(app, ["detect", *arguments, "--out", out])
        assert result.exit_code == 0, result.output
    scores = {out: pl.read_csv(f"{out}/scores.csv").select("id", "score", "p_value") for out in runs}
    assert scores["a"].equals(scores["b"])
    assert scores["a"].equals(scores["c"])
    back = nx.read_graphml("a/graph.graphml")
    row = pl.read_csv("a/scores.csv").row(0, named=True)
    assert back.nodes[row["id"]]["score"] == row["score"]
    assert back.nodes[row["id"]]["kind"] == networkx_graph.nodes[row["id"]]["kind"]
    assert back.number_of_edges() == networkx_graph.number_of_edges()
    assert nx.read_gexf("b/graph.gexf").nodes[row["id"]]["domain"] == "target"
    assert not list((tmp_path / "c").glob("graph.*"))
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["nodes"] == 150


def test_what_is_no_graph_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        ([], "no graph was given"),
        (["a.csv", "b.csv", "c.csv"], "'c.csv' is one too many"),
        (["a.csv", "--write-graph", "dot"], "'dot' is not one of"),
        (["a.csv", "--epoch", "3"], "no option '--epoch'"),
    ):
        result = CliRunner().invoke(app, ["detect", "--out", "out", *arguments])
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.output.split())


def test_a_graph_that_goes_back_holds_what_xml_can_hold(graph):
    named = NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=[f"n{k}\x01" for k in range(graph.num_nodes)])
    findings = find_novel(recoslip.calibrate(detector("lp-pul"), named, rotations=2), named, grouped=False)
    back = to_networkx(findings)
    assert back.number_of_edges() == graph.num_edges
    assert "n0\N{REPLACEMENT CHARACTER}" in back
