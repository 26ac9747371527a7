"""Nodes and edges as files or data frames -> NodeGraph."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from recoslip.columns import (
    Column,
    ColumnReader,
    describe,
    encode,
    is_missing,
    looks_like_date,
    plan_columns,
    require_column,
)
from recoslip.errors import OutOfMemory, TableError
from recoslip.graph import NodeGraph
from recoslip.memory import memory

log = logging.getLogger("recoslip")

# Peak bytes of memory per byte of a table's file, from reading the file to the finished NodeGraph.
MEMORY_PER_FILE_BYTE = {"nodes": 12, "edges": 80}

Table: TypeAlias = "str | os.PathLike[str] | pl.DataFrame | Any"  # a path, or a polars or pandas data frame
TableName: TypeAlias = Literal["nodes", "edges"]
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
        edges: one row per edge, in the same formats; None for a graph without edges.
        id: column of the nodes table with the ids; text or whole numbers.
        domain: column of the nodes table with the domains: true/false, 0/1, source/target, or any two values with
            `target_value`.
        target_value: the value of `domain` that means target.
        time: column of the nodes table with times. It replaces `domain`: nodes from `since` on are target. A column
            called "domain" is then no feature.
        since: the first time that is target: a number, or a date such as 2007-01-31.
        category: column of the nodes table with true categories, kept for scoring and never used as a feature.
        features: columns to use as features; by default all that look like features (they are logged).
        ignore: columns not to use as features.
        text: columns of free text, encoded as tf-idf weights of words.
        source_column: column of the edges table with one end of the edge; the first column by default.
        target_column: column of the edges table with the other end; the second column by default.
        weight: column of the edges table with positive weights.
        drop_unknown: drop edges whose ends are not in the nodes table, instead of raising an error.
        impute: fill missing values: numbers by the median, vectors by the mean, categories by a category "(missing)",
            text by the empty text.

    >>> frame = pl.DataFrame({"id": ["a", "b", "c"], "domain": ["source", "source", "target"], "size": [1, 2, 3]})
    >>> read_graph(frame, pl.DataFrame({"from": ["a", "b"], "to": ["b", "c"]}))
    NodeGraph(3 nodes: 2 source, 1 target; 2 edges; 1 features)
    """
    options = ReadOptions(
        id=id,
        domain=domain,
        target_value=target_value,
        time=time,
        since=since,
        category=category,
        features=features,
        ignore=ignore,
        text=text,
        source_column=source_column,
        target_column=target_column,
        weight=weight,
        drop_unknown=drop_unknown,
        impute=impute,
    )
    with table_errors():
        frame = _to_frame(nodes, "nodes", options)
        rows = options.node_rows(frame)
        matrix, names = encode(frame, rows.columns, impute)
        edge_index, edge_weight = _read_edges(edges, rows.ids, options)
        return NodeGraph(
            matrix,
            edge_index,
            rows.is_target,
            edge_weight=edge_weight,
            ids=frame[id].to_numpy(),
            categories=None if category is None else frame[category].to_numpy(),
            times=None if time is None else frame[time].to_numpy(),
            feature_names=names,
        )


class NodeRows(NamedTuple):
    """The ids and domains of a nodes table, one per row, and how its other columns are encoded."""

    ids: pl.Series  # as text
    is_target: NDArray[np.bool_]
    columns: list[Column]


@dataclass(frozen=True)
class ReadOptions:
    """Which columns of the tables to read and how: the arguments of `read_graph`, documented there."""

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
        if self.time is not None and (self.target_value is not None or self.domain != ReadOptions.domain):
            raise TableError("the domain is taken from a column (domain, target_value) or from time; give one of them")

    def node_rows(self, table: ColumnReader) -> NodeRows:
        """Read ids and domains of a nodes table, and decide how its other columns are encoded."""
        require_column(table.columns, self.id, "nodes")
        ids = _ids_as_text(table[self.id], "nodes")
        if self.time is None:
            is_target = _domains_from_column(table, self.domain, self.target_value)
        else:
            is_target = _domains_from_time(table, self.time, self.since)
        if self.category is not None:
            require_column(table.columns, self.category, "nodes")
        reserved = {self.id, self.category, self.time, self.domain} - {None}
        columns = plan_columns(table, reserved, self.features, self.ignore, self.text)
        log.info("features: %s", describe(columns))
        return NodeRows(ids, is_target, columns)

    def end_columns(self, columns: Sequence[str]) -> list[str | None]:
        """Return the columns of an edges table that hold the two ends of an edge.

        An end whose column is not among the options takes the first column that has no other use; None if none is left.
        """
        named = (self.source_column, self.target_column)
        unnamed = (column for column in columns if column not in (*named, self.weight))
        return [name or next(unnamed, None) for name in named]


