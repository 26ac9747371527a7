"""Nodes and edges as files or data frames -> NodeGraph."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pyarrow.lib import ArrowException, ArrowNotImplementedError
from pyarrow.parquet import ParquetFile

from recoslip.columns import Column, Frame, describe, encode, is_missing, looks_like_date, plan_columns
from recoslip.errors import OutOfMemory, TableError, nearest
from recoslip.graph import NodeGraph
from recoslip.memory import memory

log = logging.getLogger("recoslip")

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ArrowException, OSError, UnicodeError)
TIMES = {"nodes": 12, "edges": 80}  # its file that a table may take in memory, until it is a graph

Table: TypeAlias = "str | os.PathLike[str] | pl.DataFrame | Any"  # a path, or a polars or pandas data frame
Since: TypeAlias = "int | float | str | date | datetime"


def read_graph(
    nodes: Table,
    edges: Table | None,
    *,
    id: str = "id",  # noqa: A002
    domain: str = "domain",
    target_value: object = None,
    time: str | None = None,
    since: Since | None = None,
    category: str | None = None,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    text: Sequence[str] = (),
    source_column: str | None = None,
    target_column: str | None = None,
    weight: str | None = None,
    drop_unknown: bool = False,
    impute: bool = False,
) -> NodeGraph:
    """Read a graph from a table of nodes and a table of edges.

    Args:
        nodes: one row per node: a CSV, TSV, Parquet or Arrow file, or a data frame (polars, pandas).
        edges: one row per edge, likewise; None for a graph without edges.
        id: the nodes' column of names; text or whole numbers.
        domain: the nodes' column that tells source from target: true/false, 0/1, source/target, or any two
            values with `target_value`.
        target_value: the value of `domain` that means target.
        time: take the domain from this column instead: target from `since` on. A column called "domain" is no feature
            then.
        since: the first time that is target: a number, or a date such as 2007-01-31.
        category: a column of true categories, kept for scoring and never used as a feature.
        features: the columns to use; by default all that look like features (which, is logged).
        ignore: columns not to use.
        text: columns of free text, turned into tf-idf weights of words.
        source_column: the edges' column of one end; the first column by default.
        target_column: the edges' column of the other end; the second by default.
        weight: the edges' column of positive weights.
        drop_unknown: leave out edges that name unknown nodes instead of refusing them.
        impute: fill missing values (numbers: the median; categories: a value of their own; text: nothing).

    >>> frame = pl.DataFrame({"id": ["a", "b", "c"], "domain": ["source", "source", "target"], "size": [1, 2, 3]})
    >>> read_graph(frame, pl.DataFrame({"from": ["a", "b"], "to": ["b", "c"]}))
    NodeGraph(3 nodes: 2 source, 1 target; 2 edges; 1 features)
    """
    how = Reading(
        id,
        domain,
        target_value,
        time,
        since,
        category,
        features,
        ignore,
        text,
        source_column,
        target_column,
        weight,
        drop_unknown,
        impute,
    )
    with table_errors():
        frame = _frame(nodes, "nodes", how)
        about = how.nodes(frame)
        matrix, names = encode(frame, about.columns, impute)
        ends, weights = _edges(edges, about.ids, how)
        return NodeGraph(
            matrix,
            ends,
            about.is_target,
            edge_weight=weights,
            ids=frame[id].to_numpy(),
            categories=None if category is None else frame[category].to_numpy(),
            times=None if time is None else frame[time].to_numpy(),
            feature_names=names,
        )


class AboutNodes(NamedTuple):
    """What a nodes table says besides the features themselves."""

    ids: pl.Series  # as text
    is_target: NDArray[np.bool_]
    columns: list[Column]


@dataclass(frozen=True)
class Reading:
    """How tables are to be read: the arguments of `read_graph`, explained there."""

    id: str = "id"
    domain: str = "domain"
    target_value: object = None
    time: str | None = None
    since: Since | None = None
    category: str | None = None
    features: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    text: Sequence[str] = ()
    source_column: str | None = None
    target_column: str | None = None
    weight: str | None = None
    drop_unknown: bool = False
    impute: bool = False

    def __post_init__(self) -> None:
        for name in ("features", "ignore", "text"):
            if isinstance(value := getattr(self, name), str):
                raise TableError(f"{name} must be a list of column names; got the text {value!r}, write [{value!r}]")
        if (self.time is None) != (self.since is None):
            raise TableError("a domain from time needs both: the column (time) and the first target time (since)")
        if self.time is not None and (self.target_value is not None or self.domain != Reading.domain):
            raise TableError("the domain is taken from a column (domain, target_value) or from time; give one of them")

    def nodes(self, frame: Frame) -> AboutNodes:
        """Read names and domains, and decide what each other column is used as."""
        _require(frame.columns, "nodes", [self.id])
        ids = _ids(frame[self.id], "nodes")
        if self.time is None:
            is_target = _by_column(frame, self.domain, self.target_value)
        else:
            is_target = _by_time(frame, self.time, self.since)
        if self.category is not None:
            _require(frame.columns, "nodes", [self.category])
        reserved = {self.id, self.category, self.time, self.domain} - {None}
        columns = plan_columns(frame, reserved, self.features, self.ignore, self.text)
        log.info("features: %s", describe(columns))
        return AboutNodes(ids, is_target, columns)

    def ends(self, columns: Sequence[str]) -> list[str | None]:
        """Return an edges table's two columns of ends: those named, or the first others; None where there is none."""
        named = (self.source_column, self.target_column)
        free = (column for column in columns if column not in (*named, self.weight))
        return [name or next(free, None) for name in named]


