"""Columns of a table -> how each is encoded: as a number, a category, text or a vector, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import polars as pl

from recoslip.errors import TableError, nearest

Encoding: TypeAlias = Literal["number", "category", "text", "vector", "unused"]

MOST_NAMES = 20  # of columns, in a line
MAX_CATEGORIES = 50  # one-hot features per column; the rarest values are pooled into the last


@dataclass(frozen=True)
class Column:
    """A column of the nodes table and how it is encoded."""

    name: str
    encoding: Encoding
    reason: str = ""  # why the column is unused


class ColumnReader(Protocol):
    """A table whose columns can be read one at a time: a data frame or a file."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""

    @property
    def schema(self) -> pl.Schema:
        """The data types of the columns."""

    def __getitem__(self, name: str) -> pl.Series:
        """Return a column."""


def plan_columns(
    table: ColumnReader,
    reserved: Collection[str | None],
    features: Sequence[str] | None,
    ignore: Sequence[str],
    text: Sequence[str],
) -> list[Column]:
    """Decide how each column is encoded.

    Numbers, true/false and vectors become features. Text is a category if its values repeat; otherwise it is unused,
    unless `text` names it.

    Args:
        table: the nodes table.
        reserved: columns that are the id, domain, time or category; they cannot be features.
        features: the only columns to use; None: all.
        ignore: columns not to use.
        text: columns of free text.
    """
    for name in (*(features or ()), *ignore, *text):
        require_column(table.columns, name, "nodes")
        if name in reserved and name not in ignore:
            raise TableError(f"column {name!r} already is the id, domain, time or category; it cannot be a feature")
    columns = []
    for name in table.columns:
        if name in reserved:
            continue
        if name in ignore:
            columns.append(Column(name, "unused", "ignored as asked"))
        elif name in text:
            columns.append(Column(name, "text"))
        elif features is not None and name not in features:
            columns.append(Column(name, "unused", "not among the chosen features"))
        else:
            column = _guess_encoding(name, table)
            if column.encoding == "unused" and features is not None:
                raise TableError(f"column {name!r} cannot be a feature: {column.reason}")
            columns.append(column)
    if all(column.encoding == "unused" for column in columns):
        reasons = "; ".join(f"{c.name}: {c.reason}" for c in columns) or "there are no further columns"
        raise TableError(f"the nodes table has no column to use as a feature ({reasons})")
    return columns


def require_column(columns: Sequence[str], name: str, table: str) -> None:
    """Raise unless the "nodes" or "edges" table has the column `name`."""
    if name not in columns:
        raise TableError(
            f"the {table} table has no column {name!r}{nearest(name, columns)}; it has {', '.join(columns)}"
        )


def describe(columns: Sequence[Column]) -> str:
    """Describe in one line how the columns are encoded; of many, the first."""
    used = _list_some([f"{column.name} ({column.encoding})" for column in columns if column.encoding != "unused"])
    unused = _list_some([f"{column.name} ({column.reason})" for column in columns if column.encoding == "unused"])
    return f"{used}; unused: {unused}" if unused else used


def _list_some(names: list[str]) -> str:
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + rest


def _guess_encoding(name: str, table: ColumnReader) -> Column:
    dtype = table.schema[name]
    if dtype.is_numeric() or dtype == pl.Boolean:
        return Column(name, "number")
    if dtype in (pl.List, pl.Array):
        if dtype.inner is not None and dtype.inner.is_numeric():  # type: ignore[attr-defined]
            return Column(name, "vector")
        return Column(name, "unused", f"a list of {getattr(dtype, 'inner', 'values')}, not of numbers")
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        series = table[name]
        if dtype == pl.String and _looks_like_date(series).all():
            return Column(name, "unused", f"dates are no feature; for the domain use --time {name}")
        distinct = series.n_unique()
        if distinct <= max(MAX_CATEGORIES, len(series) // 20) and distinct < len(series):
            return Column(name, "category")
        return Column(name, "unused", f"{distinct:,} different texts; use it with --text {name}")
    if dtype == pl.Null:
        return Column(name, "unused", "empty")
    return Column(name, "unused", f"{dtype} is no feature; for the domain use --time {name}")


def _looks_like_date(series: pl.Series) -> pl.Series:
    """Return for each text whether it starts with a date such as 2007-01-31; false where it is missing."""
    return series.str.contains(r"^\d{4}-\d{2}-\d{2}([T ]|$)").fill_null(False)


def refuse_missing(columns: Sequence[pl.Series], first_row: int = 0) -> None:
    """Raise if a value is missing; the first value of each column is in row `first_row` of the table."""
    found = []
    for series in columns:
        missing = is_missing(series)
        if missing.any():
            first = first_row + int(missing.arg_max() or 0)
            found.append(f"{series.name!r} in {missing.sum()} rows (first: row {first})")
    if found:
        raise TableError(f"missing values: {'; '.join(found)}; fill them, ignore the columns, or pass --impute")


def is_missing(series: pl.Series) -> pl.Series:
    """Return for each value whether it is missing: null or NaN."""
    missing = series.is_null()
    return (missing | series.is_nan().fill_null(False)) if series.dtype.is_float() else missing