@contextmanager
def table_errors() -> Iterator[None]:
    """Turn the errors of polars and Arrow about values they cannot process into a TableError."""
    try:
        yield
    except _value_errors() as problem:
        reason = str(problem).strip().splitlines()[0]
        raise TableError(f"the tables hold values of a type that cannot be used: {reason}") from problem


def file_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that polars and Arrow raise for a file that they cannot read."""
    return (pl.exceptions.PanicException, OSError, UnicodeError, *_value_errors())


def _value_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of polars and Arrow; Arrow's only once it is loaded, for importing it takes long."""
    arrow = sys.modules.get("pyarrow.lib")
    return (pl.exceptions.PolarsError, *([arrow.ArrowException] if arrow else []))


def _to_frame(table: Table, name: TableName, options: ReadOptions) -> pl.DataFrame:
    if isinstance(table, str | os.PathLike):
        frame = _read_file(Path(table), name, options)
    elif isinstance(table, pl.DataFrame):
        frame = table
    elif type(table).__module__.startswith("pandas"):
        try:
            frame = pl.from_pandas(table)
        except (TypeError, ValueError, OverflowError) as problem:  # duplicate column names, or mixed types in a column
            raise TableError(f"the {name} table cannot be read from pandas: {problem}") from problem
    else:
        raise TableError(f"{name} must be a file or a polars or pandas data frame; got {type(table).__name__}")
    if frame.height == 0 and name == "nodes":
        raise TableError(f"{_describe_table(table, name)} has no rows")
    return frame


def _read_file(path: Path, name: TableName, options: ReadOptions) -> pl.DataFrame:
    with _read_errors(path, name):
        _check_memory(path, name)
        return scan(path, name, options).collect()


def scan(path: Path, name: TableName, options: ReadOptions) -> pl.LazyFrame:
    """Open a table lazily; ids are text whatever they look like (007 is not 7)."""
    extension = _extension(path)
    if not path.is_file():
        raise TableError(f"{name}: there is no file {path}")
    if path.stat().st_size == 0:
        raise TableError(f"{name}: {path} is empty")
    with _read_errors(path, name):
        if extension in ("csv", "tsv", "txt"):
            separator = "," if extension == "csv" else "\t"
            header = pl.read_csv(path, separator=separator, n_rows=0).columns
            if len(header) == 1 and ";" in header[0]:
                separator = ";"
                header = pl.read_csv(path, separator=separator, n_rows=0).columns
            ids = [options.id] if name == "nodes" else options.end_columns(header)
            text = {column: pl.String for column in ids if column in header}
            return pl.scan_csv(path, separator=separator, infer_schema_length=None, schema_overrides=text)
        if extension in ("parquet", "pq"):
            check_parquet_pages(path)
            return pl.scan_parquet(path)
        if extension in ("arrow", "feather", "ipc"):
            return pl.scan_ipc(path)
    raise TableError(f"{name}: {path} must end in .csv, .tsv, .parquet, .arrow or .feather; got .{extension}")


