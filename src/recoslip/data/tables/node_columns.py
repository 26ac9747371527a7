"""Columns of a nodes table -> ids as text, which nodes are target, how the others are encoded, and what is shown."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.base.text import Terms
from recoslip.data.options import ReadOptions, Since
from recoslip.data.tables.columns import Column, describe, is_missing, plan_columns, require_column
from recoslip.data.tables.table import Origin, Table
from recoslip.data.tables.times import target_from_times

log = logging.getLogger("recoslip")

WHOLE = r"^(-?(?:0|[1-9][0-9]*))\.0+$"  # how a whole number is written that became a float
MAX_WHOLE = 2**53  # up to which floats hold every whole number


def checked_ids(column: pl.Series, table: str, origin: Origin) -> pl.Series:
    """Return ids, all there; floats become whole numbers, or are refused where they are none."""
    name = f"the {table} table's column {column.name!r}"
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        raise TableError(f"{name} must hold text or whole numbers; got {column.dtype}")
    require_values(column, name, origin, "fill it, or leave these rows out")
    if not column.dtype.is_float():
        return column
    broken = (column != column.floor()) | (column.abs() > MAX_WHOLE)
    if broken.any():
        raise TableError(
            f"{name} must hold text or whole numbers; got {column.filter(broken)[0]} ({origin.first(broken)}; "
            f"{origin.counting})"
        )
    return column.cast(pl.Int64)


def require_values(column: pl.Series, name: str, origin: Origin, remedy: str) -> None:
    """Raise if a value is missing."""
    missing = is_missing(column)
    if missing.any():
        raise TableError(
            f"{name} is empty in {missing.sum()} rows (first: {origin.first(missing)}; {origin.counting}); {remedy}"
        )


def own_ids(table: Table, name: str) -> pl.Series:
    """Return the ids of nodes as text or whole numbers; where every one is written as 1.0, without the .0."""
    require_column(table.columns, name, "nodes")
    ids = checked_ids(table[name], "nodes", table.origin)
    if ids.dtype == pl.String and len(ids) and ids.str.contains(WHOLE).all():
        return ids.str.extract(WHOLE)
    return ids


def require_unique(ids: pl.Series) -> None:
    """Raise if an id of the nodes is there twice."""
    if ids.is_duplicated().any():
        repeated = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
        raise TableError(
            f"ids in the nodes table must be unique; {len(repeated)} are repeated "
            f"(first: {', '.join(map(repr, repeated[:3].to_list()))}); leave the repeated rows out, or give "
            "them other ids"
        )


PLAIN_DOMAINS = (["false", "true"], ["0", "1"], ["0.0", "1.0"], ["source", "target"])  # values that name no domain


def domains_from_column(table: Table, name: str, target: object) -> NDArray[np.bool_]:
    """Return which rows are target by a column of two values."""
    require_column(table.columns, name, "nodes")
    column = table[name].cast(pl.String)
    require_values(column, f"the domain column {name!r}", table.origin, "give every node a domain")
    values = sorted(column.unique().to_list(), key=lambda value: (_plain(value), value))
    if len(values) != 2:
        shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
        raise TableError(
            f"the domain column {name!r} must hold two values, one for source and one for target; got {shown}; leave "
            "the rows of others out, or write two values into a column of their own and name it (domain=...)"
        )
    if target is None and [_plain(value) for value in values] in PLAIN_DOMAINS:
        return np.asarray(column == values[1])
    given = f"the domain column {name!r} holds {values[0]!r} and {values[1]!r}"
    either = f"(target={values[0]!r} or target={values[1]!r})"
    if target is None:
        raise TableError(f"{given}: say which one is the target {either}")
    wanted = str(target)
    found = [wanted] if wanted in values else [value for value in values if _plain(value) == _plain(wanted)]
    if len(found) != 1:
        problem = "which both read like" if found else "not"
        raise TableError(f"{given}, {problem} {wanted!r}; give one of them as it is written {either}")
    return np.asarray(column == found[0])


def _plain(value: str) -> str:
    return value.strip().lower()


def domains_from_time(table: Table, name: str, since: Since | None) -> NDArray[np.bool_]:
    """Return which rows are target: those with a time from `since` on."""
    require_column(table.columns, name, "nodes")
    require_values(table[name], f"the time column {name!r}", table.origin, "give every node a time")
    return target_from_times(table[name], since)


LABEL = re.compile(r"(?:^|[ _.-])(title|name|label|headline|subject)$", re.IGNORECASE)
MAX_LENGTH = 200  # characters of a name, on average; longer texts are bodies, not names
MIN_DISTINCT = 0.5  # fraction of the names that differ; what repeats more often names a category


def choose_label(table: Table, reserved: Collection[str | None], asked: str | None) -> str | None:
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


def choose_kept(table: Table, asked: Sequence[str], label: str | None) -> list[str]:
    """Return the columns that are kept to be shown, the one that names the nodes first."""
    for name in asked:
        require_column(table.columns, name, "nodes")
    return list(dict.fromkeys([*([] if label is None else [label]), *asked]))


def _is_label(table: Table, name: str) -> bool:
    """Return whether a column is called as one that names the nodes, and its texts are short and hardly repeat."""
    if not (LABEL.search(name) and table.schema[name] == pl.String):
        return False
    values = table[name].drop_nulls()
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


def column_arrays(table: Table | pl.DataFrame, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return columns as arrays of Python values, with None for what is missing."""
    arrays = {}
    for name in names:
        shown = shown_values(table[name])
        values = shown.fill_nan(None) if shown.dtype.is_float() else shown
        arrays[name] = np.array([*values.to_list(), None], dtype=object)[:-1]  # never taken for an array of arrays
    return arrays