@contextmanager
def table_errors() -> Iterator[None]:
    """Turn what polars and Arrow say of values they cannot use into an error of ours."""
    try:
        yield
    except (pl.exceptions.PolarsError, ArrowException) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise TableError(f"the tables hold values of a kind that cannot be used: {reason}") from problem


def _frame(table: Table, what: str, how: Reading) -> pl.DataFrame:
    if isinstance(table, str | os.PathLike):
        frame = _read_file(Path(table), what, how)
    elif isinstance(table, pl.DataFrame):
        frame = table
    elif type(table).__module__.startswith("pandas"):
        try:
            frame = pl.from_pandas(table)
        except (TypeError, ValueError, OverflowError) as problem:  # a name twice, or a column of mixed types
            raise TableError(f"the {what} table cannot be read from pandas: {problem}") from problem
    else:
        raise TableError(f"{what} must be a file or a polars or pandas data frame; got {type(table).__name__}")
    if frame.height == 0 and what == "nodes":
        raise TableError(f"{_name(table, what)} has no rows")
    return frame


def _read_file(path: Path, what: str, how: Reading) -> pl.DataFrame:
    with _file_errors(path, what):
        _refuse_large(path, what)
        return scan(path, what, how).collect()


def scan(path: Path, what: str, how: Reading) -> pl.LazyFrame:
    """Look at a table of "nodes" or "edges" without reading it; names of nodes stay text (007 is not 7)."""
    kind = _kind(path)
    if not path.is_file():
        raise TableError(f"{what}: there is no file {path}")
    if path.stat().st_size == 0:
        raise TableError(f"{what}: {path} is empty")
    with _file_errors(path, what):
        if kind in ("csv", "tsv", "txt"):
            separator = "," if kind == "csv" else "\t"
            header = pl.read_csv(path, separator=separator, n_rows=0).columns
            if len(header) == 1 and ";" in header[0]:
                separator = ";"
                header = pl.read_csv(path, separator=separator, n_rows=0).columns
            names = [how.id] if what == "nodes" else how.ends(header)
            text = {name: pl.String for name in names if name in header}
            return pl.scan_csv(path, separator=separator, infer_schema_length=None, schema_overrides=text)
        if kind in ("parquet", "pq"):
            check_pages(path)
            return pl.scan_parquet(path)
        if kind in ("arrow", "feather", "ipc"):
            return pl.scan_ipc(path)
    raise TableError(f"{what}: {path} must end in .csv, .tsv, .parquet, .arrow or .feather; got .{kind}")


