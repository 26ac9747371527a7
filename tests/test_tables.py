import json
import logging
import subprocess
import sys
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from arrays import dense_x

from recoslip import read_graph
from recoslip.base.errors import TableError
from recoslip.data.options import ReadOptions
from recoslip.data.tables.edges import EdgeReader
from recoslip.data.tables.table import Table

NODES = pl.DataFrame(
    {
        "id": ["a", "b", "c", "d", "e", "f"],
        "domain": ["source", "source", "source", "target", "target", "target"],
        "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "brand": ["x", "x", "y", "y", "x", "z"],
        "title": ["red shoe", "blue shoe", "red hat", "green hat", "old gun", "new gun"],
    }
)
EDGES = pl.DataFrame({"from": ["a", "b", "d"], "to": ["b", "c", "e"], "times": [1.0, 2.0, 3.0]})


def dense(graph):
    return dense_x(graph)


def write(frame, path):
    if path.suffix in (".csv", ".tsv"):
        frame.write_csv(path, separator="," if path.suffix == ".csv" else "\t")
    elif path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_ipc(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow"])
def test_every_file_format_gives_the_graph_of_the_data_frame(suffix, tmp_path):
    nodes, edges = write(NODES, tmp_path / f"nodes{suffix}"), write(EDGES, tmp_path / f"edges{suffix}")
    graph, expected = read_graph(nodes, edges), read_graph(NODES, EDGES)
    assert np.array_equal(dense(graph), dense(expected))
    assert np.array_equal(graph.edge_index, expected.edge_index)
    assert graph.ids.tolist() == list("abcdef")
    assert graph.is_target.tolist() == [False] * 3 + [True] * 3


OPENS = """
import collections, json, os, sys
opened = collections.Counter()
def count(event, arguments):
    if event in ("open", "os.open") and isinstance(arguments[0], (str, bytes, os.PathLike)):
        opened[os.fsdecode(arguments[0])] += 1
from recoslip import pack, read_graph
sys.addaudithook(count)
{"read": read_graph, "pack": lambda *files: pack(*files, "packed")}[sys.argv[1]](*sys.argv[2:])
print(json.dumps(opened))
"""


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow"])
@pytest.mark.parametrize("action", ["read", "pack"])
def test_each_file_is_opened_once(suffix, action, tmp_path):
    files = write(NODES, tmp_path / f"nodes{suffix}"), write(EDGES, tmp_path / f"edges{suffix}")
    command = [sys.executable, "-c", OPENS, action, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert [json.loads(done.stdout)[str(file)] for file in files] == [1, 1]


def test_pandas_frames_are_read():
    graph = read_graph(NODES.to_pandas(), EDGES.to_pandas())
    assert np.array_equal(dense(graph), dense(read_graph(NODES, EDGES)))
    assert isinstance(NODES.to_pandas(), pd.DataFrame)


def test_numbers_are_scaled_and_categories_become_columns():
    graph = read_graph(NODES, EDGES)
    names = list(graph.feature_names)
    x = dense(graph)
    assert names == ["price", "brand=x", "brand=y", "brand=z"]
    assert x[:, 0].mean().item() == pytest.approx(0, abs=1e-6)
    assert x[:, 0].std().item() == pytest.approx(1, abs=1e-6)
    brand = np.array([0, 0, 1, 1, 0, 0]) * graph.encoding["brand"]["weight"]
    np.testing.assert_allclose(x[:, names.index("brand=y")], brand, rtol=1e-6)
    read_as = {each.column: each.read_as for each in graph.reading.columns}
    assert read_as | {"id": "id", "domain": "domain"} == read_as
    assert read_as | {"price": "number", "brand": "category", "title": "left out"} == read_as
    assert graph.reading.columns[NODES.columns.index("title")][2:] == (
        "6 different texts; text=['title'] uses it", "text=['title']"
    )  # fmt: skip


def test_large_numbers_that_hardly_differ_are_scaled_like_small_ones():
    nodes = NODES.with_columns(
        price=pl.lit(1.6e18),  # one moment, in nanoseconds
        near=pl.Series([1e15 + k % 3 for k in range(6)]),
        small=pl.Series([k % 3 for k in range(6)]),
        gap=pl.Series([1e99, None, 1e99, None, None, None]),
    )
    x = dense(read_graph(nodes, None, features=["price", "near", "small", "gap"], impute=True))
    assert not x[:, 0].any()
    assert not x[:, 3].any()
    assert np.array_equal(x[:, 1], x[:, 2])


def test_text_becomes_sparse_words():
    graph = read_graph(NODES, EDGES, text=["title"], ignore=["price", "brand"])
    assert sp.issparse(graph.x)
    assert "title:gun" in graph.feature_names
    column = graph.feature_names.index("title:gun")
    assert (dense(graph)[:, column] > 0).tolist() == [False] * 4 + [True] * 2


def test_vectors_and_booleans_are_features():
    frame = NODES.select("id", "domain").with_columns(
        vec=pl.Series([[1.0, 2.0]] * 3 + [[3.0, 4.0]] * 3), flag=pl.Series([True, False] * 3)
    )
    graph = read_graph(frame, EDGES)
    assert graph.feature_names == ("vec[0]", "vec[1]", "flag")
    vectors = np.array([[1.0, 2.0]] * 3 + [[3.0, 4.0]] * 3)
    np.testing.assert_allclose(dense(graph)[:, :2], vectors * graph.encoding["vec"]["weight"])
    alone = read_graph(frame, EDGES, features=["vec"])
    assert np.array_equal(dense(alone), vectors)


def test_rare_values_are_pooled():
    brands = ["x"] * 60 + ["y"] * 37 + ["p", "q", "r"]
    frame = pl.DataFrame({"id": range(100), "domain": [0] * 50 + [1] * 50, "brand": brands})
    graph = read_graph(frame, None)
    assert graph.feature_names == ("brand=x", "brand=y", "brand=(rare)")
    assert dense(graph)[:, 2].sum() == 3


def test_chosen_features_are_the_only_ones():
    assert read_graph(NODES, EDGES, features=["price"]).feature_names == ("price",)
    assert read_graph(NODES, EDGES, ignore=["brand"]).feature_names == ("price",)


def test_weights_and_named_edge_columns():
    edges = EDGES.select("times", "to", "from")
    graph = read_graph(NODES, edges, edge_from="from", edge_to="to", weight="times")
    assert graph.edge_weight.tolist() == [1, 1, 2, 2, 3, 3]


def test_ids_keep_their_spelling_and_match_across_types(tmp_path):
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("id,domain,v\n007,0,1\n7,0,2\n08,1,3\n")
    edges = tmp_path / "edges.csv"
    edges.write_text("a,b\n007,08\n")
    graph = read_graph(nodes, edges)
    assert graph.ids.tolist() == ["007", "7", "08"]
    assert graph.edge_index.tolist() == [[0, 2], [2, 0]]
    numbers = pl.DataFrame({"id": [7, 8, 9], "domain": [0, 0, 1], "v": [1, 2, 3]})
    assert read_graph(numbers, pl.DataFrame({"a": ["7"], "b": ["9"]})).num_edges == 1
    assert read_graph(numbers, None).ids.tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("values", "target"),
    [
        ([False, False, True], None),
        ([0, 0, 1], None),
        (["Source", "Source", "Target"], None),
        (["east", "east", "west"], "west"),
        (["EAST", "EAST", "WEST"], "west"),
        ([3, 3, 1], 1),
    ],
)
def test_domains_from_two_values(values, target):
    frame = pl.DataFrame({"id": [1, 2, 3], "domain": values, "v": [1, 2, 3]})
    assert read_graph(frame, None, target=target).is_target.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("times", "since"),
    [
        ([2005, 2006, 2007], 2007),
        ([2005, 2006, 2007], "2007"),
        ([date(2005, 1, 1), date(2006, 1, 1), date(2007, 1, 1)], "2007-01-01"),
        (["2005-03-01", "2006-12-31", "2007-01-01"], "2007-01-01"),
        (["2005-03-01T10:00:00", "2006-12-31T23:59:59.5", "2007-01-01 00:00:00"], "2007-01-01"),
        ([date(2005, 1, 1), date(2006, 1, 1), date(2007, 1, 1)], date(2007, 1, 1)),
    ],
)
def test_domains_from_time(times, since):
    frame = pl.DataFrame({"id": [1, 2, 3], "when": times, "v": [1, 2, 3]})
    graph = read_graph(frame, None, time="when", since=since)
    assert graph.is_target.tolist() == [False, False, True]
    assert graph.feature_names == ("v",)


