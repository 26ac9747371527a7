"""Columns of a table -> how each is encoded: as a number, a category, text or a vector, or not at all.

This is the one place that decides it. A list, such as 'Drama, Comedy', is a category of several values.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import polars as pl

from recoslip.base.errors import TableError, nearest
from recoslip.data.graph import ReadColumn
from recoslip.data.options import ReadOptions
from recoslip.data.tables.numbers import (
    DecimalMark,
    are_codes,
    decimal_marks,
    spells_missing,
    to_numbers,
    two_readings,
    units_of,
)
from recoslip.data.tables.table import FRAME, Origin, Table
from recoslip.data.tables.times import looks_like_date

Encoding: TypeAlias = Literal["number", "category", "text", "vector", "unused"]

MOST_NAMES = 20  # of columns, in a line
MAX_CATEGORIES = 50  # one-hot features per column; the rarest values are pooled into the last
LOOK_ROWS = 200  # of a text column that are looked at before all of it is
NAMED_SPELLINGS = 3  # of missing values, in a message
COUNTER = re.compile(r"^(?:row|no|nr|num|number|rank|position|#)\.?$|(?:^|[ _.-])(?:no|nr|number)\.?$", re.IGNORECASE)
IDENTIFIER = re.compile(
    r"^(?:|index|rownames?|unnamed: 0)$|(?:^|[ _.-])(?:id|key|uuid|guid|isbn|issn|doi|url)$|[a-z]I[dD]$", re.IGNORECASE
)
SEPARATORS = ("|", ";", ",")  # of the members of a list
MIN_LISTS = 0.1  # fraction of the cells that hold several members, where a column holds lists
MIN_OCCURRENCES = 2.0  # of a member, on average
MIN_WORDS = 4  # of the text in a cell, on average, from which on it is free text


@dataclass(frozen=True)
class Column:
    """A column of the nodes table and how it is encoded."""

    name: str
    encoding: Encoding
    reason: str = ""  # why it is read so
    decimal: DecimalMark | None = None  # of numbers with commas
    separator: str | None = None  # of the members of lists; "" where a cell holds a list already
    option: str = ""  # what reads it in another way, as an argument of Python
    is_date: bool = False
    is_constant: bool = False

    def read(self, series: pl.Series) -> pl.Series:
        """Return the column as the type that is encoded, with null for what is missing."""
        if self.encoding == "number" and series.dtype == pl.String:
            return to_numbers(series, self.decimal or ".")
        return series

    @property
    def reading(self) -> ReadColumn:
        """How the column was read, for the summary."""
        kind = "left out" if self.encoding == "unused" else self.encoding if self.separator is None else "list"
        return ReadColumn(self.name, "date" if self.is_date else kind, self.reason, self.option)


def plan_columns(table: Table, reserved: Collection[str | None], options: ReadOptions) -> list[Column]:
    """Decide how each column of a nodes table is encoded.

    Numbers, true/false and vectors become features, also where numbers are written as text. Other text is a list or a
    category if its values repeat, and free text if it is long; otherwise it is unused, unless the options name it.
    Columns with one value, and identifiers, are unused.

    Args:
        table: the nodes table.
        reserved: columns that are the id, domain, time or category; they cannot be features.
        options: which columns are features, free text, or ignored.
    """
    for name in (*(options.features or ()), *options.ignore, *options.text, *options.read_as):
        require_column(table.columns, name, "nodes")
        if name in reserved and name not in options.ignore:
            raise TableError(f"column {name!r} already is the id, domain, time or category; it cannot be a feature")
    columns = [_plan(name, table, options) for name in table.columns if name not in reserved]
    if not any(column.encoding != "unused" for column in columns):  # of a graph, edges alone may tell
        columns = [replace(c, encoding="category", reason="constant") if c.is_constant else c for c in columns]
    if all(column.encoding == "unused" for column in columns):
        reasons = "; ".join(f"{c.name}: {c.reason}" for c in columns) or "there are no further columns"
        raise TableError(f"the nodes table has no column to use as a feature ({reasons})")
    return columns


def _plan(name: str, table: Table, options: ReadOptions) -> Column:
    if name in options.ignore:
        return Column(name, "unused", "ignored as asked")
    if name in options.text or name in options.read_as:
        return _as_asked(name, "text" if name in options.text else options.read_as[name], table)
    if options.features is not None and name not in options.features:
        return Column(name, "unused", "not among the chosen features")
    is_chosen = options.features is not None
    column = _guess_encoding(name, table, is_chosen=is_chosen)
    if column.encoding == "unused" and is_chosen:
        raise TableError(f"column {name!r} cannot be a feature: {column.reason}")
    return column


def _as_asked(name: str, kind: str, table: Table) -> Column:
    """Return a column that is read as the user says."""
    asked, dtype = "as asked", table.schema[name]
    if kind == "number":
        if dtype.is_numeric() or dtype == pl.Boolean:
            return Column(name, "number", asked)
        series = table[name].cast(pl.String)
        marks = decimal_marks(series, hint=table.origin.decimal)
        if not marks:
            raise TableError(f"column {name!r} cannot be read as numbers: it holds other text")
        return Column(name, "number", asked, marks[0])
    if kind == "list":
        separator = "" if isinstance(dtype, pl.List) else _separator(table[name].cast(pl.String))[0]
        return Column(name, "category", asked, separator=separator)
    return Column(name, "text" if kind == "text" else "category", asked)


def require_column(columns: Sequence[str], name: str, table: str) -> None:
    """Raise unless the "nodes" or "edges" table has the column `name`."""
    if name not in columns:
        raise TableError(
            f"the {table} table has no column {name!r}{nearest(name, columns)}; it has {', '.join(columns)}"
        )


def _guess_encoding(name: str, table: Table, *, is_chosen: bool) -> Column:
    """Return how a column is encoded by its type and its values.

    Args:
        name: of the column.
        table: the nodes table.
        is_chosen: whether the user names it as a feature; then it is one also if it is constant or an identifier.
    """
    dtype = table.schema[name]
    if dtype.is_numeric() or dtype == pl.Boolean:
        return Column(name, "number", "as asked") if is_chosen else _guess_number(Column(name, "number"), table[name])
    if isinstance(dtype, pl.List | pl.Array):
        if dtype.inner.is_numeric():
            return Column(name, "vector", option=f"ignore={[name]!r}")
        if dtype.inner == pl.String and isinstance(dtype, pl.List):
            return _guess_list(name, table[name]) or Column(name, "unused", "lists of many different texts")
        return Column(name, "unused", f"a list of {dtype.inner}, not of numbers")
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        series = table[name]
        if dtype == pl.String and (special := _dates_or_numbers(name, series, table.origin)):
            if special.encoding != "number" or is_chosen:
                return special
            return _guess_number(special, to_numbers(series, special.decimal or "."))
        return _guess_text(name, series.cast(pl.String), is_chosen=is_chosen)
    if dtype == pl.Null:
        return Column(name, "unused", "empty")
    return _date(name, f"{dtype} is no feature; time={name!r} takes it for the domain")


def _date(name: str, reason: str) -> Column:
    return Column(name, "unused", reason, option=f"time={name!r}", is_date=True)


def _guess_number(column: Column, series: pl.Series) -> Column:
    """Return how a column of numbers is encoded, by its values."""
    name, present = column.name, series.cast(pl.Float64).fill_nan(None).drop_nulls()
    distinct = present.n_unique()
    missing = int(is_missing(series).sum())
    if missing == len(series):
        return Column(name, "unused", "empty")
    if distinct == 1 and not missing:
        return Column(name, "unused", f"{series[0]} in every row", is_constant=True)
    as_number = f"read_as={{{name!r}: 'number'}}"
    is_whole = series.dtype != pl.Boolean and bool((present == present.round()).all())
    if is_whole and IDENTIFIER.search(name):
        if distinct == len(series):
            return Column(name, "unused", "an identifier: another value in every row", option=as_number)
        if distinct > max(MAX_CATEGORIES, len(series) // 20):
            return Column(name, "unused", f"an identifier with {distinct:,} values", option=as_number)
        return Column(name, "category", f"an identifier with {distinct:,} values", option=as_number)
    if is_whole and COUNTER.search(name) and bool((present.diff().drop_nulls() > 0).all()):
        return Column(name, "unused", "it counts the rows", option=as_number)
    reason = column.reason
    if missing:
        filled = f"{missing:,} missing, filled by the median"
        reason = f"{reason}; {filled}" if reason else filled
    return Column(name, "number", reason, column.decimal, option=f"read_as={{{name!r}: 'category'}}")


def _guess_text(name: str, series: pl.Series, *, is_chosen: bool) -> Column:
    """Return how a column of text is encoded that holds no dates and no numbers."""
    present = series.drop_nulls()
    distinct, as_text = series.n_unique(), f"text={[name]!r}"
    if not len(present):
        return Column(name, "unused", "empty")
    if distinct == 1 and not is_chosen:
        return Column(name, "unused", f"{present[0]!r} in every row", is_constant=True)
    if found := _guess_list(name, series):
        return found
    if distinct <= max(MAX_CATEGORIES, len(series) // 20) and distinct < len(series):
        missing = f", {series.null_count():,} missing" if series.null_count() else ""
        return Column(name, "category", f"{present.n_unique():,} values{missing}", option=as_text)
    words = present.str.count_matches(r"\w+").mean()
    if isinstance(words, float) and words >= MIN_WORDS:
        return Column(name, "text", f"{words:.0f} words on average", option=f"ignore={[name]!r}")
    if distinct == len(series) and isinstance(words, float) and words < 2:
        return Column(name, "unused", "another value in every row, as ids have", option=f"id={name!r}")
    return Column(name, "unused", f"{distinct:,} different texts; {as_text} uses it", option=as_text)


def _guess_list(name: str, series: pl.Series) -> Column | None:
    """Return a category column whose cells hold several members; None where few do, or the members do not recur."""
    separator, several = _separator(series)
    if several < MIN_LISTS:
        return None
    lists = members(series, separator).drop_nulls()
    every = lists.explode(empty_as_null=False) if len(lists) else pl.Series([], dtype=pl.String)
    distinct, cells = every.n_unique(), lists.list.sort().list.join("\0").n_unique()
    recur = distinct <= cells and len(every) >= MIN_OCCURRENCES * distinct
    if not recur or distinct > max(MAX_CATEGORIES, len(series) // 20):
        return None
    by = f" separated by {separator!r}" if separator else ""
    return Column(name, "category", f"{distinct:,} members{by}", None, separator, f"read_as={{{name!r}: 'category'}}")


def _separator(series: pl.Series) -> tuple[str, float]:
    """Return what separates the members of lists, and the fraction of the cells that hold several."""
    if series.dtype != pl.String:
        return "", float((series.list.len() > 1).mean() or 0)  # type: ignore[arg-type]
    present = series.drop_nulls()
    shares = {mark: float(present.str.contains(mark, literal=True).mean() or 0) for mark in SEPARATORS}  # type: ignore[arg-type]
    best = max(shares, key=lambda mark: shares[mark])
    return best, shares[best]


def members(series: pl.Series, separator: str) -> pl.Series:
    """Return the members of each cell, each once; null where there are none.

    >>> members(pl.Series(["Drama, Comedy", "['Drama']", "", None]), ",").to_list()
    [['Drama', 'Comedy'], ['Drama'], None, None]
    """
    if series.dtype == pl.Null:
        return series.cast(pl.List(pl.String))
    lists = series if isinstance(series.dtype, pl.List) else series.cast(pl.String).str.split(separator or ",")
    lists = lists.cast(pl.List(pl.String)).list.eval(pl.element().str.strip_chars(" \t\n[]'\""))
    lists = lists.list.eval(pl.element().filter((pl.element() != "").fill_null(False)))
    lists = lists.list.unique(maintain_order=True)
    return lists.zip_with(lists.list.len() > 0, pl.Series([None], dtype=lists.dtype))


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
        return _date(name, f"dates are no feature; time={name!r} takes it for the domain")
    if len(marks) == 2:
        return Column(name, "unused", two_readings(present))
    if len(units := units_of(present)) > 1:
        return Column(name, "unused", f"numbers of several units ({', '.join(units)})", option=f"text={[name]!r}")
    has_commas = bool(present.str.contains(",", literal=True).any())
    how = [{".": "commas between thousands", ",": "decimal commas"}[marks[0]]] if has_commas else []
    how += [f"missing values written {_spellings(texts.filter(missing))}"] if texts.filter(missing).count() else []
    how += [f"in {units[0]}"] if units else []
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
