"""Tables as people have them: numbers, dates and ids in every spelling, encodings, archives, Excel, any order."""

import gzip
import json
import logging
import sys
import zipfile
from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xlsxwriter
from arrays import dense_x
from scoring import read_table
from typer.testing import CliRunner

import recoslip
from recoslip import Watch, detector, read_graph
from recoslip.base.errors import OutOfMemory, RecoslipError, TableError
from recoslip.base.memory import Memory
from recoslip.data.packed.reader import open_packed
from recoslip.data.packed.writer import pack
from recoslip.data.tables.column_encoders import NumberEncoder, encoder_from_json
from recoslip.data.tables.numbers import MISSING_SPELLINGS, decimal_marks, to_numbers
from recoslip.products.cli import app

ROWS = 12
NODES = {"id": [f"n{k}" for k in range(ROWS)], "domain": ["source", "target"] * (ROWS // 2)}
EDGES = pl.DataFrame({"from": [f"n{k}" for k in range(ROWS - 1)], "to": [f"n{k + 1}" for k in range(ROWS - 1)]})


def nodes(**columns):
    return pl.DataFrame(NODES | columns)


def dense(graph):
    return dense_x(graph)


def write(frame, path, separator=","):
    frame.write_csv(path, separator=separator)
    return path


def both(tmp_path, node_file, edge_file, **options):
    """Read a graph, pack it, and return it if the packed one is the same to the last bit."""
    graph = read_graph(node_file, edge_file, **options)
    pack(node_file, edge_file, tmp_path / "packed", replace=True, **options)
    packed = open_packed(tmp_path / "packed")
    assert np.array_equal(dense(graph), dense(packed))
    assert np.array_equal(graph.edge_index, packed.edge_index)
    assert np.array_equal(graph.is_target, packed.is_target)
    assert (graph.edge_weight is None and packed.edge_weight is None) or np.array_equal(
        graph.edge_weight, packed.edge_weight
    )
    assert graph.encoding == packed.encoding
    assert graph.ids.tolist() == packed.ids.tolist()
    return graph


def reading(graph):
    """Return how each column was read, by its name."""
    return {each.column: each for each in graph.reading.columns}


def refusals(tmp_path, node_file, edge_file, **options):
    """Return the message by which both ways to read a graph refuse it, which is the same."""
    messages = []
    for read in (read_graph, lambda *files, **more: pack(*files, tmp_path / "packed", replace=True, **more)):
        with pytest.raises(TableError) as refused:
            read(node_file, edge_file, **options)
        messages.append(str(refused.value))
    assert messages[0] == messages[1]
    return messages[0]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def message(result):
    assert result.exit_code == 2, (result.output, result.exception)
    return " ".join(result.stderr.split())


# Numbers.


NUMBERS = [f"{k}.5" for k in range(ROWS - 1)]


@pytest.mark.parametrize(
    "spelling", ["NA", "N/A", "n/a", "NaN", "null", "None", "-", "?", ".", "#N/A", "missing", " NA "]
)
def test_missing_numbers_are_missing_however_they_are_spelled(spelling, tmp_path):
    path = write(nodes(size=[*NUMBERS, spelling]), tmp_path / "n.csv")
    edges = write(EDGES, tmp_path / "e.csv")
    graph = both(tmp_path, path, edges)
    assert graph.feature_names == ("size", "size=(missing)")
    empty = read_graph(nodes(size=[*map(float, NUMBERS), None]), None)
    assert np.array_equal(dense(graph), dense(empty))
    refused = refusals(tmp_path, path, edges, impute=False)
    assert "'size' in 1 rows (first: row 13" in refused
    if spelling != "NaN":  # which is a number to polars
        assert f"(first: row 13, written {spelling!r})" in refused
        assert f"missing values written {spelling!r}" in reading(graph)["size"].why


def test_what_stands_for_missing_is_listed():
    assert "na" in MISSING_SPELLINGS
    texts = pl.Series(["1", *MISSING_SPELLINGS, *(text.upper() for text in MISSING_SPELLINGS)])
    assert decimal_marks(texts) == ["."]
    assert to_numbers(texts, ".").drop_nulls().to_list() == [1.0]


def test_the_error_names_the_spellings_and_the_first_row(tmp_path):
    path = write(nodes(size=["1", "NA", "-", *map(str, range(ROWS - 3))]), tmp_path / "n.csv")
    with pytest.raises(TableError) as refused:
        read_graph(path, None, impute=False)
    assert str(refused.value) == (
        "missing values: 'size' in 2 rows (first: row 3, written 'NA', '-') (the header is row 1); fill them, ignore "
        "the columns, or impute=True"
    )


def test_namibia_stays_a_country():
    graph = read_graph(nodes(country=["NA", "DE", "FR"] * 4, code=["NA", "7", "x"] * 4), None)
    assert graph.feature_names == (
        "country=DE", "country=FR", "country=NA", "code=7", "code=NA", "code=x"
    )  # fmt: skip


def test_a_column_of_nothing_but_missing_values_is_empty():
    graph = read_graph(nodes(v=range(ROWS), gap=["NA", "-"] * 6), None)
    assert reading(graph)["gap"] == ("gap", "left out", "empty", "")


READINGS = {
    "decimal commas": (["12,5", "0,25", "-3", "1e3"], [12.5, 0.25, -3, 1000]),
    "points between thousands": (["1.234,56", "1.234", "1.234.567", "7"], [1234.56, 1234, 1234567, 7]),
    "spaces between thousands": (["1 234,5", "1\u00a0234", "12\u202f345,5", "1"], [1234.5, 1234, 12345.5, 1]),
    "commas between thousands": (["1,234.56", "1,234", "1,234,567", "7"], [1234.56, 1234, 1234567, 7]),
    "apostrophes": (["1'234.5", "1’234", "7", ".5"], [1234.5, 1234, 7, 0.5]),
    "plain text": (["1.5", "+2", "−3", "1e-3"], [1.5, 2, -3, 0.001]),
}


@pytest.mark.parametrize("kind", READINGS)
def test_numbers_are_read_in_every_spelling(kind, tmp_path):
    texts, numbers = READINGS[kind]
    path = write(nodes(v=range(ROWS), size=texts * 3), tmp_path / "n.csv")
    graph = both(tmp_path, path, write(EDGES, tmp_path / "e.csv"))
    expected = read_graph(nodes(v=range(ROWS), size=[float(number) for number in numbers] * 3), None)
    assert graph.feature_names == ("v", "size")
    np.testing.assert_allclose(dense(graph), dense(expected), rtol=1e-6, atol=1e-6)


def test_the_graph_says_how_columns_were_read():
    frame = nodes(a=READINGS["decimal commas"][0] * 3, b=READINGS["commas between thousands"][0] * 3, c=["1", "2"] * 6)
    read = reading(read_graph(frame, None))
    assert [read[name].read_as for name in "abc"] == ["number"] * 3
    assert [read[name].why for name in "abc"] == ["decimal commas", "commas between thousands", "written as text"]


@pytest.mark.parametrize(
    "texts", [["12,5", "1.5"], ["1,23", "4,567.8"], ["007", "008"], ["1,5", "x"], ["1.2.3", "1"], ["1,23,456", "1"]]
)
def test_what_is_not_all_numbers_of_one_kind_stays_text(texts):
    assert read_graph(nodes(v=range(ROWS), size=texts * 6), None).feature_names[1].startswith("size=")


def test_a_comma_that_may_mean_two_things_is_not_guessed(tmp_path):
    frame = nodes(v=range(ROWS), size=["1,234", "5,678", "9"] * 4)
    path = write(frame, tmp_path / "n.csv")
    reason = (
        "'1,234' may be 1234 or 1.234; write it without the comma or with a point, or separate the file's columns by ;"
    )
    graph = both(tmp_path, path, write(EDGES, tmp_path / "e.csv"))
    assert graph.feature_names == ("v",)
    assert reading(graph)["size"][1:3] == ("left out", f"{reason} if commas are decimal")
    with pytest.raises(TableError, match=r"column 'size' cannot be a feature: '1,234' may be 1234 or 1\.234"):
        read_graph(path, None, features=["size"])


def test_semicolons_between_columns_mean_decimal_commas(tmp_path):
    frame = nodes(v=range(ROWS), size=["1,234", "5,678", "9"] * 4)
    path = write(frame, tmp_path / "n.csv", separator=";")
    graph = both(tmp_path, path, write(EDGES, tmp_path / "e.csv", separator=";"))
    expected = read_graph(nodes(v=range(ROWS), size=[1.234, 5.678, 9.0] * 4), None)
    assert np.array_equal(dense(graph), dense(expected))


def test_points_are_decimal_between_semicolons_too(tmp_path):
    path = write(nodes(size=["1.234", "2.5", "NA", "4"] * 3), tmp_path / "n.csv", separator=";")
    expected = read_graph(nodes(size=[1.234, 2.5, None, 4.0] * 3), None, impute=True)
    assert np.array_equal(dense(read_graph(path, None, impute=True)), dense(expected))


def test_weights_have_decimal_commas_too(tmp_path):
    path = write(nodes(v=range(ROWS)), tmp_path / "n.csv")
    edges = write(EDGES.with_columns(w=pl.Series(["0,5"] * 6 + ["1,25"] * 5)), tmp_path / "e.csv", separator=";")
    assert np.unique(both(tmp_path, path, edges, weight="w").edge_weight).tolist() == [0.5, 1.25]
    edges = write(EDGES.with_columns(w=pl.Series(["1,234"] * 11)), tmp_path / "e.csv")
    assert "weight column 'w': '1,234' may be 1234 or 1.234" in refusals(tmp_path, path, edges, weight="w")


# The same tomorrow.


@pytest.fixture(scope="module")
def fitted():
    """A detector of a table with decimal commas, and one of a table without."""
    rng = np.random.default_rng(0)
    numbers = np.round(rng.normal(2000, 500, 60), 2)
    frame = pl.DataFrame({"id": range(60), "domain": [0, 1] * 30, "v": rng.normal(size=60), "size": numbers})
    commas = frame.with_columns(size=pl.Series(german(numbers)))
    quick = {"epochs": 2, "device": "cpu"}
    return {
        name: recoslip.calibrate(detector("domain-discriminator", **quick), read_graph(table, None), rotations=3)
        for name, table in (("comma", commas), ("point", frame))
    }


def german(numbers):
    return [f"{number:,.2f}".translate(str.maketrans(",.", ".,")) for number in numbers]


def test_tomorrows_numbers_are_read_as_todays(fitted, tmp_path):
    # In this file alone, 1.234 would be taken for a number with a decimal point.
    new = pl.DataFrame({"id": ["x", "y"], "v": ["0,5", "1"], "size": ["1.234", "2.345"]})
    path = write(new, tmp_path / "new.csv", separator=";")
    plain = pl.DataFrame({"id": ["x", "y"], "v": [0.5, 1.0], "size": [1234.0, 2345.0]})
    of_comma, of_point = fitted["comma"], fitted["point"]
    assert of_comma.fits[0].encoding_["size"]["decimal"] == ","
    assert "decimal" not in of_point.fits[0].encoding_["size"]
    assert np.array_equal(read_table(of_comma, path).graph.x, read_table(of_comma, plain).graph.x)
    renamed = write(new.rename({"size": "area"}), tmp_path / "renamed.csv", separator=";")
    rename = {"rename": {"area": "size"}}
    assert np.array_equal(read_table(of_comma, renamed, **rename).graph.x, read_table(of_comma, plain).graph.x)
    other = new.with_columns(size=pl.Series(["1.234,5", "2,5"]))
    numbers = plain.with_columns(size=pl.Series([1234.5, 2.5]))
    assert np.array_equal(read_table(of_point, other).graph.x, read_table(of_point, numbers).graph.x)


def test_tomorrows_missing_values_are_found_and_filled(fitted, tmp_path):
    path = write(pl.DataFrame({"id": ["x", "y"], "v": ["NA", "1.5"], "size": ["1.234,5", "-"]}), tmp_path / "new.csv")
    with pytest.raises(TableError, match=r"'v' in 1 rows \(first: row 2, written 'NA'\); 'size' .*row 3, written '-'"):
        read_table(fitted["comma"], path, impute=False)
    assert read_table(fitted["comma"], path).features.missing == {"v": 1, "size": 1}


def test_tomorrows_ambiguous_numbers_are_refused_where_today_does_not_tell(fitted):
    new = pl.DataFrame({"id": ["x"], "v": [1.0], "size": ["1,234"]})
    with pytest.raises(TableError, match=r"'size' must hold numbers.*'1,234' may be 1234 or 1\.234"):
        read_table(fitted["point"], new)
    assert read_table(fitted["comma"], new).graph.num_nodes == 1
    with pytest.raises(TableError, match=r"got 'much' and 0 more such rows"):
        read_table(fitted["comma"], new.with_columns(size=pl.lit("much")))


def test_an_encoder_keeps_its_decimal_mark():
    encoder = NumberEncoder("size", 1.0, 0.0, 1.0, ",")
    assert encoder_from_json("size", encoder.to_json()) == encoder
    assert "decimal" not in NumberEncoder("size", 1.0, 0.0, 1.0).to_json()


# Encodings.


SPECIAL = nodes(v=range(ROWS), brand=["Café", "Müller", "naïve – “x”"] * 4)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.zip"])
def test_a_file_in_any_encoding_is_read_if_it_is_named(encoding, suffix, tmp_path):
    data = SPECIAL.write_csv().encode(encoding)
    path, edges = tmp_path / f"n.{suffix}", write(EDGES, tmp_path / "e.csv")
    if suffix == "csv.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("n.csv", data)
    else:
        path.write_bytes(gzip.compress(data) if suffix == "csv.gz" else data)
    assert "brand=Café" in both(tmp_path, path, edges, encoding=encoding).feature_names
    if encoding.startswith("utf-8"):
        assert "brand=Café" in read_graph(path, edges).feature_names


@pytest.mark.parametrize(
    "encoding",
    ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"],
)
def test_another_encoding_is_recognised_and_said(encoding, tmp_path):
    path = tmp_path / "n.csv"
    path.write_bytes(SPECIAL.write_csv().encode(encoding))
    edges = write(EDGES, tmp_path / "e.csv")
    graph, plain = both(tmp_path, path, edges), read_graph(SPECIAL, None)
    assert graph.feature_names == plain.feature_names
    assert np.array_equal(dense(graph), dense(plain))
    assert [f"read as {encoding}, a guess" in note for note in graph.reading.notes] == [True]
    assert read_graph(path, edges, encoding=encoding).reading.notes == ()


def test_bytes_far_down_and_in_the_header_are_recognised(tmp_path):
    path = tmp_path / "n.csv"
    rows = "".join(f'n{k},{k % 2},"two\nlines",{k % 7}\n' for k in range(100_000))
    path.write_bytes(b"id,domain,text,v\n" + rows.encode() + "last,1,Köln,2\n".encode("latin-1"))
    assert read_graph(path, None, keep=["text"]).columns["text"][-1] == "Köln"
    path.write_bytes("id,domain,größe\na,0,1\nb,1,2\n".encode("latin-1"))
    assert read_graph(path, None).feature_names == ("größe",)


def test_utf_8_with_broken_bytes_is_refused(tmp_path):
    path, edges = tmp_path / "n.csv", write(EDGES, tmp_path / "e.csv")
    path.write_bytes("id,domain,v\nMünchen,0,1\n".encode() + "Köln,1,2\n".encode("latin-1"))
    assert "line 3 holds the bytes f6 6c 6e 2c; it looks like cp1252" in refusals(tmp_path, path, edges)


def test_an_unknown_or_wrong_encoding_is_refused(tmp_path):
    path, edges = write(SPECIAL, tmp_path / "n.csv"), write(EDGES, tmp_path / "e.csv")
    for name in ("ansi-1252", "hex", "", "a\0b"):
        with pytest.raises(
            TableError, match=r"there is no encoding .*; name one that Python has, such as utf-16, latin-1"
        ):
            read_graph(path, edges, encoding=name)
    path.write_bytes(b"id,domain,v\na,0,1\nb,1,\x81\n")
    assert "is no CP1252 text: line 3 holds the bytes 81 0a" in refusals(tmp_path, path, edges, encoding="cp1252")


def test_a_plain_file_beside_one_in_utf_16_is_read(tmp_path):
    path, edges = tmp_path / "n.csv", write(EDGES, tmp_path / "e.csv")
    path.write_bytes(SPECIAL.write_csv().encode("utf-16"))
    assert both(tmp_path, path, edges, encoding="utf-16").num_edges == ROWS - 1


def test_all_commands_take_an_encoding(tmp_path):
    rng = np.random.default_rng(1)
    rows = 200
    frame = pl.DataFrame(
        {
            "id": [f"nö{k}" for k in range(rows)],
            "domain": [k % 2 for k in range(rows)],
            "size": german(np.round(rng.normal(2000, 500, rows), 2)),
            "ort": rng.choice(["Köln", "Münster"], rows),
        }
    )
    links = pl.DataFrame({"w": range(rows - 1), "a": frame["id"][:-1], "b": frame["id"][1:]})
    files = {}
    for name, table in (("n", frame), ("e", links), ("new", frame.with_columns(id=pl.lit("neu ") + pl.col("id")))):
        files[name] = tmp_path / f"{name}.csv"
        files[name].write_bytes(table.write_csv(separator=";").encode("cp1252"))
    latin = ["--encoding", "cp1252", "--quiet"]
    assert run("check", files["n"], files["e"], *latin).exit_code == 0
    quick = ["--method", "domain-discriminator", "--epochs", "2", "--rotations", "3", "--device", "cpu"]
    done = run("detect", files["n"], files["e"], "--out", tmp_path / "out", *quick, *latin)
    assert done.exit_code == 0, done.output
    assert run("pack", files["n"], files["e"], tmp_path / "graph", *latin).exit_code == 0
    assert "ort=Köln" in open_packed(tmp_path / "graph").feature_names
    new = ["--nodes", files["new"], "--with", files["n"], files["e"]]
    done = run("score", tmp_path / "out", *new, "--out", tmp_path / "new", "--device", "cpu", *latin)
    assert done.exit_code == 0, done.output
    assert "nö0" in (tmp_path / "new" / "scores.csv").read_text(encoding="utf-8")
    begin = ["--begin", "--nodes", files["n"], "--edges", files["e"], "--ignore", "domain"]
    done = run("watch", tmp_path / "watch", *begin, *latin)
    assert done.exit_code == 0, done.output
    done = run("watch", tmp_path / "watch", "--nodes", files["new"], *latin)
    assert done.exit_code == 0, done.output


# Archives.


def test_an_archive_of_one_file_is_read(tmp_path):
    edges = tmp_path / "e.zip"
    with zipfile.ZipFile(edges, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", b"")
        archive.writestr("folder/edges.tsv", EDGES.write_csv(separator="\t"))
        archive.writestr("__MACOSX/folder/._edges.tsv", b"\x00\x05\x16\x07")
    path = write(nodes(v=range(ROWS)), tmp_path / "n.csv")
    assert both(tmp_path, path, edges).num_edges == ROWS - 1


def test_an_archive_of_several_files_is_refused_by_their_names(tmp_path):
    path, edges = tmp_path / "n.csv.zip", write(EDGES, tmp_path / "e.csv")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "x")
    assert "n.csv.zip must hold one table; it holds 2 files (a.csv, b.csv): unpack it" in refusals(
        tmp_path, path, edges
    )
    with zipfile.ZipFile(path, "w"):
        pass
    assert "zip" in refusals(tmp_path, path, edges)
    path.write_bytes(path.read_bytes()[:-3])
    assert "n.csv.zip" in refusals(tmp_path, path, edges)


def bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("n.csv", "w") as file:
        file.write(b"id,domain,v\n")
        for _ in range(64):
            file.write(b"0,0,0\n" * 200_000)
    assert path.stat().st_size < 2**20
    return path


def test_an_archive_that_unpacks_to_more_than_memory_or_disk_holds_is_refused(tmp_path, monkeypatch):
    path = bomb(tmp_path / "n.csv.zip")
    monkeypatch.setattr("recoslip.data.tables.files.memory", lambda *_: Memory(20 * 2**20, 20 * 2**20))
    with pytest.raises(OutOfMemory, match=r"n\.csv\.zip may take .* GiB in memory"):
        read_graph(path, None)
    monkeypatch.setattr("recoslip.data.tables.files.LEAST_ROOM", 2**60)
    with pytest.raises(TableError, match=r"needs a copy in plain UTF-8, and the disk .* has no room"):
        pack(path, write(EDGES, tmp_path / "e.csv"), tmp_path / "graph")


# Excel.


def write_excel(frame, path, start=0, stray=None):
    book = xlsxwriter.Workbook(path)
    sheet, dates = book.add_worksheet(), book.add_format({"num_format": "yyyy-mm-dd"})
    for column, name in enumerate(frame.columns):
        sheet.write(start, column, name)
        for row, value in enumerate(frame[name].to_list()):
            if isinstance(value, date):
                sheet.write_datetime(start + row + 1, column, datetime(value.year, value.month, value.day), dates)
            elif value is not None:
                sheet.write(start + row + 1, column, value)
    if stray:
        sheet.write(*stray, "x")
    book.add_worksheet("notes").write(0, 0, "not this one")
    book.close()
    return path


def test_excel_files_are_read_like_others(tmp_path):
    frame = nodes(
        size=["12,5", "NA", "3,25"] * 4,
        v=[k / 4 for k in range(ROWS)],
        when=[date(2006, 1, k + 1) for k in range(ROWS)],
    )
    path, edges = write_excel(frame, tmp_path / "n.xlsx"), write_excel(EDGES, tmp_path / "e.xlsx")
    options = {"time": "when", "since": "07.01.2006", "impute": True}
    graph = both(tmp_path, path, edges, **options)
    expected = read_graph(frame, EDGES, **options)
    assert np.array_equal(dense(graph), dense(expected))
    assert np.array_equal(graph.edge_index, expected.edge_index)
    assert graph.is_target.sum() == 6


def test_ids_in_excel_are_numbers_or_text(tmp_path):
    path = write_excel(pl.DataFrame({"id": range(4), "domain": [0, 1] * 2, "v": range(4)}), tmp_path / "n.xlsx")
    edges = write_excel(pl.DataFrame({"w": [0.5, 2.0], "a": [0, 1], "b": ["2", "3"]}), tmp_path / "e.xlsx")
    graph = both(tmp_path, path, edges)
    assert graph.ids.tolist() == [0, 1, 2, 3]
    assert graph.num_edges == 2


def test_rows_of_excel_are_counted_as_excel_counts_them(tmp_path):
    frame = nodes(v=[1.0, None, *range(ROWS - 2)])
    edges = write(EDGES, tmp_path / "e.csv")
    path = write_excel(frame, tmp_path / "n.xlsx", stray=(ROWS + 20, 0))
    assert "empty in 20 rows (first: row 14; the header is row 1)" in refusals(tmp_path, path, edges, id="domain")
    assert "'v' in 1 rows (first: row 3) (the header is row 1)" in refusals(
        tmp_path, write_excel(frame, tmp_path / "n.xlsx"), edges, impute=False
    )


def test_a_stray_cell_does_not_take_all_memory(tmp_path, monkeypatch):
    path = write_excel(nodes(v=range(ROWS)), tmp_path / "n.xlsx", stray=(2**20 - 1, 2**14 - 1))
    monkeypatch.setattr("recoslip.data.tables.files.memory", lambda *_: Memory(2**30, 2**30))
    assert path.stat().st_size < 20_000
    for read in (read_graph, lambda *files: pack(*files, tmp_path / "packed")):
        with pytest.raises(OutOfMemory, match=r"n\.xlsx may take .*save the sheet as CSV, without cells that are far"):
            read(path, write(EDGES, tmp_path / "e.csv"))


def test_a_damaged_workbook_and_one_without_rows_are_refused(tmp_path):
    path = write_excel(nodes(v=range(ROWS)), tmp_path / "n.xlsx")
    content = path.read_bytes()
    path.write_bytes(content[:2000])
    assert "n.xlsx" in refusals(tmp_path, path, write(EDGES, tmp_path / "e.csv"))
    write_excel(nodes(v=range(ROWS)).clear(), path)
    assert "no rows" in refusals(tmp_path, path, write(EDGES, tmp_path / "e.csv"))


def test_archives_of_a_kind_that_cannot_be_unpacked_are_refused(tmp_path):
    path = tmp_path / "n.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("n.csv", nodes(v=range(ROWS)).write_csv())
    content = path.read_bytes()
    for flags, version in ((b"\x01\x00", b"\x14\x00"), (b"\x00\x00", b"\xff\x00")):  # a password; a later version
        entries = content.split(b"PK\x01\x02")
        entries[1:] = [entry[:2] + version + flags + entry[6:] for entry in entries[1:]]
        path.write_bytes(b"PK\x01\x02".join(entries))
        assert "n.zip" in refusals(tmp_path, path, write(EDGES, tmp_path / "e.csv"))


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    path = write_excel(nodes(v=range(ROWS)), tmp_path / "n.xlsx")
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(TableError, match=r"pip install 'recoslip\[excel\]', or save it as CSV"):
        read_graph(path, None)


# Files that are something else.


def contents(tmp_path):
    frame = nodes(v=range(ROWS))
    frame.write_parquet(tmp_path / "x.parquet")
    frame.write_ipc(tmp_path / "x.arrow")
    write_excel(frame, tmp_path / "x.xlsx")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("n.csv", frame.write_csv())
    made = {suffix: (tmp_path / f"x.{suffix}").read_bytes() for suffix in ("parquet", "arrow", "xlsx", "zip")}
    return {
        "is a Parquet file, not csv as its name says; call it .parquet": made["parquet"],
        "is an Arrow file, not csv as its name says; call it .arrow": made["arrow"],
        "is an Excel workbook, not csv as its name says; call it .xlsx, or save": made["xlsx"],
        "is a zip archive, not csv as its name says; unpack it, or call it .csv.zip": made["zip"],
        "is an Excel workbook of the old kind, not csv": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        "is a web page (HTML or XML), not csv as its name says; give the table itself": b"\n<!DOCTYPE html><html>\n",
        "is JSON, not csv as its name says; write it as CSV or Parquet": json.dumps(frame.to_dicts()).encode(),
    }


def test_a_file_that_is_something_else_is_named(tmp_path):
    edges = write(EDGES, tmp_path / "e.csv")
    for said, content in contents(tmp_path).items():
        for name in ("n.csv", "n.csv.gz"):
            if name == "n.csv" or ("Excel" not in said and "zip" not in said):
                path = tmp_path / name
                path.write_bytes(content if name == "n.csv" else gzip.compress(content))
                assert said in refusals(tmp_path, path, edges)
                with pytest.raises(TableError, match="edges: "):
                    read_graph(nodes(v=range(ROWS)), path)
    (tmp_path / "n.xls").write_text("id\tdomain\tv\n")
    assert "is no Excel workbook, whatever its name says; if it is text, call it" in refusals(
        tmp_path, tmp_path / "n.xls", edges
    )
    (tmp_path / "n.parquet").write_bytes(
        contents(tmp_path)["is JSON, not csv as its name says; write it as CSV or Parquet"]
    )
    assert "is JSON, not parquet as its name says" in refusals(tmp_path, tmp_path / "n.parquet", edges)


def test_a_folder_is_no_table(tmp_path):
    path, edges = write(nodes(v=range(ROWS)), tmp_path / "n.csv"), write(EDGES, tmp_path / "e.csv")
    assert "is a folder, and a table is expected; give a file in it" in refusals(tmp_path, tmp_path, edges)
    assert "edges: " in refusals(tmp_path, path, tmp_path)
    assert "is a folder" in message(run("check", path, tmp_path))
    assert "cannot be used as a packed graph: its recoslip.json is missing" in message(run("check", tmp_path))


# Dates.


def times(values):
    return pl.DataFrame({"id": range(len(values)), "v": range(len(values)), "when": values})


@pytest.mark.parametrize(
    ("values", "since"),
    [
        (["1.12.2006", "31.12.2006", "02.01.2007", "1.10.2007"], "2007-01-01"),
        (["1.12.2006", "31.12.2006", "02.01.2007", "1.10.2007"], "1.1.2007"),
        (["01/12/2006", "31/12/2006", "02/01/2007", "01/10/2007"], "01/01/2007"),
        (["12/01/2006", "12/31/2006", "1/2/2007", "10/1/2007"], "2007-01-01"),
        (["12/01/2006", "12/31/2006", "1/2/2007", "10/1/2007"], "1/1/2007"),
        (["12/01/2006", "12/11/2006", "1/2/2007", "10/1/2007"], "12/31/2006"),  # since tells the order
        (["1.12.2006 10:00", "31.12.2006T23:59:59", "2007-01-01 00:00", "1.10.2007"], "01.01.2007"),
        ([date(2006, 12, 1), date(2006, 12, 31), date(2007, 1, 2), date(2007, 10, 1)], "31.12.2006 12:00"),
        (["December 1, 2006", "Dec. 31st, 2006 23:59", "january 2 2007", "October 1, 2007"], "January 1, 2007"),
        (["1 December 2006", "31-Dec-2006", "2. Jan 2007", "1st October, 2007"], "2007"),
        (["2006-12-01", "31.12.2006", "2 January 2007", " 2007-10-01"], 2007),  # in several spellings
        ([date(2006, 12, 1), date(2006, 12, 31), date(2007, 1, 2), date(2007, 10, 1)], "2007"),
    ],
)
def test_dates_are_read_as_people_write_them(values, since, tmp_path):
    expected = [False, False, True, True]
    assert read_graph(times(values), None, time="when", since=since).is_target.tolist() == expected
    path, edges = write(times(values), tmp_path / "n.csv"), tmp_path / "e.csv"
    edges.write_text("a,b\n0,1\n")
    assert both(tmp_path, path, edges, time="when", since=since).is_target.tolist() == expected
    arguments = ["check", path, edges, "--time", "when", "--since", since, "--allow-leak", "v"]
    assert run(*arguments).exit_code == 0


@pytest.mark.parametrize(
    ("values", "since", "said"),
    [
        (
            ["02/03/2006", "02/03/2007"],
            "2007-01-01",
            "'02/03/2006', may be 2006-03-02 or 2006-02-03, and no value tells",
        ),
        (["2006-03-02", "2007-03-02"], "02/03/2007", "a date of since, '02/03/2007', may be 2007-03-02 or 2007-02-03"),
        (
            ["31/12/2006", "12/31/2006"],
            "2007-01-01",
            "in two orders ('31/12/2006' and '12/31/2006'); write all of them",
        ),
        (["31/12/2006", "01/01/2007"], "12/31/2006", "of the time column 'when' and since are in two orders"),
        (["31.13.2006", "01.01.2007"], "2007-01-01", "got '31.13.2006'"),
        (["31/13/2006", "13/01/2007"], "2007-01-01", "got '31/13/2006'"),
        (["1.1.06", "1.1.07"], "2007-01-01", "got '1.1.06'; write years with four digits"),
        (["Undecember 1, 2006", "May 1, 2007"], "2007-01-01", "got 'Undecember 1, 2006'"),
        (["May 32, 2006", "May 1, 2007"], "2007-01-01", "got 'May 32, 2006'"),
    ],
)
def test_dates_that_do_not_tell_are_refused_with_both_readings(values, since, said):
    with pytest.raises(TableError) as refused:
        read_graph(times(values), None, time="when", since=since)
    assert said in str(refused.value)
    assert "2007-01-31" in str(refused.value)


@pytest.mark.parametrize(
    "dates",
    [["31.12.2006", "1.1.2007"], ["12/31/2006", "1/2/2007 10:00"], ["2006-12-31", None], ["May 1, 2006", "6-Jun-2007"]],
)
def test_dates_are_no_features(dates):
    graph = read_graph(nodes(v=range(ROWS), day=dates * 6), None)
    assert graph.feature_names == ("v",)
    assert reading(graph)["day"][1::2] == ("date", "time='day'")


def test_a_watch_knows_the_order_of_dates(tmp_path):
    rng = np.random.default_rng(0)

    def batch(start, *days):
        count = 120 if start == 0 else 20
        when = [days[k % len(days)] for k in range(count)]
        return pl.DataFrame({"id": range(start, start + count), "size": rng.normal(size=count), "when": when})

    watch = Watch.begin(tmp_path / "watch", batch(0, "1.12.2006", "31.12.2006"), time="when")
    watch.add(batch(200, "1.1.2007", "15.1.2007"))
    with pytest.raises(RecoslipError, match=r"begins at 2007-01-02T00:00:00, before .* \(2007-01-15T00:00:00\)"):
        watch.add(batch(300, "02.01.2007"))


# Ids and rows.


def test_whole_numbers_that_became_floats_are_the_same_ids(tmp_path):
    links = pl.DataFrame({"a": [1.0, 2.0], "b": [2.0, 3.0]})
    plain = pl.DataFrame({"id": [1, 2, 3], "domain": [0, 0, 1], "v": [1.0, 2.0, 4.0]})
    floats = plain.with_columns(pl.col("id").cast(pl.Float64))
    expected = [[0, 1, 1, 2], [1, 0, 2, 1]]
    for frame in (plain, floats, floats.to_pandas()):
        for edges in (links, links.to_pandas(), links.cast(pl.Int64), links.cast(pl.Int64).cast(pl.String)):
            graph = read_graph(frame, edges)
            assert graph.edge_index.tolist() == expected
            assert graph.ids.tolist() == [1, 2, 3]
    for frame in (plain, floats):
        for edges in (links, links.cast(pl.Int64)):
            files = write(frame, tmp_path / "n.csv"), write(edges, tmp_path / "e.csv")
            graph = both(tmp_path, *files)
            assert graph.edge_index.tolist() == expected
            assert graph.ids.tolist() == ["1", "2", "3"]
    assert isinstance(floats.to_pandas(), pd.DataFrame)


def test_seven_is_not_007_and_an_id_may_end_in_a_point_and_zero(tmp_path):
    path, edges = tmp_path / "n.csv", tmp_path / "e.csv"
    path.write_text("id,domain,v\n007,0,1\n7,0,2\n1.0,1,3\n1,1,4\n")
    edges.write_text("a,b\n007,7\n1.0,1\n")
    graph = both(tmp_path, path, edges)
    assert graph.ids.tolist() == ["007", "7", "1.0", "1"]
    assert graph.edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([1.0, 2.5, 3.0], r"must hold text or whole numbers; got 2\.5 \(row 1; rows are counted from 0\)"),
        ([1.0, float("nan"), 3.0], r"'id' is empty in 1 rows \(first: row 1; rows are counted from 0\)"),
        ([1.0, 2.0**60, 3.0], r"must hold text or whole numbers"),
        ([1.0, float("inf"), 3.0], r"must hold text or whole numbers; got inf"),
    ],
)
def test_other_floats_are_no_ids(ids, said):
    with pytest.raises(TableError, match=said):
        read_graph(pl.DataFrame({"id": ids, "domain": [0, 0, 1], "v": [1, 2, 3]}), None)
    with pytest.raises(TableError, match=said.replace("'id'", "'a'")):
        read_graph(
            pl.DataFrame({"id": [1, 2, 3], "domain": [0, 0, 1], "v": [1, 2, 3]}),
            pl.DataFrame({"a": ids, "b": [1, 2, 3]}),
            edge_from="a",
            drop_unknown=True,
        )


