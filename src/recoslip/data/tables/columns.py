"""Columns of a table -> how each is encoded: as a number, a category, text or a vector, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import polars as pl

from recoslip.base.errors import TableError, nearest
from recoslip.base.text import named
from recoslip.data.options import ReadOptions
from recoslip.data.tables.numbers import DecimalMark, are_codes, decimal_marks, spells_missing, to_numbers, two_readings
from recoslip.data.tables.table import FRAME, Origin, Table
from recoslip.data.tables.times import looks_like_date

Encoding: TypeAlias = Literal["number", "category", "text", "vector", "unused"]

MOST_NAMES = 20  # of columns, in a line
MAX_CATEGORIES = 50  # one-hot features per column; the rarest values are pooled into the last
LOOK_ROWS = 200  # of a text column that are looked at before all of it is
NAMED_SPELLINGS = 3  # of missing values, in a message


@dataclass(frozen=True)
class Column:
    """A column of the nodes table and how it is encoded."""

    name: str
    encoding: Encoding
    reason: str = ""  # why the column is unused, or how its text is read as numbers
    decimal: DecimalMark | None = None  # of numbers with commas

    def read(self, series: pl.Series) -> pl.Series:
        """Return the column as the type that is encoded, with null for what is missing."""
        if self.encoding == "number" and series.dtype == pl.String:
            return to_numbers(series, self.decimal or ".")
        return series


def plan_columns(table: Table, reserved: Collection[str | None], options: ReadOptions) -> list[Column]:
    """Decide how each column of a nodes table is encoded.

    Numbers, true/false and vectors become features, also where numbers are written as text. Other text is a category if
    its values repeat; otherwise it is unused, unless the options name it.

    Args:
        table: the nodes table.
        reserved: columns that are the id, domain, time or category; they cannot be features.
        options: which columns are features, free text, or ignored.
    """
    for name in (*(options.features or ()), *options.ignore, *options.text):
        require_column(table.columns, name, "nodes")
        if name in reserved and name not in options.ignore:
            raise TableError(f"column {name!r} already is the id, domain, time or category; it cannot be a feature")
    columns = [_plan(name, table, options) for name in table.columns if name not in reserved]
    if all(column.encoding == "unused" for column in columns):
        reasons = "; ".join(f"{c.name}: {c.reason}" for c in columns) or "there are no further columns"
        raise TableError(f"the nodes table has no column to use as a feature ({reasons})")
    return columns


def _plan(name: str, table: Table, options: ReadOptions) -> Column:
    if name in options.ignore:
        return Column(name, "unused", "ignored as asked")
    if name in options.text:
        return Column(name, "text")
    if options.features is not None and name not in options.features:
        return Column(name, "unused", "not among the chosen features")
    column = _guess_encoding(name, table)
    if column.encoding == "unused" and options.features is not None:
        raise TableError(f"column {name!r} cannot be a feature: {column.reason}")
    return column


def require_column(columns: Sequence[str], name: str, table: str) -> None:
    """Raise unless the "nodes" or "edges" table has the column `name`."""
    if name not in columns:
        raise TableError(
            f"the {table} table has no column {name!r}{nearest(name, columns)}; it has {', '.join(columns)}"
        )


def describe(columns: Sequence[Column]) -> str:
    """Describe in one line how the columns are encoded; of many, the first."""
    used = [f"{c.name} ({c.encoding}{f': {c.reason}' if c.reason else ''})" for c in columns if c.encoding != "unused"]
    unused = [f"{c.name} ({c.reason})" for c in columns if c.encoding == "unused"]
    shown = named(used, MOST_NAMES)
    return f"{shown}; unused: {named(unused, MOST_NAMES)}" if unused else shown


def _guess_encoding(name: str, table: Table) -> Column:
    dtype = table.schema[name]
    if dtype.is_numeric() or dtype == pl.Boolean:
        return Column(name, "number")
    if dtype in (pl.List, pl.Array):
        if dtype.inner is not None and dtype.inner.is_numeric():  # type: ignore[attr-defined]
            return Column(name, "vector")
        return Column(name, "unused", f"a list of {getattr(dtype, 'inner', 'values')}, not of numbers")
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        series = table[name]
        if dtype == pl.String and (special := _dates_or_numbers(name, series, table.origin)):
            return special
        distinct = series.n_unique()
        if distinct <= max(MAX_CATEGORIES, len(series) // 20) and distinct < len(series):
            return Column(name, "category")
        return Column(name, "unused", f"{distinct:,} different texts; text=[{name!r}] uses it")
    if dtype == pl.Null:
        return Column(name, "unused", "empty")
    return Column(name, "unused", f"{dtype} is no feature; time={name!r} takes it for the domain")


def _dates_or_numbers(name: str, series: pl.Series, origin: Origin) -> Column | None:
    """Return what becomes of a column of text that holds dates, numbers or nothing; None if it holds other text."""
    are_dates = True
    for texts in (series.head(LOOK_ROWS), series):  # most columns of text are told by their first rows
        missing = spells_missing(texts)
        present = texts.filter(~missing)
        are_dates = are_dates and bool(looks_like_date(present).all())
        marks = [] if are_codes(present) else decimal_marks(present, hint=origin.decimal)
        if not are_dates and not marks:
            return None
    if not len(present):
        return Column(name, "unused", "empty")
    if are_dates:
        return Column(name, "unused", f"dates are no feature; time={name!r} takes it for the domain")
    if len(marks) == 2:
        return Column(name, "unused", two_readings(present))
    has_commas = bool(present.str.contains(",", literal=True).any())
    how = [{".": "commas between thousands", ",": "decimal commas"}[marks[0]]] if has_commas else []
    how += [f"missing values written {_spellings(texts.filter(missing))}"] if texts.filter(missing).count() else []
    return Column(name, "number", ", ".join(how) or "written as text", marks[0] if has_commas else None)


def _spellings(texts: pl.Series) -> str:
    """Name how missing values are written, the first few spellings; "" if all are empty."""
    names = texts.drop_nulls().unique(maintain_order=True)
    return ", ".join(map(repr, names[:NAMED_SPELLINGS].to_list()))


def refuse_missing(
    columns: Sequence[pl.Series], origin: Origin = FRAME, given: Sequence[pl.Series] | None = None
) -> None:
    """Raise if a value is missing.

    Args:
        columns: the columns, as `Column.read` returned them.
        origin: where the table comes from; the first value of each column is in its first row.
        given: the columns as they were before, which say how missing values are written.
    """
    found = []
    for series, before in zip(columns, given or columns, strict=True):
        missing = is_missing(series)
        if missing.any():
            written = _spellings(before.filter(missing)) if before.dtype == pl.String else ""
            first = f"first: {origin.first(missing)}{f', written {written}' if written else ''}"
            found.append(f"{series.name!r} in {missing.sum()} rows ({first})")
    if found:
        raise TableError(
            f"missing values: {'; '.join(found)} ({origin.counting}); fill them, ignore the columns, or impute=True"
        )


def is_missing(series: pl.Series) -> pl.Series:
    """Return for each value whether it is missing: null or NaN."""
    missing = series.is_null()
    return (missing | series.is_nan().fill_null(False)) if series.dtype.is_float() else missing
