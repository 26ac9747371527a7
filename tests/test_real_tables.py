"""A table as people have it gives a result: what is read, what is left out, and what is said of it."""

import csv
import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import recoslip
from recoslip.base.errors import TableError
from recoslip.data.packed.reader import open_packed
from recoslip.data.packed.writer import pack
from recoslip.data.tables.numbers import decimal_marks, to_numbers
from recoslip.data.tables.read import read_graph, read_new_nodes
from recoslip.data.tables.table_encoder import TableEncoder
from recoslip.products.cli import app

ROWS = 400
EMPTY = 6  # rows without a time
KNOWN, NEW = "love city night river king war", "virus mask vaccine lockdown"  # words of titles
GENRES = ("Drama", "Comedy", "Horror", "Kids")
MONTHS = ("January", "March", "November")


def titles(rows=ROWS):
    """Return the columns of a table of titles, as a spreadsheet holds them."""
    rng = np.random.default_rng(0)
    year = rng.integers(2012, 2022, rows)
    known, new = (
        np.array(["love", "city", "night", "river", "king", "war"]),
        np.array(["virus", "mask", "vaccine", "lockdown"]),
    )
    is_new = (year >= 2020) & (rng.random(rows) < 0.4)
    words = [" ".join(rng.choice(new if each else known, 3, replace=False)) for each in is_new]
    months = rng.choice(MONTHS, rows)
    return {
        "show_id": [f"s{k}" for k in range(rows)],
        "title": words,
        "date added": [f"{months[k]} {1 + k % 28}, {year[k]}" if k >= EMPTY else "" for k in range(rows)],
        "genres": [", ".join(rng.choice(GENRES, 1 + k % 3, replace=False)) for k in range(rows)],
        "budget": [f"${v:,}" if k % 10 else "" for k, v in enumerate(rng.integers(100, 9999, rows))],
        "rating": [f"{v}%" for v in rng.integers(0, 100, rows)],
        "catalogue_id": [7 * k for k in range(rows)],
        "studio": ["Big"] * rows,
        "original": rng.choice(["True", "False"], rows).tolist(),
        "director": [f"Person {k}" for k in range(rows)],
    }


def write(columns, path, encoding="utf-8-sig"):
    """Write columns as a CSV file, by default with a byte-order mark."""
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "300"})


def reading(graph):
    return {each.column: each for each in graph.reading.columns}


OPTIONS = {"time": "date added", "since": 2020, "text": ["title"]}


@pytest.fixture
def table(tmp_path):
    return write(titles(), tmp_path / "titles.csv")


def test_a_table_of_titles_gives_a_result(table):
    result = recoslip.detect(table, progress=False, **OPTIONS)
    graph = result.check.graph
    assert graph.num_nodes == ROWS - EMPTY
    assert graph.is_target.sum() == sum(int(each[-4:]) >= 2020 for each in titles()["date added"] if each)
    assert {name: each.read_as for name, each in reading(graph).items()} == {
        "show_id": "id", "title": "text", "date added": "date", "genres": "list", "budget": "number",
        "rating": "number", "catalogue_id": "left out", "studio": "left out", "original": "number",
        "director": "left out",
    }  # fmt: skip
    assert graph.missing == {"budget": 39}  # 40 less one in a row that was left out
    said = result.check.to_dict()
    assert said["notes"][0].startswith(f"{EMPTY} of {ROWS} rows are left out: they have no value in 'date added'")
    assert [each["column"] for each in said["reading"]] == list(titles())


def test_the_command_line_gives_the_same_and_prints_a_line_for_each_column(table, tmp_path):
    out = tmp_path / "out"
    done = run("detect", table, "--time", "date added", "--since", "2020", "--text", "title", "--out", out)
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[1].rstrip(":") for line in lines if line[:1] == ["column"]] == [name.split()[0] for name in titles()]
    assert json.loads((out / "summary.json").read_text())["check"]["notes"]


def test_edges_of_rows_that_are_left_out_are_left_out(table, tmp_path):
    edges = write({"a": ["s0", "s10", "s20"], "b": ["s10", "s20", "s30"]}, tmp_path / "edges.csv")
    graph = read_graph(table, edges, **OPTIONS)
    assert graph.num_edges == 2
    assert graph.ids[graph.edge_index[0]].tolist() == ["s10", "s20", "s20", "s30"]
    pack(table, edges, tmp_path / "packed", chunk_rows=50, **OPTIONS)
    packed = open_packed(tmp_path / "packed")
    assert np.array_equal(packed.edge_index, graph.edge_index)
    assert np.array_equal(packed.is_target, graph.is_target)
    assert packed.reading == graph.reading
    unknown = write({"a": ["s0", "nobody"], "b": ["s10", "s20"]}, tmp_path / "unknown.csv")
    with pytest.raises(TableError, match=r"names 1 ids .*'nobody'.*in 1 edges"):
        read_graph(table, unknown, **OPTIONS)