@pytest.mark.parametrize(
    ("node_change", "edge_change", "options", "said"),
    [
        ({"v": [1, None, *range(10)]}, {}, {"impute": False}, "'v' in 1 rows (first: {})"),
        ({"id": ["n0", None, *NODES["id"][2:]]}, {}, {}, "column 'id' is empty in 1 rows (first: {}; {})"),
        ({}, {"from": ["n0", None, *["n1"] * 9]}, {}, "column 'from' is empty in 1 rows (first: {}; {})"),
        ({}, {"w": [1.0, None, *[1.0] * 9]}, {"weight": "w"}, "a number in every row; {} has None ({})"),
        ({}, {"w": [1.0, -2.0, *[1.0] * 9]}, {"weight": "w"}, "positive and finite; {} has -2.0 ({})"),
    ],
)
def test_rows_are_counted_as_in_the_file_or_from_0(node_change, edge_change, options, said, tmp_path):
    frame = nodes(**({"v": range(ROWS)} | node_change))
    edges = EDGES.with_columns(**{name: pl.Series(values) for name, values in edge_change.items()})
    with pytest.raises(TableError) as refused:
        read_graph(frame, edges, **options)
    assert said.format("row 1", "rows are counted from 0") in str(refused.value)
    files = write(frame, tmp_path / "n.csv"), write(edges, tmp_path / "e.csv")
    assert said.format("row 3", "the header is row 1") in refusals(tmp_path, *files, **options)
    frame.write_parquet(tmp_path / "n.parquet")
    edges.write_parquet(tmp_path / "e.parquet")
    files = tmp_path / "n.parquet", tmp_path / "e.parquet"
    assert said.format("row 1", "rows are counted from 0") in refusals(tmp_path, *files, **options)


