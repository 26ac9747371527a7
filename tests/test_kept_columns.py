"""The user's own columns: which one names the nodes, and that they come along unchanged to the table of scores."""

import datetime

import numpy as np
import polars as pl
import pytest
from scoring import read_table
from typer.testing import CliRunner

import recoslip
from recoslip import NodeGraph, detector, read_graph
from recoslip.base.errors import GraphError, TableError
from recoslip.data.packed.reader import open_packed
from recoslip.data.packed.writer import pack
from recoslip.products.cli import app

TITLES = [f"Paper {k}" for k in range(40)]


def nodes(**columns):
    base = {"id": [f"p{k}" for k in range(40)], "domain": [0, 1] * 20, "size": np.arange(40.0)}
    return pl.DataFrame({**base, **columns})


def test_a_column_that_is_plainly_a_name_is_found():
    assert read_graph(nodes(title=TITLES), None).label == "title"
    assert read_graph(nodes(**{"Product Name": TITLES}), None).label == "Product Name"
    assert read_graph(nodes(title=TITLES), None).columns["title"].tolist() == TITLES


@pytest.mark.parametrize(
    "columns",
    [
        {"title": ["Mr", "Mrs"] * 20},  # repeats: a category
        {"title": [("word " * 60) + str(k) for k in range(40)]},  # too long: a text
        {"title": range(40)},  # a number
        {"words": TITLES},  # not called a name
        {"filename": TITLES},
    ],
)
def test_what_is_not_plainly_a_name_is_not_taken_for_one(columns):
    graph = read_graph(nodes(**columns), None)
    assert graph.label is None
    assert graph.columns == {}


def test_a_name_can_be_chosen_or_left_out():
    frame = nodes(title=TITLES, words=TITLES[::-1])
    assert read_graph(frame, None, label="words").label == "words"
    assert read_graph(frame, None, label="").label is None
    with pytest.raises(TableError, match="no column 'tilte' \\(did you mean 'title'"):
        read_graph(frame, None, label="tilte")
    with pytest.raises(TableError, match="no column 'prize'"):
        read_graph(frame, None, keep=["prize"])


def test_values_keep_their_units_and_what_is_missing_is_none():
    frame = nodes(
        price=[None, 9.5, *range(38)],
        open=[True, None] * 20,
        day=[datetime.date(2024, 1, 31)] * 40,
        tags=[["a", "b"]] * 40,
    )
    graph = read_graph(frame, None, keep=["price", "open", "day", "tags", "size"], impute=True)
    kept = {name: values[:2].tolist() for name, values in graph.columns.items()}
    assert kept == {
        "price": [None, 9.5],
        "open": [True, None],
        "day": ["2024-01-31"] * 2,
        "tags": ["['a', 'b']"] * 2,
        "size": [0.0, 1.0],
    }


def test_columns_follow_their_nodes():
    graph = read_graph(nodes(title=TITLES), None)
    order = np.random.default_rng(0).permutation(40)
    assert graph.permuted(order).columns["title"].tolist() == [TITLES[k] for k in order]
    assert graph.subgraph([5, 3]).columns["title"].tolist() == ["Paper 5", "Paper 3"]
    assert graph.without_edges().label == graph.with_edges([[0], [1]]).label == "title"


def test_columns_do_not_change_the_features():
    plain, shown = read_graph(nodes(), None), read_graph(nodes(title=TITLES), None, keep=["size"])
    assert plain.feature_names == shown.feature_names


def test_a_graph_can_be_given_columns_and_refuses_those_that_do_not_fit():
    graph = NodeGraph([[0.0], [1.0]], [[0], [1]], [False, True], columns={"name": ["a", "b"]}, label="name")
    assert graph.columns["name"].tolist() == ["a", "b"]
    with pytest.raises(GraphError, match="column 'name' must have shape"):
        NodeGraph([[0.0], [1.0]], [[0], [1]], [False, True], columns={"name": ["a"]})
    with pytest.raises(GraphError, match="label must be one of the columns"):
        NodeGraph([[0.0], [1.0]], [[0], [1]], [False, True], label="name")


def test_a_packed_graph_has_the_same_columns(tmp_path):
    frame = nodes(title=TITLES, price=[None, *range(39)])
    frame.write_parquet(tmp_path / "n.parquet")
    pl.DataFrame({"a": ["p0", "p1"], "b": ["p2", "p3"]}).write_csv(tmp_path / "e.csv")
    pack(tmp_path / "n.parquet", tmp_path / "e.csv", tmp_path / "packed", keep=["price"], ignore=["price"])
    packed = open_packed(tmp_path / "packed")
    plain = read_graph(tmp_path / "n.parquet", tmp_path / "e.csv", keep=["price"], ignore=["price"])
    assert packed.label == plain.label == "title"
    assert list(packed.columns) == list(plain.columns) == ["title", "price"]
    for name, values in plain.columns.items():
        assert packed.columns[name].tolist() == values.tolist()


def test_the_table_of_scores_has_them_and_ours_keep_their_names():
    own = {"score": range(40), "own_score": TITLES, "self": TITLES, "uncertainty": TITLES}
    graph = read_graph(nodes(title=TITLES, **own), None, keep=list(own), ignore=list(own))
    table = recoslip.analyse(detector("lp-pul").fit(graph), graph, groups=False).table
    assert table.columns[-5:] == ["title", "own_score", "own_own_score", "self", "own_uncertainty"]
    row = table.row(by_predicate=pl.col("id") == "p7", named=True)
    assert (row["title"], row["own_score"]) == ("Paper 7", 7)


def test_new_nodes_and_old_ones_have_them():
    old = nodes(title=TITLES)
    fitted = recoslip.calibrate(detector("domain-discriminator", epochs=2), read_graph(old, None), rotations=3)
    new = pl.DataFrame({"id": ["q1"], "size": [3.0], "title": ["New paper"], "price": [4]})
    graph = read_table(fitted, new, old_nodes=old, keep=["price"]).graph
    assert graph.label == "title"
    assert graph.columns["title"].tolist() == [*TITLES, "New paper"]
    assert graph.columns["price"].tolist() == [None] * 40 + [4]


def test_new_nodes_that_are_scored_alone_have_them():
    fitted = recoslip.calibrate(
        detector("domain-discriminator", epochs=2), read_graph(nodes(title=TITLES), None), rotations=3
    )
    new = pl.DataFrame({"id": ["q1"], "size": [3.0], "title": ["New paper"]})
    assert recoslip.score(fitted, new).table["title"].to_list() == ["New paper"]


def test_a_column_to_show_that_was_not_packed_is_refused_before_training(tmp_path):
    nodes(title=TITLES).write_parquet(tmp_path / "n.parquet")
    pl.DataFrame({"a": ["p0"], "b": ["p2"]}).write_csv(tmp_path / "e.csv")
    pack(tmp_path / "n.parquet", tmp_path / "e.csv", tmp_path / "packed")
    arguments = ["detect", str(tmp_path / "packed"), "--out", str(tmp_path / "out"), "--show", "titel"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--show titel: the graph was packed without this column" in " ".join(result.stderr.split())
    assert "training" not in result.stdout
    assert not (tmp_path / "out").exists()
