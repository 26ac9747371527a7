"""Columns of a nodes table -> ids as text, which nodes are target, how the others are encoded, and what is shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.selectors import by_name  # selects columns literally, also those called * or ^x$

from recoslip.base.errors import NoDomainError, TableError
from recoslip.base.text import Terms, counted, named
from recoslip.data.graph import ReadColumn, Reading
from recoslip.data.options import ReadOptions, Since
from recoslip.data.tables.candidates import id_column, numbered_ids, propose_domains
from recoslip.data.tables.columns import Column, is_missing, plan_columns, require_column
from recoslip.data.tables.numbers import MISSING_SPELLINGS
from recoslip.data.tables.table import Origin, Table
from recoslip.data.tables.times import target_from_times

WHOLE = r"^(-?(?:0|[1-9][0-9]*))\.0+$"  # how a whole number is written that became a float
MAX_WHOLE = 2**53  # up to which floats hold every whole number
MOST_SHOWN = 5  # values of a domain column, in a message


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


def own_ids(table: Table, name: str | None, numbered: str = "row") -> pl.Series:
    """Return the ids of nodes as text or whole numbers; where every one is written as 1.0, without the .0.

    Args:
        table: the nodes table.
        name: the column that holds them; None to number the rows.
        numbered: what is before the numbers of rows.
    """
    if name is None:
        return numbered_ids(table, numbered)
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


NO_NAMES = ("yes", "no", "y", "n", "true", "false", "t", "f")  # values that say nothing without the column's name
NO_NOUNS = ("columns", "edges", "features", "files", "labels", "news", "results", "rows", "scores", "tables", "values")
PLAIN_DOMAINS = (["false", "true"], ["0", "1"], ["0.0", "1.0"], ["source", "target"])  # values that name no domain


def domains_from_column(table: Table, name: str, target: object) -> NDArray[np.bool_]:
    """Return which rows are target by a column of two values, or of several of which the target is named."""
    column = table[name].cast(pl.String)
    values = sorted(column.unique().to_list(), key=lambda value: (_plain(value), value))
    shown = named([*map(repr, values)], MOST_SHOWN)
    if len(values) < 2 or (len(values) > 2 and target is None):
        raise TableError(
            f"the domain column {name!r} must hold a value for source and one for target; got {shown}; "
            + ("say which one is the target (target=...); all others are source" if values[1:] else "name another")
        )
    if target is None and [_plain(value) for value in values] in PLAIN_DOMAINS:
        return np.asarray(column == values[1])
    given = f"the domain column {name!r} holds {shown}"
    either = f"(target={values[0]!r} or target={values[1]!r}{', ...' if len(values) > 2 else ''})"
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
    noun = options.noun or noun_of(table.path)
    if options.time is not None:
        return Terms.given(f"before {options.since}", f"{options.since} and later", noun, by_time=True)
    column = table[options.domain].cast(pl.String)
    others, own = (column.filter(pl.Series(is_target == side)) for side in (False, True))
    source, target = str(others[0]) if others.n_unique() == 1 else Terms.source, str(own[0])
    if sorted(map(_plain, (source, target))) in PLAIN_DOMAINS:
        source, target = Terms.source, Terms.target
    if _plain(target) in NO_NAMES or _plain(target).replace(".", "").isdigit():
        target = f"{options.domain}={target}"
        source = source if source == Terms.source else f"{options.domain}={source}"
    return Terms.given(source, target, noun)


def noun_of(path: Path | None) -> str:
    """Return what the rows of a file are called, in the plural, if its name says so.

    >>> [noun_of(Path(name)) for name in ("products.csv", "Items_2024.csv", "analysis.csv", "catalogue.csv")]
    ['products', 'items', 'nodes', 'nodes']
    """
    word = "" if path is None else re.split(r"[^a-z]", path.stem.lower())[0]
    return word if re.fullmatch(r"[a-z]{2,}[^aius]s", word) and word not in NO_NOUNS else Terms.noun


def has_value(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return which rows have a value in a column: others are empty, or spell that one is missing."""
    column = by_name(name)
    present = column.is_not_null()
    if dtype == pl.String:
        return present & ~column.str.strip_chars().str.to_lowercase().is_in(MISSING_SPELLINGS)
    return present & column.is_not_nan() if dtype.is_float() else present