def test_rows_of_later_chunks_are_counted_from_the_top(tmp_path):
    path = write(nodes(v=range(ROWS)), tmp_path / "n.csv")
    edges = write(EDGES.with_columns(w=pl.Series([1.0] * 10 + [-1.0])), tmp_path / "e.csv")
    with pytest.raises(TableError, match=r"row 12 has -1.0 \(the header is row 1\)"):
        pack(path, edges, tmp_path / "graph", weight="w", chunk_rows=3)


# The ends of edges.


@pytest.mark.parametrize(
    "order",
    [["from", "to"], ["weight", "from", "to"], ["edge_id", "from", "weight", "to"], ["kind", "when", "from", "to"]],
)
@pytest.mark.parametrize("named", [{}, {"edge_from": "from"}, {"edge_to": "to"}])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "frame"])
def test_the_ends_are_found_wherever_they_stand(order, named, suffix, tmp_path, caplog):
    edges = pl.DataFrame(
        {
            "from": [f"{k:03d}" for k in range(ROWS - 1)],
            "to": [f"{k + 1:03d}" for k in range(ROWS - 1)],
            "weight": range(1, ROWS),
            "edge_id": range(ROWS - 1),
            "kind": ["a"] * (ROWS - 1),
            "when": ["2007-01-31"] * (ROWS - 1),
        }
    ).select(order)
    frame = nodes(v=range(ROWS)).with_columns(id=pl.Series([f"{k:03d}" for k in range(ROWS)]))
    with caplog.at_level(logging.INFO, logger="recoslip"):
        if suffix == "frame":
            graph = read_graph(frame, edges, **named)
        else:
            path = tmp_path / f"e.{suffix}"
            write(edges, path) if suffix == "csv" else edges.write_parquet(path)
            graph = both(tmp_path, write(frame, tmp_path / "n.csv"), path, **named)
    assert graph.edge_index[0].tolist() == sorted([*range(ROWS - 1), *range(1, ROWS)])
    unused = [name for name in order if name not in ("from", "to")]
    advice = [f"{name} (weight='weight' uses it)" if name == "weight" else name for name in unused]
    line = f"edges: from from to to; unused: {', '.join(advice)}"
    assert (line in caplog.messages) == bool(unused)