def test_dates_are_no_features_in_any_file(tmp_path):
    days = [date(2005, 1, 1), date(2005, 1, 1), date(2007, 1, 1)]
    table = pl.DataFrame({"id": [1, 2, 3], "domain": [0, 0, 1], "v": [1, 2, 3], "day": days})
    for path in (write(table, tmp_path / "n.csv"), write(table, tmp_path / "n.parquet")):
        assert read_graph(path, None).feature_names == ("v",)


def test_one_named_end_leaves_the_other_to_the_first_other_column(tmp_path):
    (tmp_path / "n.csv").write_text("id,domain,v\n001,0,1\n002,0,2\n003,1,3\n")
    (tmp_path / "e.csv").write_text("a,b\n001,002\n002,003\n")
    for ends in ({"edge_from": "b"}, {"edge_to": "a"}, {"edge_from": "a"}, {"edge_to": "b"}):
        assert read_graph(tmp_path / "n.csv", tmp_path / "e.csv", **ends).num_edges == 2


def test_an_edge_list_without_a_header_is_refused(tmp_path):
    (tmp_path / "e.csv").write_text("a,b\nb,c\n")
    with pytest.raises(TableError, match="the first line, 'a' and 'b', is an edge; add a header"):
        read_graph(frame(), tmp_path / "e.csv")