def test_a_matrix_of_edges_is_of_all_rows(table):
    import scipy.sparse as sp

    matrix = sp.coo_array((np.ones(2), ([0, 10], [10, 20])), shape=(ROWS, ROWS))
    graph = read_graph(table, matrix, **OPTIONS)
    assert graph.ids[graph.edge_index[0]].tolist() == ["s10", "s20"]


@pytest.mark.parametrize(
    ("when", "since", "target"),
    [
        (["November 1, 2019", "1 May 2020", "Jan 2, 2021", "Dec 2018"], 2020, [0, 1, 1, 0]),
        (["2019/1/31", "2020/02/01", "2021/12/31", "2018/1/1"], "2020", [0, 1, 1, 0]),
        (["2019-12", "2020-01", "2021-3", "2018-11"], "2020-01", [0, 1, 1, 0]),
        (["2019-12-31", "NA", "2020-01-01", " "], 2020, [0, 1]),
    ],
)
def test_times_in_words_and_years_alone_are_read(when, since, target):
    frame = pl.DataFrame({"id": range(4), "when": when, "v": [1.0, 2.0, 3.0, 5.0]})
    assert read_graph(frame, None, time="when", since=since).is_target.tolist() == [bool(each) for each in target]


def test_years_of_two_digits_are_refused_with_the_remedy():
    frame = pl.DataFrame({"id": range(2), "when": ["1/31/19", "1/31/20"], "v": [1.0, 2.0]})
    with pytest.raises(TableError, match="got '1/31/19'; write years with four digits, such as 2007"):
        read_graph(frame, None, time="when", since=2020)


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$1,200.50", "$7", "-$3", "$ 4"], [1200.5, 7, -3, 4]),
        (["12 %", "7%", "100%", "0.5%"], [12, 7, 100, 0.5]),
        (["5 EUR", "€6", "1.200,5 €", "7"], [5, 6, 1200.5, 7]),
        (["1,234,567", "1,000", "7", "£12"], [1234567, 1000, 7, 12]),
    ],
)
def test_currencies_percent_signs_and_thousands_are_numbers(texts, numbers):
    series = pl.Series(texts)
    [mark] = decimal_marks(series)
    assert to_numbers(series, mark).to_list() == numbers


def test_many_values_with_commas_beside_some_without_tell_that_these_separate_thousands():
    texts = [f"{k},{100 + k}" for k in range(1, 61)]
    assert decimal_marks(pl.Series(texts)) == [".", ","]
    assert decimal_marks(pl.Series([*texts, "999"])) == ["."]
    assert decimal_marks(pl.Series([*texts[:10], "999"])) == [".", ","]


def test_numbers_of_two_currencies_are_no_numbers():
    frame = pl.DataFrame({"id": range(6), "domain": [0, 1] * 3, "v": range(6), "price": ["$5", "€7", "$6"] * 2})
    graph = read_graph(frame, None)
    assert graph.feature_names == ("v",)
    assert reading(graph)["price"].why == "numbers of several units ($, €)"


@pytest.mark.parametrize("separator", [", ", ";", " | "])
def test_a_list_in_a_cell_becomes_its_members(separator):
    cells = [separator.join(each) for each in (["Drama", "Comedy"], ["Drama"], ["Kids", "Comedy"], ["Kids"])]
    frame = pl.DataFrame({"id": range(40), "domain": [0, 1] * 20, "genres": cells * 10})
    graph = read_graph(frame, None)
    assert graph.feature_names == ("genres=Comedy", "genres=Drama", "genres=Kids")
    half = 0.5**0.5
    expected = [[half, half, 0], [0, 1, 0], [half, 0, half], [0, 0, 1]]
    np.testing.assert_allclose(graph.x[:4] / graph.encoding["genres"]["weight"], expected, rtol=1e-6)
    assert reading(graph)["genres"].read_as == "list"
    whole = read_graph(frame, None, read_as={"genres": "category"})
    assert whole.num_features == 4


def test_lists_of_polars_are_lists_too():
    lists = [["Drama", "Comedy"], ["Drama"], ["Kids", "Comedy"], None]
    frame = pl.DataFrame({"id": range(40), "domain": [0, 1] * 20, "genres": lists * 10})
    graph = read_graph(frame, None)
    assert graph.feature_names == ("genres=(missing)", "genres=Comedy", "genres=Drama", "genres=Kids")
    assert np.flatnonzero(graph.x[3]).tolist() == [0]