def test_numbers_of_edges_and_weights_that_are_ids_too_come_last():
    frame = pl.DataFrame({"id": range(50), "domain": [0, 1] * 25, "v": range(50)})
    edges = pl.DataFrame({"id": range(40), "w": [1, 2] * 20, "a": range(40), "b": range(10, 50)})
    graph = read_graph(frame, edges)
    assert np.unique(np.abs(graph.edge_index[1] - graph.edge_index[0])).tolist() == [10]


def test_ends_that_cannot_be_told_are_the_first_columns_and_the_error_has_examples(tmp_path):
    path = write(nodes(v=range(ROWS)), tmp_path / "n.csv")
    edges = write(pl.DataFrame({"x": ["p1", "p2"], "y": ["p2", "n0"], "z": ["n1", "p9"]}), tmp_path / "e.csv")
    said = refusals(tmp_path, path, edges)
    assert "names 2 ids that the nodes table does not have (first: 'p1', 'p2'), in 2 edges" in said
    assert "in its columns 'x' and 'y', and the nodes table has ids such as 'n0', 'n1'" in said
    assert "pass drop_unknown=True, or name other columns (edge_from=..., edge_to=...)" in said
    told = message(run("check", path, edges))
    assert "pass --drop-unknown, or name other columns (--edge-from, --edge-to)" in told


