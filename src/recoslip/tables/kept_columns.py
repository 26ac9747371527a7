"""Columns of a nodes table -> what is shown beside the nodes, in the user's own words and units."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.errors import TableError
from recoslip.tables.columns import ColumnReader, require_column

LABEL = re.compile(r"(?:^|[ _.-])(title|name|label|headline|subject)$", re.IGNORECASE)
MAX_LENGTH = 200  # characters of a name, on average; longer texts are bodies, not names
MIN_DISTINCT = 0.5  # fraction of the names that differ; what repeats more often names a category


def may_be_label(name: str) -> bool:
    """Return whether a column's name says that its values name the nodes.

    >>> [name for name in ("title", "Product Name", "filename", "price") if may_be_label(name)]
    ['title', 'Product Name']
    """
    return LABEL.search(name) is not None


def choose_label(table: ColumnReader, reserved: Collection[str | None], asked: str | None) -> str | None:
    """Return the column that names the nodes.

    Args:
        table: the nodes table.
        reserved: columns that are the id, domain, time or category.
        asked: the column that was asked for, "" for none; None: the first that is plainly a name.
    """
    if asked is None:
        return next((name for name in table.columns if name not in reserved and _is_label(table, name)), None)
    if asked:
        require_column(table.columns, asked, "nodes")
    return asked or None


def choose_kept(table: ColumnReader, asked: Sequence[str], label: str | None) -> list[str]:
    """Return the columns that are kept to be shown, the one that names the nodes first."""
    for name in asked:
        require_column(table.columns, name, "nodes")
    return list(dict.fromkeys([*([] if label is None else [label]), *asked]))


def _is_label(table: ColumnReader, name: str) -> bool:
    if not (may_be_label(name) and table.schema[name] == pl.String):
        return False
    values = table[name].drop_nulls()
    if not len(values):
        return False
    length = values.str.len_chars().mean()
    return isinstance(length, float) and length <= MAX_LENGTH and values.n_unique() >= MIN_DISTINCT * len(values)


def shown_values(series: pl.Series) -> pl.Series:
    """Return a column as numbers, true and false, or text."""
    if (series.dtype.is_numeric() and not series.dtype.is_decimal()) or series.dtype in (pl.Boolean, pl.String):
        return series
    if series.dtype.is_nested():
        return pl.Series(series.name, [None if each is None else str(each) for each in series.to_list()], pl.String)
    try:
        return series.cast(pl.String)
    except pl.exceptions.PolarsError as problem:
        raise TableError(
            f"column {series.name!r} cannot be shown: {series.dtype} is no number and no text"
        ) from problem


def column_arrays(table: ColumnReader, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return columns as arrays of Python values, with None for what is missing."""
    arrays = {}
    for name in names:
        shown = shown_values(table[name])
        values = shown.fill_nan(None) if shown.dtype.is_float() else shown
        arrays[name] = np.array([*values.to_list(), None], dtype=object)[:-1]  # never taken for an array of arrays
    return arrays