def _extension(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rsplit(".", 1)[-1]


@contextmanager
def _read_errors(path: Path, name: TableName) -> Iterator[None]:
    try:
        yield
    except file_errors() as problem:
        reason = str(problem).strip().splitlines()[0]
        raise TableError(f"{name}: {path} cannot be read as {_extension(path)}: {reason}") from problem


def check_parquet_pages(path: Path) -> None:
    """Raise if a Parquet file is damaged; polars would abort the process at a page that claims too many values."""
    from pyarrow.lib import ArrowNotImplementedError
    from pyarrow.parquet import ParquetFile

    # Arrow runs without threads: when memory is short, they hang instead of raising an error.
    # Types that polars can read and Arrow cannot are not checked.
    with ParquetFile(path, pre_buffer=False) as file, suppress(ArrowNotImplementedError):
        for _ in file.iter_batches(use_threads=False):
            pass


def _check_memory(path: Path, name: TableName) -> None:
    """Raise if a table and the graph made of it probably do not fit into memory."""
    needed = MEMORY_PER_FILE_BYTE[name] * path.stat().st_size if path.is_file() else 0
    free = memory(torch.device("cpu")).free
    if needed > free:
        raise OutOfMemory(
            f"{name}: {path} may take {needed / 2**30:.1f} GiB in memory, and {free / 2**30:.1f} GiB are free; "
            "write the graph as a folder that stays on disk (recoslip pack), and give that"
        )


def _describe_table(table: Table, name: TableName) -> str:
    return str(table) if isinstance(table, str | os.PathLike) else f"the {name} table"


def _ids_as_text(column: pl.Series, table: TableName) -> pl.Series:
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


def _domains_from_column(table: ColumnReader, name: str, target_value: object) -> NDArray[np.bool_]:
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


def _domains_from_time(table: ColumnReader, name: str, since: Since | None) -> NDArray[np.bool_]:
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


def _read_edges(
    table: Table | None, ids: pl.Series, options: ReadOptions
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Edges between ids -> edges between node positions, (2, edges), and their weights."""
    if table is None:
        return np.empty((2, 0), dtype=np.int64), None
    frame = _to_frame(table, "edges", options)
    reader = EdgeReader(frame.columns, _describe_table(table, "edges"), ids, options)
    if isinstance(table, str | os.PathLike):
        reader.check_header()
    if frame.height == 0:
        return np.empty((2, 0), dtype=np.int64), None
    edge_index, edge_weight = reader.read(frame)
    log_dropped_edges(reader.dropped)
    return edge_index, edge_weight


def log_dropped_edges(edges: int) -> None:
    """Log how many edges were dropped, if any."""
    if edges:
        log.info("edges: %s dropped that name unknown nodes", f"{edges:,}")


class EdgeReader:
    """Rows of an edges table -> node positions of their ends, and weights.

    Args:
        columns: the columns of the table.
        name: how error messages call the table.
        ids: the ids of the nodes, as text.
        options: which columns to read.
    """

    def __init__(self, columns: Sequence[str], name: str, ids: pl.Series, options: ReadOptions) -> None:
        for column in (options.source_column, options.target_column, options.weight):
            if column:
                require_column(columns, column, "edges")
        left, right = options.end_columns(columns)
        if left is None or right is None:
            besides = f" besides the weights in {options.weight!r}" if options.weight else ""
            raise TableError(f"{name} must have two columns of node ids{besides}; it has {list(columns)}")
        if left == right:
            raise TableError(f"both ends of an edge cannot be in one column, {left!r}; name two")
        self.left, self.right = left, right
        self.name, self.ids, self.weight, self.drop_unknown = name, ids, options.weight, options.drop_unknown
        self.positions = pl.DataFrame({"id": ids, "position": np.arange(len(ids))})
        if ids.is_duplicated().any():
            repeated = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
            raise TableError(
                f"ids in the nodes table must be unique; {len(repeated)} are repeated "
                f"(first: {', '.join(map(repr, repeated[:3].to_list()))})"
            )
        self.dropped = 0  # edges with an unknown end that were dropped so far

    def check_header(self) -> None:
        """Raise if the header of a file is an edge, because the file has no header."""
        if self.ids.is_in([self.left]).any() and self.ids.is_in([self.right]).any():
            raise TableError(f"{self.name}: the first line, {self.left!r} and {self.right!r}, is an edge; add a header")

    def read(self, frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Return the node positions of the ends of the given rows, (2, edges), and their weights."""
        ends = [
            pl.DataFrame({"id": _ids_as_text(frame[column], "edges")}).join(
                self.positions, on="id", how="left", maintain_order="left"
            )["position"]
            for column in (self.left, self.right)
        ]
        known = ends[0].is_not_null() & ends[1].is_not_null()
        dropped = int((~known).sum())
        if dropped and not self.drop_unknown:
            unknown = [
                name
                for column, position in zip((self.left, self.right), ends, strict=True)
                for name in frame[column].filter(position.is_null()).cast(pl.String).unique(maintain_order=True)
            ]
            unknown = list(dict.fromkeys(unknown))
            raise TableError(
                f"{self.name} names {len(unknown)} ids that the nodes table does not have (first: "
                f"{', '.join(map(repr, unknown[:3]))}), in {dropped} edges; add those nodes or pass --drop-unknown"
            )
        self.dropped += dropped
        edge_index = np.stack([position.filter(known).to_numpy().astype(np.int64) for position in ends])
        edge_weight = None
        if self.weight is not None:
            column = frame[self.weight].filter(known)
            if not column.dtype.is_numeric() or column.null_count():
                raise TableError(f"the edges table's weight column {self.weight!r} must hold a number in every row")
            edge_weight = column.to_numpy().astype(np.float64)
        return edge_index, edge_weight
