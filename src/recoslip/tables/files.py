"""A CSV, TSV, Parquet or Arrow file -> a polars frame, or a TableError that names the problem."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
import torch

from recoslip.errors import OutOfMemory, TableError
from recoslip.memory import memory
from recoslip.storage import printable
from recoslip.tables.formats import csv_header, extension, table_format
from recoslip.tables.memory_estimate import estimate_edges, estimate_nodes
from recoslip.tables.options import ReadOptions, TableName
from recoslip.tables.paths import polars_path
from recoslip.tables.samples import count_rows, open_parquet, parquet_batches, sample_table

PACK = "write the graph as a folder that stays on disk (recoslip pack), and give that"
CHECKED_ROWS = 8192  # of a Parquet column, at a time


@contextmanager
def table_errors() -> Iterator[None]:
    """Turn the errors of polars and Arrow about values they cannot process into a TableError."""
    try:
        yield
    except MemoryError as problem:
        raise OutOfMemory(f"memory did not suffice to read the tables; {PACK}") from problem
    except _value_errors() as problem:
        reason = str(problem).strip().splitlines()[0]
        raise TableError(f"the tables hold values of a type that cannot be used: {reason}") from problem


def file_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that polars and Arrow raise for a file that they cannot read."""
    return (OSError, EOFError, UnicodeError, zlib.error, *_value_errors())


def _value_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of polars and Arrow; Arrow's only once it is loaded, for importing it takes long."""
    arrow = sys.modules.get("pyarrow.lib")
    return (pl.exceptions.PolarsError, pl.exceptions.PanicException, *([arrow.ArrowException] if arrow else []))


def read_file(path: Path, name: TableName, options: ReadOptions, besides: int = 0) -> pl.DataFrame:
    """Read a whole table, if it and the graph that is made of it fit into memory.

    Args:
        path: the file.
        name: "nodes" or "edges".
        options: which columns to read.
        besides: bytes of memory that must stay free for something else.
    """
    _check_path(path, name)
    with _read_errors(path, name):
        _check_memory(path, name, options, besides)
    lazy = scan(path, name, options)
    with _read_errors(path, name):
        return lazy.collect()


def scan(path: Path, name: TableName, options: ReadOptions) -> pl.LazyFrame:
    """Open a table lazily; ids are text whatever they look like (007 is not 7)."""
    _check_path(path, name)
    plain = polars_path(path)
    with _read_errors(path, name):
        if table_format(path) == "text":
            separator, header = csv_header(plain, path)
            ids = [options.id] if name == "nodes" else options.end_columns(header)
            text = {column: pl.String for column in ids if column in header}
            return pl.scan_csv(plain, separator=separator, infer_schema_length=None, schema_overrides=text)
        if table_format(path) == "parquet":
            check_parquet_pages(path)
            return pl.scan_parquet(plain)
        return pl.scan_ipc(plain)


def _check_path(path: Path, name: TableName) -> None:
    """Raise unless there is a file with the name and size of a table."""
    if table_format(path) is None:
        raise TableError(
            f"{name}: {printable(path)} must end in .csv, .tsv, .parquet, .arrow or .feather; got .{extension(path)}"
        )
    if not path.is_file():
        raise TableError(f"{name}: there is no file {printable(path)}")
    if path.stat().st_size == 0:
        raise TableError(f"{name}: {printable(path)} is empty")


@contextmanager
def _read_errors(path: Path, name: TableName) -> Iterator[None]:
    try:
        yield
    except file_errors() as problem:
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        raise TableError(f"{name}: {printable(path)} cannot be read as {extension(path)}: {reason}") from problem


def check_parquet_pages(path: Path) -> None:
    """Raise if a Parquet file is damaged; polars would abort the process at a page that claims too many values."""
    from pyarrow.lib import ArrowNotImplementedError

    # Types that polars can read and Arrow cannot are not checked.
    with open_parquet(path) as file, suppress(ArrowNotImplementedError):
        for leaf in range(file.metadata.num_columns):
            for _ in parquet_batches(file, leaf, CHECKED_ROWS):
                pass


def _check_memory(path: Path, name: TableName, options: ReadOptions, besides: int) -> None:
    """Raise if a table and the graph made of it probably do not fit into memory."""
    free = memory(torch.device("cpu")).free
    sample = sample_table(path, most_bytes=free)
    estimate = {"nodes": estimate_nodes, "edges": estimate_edges}[name]
    needed = besides + estimate(sample, options)
    if needed > free:
        if (rows := count_rows(path)) not in (None, sample.rows):
            raise TableError(f"{name}: {printable(path)} says that it has {sample.rows:,} rows, and holds {rows:,}")
        raise OutOfMemory(
            f"{name}: {printable(path)} may take {needed / 2**30:.1f} GiB in memory, and {free / 2**30:.1f} GiB are "
            f"free; {PACK}"
        )