def terms_of(table: Table, options: ReadOptions, is_target: NDArray[np.bool_]) -> Terms:
    """Return what sentences call the domains and the nodes: as the user's table and options do."""
    if options.time is not None:
        return Terms.given(f"before {options.since}", f"{options.since} and later", options.noun, by_time=True)
    column = table[options.domain].cast(pl.String)
    source, target = (column.filter(pl.Series(is_target == side))[0] for side in (False, True))
    if sorted(map(_plain, (source, target))) in PLAIN_DOMAINS:
        source, target = Terms.source, Terms.target
    return Terms.given(source, target, options.noun)


class NodeRows(NamedTuple):
    """The ids and domains of a nodes table, one per row, how its other columns are encoded, and which are kept."""

    ids: pl.Series  # as text
    names: pl.Series  # the ids as text or whole numbers
    is_target: NDArray[np.bool_]
    columns: list[Column]
    kept: list[str]  # columns that are shown beside the nodes
    label: str | None  # the one of these that names the nodes
    terms: Terms  # what sentences call the domains and the nodes


def node_rows(options: ReadOptions, table: Table) -> NodeRows:
    """Read ids and domains of a nodes table, and decide how its other columns are encoded."""
    names = own_ids(table, options.id)
    if options.time is None:
        is_target = domains_from_column(table, options.domain, options.target)
    else:
        is_target = domains_from_time(table, options.time, options.since)
    if options.category is not None:
        require_column(table.columns, options.category, "nodes")
        if (dtype := table.schema[options.category]).is_nested():
            raise TableError(f"the category column {options.category!r} must hold one value per row; got {dtype}")
    reserved = {options.id, options.category, options.time, options.domain, options.node_type} - {None}
    columns = plan_columns(table, reserved, options)
    log.info("features: %s", describe(columns))
    label = choose_label(table, reserved, options.label)
    kept = choose_kept(table, options.keep, label)
    return NodeRows(names.cast(pl.String), names, is_target, columns, kept, label, terms_of(table, options, is_target))
