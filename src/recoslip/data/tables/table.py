"""A file or a data frame -> a table that is opened and checked once, or a TableError that names the problem."""

from __future__ import annotations

import errno
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import polars as pl

from recoslip.base.errors import TableError
from recoslip.base.files import printable
from recoslip.base.memory import memory_errors
from recoslip.data.options import ReadOptions
from recoslip.data.tables.columns import FRAME, Origin
from recoslip.data.tables.node_columns import TableName, end_columns
from recoslip.data.tables.text_files import (
    BLOCK,
    GZIP,
    REMEDY,
    ZIP,
    ZSTD,
    Text,
    free_memory,
    open_bytes,
    parse,
    read_within_memory,
    require_memory,
    text_on_disk,
    utf8_blocks,
)
from recoslip.data.tables.workbook import read_workbook

Format: TypeAlias = Literal["text", "parquet", "arrow", "excel"]
Content: TypeAlias = Literal["zip", "compressed", "workbook", "old workbook", "parquet", "arrow", "page", "json"]

_FORMATS: dict[str, Format] = {
    **dict.fromkeys(("csv", "tsv", "txt", "zip"), "text"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
    **dict.fromkeys(("arrow", "feather", "ipc"), "arrow"),
    **dict.fromkeys(("xlsx", "xlsm", "xlsb", "xls", "ods"), "excel"),
}
ENDINGS = ".csv, .tsv, .txt (these also .gz or .zip), .parquet, .arrow, .feather or .xlsx"

# Bytes of memory per byte of a table before compression, until the graph is made of it.
TEXT = {"nodes": 8, "edges": 16}
COLUMNS = {"nodes": 4, "edges": 12}  # of Parquet and Arrow
VALUE = 8  # bytes of a value of Parquet, at least: a column of equal values hardly takes any in the file

CHECKED_ROWS = 8192  # of a Parquet column, at a time


@dataclass(frozen=True)
class OpenTable:
    """A table that was opened and checked; of a text file the types of its columns are not decided yet.

    Args:
        source: its rows.
        origin: how its rows are counted, and the decimal mark that its separator implies.
        kind: "nodes" or "edges".
        path: the file, if it is in one.
    """

    source: pl.DataFrame | Text
    origin: Origin
    kind: TableName
    path: Path | None = None

    @property
    def name(self) -> str:
        """How messages call the table."""
        return f"the {self.kind} table" if self.path is None else printable(self.path)

    @property
    def is_file(self) -> bool:
        """Whether the table is in a file."""
        return self.path is not None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.source.columns if isinstance(self.source, pl.DataFrame) else self.source.header

    def head(self, rows: int) -> pl.DataFrame:
        """Return the first rows, those of a text file as text."""
        return self.source.head(rows) if isinstance(self.source, pl.DataFrame) else self.source.rows(rows)

    def frame(self, as_text: Collection[str | None]) -> pl.DataFrame:
        """Return all rows; the types of the columns in `as_text` are not guessed where the file is text."""
        if isinstance(self.source, pl.DataFrame):
            return self.source
        with read_errors(self.path or Path(), self.kind):
            return self.source.lazy(as_text).collect()


def open_table(given: Any, kind: TableName, options: ReadOptions) -> OpenTable:
    """Open a file or take a data frame of polars or pandas, and check that it and the graph fit into memory.

    Args:
        given: the table.
        kind: "nodes" or "edges".
        options: which columns to read.
    """
    if isinstance(given, str | Path) or hasattr(given, "__fspath__"):
        return _open_file(Path(given), kind, options)
    if type(given).__module__.startswith("pandas"):
        try:
            given = pl.from_pandas(given)
        except (TypeError, ValueError, OverflowError) as problem:  # duplicate column names, or mixed types in a column
            raise TableError(f"the {kind} table cannot be read from pandas: {problem}") from problem
    if not isinstance(given, pl.DataFrame):
        raise TableError(f"{kind} must be a file or a polars or pandas data frame; got {type(given).__name__}")
    return OpenTable(given, FRAME, kind)


def _open_file(path: Path, kind: TableName, options: ReadOptions) -> OpenTable:
    form, what = _check_path(path, kind), f"{kind}: {printable(path)}"
    source: pl.DataFrame | Text
    with read_errors(path, kind):
        if form == "text":
            require_memory(TEXT[kind] * path.stat().st_size, what)
            with open_bytes(path) as file:
                start = file.read(BLOCK)
                check_content(path, kind, start)
                text = read_within_memory(utf8_blocks(file, what, options.encoding, start), TEXT[kind], what)
            source = parse(text, text[:BLOCK], _usual_separator(path))
            return OpenTable(source, _text_origin(source), kind, path)
        with path.open("rb") as file:
            check_content(path, kind, file.read(BLOCK))
            file.seek(0)
            read = {"parquet": read_parquet, "arrow": _read_arrow, "excel": _read_excel}[form]
            source = read(file, what, COLUMNS[kind])
    return OpenTable(source, Origin.of_file() if form == "excel" else FRAME, kind, path)


@contextmanager
def scan(path: Path, kind: TableName, options: ReadOptions) -> Iterator[pl.LazyFrame]:
    """Open a table that may be larger than memory; ids are text whatever they look like (007 is not 7).

    What is made of the frame must be complete when the block ends, unless the file is Parquet or Arrow.

    Args:
        path: the file.
        kind: "nodes" or "edges".
        options: which columns to read, with the names of those that hold ids.
    """
    form = check_file(path, kind, options)
    with ExitStack() as opened:
        with read_errors(path, kind):
            if form == "text":
                what = f"{kind}: {printable(path)}"
                text = opened.enter_context(text_on_disk(path, what, options.encoding, _usual_separator(path)))
                lazy = text.lazy([options.id] if kind == "nodes" else end_columns(options, text.header))
            elif form == "excel":
                lazy = open_table(path, kind, options).frame([]).lazy()
            else:
                file = opened.enter_context(path.open("rb"))
                if form == "parquet":
                    check_parquet_pages(file)
                    file.seek(0)
                lazy = pl.scan_parquet(file) if form == "parquet" else pl.scan_ipc(file)
        yield lazy


def text_head(path: Path, kind: TableName, options: ReadOptions) -> Text | None:
    """Return the first lines of a text file; None for other formats."""
    if table_format(path) != "text":
        return None
    with read_errors(path, kind), open_bytes(path) as file:
        start = file.read(BLOCK)
        check_content(path, kind, start)
        head = next(utf8_blocks(file, f"{kind}: {printable(path)}", options.encoding, start))
        return parse(head, head, _usual_separator(path))


def origin_of(path: Path, kind: TableName, options: ReadOptions) -> Origin:
    """Return how the rows of a file are counted, and the decimal mark that its separator implies."""
    text = text_head(path, kind, options)
    if text is not None:
        return _text_origin(text)
    return Origin.of_file() if table_format(path) == "excel" else FRAME


def _text_origin(text: Text) -> Origin:
    return Origin.of_file("," if text.separator == ";" else None)


# The name and the first bytes of a file.


def extension(path: Path) -> str:
    """Return the extension that says the format: that before .gz or .zip, if there is one, in lower case."""
    name = path.name.lower()
    inner = name.removesuffix(".gz").removesuffix(".zip").rsplit(".", 1)[-1]
    return "zip" if name.endswith(".zip") and inner not in _FORMATS else inner


def table_format(path: Path) -> Format | None:
    """Return the format that the name of a file says, if it is one of a table."""
    return _FORMATS.get(extension(path))


def _usual_separator(path: Path) -> str:
    return "\t" if extension(path) in ("tsv", "txt") else ","


def check_file(path: Path, kind: TableName, options: ReadOptions) -> Format:
    """Raise unless there is a file with the name, size and first bytes of a table; return its format."""
    form = _check_path(path, kind)
    if text_head(path, kind, options) is None:
        with read_errors(path, kind), path.open("rb") as file:
            check_content(path, kind, file.read(BLOCK))
    return form


def _check_path(path: Path, kind: TableName) -> Format:
    form = table_format(path)
    if path.is_dir():
        raise TableError(f"{kind}: {printable(path)} is a folder, and a table is expected; give a file in it")
    if form is None:
        raise TableError(f"{kind}: {printable(path)} must end in {ENDINGS}; got .{extension(path)}")
    if not path.is_file():
        raise TableError(f"{kind}: there is no file {printable(path)}")
    if path.stat().st_size == 0:
        raise TableError(f"{kind}: {printable(path)} is empty")
    return form


_STARTS: dict[bytes, Content] = {
    ZIP: "zip",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "old workbook",
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    **dict.fromkeys((GZIP, ZSTD, b"x\x01", b"x\x9c", b"x\xda"), "compressed"),  # which polars would decompress
}
_PAGE = re.compile(rb"\s*(<!doctype|<html|<head|<body|<table|<\?xml)", re.IGNORECASE)
_JSON = re.compile(rb'\s*(\{\s*"|\[\s*[\[{"])')
_EXPECTED: dict[Format, tuple[Content, ...]] = {
    "text": (),
    "parquet": ("parquet",),
    "arrow": ("arrow",),
    "excel": ("workbook", "old workbook", "zip"),
}
_NAMES: dict[Content, tuple[str, str]] = {
    "zip": ("a zip archive", "unpack it, or call it .csv.zip if it holds one CSV file"),
    "compressed": ("compressed once more, or by zlib", "decompress it"),
    "workbook": ("an Excel workbook", "call it .xlsx, or save the sheet as CSV"),
    "old workbook": ("an Excel workbook of the old kind", "call it .xls, or save the sheet as CSV"),
    "parquet": ("a Parquet file", "call it .parquet"),
    "arrow": ("an Arrow file", "call it .arrow"),
    "page": ("a web page (HTML or XML)", "give the table itself; a download may have ended at a page to log in"),
    "json": ("JSON", "write it as CSV or Parquet, with one row per node or edge"),
}


def check_content(path: Path, kind: TableName, start: bytes) -> None:
    """Raise if the first bytes of a file show that it is something else than its name says."""
    form, content = table_format(path), _content(path, start)
    if content is not None and form is not None and content not in _EXPECTED[form]:
        what, remedy = _NAMES[content]
        raise TableError(f"{kind}: {printable(path)} is {what}, not {extension(path)} as its name says; {remedy}")
    if form == "excel" and content is None:
        raise TableError(
            f"{kind}: {printable(path)} is no Excel workbook, whatever its name says; if it is text, call it .csv or "
            ".tsv"
        )


def _content(path: Path, start: bytes) -> Content | None:
    found = next((content for bytes_, content in _STARTS.items() if start.startswith(bytes_)), None)
    if found == "zip" and _is_workbook(path):
        return "workbook"
    if found is None and _PAGE.match(start):
        return "page"
    return "json" if found is None and _JSON.match(start) else found


def _is_workbook(path: Path) -> bool:
    """Return whether a zip archive is one of Excel's or of OpenDocument's."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("xl/") or name == "content.xml" for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError):
        return False


# Errors.


@contextmanager
def table_errors() -> Iterator[None]:
    """Turn the errors of polars and Arrow about values they cannot process into a TableError."""
    try:
        with memory_errors():
            yield
    except _value_errors() as problem:
        reason = str(problem).strip().splitlines()[0]
        if os.strerror(errno.ENOSPC) in reason:  # of a file that is written, which is no fault of the tables
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from problem
        raise TableError(f"the tables hold values of a type that cannot be used: {reason}") from problem


def file_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that polars and Arrow raise for a file that they cannot read."""
    return (OSError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile, *_value_errors())


def _value_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of polars and Arrow; Arrow's only once it is loaded, for importing it takes long."""
    arrow = sys.modules.get("pyarrow.lib")
    return (pl.exceptions.PolarsError, pl.exceptions.PanicException, *([arrow.ArrowException] if arrow else []))


@contextmanager
def read_errors(path: Path, kind: TableName, *, of_values: bool = False) -> Iterator[None]:
    """Turn errors of the libraries about a file that they cannot read into a TableError that says why.

    Args:
        path: the file.
        kind: "nodes" or "edges".
        of_values: errors about values alone, where others may be those of a file that is written.
    """
    expected = _value_errors if of_values else file_errors
    try:
        yield
    except expected() as problem:
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        if table_format(path) == "text" and "utf-8" in reason.lower():
            with open_bytes(path) as file:
                for _ in utf8_blocks(file, f"{kind}: {printable(path)}", None):
                    pass  # the bytes that are not UTF-8 are an error
        raise TableError(f"{kind}: {printable(path)} cannot be read as {extension(path)}: {reason}") from problem


# Parquet and Arrow. Arrow refuses damaged files at which polars would abort the process.


def read_parquet(file: IO[bytes], what: str, factor: int, remedy: str = REMEDY) -> pl.DataFrame:
    """Read a Parquet file if it fits into memory.

    Args:
        file: the file.
        what: how messages call it.
        factor: bytes of memory per byte of its values.
        remedy: what to do if it does not fit.
    """
    with _open_parquet(file) as (parquet, schema):
        groups = [parquet.metadata.row_group(k) for k in range(parquet.metadata.num_row_groups)]
        chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
        size = sum(max(chunk.total_uncompressed_size, VALUE * chunk.num_values) for chunk in chunks)
        require_memory(factor * size, what, remedy)
        table = parquet.read(use_threads=False)
    require_memory(factor * _decoded_bytes(table), what, remedy)
    return pl.DataFrame(pl.from_arrow(_with_plain_texts(table, schema)))


@contextmanager
def _open_parquet(file: IO[bytes]) -> Iterator[tuple[Any, Any]]:
    """Open a Parquet file so that a text that many rows share is held once; yield it and the types it really has."""
    from pyarrow.parquet import ParquetFile

    # Threads hang instead of raising an error when memory is short.
    with ParquetFile(file, pre_buffer=False, buffer_size=2**16) as parquet:
        schema, leaves = parquet.schema_arrow, [parquet.schema.column(k) for k in range(len(parquet.schema))]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    file.seek(0)
    with ParquetFile(file, pre_buffer=False, buffer_size=2**16, read_dictionary=texts) as parquet:
        yield parquet, schema


def _with_plain_texts(table: Any, schema: Any) -> Any:
    """Return a table of Arrow with the columns of texts, which were read as dictionaries, as the file has them."""
    import pyarrow as pa

    for k, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(schema.field(k).type):
            kind = pa.large_string() if pa.types.is_string(field.type.value_type) else pa.large_binary()
            table = table.set_column(k, field.name, table.column(k).cast(kind))
    return table


def _decoded_bytes(table: Any) -> int:
    """Return how many bytes a table of Arrow takes where each row holds its own text."""
    import pyarrow as pa
    from pyarrow import compute

    def size(column: Any) -> int:
        is_shared = pa.types.is_dictionary(column.type) and any(
            is_text(column.type.value_type)
            for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
        )
        lengths = compute.binary_length(column.dictionary).take(column.indices) if is_shared else None
        return int(column.nbytes if lengths is None else compute.sum(lengths).as_py() or 0)

    return sum(size(chunk) for column in table.columns for chunk in getattr(column, "chunks", [column]))


def check_parquet_pages(file: IO[bytes]) -> None:
    """Raise if a Parquet file is damaged; its values are read a few at a time."""
    from pyarrow.lib import ArrowNotImplementedError

    # Types that polars can read and Arrow cannot are not checked.
    with suppress(ArrowNotImplementedError), _open_parquet(file) as (parquet, _):
        for leaf in range(parquet.metadata.num_columns):
            name = parquet.schema.column(leaf).path
            for _ in parquet.iter_batches(batch_size=CHECKED_ROWS, columns=[name], use_threads=False):
                pass


def _read_arrow(file: IO[bytes], what: str, factor: int) -> pl.DataFrame:
    import pyarrow as pa

    with pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
        batches: list[Any] = []
        for index in range(reader.num_record_batches):
            batches.append(reader.get_batch(index))
            batches[-1].validate(full=True)  # offsets that lead outside would end the process
            require_memory(factor * sum(map(_decoded_bytes, batches)), what)
        return pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches, reader.schema)))


# Excel.


def _read_excel(file: IO[bytes], what: str, factor: int) -> pl.DataFrame:
    if find_spec("fastexcel") is None:
        raise TableError(
            f"{what} is an Excel workbook; to read those, pip install 'recoslip[excel]', or save it as CSV"
        )
    frame = read_workbook(file, what, free_memory())
    require_memory(factor * int(frame.estimated_size()), what)
    return frame