@pytest.mark.parametrize("order", [["w", "s", "t"], ["s", "w", "t"], ["s", "t", "w"]])
@pytest.mark.parametrize("named", [{}, {"edge_from": "s", "edge_to": "t"}, {"edge_to": "t"}])
def test_the_weight_column_may_be_anywhere(order, named, tmp_path):
    nodes = write(NODES.with_columns(id=pl.Series([f"00{k}" for k in range(6)])), tmp_path / "nodes.csv")
    edges = pl.DataFrame({"s": ["000", "001"], "t": ["001", "002"], "w": [2.0, 3.0]}).select(order)
    graph = read_graph(nodes, write(edges, tmp_path / "edges.csv"), weight="w", **named)
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.edge_weight.tolist() == [2, 2, 3, 3]


def test_the_domain_column_is_no_feature_when_the_domain_is_from_time():
    nodes = NODES.with_columns(year=pl.Series([2000, 2001, 2002, 2003, 2004, 2005]))
    assert read_graph(nodes, None, time="year", since=2003, ignore=["brand"]).feature_names == ("price",)
    with pytest.raises(TableError, match=r"from a column .* or from time; give one"):
        read_graph(nodes, None, time="year", since=2003, domain="brand")
    with pytest.raises(TableError, match=r"from a column .* or from time; give one"):
        read_graph(nodes, None, time="year", since=2003, target="target")


def test_quoted_headers_between_semicolons_are_read(tmp_path):
    (tmp_path / "nodes.csv").write_text('"id";"domain";"a"\n007;source;1\n008;target;2\n')
    graph = read_graph(tmp_path / "nodes.csv", None)
    assert graph.ids.tolist() == ["007", "008"]
    assert graph.feature_names == ("a",)


