"""Columns of a nodes table -> ids as text, and which nodes are target."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.columns import ColumnReader, is_missing, looks_like_date, require_column
from recoslip.errors import TableError

Since: TypeAlias = "int | float | str | date | datetime"


def ids_as_text(column: pl.Series, table: str) -> pl.Series:
    """Return ids as text, so that 7 in one file equals 7 in the other whatever the types of the columns."""
    if column.dtype.is_float() or column.dtype.is_nested() or column.dtype == pl.Binary:
        raise TableError(
            f"the {table} table's column {column.name!r} must hold text or whole numbers; got {column.dtype}"
        )
    if column.null_count():
        first = column.is_null().arg_max()
        raise TableError(
            f"the {table} table's column {column.name!r} is empty in {column.null_count()} rows (first: row {first})"
        )
    return column.cast(pl.String)


def domains_from_column(table: ColumnReader, name: str, target_value: object) -> NDArray[np.bool_]:
    """Return which rows are target by a column of two values."""
    require_column(table.columns, name, "nodes")
    column = table[name].cast(pl.String)
    if column.null_count():
        raise TableError(f"the domain column {name!r} is empty in {column.null_count()} rows; give every node a domain")
    values = sorted(column.unique().to_list(), key=lambda value: value.strip().lower())
    if len(values) != 2:
        shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
        raise TableError(
            f"the domain column {name!r} must hold two values, one for source and one for target; got {shown}"
        )
    if target_value is not None:
        target = _find_value(str(target_value), values)
        if target is None:
            raise TableError(f"the domain column {name!r} holds {values[0]!r} and {values[1]!r}, not {target_value!r}")
        return np.asarray(column == target)
    normalised = [value.strip().lower() for value in values]
    if normalised in (["false", "true"], ["0", "1"], ["0.0", "1.0"], ["source", "target"]):
        return np.asarray(column == values[1])
    raise TableError(
        f"the domain column {name!r} holds {values[0]!r} and {values[1]!r}: say which one is the target "
        f"(--target-value {values[0]} or --target-value {values[1]})"
    )


def _find_value(wanted: str, values: Sequence[str]) -> str | None:
    """Return the value equal to `wanted`, or else one that differs only in case and surrounding spaces."""
    if wanted in values:
        return wanted
    return next((value for value in values if value.strip().lower() == wanted.strip().lower()), None)


def domains_from_time(table: ColumnReader, name: str, since: Since | None) -> NDArray[np.bool_]:
    """Return which rows are target: those with a time from `since` on."""
    require_column(table.columns, name, "nodes")
    column = table[name]
    if missing := int(is_missing(column).sum()):
        raise TableError(f"the time column {name!r} is empty in {missing} rows; give every node a time")
    if column.dtype == pl.String:
        column = _parse_times(column)
    try:
        if column.dtype.is_numeric():
            first_target: Any = float(since)  # type: ignore[arg-type]
        else:
            first_target = datetime.fromisoformat(str(since)).replace(tzinfo=None)
            column = column.cast(pl.Datetime)
        is_target = column >= first_target
    except (TypeError, ValueError, pl.exceptions.PolarsError) as problem:
        expected = "a number" if column.dtype.is_numeric() else "a date such as 2007-01-31"
        raise TableError(f"the time column {name!r} needs {expected} to divide it; got since={since!r}") from problem
    if is_target.all() or not is_target.any():
        raise TableError(
            f"dividing {name!r} at {since} leaves one domain empty; it runs from {column.min()!s} to {column.max()!s}"
        )
    return np.asarray(is_target)


def _parse_times(column: pl.Series) -> pl.Series:
    """Parse dates and times in text. The year must come first: the order in 02/03/2007 depends on the country."""
    dates = looks_like_date(column)
    if dates.all():
        parsed = column.str.slice(0, 19).str.replace("T", " ").str.to_datetime(strict=False)
        dates = parsed.is_not_null()
    if not dates.all():
        first = column.filter(~dates)[0]
        raise TableError(
            f"the time column {column.name!r} must hold numbers or dates such as 2007-01-31; got {first!r}"
        )
    return parsed
