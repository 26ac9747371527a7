"""A CSV, TSV, Parquet or Arrow file -> a polars frame, or a TableError that names the problem."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
import torch

from recoslip.errors import OutOfMemory, TableError
from recoslip.memory import memory
from recoslip.tables.options import ReadOptions, TableName

# Peak bytes of memory per byte of a table's file, from reading the file to the finished NodeGraph.
MEMORY_PER_FILE_BYTE = {"nodes": 12, "edges": 80}


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


def read_file(path: Path, name: TableName, options: ReadOptions) -> pl.DataFrame:
    """Read a whole table, if it fits into memory."""
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