def test_semicolons_are_separators(tmp_path):
    (tmp_path / "n.csv").write_text("id;domain;v\na;0;1\nb;0;2\nc;1;3\n")
    assert read_graph(tmp_path / "n.csv", None).num_nodes == 3


def test_missing_values_are_filled_unless_they_are_to_be_refused():
    frame = NODES.select("id", "domain").with_columns(
        n=pl.Series([1.0, None, 3.0, 5.0, 7.0, float("nan")]), c=pl.Series(["u", "u", None, "u", "v", "v"])
    )
    with pytest.raises(
        TableError, match=r"'n' in 2 rows \(first: row 1\); 'c' in 1 rows \(first: row 2\).*impute=True"
    ):
        read_graph(frame, EDGES, impute=False)
    graph = read_graph(frame, EDGES)
    x = dense(graph)
    assert x[1, 0] == x[5, 0] == pytest.approx(x[2:4, 0].mean(), abs=1e-6)  # 3 and 5, around the median
    assert graph.feature_names[:2] == ("n", "n=(missing)")
    assert np.flatnonzero(x[:, 1]).tolist() == [1, 5]
    assert graph.missing == {"n": 2, "c": 1}
    assert "c=(missing)" in graph.feature_names


def frame(**columns):
    return pl.DataFrame({"id": ["a", "b", "c"], "domain": [0, 0, 1], "v": [1, 2, 3]} | columns)


@pytest.mark.parametrize(
    ("nodes", "edges", "options", "message"),
    [
        (frame(), EDGES, {"id": "name"}, "no column 'name'"),
        (frame(), EDGES, {"domain": "domian"}, "no column 'domian' .did you mean 'domain'"),
        (frame(domain=[1, 1, 1]), None, {}, "must hold a value for source and one for target; got '1'"),
        (frame(domain=[1, 2, 3]), None, {}, "say which one is the target"),
        (frame(domain=["east", "east", "west"]), None, {}, "say which one is the target .target='east'"),
        (frame(domain=["east", "east", "west"]), None, {"target": "north"}, "not 'north'"),
        (frame(domain=[None, None, None]), None, {}, "'domain' is empty in every row"),
        (frame(id=["a", "a", "c"]), EDGES, {}, "unique; 1 are repeated .first: 'a'"),
        (frame(id=["a", None, "c"]), None, {}, "is empty in 1 rows .first: row 1"),
        (frame(id=[0.5, 1.5, 2.5]), None, {}, "text or whole numbers"),
        (frame(), pl.DataFrame({"a": ["a", "x", "x"], "b": ["y", "b", "c"]}), {}, "names 2 ids.*'x', 'y'.*in 3 edges"),
        (frame(), pl.DataFrame({"a": ["a"]}), {}, "two columns of node ids"),
        (frame(), pl.DataFrame({"a": ["a"], "b": ["b"], "w": ["?"]}), {"weight": "w"}, "a number in every row"),
        (frame(), None, {"features": ["w"]}, "no column 'w'"),
        (frame(), None, {"features": ["domain"]}, "cannot be a feature"),
        (frame(), None, {"ignore": ["v"]}, "no column to use as a feature .v: ignored as asked"),
        (frame(), None, {"time": "v"}, "needs both"),
        (frame(), None, {"time": "v", "since": 9}, "leaves one domain empty; it runs from 1 to 3"),
        (frame(), None, {"time": "v", "since": "soon"}, "needs a number"),
        (frame(t=["x", "y", "z"]), None, {"time": "t", "since": "2007-01-01"}, "must hold numbers or dates"),
        (frame(v=[1.0, float("inf"), 2.0]), None, {}, "infinite"),
        (frame(v=[1.0, 1e200, 2.0]), None, {}, "column 'v' holds infinite or extreme values"),
        (frame(y=[float("nan")] * 3), None, {"time": "y", "since": 2007}, "'y' is empty in every row"),
        (frame(t=["02/03/2007"] * 3), None, {"time": "t", "since": "2007-01-01"}, "may be 2007-03-02 or 2007-02-03"),
        (frame(), EDGES, {"edge_from": "to", "edge_to": "to"}, "cannot be in one column"),
        (frame(), None, {"features": "v"}, "a list of column names"),
        (frame(id=[b"a", b"b", b"c"]), None, {}, "text or whole numbers"),
        (frame(tags=[["x"], ["y"], ["z"]]), None, {"text": ["tags"]}, "must hold one text per row"),
        (frame(domain=["Target", "source", "other"]), None, {}, "say which one is the target"),
        (frame(v=[[1.0], [1.0, 2.0], [1.0]]), None, {}, "must have one length"),
        (frame().clear(), None, {}, "has no rows"),
        ("nowhere.csv", None, {}, "there is no file nowhere.csv"),
        (42, None, {}, "a file or a polars or pandas data frame"),
    ],
)
def test_bad_tables_are_refused_with_what_to_do(nodes, edges, options, message):
    with pytest.raises(TableError, match=message):
        read_graph(nodes, edges, **options)