def _kind(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rsplit(".", 1)[-1]


@contextmanager
def _file_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as problem:
        reason = str(problem).strip().splitlines()[0]
        raise TableError(f"{what}: {path} cannot be read as {_kind(path)}: {reason}") from problem


def check_pages(path: Path) -> None:
    """Raise if a Parquet file is damaged: where a page claims more values than fit, polars ends the process."""
    # Threads of Arrow's would hang where memory is short, instead of raising.
    with ParquetFile(path, pre_buffer=False) as file, suppress(ArrowNotImplementedError):  # a type polars alone knows
        for _ in file.iter_batches(use_threads=False):
            pass


def _refuse_large(path: Path, what: str) -> None:
    """Raise if a table will hardly fit into memory with what is made of it."""
    needed, free = TIMES[what] * path.stat().st_size if path.is_file() else 0, memory(torch.device("cpu")).free
    if needed > free:
        raise OutOfMemory(
            f"{what}: {path} may take {needed / 2**30:.1f} GiB in memory, and {free / 2**30:.1f} GiB are free; "
            "write the graph as a folder that stays on disk (recoslip pack), and give that"
        )


def _name(table: Table, what: str) -> str:
    return str(table) if isinstance(table, str | os.PathLike) else f"the {what} table"


def _require(columns: Sequence[str], what: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in columns:
            raise TableError(
                f"the {what} table has no column {name!r}{nearest(name, columns)}; it has {', '.join(columns)}"
            )


def _ids(column: pl.Series, what: str) -> pl.Series:
    """Names of nodes as text, so that 7 in one file is 7 in the other."""
    if column.dtype.is_float() or column.dtype.is_nested() or column.dtype == pl.Binary:
        raise TableError(
            f"the {what} table's column {column.name!r} must hold text or whole numbers; got {column.dtype}"
        )
    if column.null_count():
        first = column.is_null().arg_max()
        raise TableError(
            f"the {what} table's column {column.name!r} is empty in {column.null_count()} rows (first: row {first})"
        )
    return column.cast(pl.String)


def _by_column(frame: Frame, name: str, target_value: object) -> NDArray[np.bool_]:
    _require(frame.columns, "nodes", [name])
    column = frame[name].cast(pl.String)
    if column.null_count():
        raise TableError(f"the domain column {name!r} is empty in {column.null_count()} rows; give every node a domain")
    values = sorted(column.unique().to_list(), key=lambda value: value.strip().lower())
    if len(values) != 2:
        shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
        raise TableError(
            f"the domain column {name!r} must hold two values, one for source and one for target; got {shown}"
        )
    if target_value is not None:
        wanted = _matching(str(target_value), values)
        if wanted is None:
            raise TableError(f"the domain column {name!r} holds {values[0]!r} and {values[1]!r}, not {target_value!r}")
        return np.asarray(column == wanted)
    for source, target in (("false", "true"), ("0", "1"), ("0.0", "1.0"), ("source", "target")):
        if [value.strip().lower() for value in values] == [source, target]:
            return np.asarray(column == values[1])
    raise TableError(
        f"the domain column {name!r} holds {values[0]!r} and {values[1]!r}: say which one is the target "
        f"(--target-value {values[0]} or --target-value {values[1]})"
    )


def _matching(wanted: str, values: Sequence[str]) -> str | None:
    if wanted in values:
        return wanted
    return next((value for value in values if value.strip().lower() == wanted.strip().lower()), None)


def _by_time(frame: Frame, name: str, since: Since | None) -> NDArray[np.bool_]:
    _require(frame.columns, "nodes", [name])
    column = frame[name]
    if missing := int(is_missing(column).sum()):
        raise TableError(f"the time column {name!r} is empty in {missing} rows; give every node a time")
    if column.dtype == pl.String:
        column = _parsed_times(column)
    try:
        if column.dtype.is_numeric():
            first_target: Any = float(since)  # type: ignore[arg-type]
        else:
            first_target = datetime.fromisoformat(str(since)).replace(tzinfo=None)
            column = column.cast(pl.Datetime)
        is_target = column >= first_target
    except (TypeError, ValueError, pl.exceptions.PolarsError) as problem:
        kind = "a number" if column.dtype.is_numeric() else "a date such as 2007-01-31"
        raise TableError(f"the time column {name!r} needs {kind} to divide it; got since={since!r}") from problem
    if is_target.all() or not is_target.any():
        raise TableError(
            f"dividing {name!r} at {since} leaves one domain empty; it runs from {column.min()!s} to {column.max()!s}"
        )
    return np.asarray(is_target)


def _parsed_times(column: pl.Series) -> pl.Series:
    """Texts of dates -> times. Year first only: 02/03/2007 is one day here and another there."""
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


def _edges(table: Table | None, ids: pl.Series, how: Reading) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Edges by name -> edges by position, and their weights."""
    if table is None:
        return np.empty((2, 0), dtype=np.int64), None
    frame = _frame(table, "edges", how)
    reader = EdgeReader(frame.columns, _name(table, "edges"), ids, how)
    if isinstance(table, str | os.PathLike):
        reader.refuse_headless()
    if frame.height == 0:
        return np.empty((2, 0), dtype=np.int64), None
    ends, weights = reader.read(frame)
    say_dropped(reader.dropped)
    return ends, weights


def say_dropped(edges: int) -> None:
    """Log how many edges were left out, if any."""
    if edges:
        log.info("edges: %s dropped that name unknown nodes", f"{edges:,}")


class EdgeReader:
    """Rows of an edges table -> positions of their ends among the nodes, and weights.

    Args:
        columns: of the table.
        name: what to call the table in errors.
        ids: the nodes' names, as text.
        how: which columns to read.
    """

    def __init__(self, columns: Sequence[str], name: str, ids: pl.Series, how: Reading) -> None:
        named = (how.source_column, how.target_column, how.weight)
        _require(columns, "edges", [column for column in named if column])
        left, right = how.ends(columns)
        if left is None or right is None:
            besides = f" besides the weights in {how.weight!r}" if how.weight else ""
            raise TableError(f"{name} must have two columns of node ids{besides}; it has {list(columns)}")
        if left == right:
            raise TableError(f"both ends of an edge cannot be in one column, {left!r}; name two")
        self.left, self.right = left, right
        self.name, self.ids, self.weight, self.drop_unknown = name, ids, how.weight, how.drop_unknown
        self.positions = pl.DataFrame({"name": ids, "position": np.arange(len(ids))})
        if ids.is_duplicated().any():
            twice = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
            raise TableError(
                f"ids in the nodes table must be unique; {len(twice)} are repeated "
                f"(first: {', '.join(map(repr, twice[:3].to_list()))})"
            )
        self.dropped = 0  # edges so far that name an unknown node

    def refuse_headless(self) -> None:
        """Raise if what a file has for a header is an edge."""
        if self.ids.is_in([self.left]).any() and self.ids.is_in([self.right]).any():
            raise TableError(f"{self.name}: the first line, {self.left!r} and {self.right!r}, is an edge; add a header")

    def read(self, frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Find the ends of some rows, (2, edges), and their weights."""
        found = [
            pl.DataFrame({"name": _ids(frame[name], "edges")}).join(
                self.positions, on="name", how="left", maintain_order="left"
            )["position"]
            for name in (self.left, self.right)
        ]
        known = found[0].is_not_null() & found[1].is_not_null()
        dropped = int((~known).sum())
        if dropped and not self.drop_unknown:
            unknown = [
                name
                for column, position in zip((self.left, self.right), found, strict=True)
                for name in frame[column].filter(position.is_null()).cast(pl.String).unique(maintain_order=True)
            ]
            unknown = list(dict.fromkeys(unknown))
            raise TableError(
                f"{self.name} names {len(unknown)} ids that the nodes table does not have (first: "
                f"{', '.join(map(repr, unknown[:3]))}), in {dropped} edges; add those nodes or pass --drop-unknown"
            )
        self.dropped += dropped
        ends = np.stack([position.filter(known).to_numpy().astype(np.int64) for position in found])
        weights = None
        if self.weight is not None:
            column = frame[self.weight].filter(known)
            if not column.dtype.is_numeric() or column.null_count():
                raise TableError(f"the edges table's weight column {self.weight!r} must hold a number in every row")
            weights = column.to_numpy().astype(np.float64)
        return ends, weights