class NodeRows(NamedTuple):
    """The ids and domains of a nodes table, one per row, how its other columns are encoded, and which are kept."""

    table: Table  # without the rows that have no domain
    given_ids: pl.Series  # as text, of all rows
    ids: pl.Series  # as text
    names: pl.Series  # the ids as text or whole numbers
    is_target: NDArray[np.bool_]
    columns: list[Column]
    kept: list[str]  # columns that are shown beside the nodes
    label: str | None  # the one of these that names the nodes
    terms: Terms  # what sentences call the domains and the nodes
    reading: Reading


def node_rows(options: ReadOptions, table: Table) -> NodeRows:
    """Read ids and domains of a nodes table, and decide how its other columns are encoded."""
    ids = id_column(table, options.id)
    names = own_ids(table, ids)  # of all rows, so that numbers are those of the table
    given_ids = names.cast(pl.String)
    if options.time is None and options.domain == ReadOptions.domain and options.domain not in table.columns:
        proposals = propose_domains(table, ids)
        proposed = "; ".join(each.said for each in proposals)
        raise NoDomainError(
            "the nodes table has no column 'domain', which separates source from target; name another (domain=..., "
            f"target=...), or a column of times (time=..., since=...). {proposed or 'No column has few values.'}",
            [each.options for each in proposals],
        )
    by = options.domain if options.time is None else options.time
    require_column(table.columns, by, "nodes")
    table, names, left_out = _with_values(table, by, names)
    if options.time is None:
        is_target = domains_from_column(table, by, options.target)
    else:
        is_target = domains_from_time(table, by, options.since)
    if options.category is not None:
        require_column(table.columns, options.category, "nodes")
        if (dtype := table.schema[options.category]).is_nested():
            raise TableError(f"the category column {options.category!r} must hold one value per row; got {dtype}")
    reserved = {ids, options.category, options.time, options.domain, options.node_type} - {None}
    columns = plan_columns(table, reserved, options)
    label = choose_label(table, reserved, options.label)
    numbered = (
        f"There is no column of ids, so rows go by their numbers, from {names[0]} on (id=...)." if ids is None else ""
    )
    notes = (table.note, numbered, left_out, _rest_is_source(table, options))
    kinds = {ids: "id", by: "domain" if options.time is None else "date", options.category: "categories"}
    reading = Reading(_read_columns(table, columns, kinds), tuple(filter(None, notes)))
    kept, terms = choose_kept(table, options.keep, label), terms_of(table, options, is_target)
    return NodeRows(table, given_ids, names.cast(pl.String), names, is_target, columns, kept, label, terms, reading)


def _with_values(table: Table, name: str, ids: pl.Series) -> tuple[Table, pl.Series, str]:
    """Return the rows that have a value in a column, their ids, and a sentence about the others."""
    is_kept = has_value(name, table.schema[name])
    kept = table.where(is_kept)
    missing = table.height - kept.height
    if not missing:
        return table, ids, ""
    if not kept.height:
        raise TableError(f"the nodes table's column {name!r} is empty in every row; name another column, or fill it")
    lost = table[name].to_frame().select(~is_kept).to_series()
    first = table.origin.first(lost)
    rows = f"{missing:,} of {table.height:,} rows {'is' if missing == 1 else 'are'} left out"
    return kept, ids.filter(~lost), f"{rows}: they have no value in {name!r} (first: {first}; {table.origin.counting})."


def _rest_is_source(table: Table, options: ReadOptions) -> str:
    """Say which values of the domain column are source, where there are several."""
    if options.time is not None or options.target is None:
        return ""
    counts = dict(table[options.domain].cast(pl.String).value_counts(sort=True).iter_rows())
    wanted = str(options.target)
    others = [value for value in counts if value != wanted and (wanted in counts or _plain(value) != _plain(wanted))]
    if len(others) < 2:
        return ""
    shown = named([f"{value!r} ({counted(counts[value], 'row')})" for value in others], MOST_SHOWN)
    return f"All values of {options.domain!r} but {options.target!r} are source: {shown}."


def _read_columns(table: Table, columns: Sequence[Column], kinds: Mapping[str | None, str]) -> tuple[ReadColumn, ...]:
    """Return how every column was read, in the order of the table."""
    planned = {column.name: column.reading for column in columns}
    return tuple(
        planned.get(name) or ReadColumn(name, kinds.get(name, "left out"), "" if name in kinds else "not a feature")
        for name in table.columns
    )