def test_unreadable_files_are_refused(tmp_path):
    empty, broken, other = tmp_path / "n.csv", tmp_path / "n.parquet", tmp_path / "n.docx"
    empty.write_text("")
    broken.write_bytes(b"not parquet at all")
    other.write_text("x")
    for path, message in ((empty, "is empty"), (broken, "cannot be read as parquet"), (other, "must end in .csv")):
        with pytest.raises(TableError, match=message):
            read_graph(path, None)


def test_unknown_ids_can_be_dropped(caplog):
    edges = pl.DataFrame({"a": ["a", "a"], "b": ["b", "zz"]})
    with caplog.at_level(logging.INFO, logger="recoslip"):
        assert read_graph(NODES, edges, drop_unknown=True).num_edges == 1
    assert "edges: 1 dropped that name unknown nodes" in caplog.messages


def test_a_category_column_is_kept_for_scoring_and_is_no_feature():
    graph = read_graph(NODES, EDGES, category="brand")
    assert graph.feature_names == ("price",)
    assert np.array_equal(graph.categories, NODES["brand"].to_numpy())


@pytest.mark.parametrize("ids", [["a", "b", "c", "10"], [1, 2, 3, 10]], ids=["texts", "numbers"])
def test_ids_are_found_as_text_and_as_whole_numbers_that_became_floats(ids):
    texts = pl.Series(ids).cast(pl.String)
    edges = pl.DataFrame({"a": [*ids, *ids[:2]], "b": pl.Series([str(k) for k in [*ids[::-1], "zz", "10.0"]])})
    reader = EdgeReader(Table("edges", edges), texts, ReadOptions(drop_unknown=True))
    assert reader.ends(edges)[0].tolist() == [[0, 1, 2, 3, 1], [3, 2, 1, 0, 3]]
    assert reader._find(pl.Series(["10", None, "nobody"])).to_list() == [3, None, None]


def test_an_index_of_pandas_names_the_nodes_unless_it_counts_the_rows_or_a_column_does():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"domain": [0, 1, 0, 1], "x": [1.0, 2.0, 4.0, 3.0]})
    named = frame.set_index(pandas.Index(list("abcd"), name="id"))
    edges = pandas.DataFrame({"from": ["a", "b"], "to": ["b", "d"]}).iloc[::-1]
    graph = read_graph(named, edges)
    assert graph.ids.tolist() == list("abcd")
    assert graph.num_edges == 2
    assert read_graph(named.rename_axis(None)).ids.tolist() == list("abcd")
    assert read_graph(frame.iloc[[2, 0, 3, 1]]).ids.tolist() == [2, 0, 3, 1]
    assert read_graph(frame).ids.tolist() == ["row 0", "row 1", "row 2", "row 3"]
    assert read_graph(named.assign(id=[4, 5, 6, 7])).ids.tolist() == [4, 5, 6, 7]
    assert read_graph(named.rename_axis("key"), id="key").ids.tolist() == list("abcd")