def test_names_and_sentences_with_commas_are_no_lists():
    frame = pl.DataFrame(
        {
            "id": range(60),
            "domain": [0, 1] * 30,
            "v": range(60),
            "name": [f"Smith{k}, John{k}" for k in range(60)],
            "place": ["Paris, France", "Rome, Italy", "Bonn, Germany"] * 20,
        }
    )
    read = reading(read_graph(frame, None))
    assert (read["name"].read_as, read["place"].read_as) == ("left out", "category")


def test_long_texts_are_text_unless_a_column_of_text_is_named():
    long = [f"a long text of many words about thing {k} here" for k in range(60)]
    short = [f"thing {k}" for k in range(60)]
    frame = pl.DataFrame({"id": range(60), "domain": [0, 1] * 30, "long": long, "short": short})
    assert {each.read_as for each in read_graph(frame, None).reading.columns} == {"id", "domain", "text", "left out"}
    named = reading(read_graph(frame, None, text=["short"], read_as={"long": "text"}))
    assert named["short"].read_as == named["long"].read_as == "text"


def test_constants_and_identifiers_are_left_out_unless_they_are_named():
    frame = pl.DataFrame(
        {
            "id": range(8),
            "domain": [0, 1] * 4,
            "v": range(8),
            "k": [7] * 8,
            "user_id": range(0, 24, 3),
            "No.": range(8),
        }
    )
    graph = read_graph(frame, None)
    assert graph.feature_names == ("v",)
    assert [reading(graph)[name].why for name in ("k", "user_id", "No.")] == [
        "7 in every row", "an identifier: another value in every row", "it counts the rows"
    ]  # fmt: skip
    assert read_graph(frame, None, features=["user_id"]).feature_names == ("user_id",)
    assert read_graph(frame, None, read_as={"user_id": "number"}).feature_names == ("v", "user_id")


def test_an_identifier_that_recurs_is_a_category():
    frame = pl.DataFrame({"id": range(8), "domain": [0, 1] * 4, "shop_id": [11, 12, 13, 11] * 2})
    assert read_graph(frame, None).feature_names == ("shop_id=11", "shop_id=12", "shop_id=13")


def test_of_several_domains_the_one_that_is_named_is_the_target():
    frame = pl.DataFrame({"id": range(6), "v": range(6), "region": ["north", "south", "west", "north", None, "south"]})
    graph = read_graph(frame, None, domain="region", target="north")
    assert graph.is_target.tolist() == [True, False, False, True, False]
    assert graph.reading.notes == (
        "1 of 6 rows is left out: they have no value in 'region' (first: row 4; rows are counted from 0).",
        "All values of 'region' but 'north' are source: 'south' (2 rows), 'west' (1 row).",
    )


def test_rows_without_a_column_of_ids_go_by_their_numbers(tmp_path):
    path = write({"domain": [0, 0, 1], "v": [1, 2, 4]}, tmp_path / "n.csv")
    graph = read_graph(path, None)
    assert graph.ids.tolist() == ["row 2", "row 3", "row 4"]
    encoder = TableEncoder.from_json(graph.encoding)
    new = read_new_nodes(path, None, encoder, lambda ids: np.isin(ids, graph.ids))
    assert new.graph.is_target.all()  # other rows, though their numbers are the same


def test_ids_are_text_where_they_are_found_by_the_name_of_their_column(tmp_path):
    nodes = write({"domain": [0, 0, 1], "v": [1, 2, 4], "paper_id": ["007", "008", "1"]}, tmp_path / "n.csv")
    edges = write({"a": ["007"], "b": ["1"]}, tmp_path / "e.csv")
    graph = read_graph(nodes, edges)
    assert graph.ids.tolist() == ["007", "008", "1"]
    assert graph.edge_index.tolist() == [[0, 2], [2, 0]]


