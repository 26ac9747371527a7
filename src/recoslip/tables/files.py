"""A CSV, TSV, Parquet, Arrow or Excel file -> a polars frame, or a TableError that names the problem."""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import polars as pl
import torch

from recoslip.encoders.origin import FRAME, Origin, file_origin
from recoslip.errors import OutOfMemory, TableError
from recoslip.memory import memory
from recoslip.read_options import ReadOptions
from recoslip.storage import printable
from recoslip.tables.contents import check_content, refuse_bad_bytes
from recoslip.tables.excel import excel_bytes, read_excel
from recoslip.tables.formats import ENDINGS, csv_header, extension, table_format
from recoslip.tables.memory_estimate import estimate_edges, estimate_nodes
from recoslip.tables.options import TableName, end_columns
from recoslip.tables.paths import polars_path
from recoslip.tables.samples import count_rows, open_parquet, parquet_batches, sample_table, text_header
from recoslip.tables.text_files import plain_text

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
    return (OSError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile, *_value_errors())


def _value_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of polars and Arrow; Arrow's only once it is loaded, for importing it takes long."""
    arrow = sys.modules.get("pyarrow.lib")
    return (pl.exceptions.PolarsError, pl.exceptions.PanicException, *([arrow.ArrowException] if arrow else []))


def read_file(
    path: Path, name: TableName, options: ReadOptions, besides: int = 0, as_text: Collection[str] = ()
) -> pl.DataFrame:
    """Read a whole table, if it and the graph that is made of it fit into memory.

    Args:
        path: the file.
        name: "nodes" or "edges".
        options: which columns to read.
        besides: bytes of memory that must stay free for something else.
        as_text: columns of a text file whose types are not to be guessed.
    """
    check_file(path, name, options)
    with read_errors(path, name):
        if table_format(path) != "excel":  # that of a workbook is checked whenever it is opened
            _check_memory(path, name, options, besides)
        with scan(path, name, options, besides, as_text) as lazy:
            return lazy.collect()


@contextmanager
def scan(
    path: Path, name: TableName, options: ReadOptions, besides: int = 0, as_text: Collection[str] = ()
) -> Iterator[pl.LazyFrame]:
    """Open a table lazily; ids are text whatever they look like (007 is not 7). The arguments are those of `read_file`.

    What is made of the frame must be complete when the block ends, unless the file is Parquet or Arrow.
    """
    check_file(path, name, options)
    with ExitStack() as opened:
        with read_errors(path, name):
            form = table_format(path)
            if form == "text":
                plain = opened.enter_context(plain_text(path, options.encoding))
                separator, header = csv_header(plain, path)
                ids = [options.id] if name == "nodes" else end_columns(options, header)
                text = {column: pl.String for column in (*ids, *as_text) if column in header}
                lazy = pl.scan_csv(plain, separator=separator, infer_schema_length=None, schema_overrides=text)
            elif form == "parquet":
                check_parquet_pages(path)
                lazy = pl.scan_parquet(polars_path(path))
            elif form == "arrow":
                lazy = pl.scan_ipc(polars_path(path))
            else:
                _check_memory(path, name, options, besides)
                lazy = read_excel(path, memory(torch.device("cpu")).free).lazy()
        yield lazy


def origin_of(path: Path, name: TableName, options: ReadOptions) -> Origin:
    """Return how the rows of a file are counted, and the decimal mark that its separator implies."""
    form = table_format(path)
    if form == "text":
        with read_errors(path, name):
            separator, _ = text_header(path, options.encoding)
        return file_origin("," if separator == ";" else None)
    return file_origin() if form == "excel" else FRAME


def check_file(path: Path, name: TableName, options: ReadOptions) -> None:
    """Raise unless there is a file with the name, size and first bytes of a table."""
    if path.is_dir():
        raise TableError(f"{name}: {printable(path)} is a folder, and a table is expected; give a file in it")
    if table_format(path) is None:
        raise TableError(f"{name}: {printable(path)} must end in {ENDINGS}; got .{extension(path)}")
    if not path.is_file():
        raise TableError(f"{name}: there is no file {printable(path)}")
    if path.stat().st_size == 0:
        raise TableError(f"{name}: {printable(path)} is empty")
    with read_errors(path, name):
        check_content(path, name, options.encoding)


@contextmanager
def read_errors(path: Path, name: TableName, *, of_values: bool = False) -> Iterator[None]:
    """Turn errors of the libraries about a file that they cannot read into a TableError that says why.

    Args:
        path: the file.
        name: "nodes" or "edges".
        of_values: errors about values alone, where others may be those of a file that is written.
    """
    expected = _value_errors if of_values else file_errors
    try:
        yield
    except expected() as problem:
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        if table_format(path) == "text" and "utf-8" in reason.lower():
            refuse_bad_bytes(path, name)
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
    if table_format(path) == "excel":
        needed, remedy = besides + excel_bytes(path, free), "save the sheet as CSV, without cells that are far from it"
    else:
        sample = sample_table(path, free, options.encoding)
        estimate = {"nodes": estimate_nodes, "edges": estimate_edges}[name]
        needed, remedy = besides + estimate(sample, options), PACK
        if needed > free and (rows := count_rows(path)) not in (None, sample.rows):
            raise TableError(f"{name}: {printable(path)} says that it has {sample.rows:,} rows, and holds {rows:,}")
    if needed > free:
        raise OutOfMemory(
            f"{name}: {printable(path)} may take {needed / 2**30:.1f} GiB in memory, and {free / 2**30:.1f} GiB are "
            f"free; {remedy}"
        )
