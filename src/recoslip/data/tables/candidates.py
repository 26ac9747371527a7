"""Columns of a nodes table -> the one that holds ids, and those that may separate source from target."""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from recoslip.base.errors import TableError
from recoslip.base.text import counted
from recoslip.data.tables.columns import IDENTIFIER, LOOK_ROWS, is_missing
from recoslip.data.tables.files import Text
from recoslip.data.tables.numbers import spells_missing
from recoslip.data.tables.table import Table
from recoslip.data.tables.times import TEXTS, looks_like_date, read_times, slash_order

USUAL_ID = "id"
MOST_VALUES = 10  # of a column that is proposed as the domain
MOST_PROPOSED = 3  # columns of each kind
MIN_SHARE = 0.05  # fraction of the rows with the value that is proposed as the target: the rarest of these
LATE = 0.75  # fraction of the rows before the time that is proposed
YEARS = (1500, 2200)


def likely_ids(columns: Collection[str]) -> list[str]:
    """Return the columns that are called like an identifier."""
    return [name for name in columns if IDENTIFIER.search(name)]


def id_columns(table: Table, asked: str) -> list[str]:
    """Return the columns that may hold ids, whose types are not to be guessed."""
    is_free = isinstance(table.source, Text) and asked == USUAL_ID and asked not in table.columns
    return likely_ids(table.columns) if is_free else [asked]


def id_column(table: Table, asked: str) -> str | None:
    """Return the column with the ids: the one that is asked for, or the first likely one whose values all differ.

    None where the table has no column of the usual name, and no likely one.
    """
    if asked in table.columns or asked != USUAL_ID:
        return asked
    return next((name for name in likely_ids(table.columns) if _identifies(table[name])), None)


def _identifies(column: pl.Series) -> bool:
    is_name = column.dtype.is_integer() or column.dtype == pl.String
    return is_name and not is_missing(column).any() and not column.is_duplicated().any()


def numbered_ids(table: Table, prefix: str) -> pl.Series:
    """Return the numbers of the rows as ids, counted as messages count them."""
    first = table.origin.first_row
    return pl.Series("row", [f"{prefix} {number}" for number in range(first, first + table.height)])


class Proposal(NamedTuple):
    """A column that may separate source from target."""

    said: str
    options: dict[str, Any]  # of reading


def propose_domains(table: Table, ids: str | None) -> list[Proposal]:
    """Return the columns that may separate source from target: those of a few values, and those of times.

    >>> frame = pl.DataFrame({"sex": ["m", "f", "f"], "year": [2007, 2008, 2009], "size": [1.5, 2.5, 3.5]})
    >>> for proposal in propose_domains(Table("nodes", frame), None):
    ...     print(proposal.said)
    'sex' holds 'f' (2 rows), 'm' (1 row): domain='sex', target='m' or another
    'year' runs from 2007 to 2009: time='year', since=2008
    """
    few: list[Proposal] = []
    times: list[Proposal] = []
    for name in table.columns:
        if name == ids or table.schema[name].is_nested():
            continue
        if len(times) < MOST_PROPOSED and (proposal := _of_times(table[name])):
            times.append(proposal)
        elif len(few) < MOST_PROPOSED and (proposal := _of_values(table[name])):
            few.append(proposal)
    return [*few, *times]


def _of_values(column: pl.Series) -> Proposal | None:
    """Propose a column with a few values as the domain; the rarest may be the target. Return None for another."""
    if column.dtype.is_float() or column.n_unique() > MOST_VALUES:
        return None
    values = column.cast(pl.String).alias("value")
    values = values.filter(~spells_missing(values))
    counts = values.value_counts(name="rows").sort("rows", "value", descending=[True, False])
    if counts.height < 2 or counts["rows"].max() == 1:
        return None
    shown = [f"{value!r} ({counted(count, 'row')})" for value, count in counts.iter_rows()]
    rest = f" and {len(shown) - MOST_PROPOSED} more" if len(shown) > MOST_PROPOSED else ""
    if sorted(counts["value"].str.to_lowercase()) == ["false", "true"]:
        counts = counts.sort(pl.col("value").str.to_lowercase())
    target = counts.filter(pl.col("rows") >= MIN_SHARE * len(values))["value"][-1]
    holds = f"{column.name!r} holds {', '.join(shown[:MOST_PROPOSED])}{rest}"
    said = f"{holds}: domain={column.name!r}, target={target!r} or another"
    return Proposal(said, {"domain": column.name, "target": target})


def _of_times(column: pl.Series) -> Proposal | None:
    """Propose a column of times, with a late one as the first that is target. Return None for another."""
    since = _late_year(column) or _late_date(column)
    if since is None:
        return None
    first, last, late = since
    said = late if isinstance(late, int) else repr(late)
    said = f"{column.name!r} runs from {first} to {last}: time={column.name!r}, since={said}"
    return Proposal(said, {"time": column.name, "since": late})


def _late_year(column: pl.Series) -> tuple[int, int, int] | None:
    """Return the first, the last and a late value of a column of years; None for another."""
    if not column.dtype.is_integer() or "year" not in column.name.lower():
        return None
    years = column.drop_nulls().sort()
    if not len(years) or years[0] == years[-1] or not YEARS[0] <= years[0] <= years[-1] <= YEARS[1]:
        return None
    return years[0], years[-1], max(years[0] + 1, years[int(LATE * (len(years) - 1))])


def _late_date(column: pl.Series) -> tuple[str, str, str] | None:
    """Return the first, the last and a late day of a column of dates; None for another."""
    if column.dtype in TEXTS:
        texts = column.cast(pl.String)
        present = texts.filter(~spells_missing(texts))
        if not len(present) or not looks_like_date(present.head(LOOK_ROWS)).all():
            return None
    elif column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
        present = column.drop_nulls()
    else:
        return None
    try:
        order = slash_order(present.alias(""), "the column") if present.dtype == pl.String else None
        ticks = np.sort(read_times(present, order).ticks)
    except TableError:
        return None
    days = ticks[[0, -1, int(LATE * (len(ticks) - 1))]].view("datetime64[us]").astype("datetime64[D]")
    first, last, late = np.datetime_as_string(days).tolist()
    return None if first == last else (first, last, late if late > first else last)