def test_without_a_domain_candidates_are_proposed_and_none_is_taken(tmp_path):
    columns = titles() | {"kind": ["film", "series", "film", "film"] * (ROWS // 4)}
    path = write(columns, tmp_path / "titles.csv")
    with pytest.raises(TableError) as refused:
        recoslip.detect(path)
    assert "'kind' holds 'film' (300 rows), 'series' (100 rows): domain='kind', target='series'" in str(refused.value)
    assert "'date added' runs from 2012-" in str(refused.value)
    done = run("detect", path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--domain kind, --target series" in done.stderr
    assert "--time 'date added', --since 20" in done.stderr
    assert not (tmp_path / "out").exists()


def test_neighbours_join_the_nodes_of_a_table_without_edges(table):
    graph = read_graph(table, None, **OPTIONS, neighbours=5)
    degree = np.bincount(graph.edge_index[0], minlength=graph.num_nodes)
    assert degree.min() >= 5
    similarity = (graph.x @ graph.x[0]) / (np.linalg.norm(graph.x, axis=1) * np.linalg.norm(graph.x[0]))
    nearest = np.argsort(-similarity, kind="stable")[1:6]
    assert set(nearest) <= set(graph.edge_index[1][graph.edge_index[0] == 0])
    edges = pl.DataFrame({"a": ["s10"], "b": ["s20"]})
    with pytest.raises(TableError, match="without edges; leave it or the edges out"):
        read_graph(table, edges, **OPTIONS, neighbours=5)


def test_the_neighbours_do_not_depend_on_the_order_of_rows():
    frame = pl.DataFrame({"id": range(30), "domain": [0, 1] * 15, "c": list("abc") * 10})
    graph = read_graph(frame, None, neighbours=3)
    other = read_graph(frame.reverse(), None, neighbours=3)
    pairs = [{frozenset(pair) for pair in each.ids[each.edge_index].T.tolist()} for each in (graph, other)]
    assert pairs[0] == pairs[1]


def test_missing_numbers_are_said_apart_and_refused_if_asked(table):
    graph = read_graph(table, None, **OPTIONS)
    indicator = graph.x[:, graph.feature_names.index("budget=(missing)")] != 0
    assert indicator.sum() == 39
    refused = run("check", table, "--time", "date added", "--since", "2020", "--text", "title", "--no-impute")
    assert refused.exit_code == 2
    assert "missing values: 'budget' in 39 rows (first: row 12)" in refused.stderr


def test_new_rows_are_read_as_those_that_were_fitted(table, tmp_path):
    graph = read_graph(table, None, **OPTIONS)
    encoder = TableEncoder.from_json(json.loads(json.dumps(graph.encoding)))
    new = read_new_nodes(table, None, encoder, lambda ids: np.isin(ids, graph.ids))
    known = np.isin(new.graph.ids, graph.ids)
    np.testing.assert_allclose(new.graph.x[known], graph.x, atol=1e-6)
    columns = titles(3) | {"genres": ["Kids, Western", "Western", ""], "budget": ["", "$1,000", "2"]}
    path = write(columns, tmp_path / "new.csv")
    fresh = read_new_nodes(path, None, encoder, lambda ids: np.zeros(len(ids), dtype=bool))
    block = fresh.graph.x[:, [k for k, name in enumerate(graph.feature_names) if name.startswith("genres=")]]
    assert (block != 0).sum(axis=1).tolist() == [1, 0, 0]
    assert fresh.features.drift["genres"].unknown == 3
    assert fresh.features.missing == {"genres": 1, "budget": 1}


def test_a_column_with_values_of_one_domain_is_named_whatever_its_order():
    year, noise = np.tile(np.arange(2010, 2020), 40), np.random.default_rng(0).random(400)
    frame = pl.DataFrame({"id": range(400), "domain": year % 2, "year": year, "v": noise})
    found = recoslip.check(frame)
    [named] = found.columns.one_domain
    assert (named.column, named.source, named.target) == ("year", 1.0, 1.0)
    assert named.examples == ("2011", "2013", "2015")
    assert next(each for each in found.columns.differences if each.column == "year").auroc < 0.7
    assert [what for what, _ in found.rows()].count("one domain") == 1


def test_of_many_columns_thirty_have_a_line_and_the_rest_is_counted():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"id": range(40), "domain": [0, 1] * 20, **{f"x{k}": rng.random(40) for k in range(35)}})
    lines = [said for what, said in recoslip.check(frame).rows() if what == "column"]
    assert len(lines) == 31
    assert lines[-1] == "and 7 more: 7 number"


def test_wide_cells_are_read(tmp_path):
    texts = [f"line {k}\n" + "word " * 20_000 for k in range(6)]
    path = write({"id": range(6), "domain": [0, 1] * 3, "v": range(6), "body": texts}, tmp_path / "n.csv")
    graph = read_graph(path, None, text=["body"])
    assert graph.feature_names[-1] == "body:word"


def test_a_wrong_way_to_read_a_column_is_refused():
    frame = pl.DataFrame({"id": range(4), "domain": [0, 1] * 2, "v": ["a", "b"] * 2})
    with pytest.raises(TableError, match="may be read as number, category, list, text; got 'date'"):
        read_graph(frame, None, read_as={"v": "date"})
    with pytest.raises(TableError, match="column 'v' cannot be read as numbers"):
        read_graph(frame, None, read_as={"v": "number"})
    with pytest.raises(TableError, match="no column 'w'"):
        read_graph(frame, None, read_as={"w": "text"})