def test_not_every_edge_is_dropped(tmp_path):
    path = write(nodes(v=range(ROWS)), tmp_path / "n.csv")
    edges = write(pl.DataFrame({"x": ["p1", "p2"], "y": ["p2", "n0"]}), tmp_path / "e.csv")
    said = refusals(tmp_path, path, edges, drop_unknown=True)
    assert "drop_unknown=True would drop every edge: no row of" in said
    assert "hold 'x' such as 'p1' and 'y' such as 'p2', and the nodes table has ids such as 'n0', 'n1'" in said
    assert "--drop-unknown would drop every edge" in message(run("check", path, edges, "--drop-unknown"))
    known = pl.DataFrame({"id": range(120), "size": np.random.default_rng(0).normal(size=120)})
    with pytest.raises(TableError, match="would drop every edge"):
        Watch.begin(tmp_path / "watch", known, edges, drop_unknown=True)


def test_new_nodes_alone_may_lose_all_edges(fitted):
    new = pl.DataFrame({"id": ["x", "y"], "v": [0.5, 1.0], "size": [1.0, 2.0]})
    edges = pl.DataFrame({"a": ["x", "y"], "b": [1, 2]}, strict=False)
    assert read_table(fitted["point"], new, edges).lost_edges == 2
    old = pl.DataFrame({"id": [1, 2], "v": [0.5, 1.0], "size": [1.0, 2.0]})
    strange = pl.DataFrame({"a": ["q"], "b": ["r"]})
    with pytest.raises(TableError, match="would drop every edge"):
        read_table(fitted["point"], new, strange, old_nodes=old, drop_unknown=True)
