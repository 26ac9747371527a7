"""A file or a data frame -> a table, opened, decoded and checked once; or a TableError that names the problem."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.selectors import by_name  # selects columns literally, also those called * or ^x$

from recoslip.base.errors import TableError
from recoslip.base.files import printable
from recoslip.base.memory import memory_errors
from recoslip.data.options import ReadOptions
from recoslip.data.tables import files
from recoslip.data.tables.files import BLOCK, FACTOR, Text, open_bytes, reason_of, utf8_blocks, utf8_file
from recoslip.data.tables.numbers import DecimalMark

TableName: TypeAlias = Literal["nodes", "edges"]
Format: TypeAlias = Literal["text", "parquet", "arrow", "excel"]

_FORMATS: dict[str, Format] = {
    **dict.fromkeys(("csv", "tsv", "txt", "zip"), "text"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
    **dict.fromkeys(("arrow", "feather", "ipc"), "arrow"),
    **dict.fromkeys(("xlsx", "xlsm", "xlsb", "xls", "ods"), "excel"),
}
ENDINGS = ".csv, .tsv, .txt (these also .gz or .zip), .parquet, .arrow, .feather or .xlsx"


@dataclass(frozen=True)
class Origin:
    """Where a table comes from; by default a data frame, whose rows are counted from 0.

    Args:
        first_row: the number of the first row.
        counting: how rows are counted, in words.
        decimal: the decimal mark that the separator of a text file implies, if it implies one.
    """

    first_row: int = 0
    counting: str = "rows are counted from 0"
    decimal: DecimalMark | None = None
    kept: NDArray[np.int64] | None = field(default=None, compare=False)  # positions of rows, if some are left out

    def first(self, rows: pl.Series) -> str:
        """Name the first row for which a column of true and false is true: "row 7"."""
        position = int(rows.arg_max() or 0)
        return f"row {self.first_row + (position if self.kept is None else int(self.kept[position]))}"

    def from_row(self, position: int) -> Origin:
        """Return the origin of the rows from a position on."""
        if self.kept is not None:
            return replace(self, kept=self.kept[position:])
        return replace(self, first_row=self.first_row + position)


FRAME = Origin()
SHEET = Origin(2, "the header is row 1")  # a file with a header, whose rows are counted as a spreadsheet shows them


@dataclass(frozen=True, eq=False)
class Table:
    """A table that was opened and checked; the rows of a file are read by `typed`, or by `stored`.

    Args:
        kind: "nodes" or "edges".
        source: its rows: in memory, in a file of which some can be read alone, or text.
        origin: how its rows are counted, and the decimal mark that its separator implies.
        path: the file, if it is in one.
    """

    kind: TableName
    source: pl.DataFrame | pl.LazyFrame | Text
    origin: Origin = FRAME
    path: Path | None = None
    note: str = ""  # what was assumed when it was opened

    @property
    def name(self) -> str:
        """How messages call the table."""
        return f"the {self.kind} table" if self.path is None else printable(self.path)

    def typed(self, as_text: Collection[str | None]) -> Table:
        """Return the table in memory; the types of the columns in `as_text` are not guessed: 007 is not 7."""
        if isinstance(self.source, pl.DataFrame):
            return self._with_rows()
        with read_errors(self.path, self.kind):
            if isinstance(self.source, Text):
                frame = self.source.lazy(as_text).collect()
            else:
                frame = files.frame_within_memory(self.source, f"{self.kind}: {self.name}")
        return replace(self, source=frame)._with_rows()

    def stored(self, as_text: Collection[str | None], store: Callable[[pl.LazyFrame], Path]) -> Table:
        """Return the table in a Parquet file, as `typed` would return it.

        Args:
            as_text: columns whose types are not guessed.
            store: writes rows as a Parquet file, and returns its path.
        """
        if self.path is not None and _FORMATS.get(extension(self.path)) == "parquet":
            return self._with_rows()
        lazy = self.source.lazy(as_text) if isinstance(self.source, Text) else self.source.lazy()
        with read_errors(self.path, self.kind, of_values=True):
            path = store(lazy)
        with path.open("rb") as file:
            return replace(self, source=pl.scan_parquet(file))._with_rows()

    def _with_rows(self) -> Table:
        """Return the table; raise if it is one of nodes and has none."""
        if self.kind == "nodes" and not self.height:
            raise TableError(f"{self.name} has no rows")
        return self

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All rows."""
        return self._lazy.collect()

    @cached_property
    def schema(self) -> pl.Schema:
        """The data types of the columns."""
        return self._lazy.collect_schema()

    @cached_property
    def height(self) -> int:
        """How many rows there are."""
        return int(self._lazy.select(pl.len()).collect().item())

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.source.header if isinstance(self.source, Text) else self.schema.names()

    def __getitem__(self, name: str) -> pl.Series:
        if isinstance(self.source, pl.DataFrame):
            return self.source[name]
        return self._lazy.select(by_name(name)).collect()[name]

    def where(self, is_kept: pl.Expr) -> Table:
        """Return some of the rows."""
        kept = np.flatnonzero(self._lazy.select(is_kept).collect().to_series().to_numpy())
        assert not isinstance(self.source, Text)
        return replace(self, source=self.source.filter(is_kept), origin=replace(self.origin, kept=kept))

    def head(self, count: int) -> pl.DataFrame:
        """Return the first rows, those of a text file as text."""
        return self.source.rows(count) if isinstance(self.source, Text) else self._lazy.head(count).collect()

    def chunks(self, count: int, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Return all rows of some columns, at most `count` at a time."""
        some = self._lazy.select(by_name(*columns))
        return (some.slice(offset, count).collect() for offset in range(0, self.height, count))

    @property
    def _lazy(self) -> pl.LazyFrame:
        assert not isinstance(self.source, Text)
        return self.source.lazy()


@contextmanager
def open_table(given: Any, kind: TableName, options: ReadOptions, *, on_disk: bool = False) -> Iterator[Table]:
    """Open a file or take a data frame of polars or pandas; its rows must be read before the block ends.

    Args:
        given: the table.
        kind: "nodes" or "edges".
        options: how to read it.
        on_disk: whether it may be larger than memory; otherwise it and the graph must fit.
    """
    if not isinstance(given, str | os.PathLike):
        yield Table(kind, _frame(given, kind))
        return
    path = Path(given)
    with ExitStack() as stack:
        with read_errors(path, kind):
            form = _check_path(path, kind)
            file = stack.enter_context(open_bytes(path) if form == "text" else path.open("rb"))
            start, what = file.read(BLOCK), f"{kind}: {printable(path)}"
            guessed: list[str] = []
            _check_content(path, kind, start)
            if form == "text":
                opened = utf8_file(file, what, options.encoding, start, 0 if on_disk else FACTOR, guessed)
                text = Text.parse(*stack.enter_context(opened), "\t" if extension(path) in ("tsv", "txt") else ",")
                origin = replace(SHEET, decimal="," if text.separator == ";" else None)
                note = [f"{what} is no UTF-8 text; it was read as {name}, a guess (encoding=...)." for name in guessed]
                table = Table(kind, text, origin, path, *note)
            elif form == "excel":
                table = Table(kind, files.read_excel(file, what), SHEET, path)
            else:
                file.seek(0)
                table = Table(kind, pl.scan_parquet(file) if form == "parquet" else pl.scan_ipc(file), FRAME, path)
        yield table


def _with_index(given: Any, kind: TableName) -> Any:
    """Return a data frame of pandas, with its index as a column if that names nodes: it has a name, or is no count."""
    index, name = given.index, given.index.name or "id"
    is_count = index.name is None and bool((index == range(len(index))).all())
    names_nodes = kind == "nodes" and index.nlevels == 1 and not is_count and name not in given.columns
    return given.reset_index(names=name) if names_nodes else given


def _frame(given: Any, kind: TableName) -> pl.DataFrame:
    if type(given).__module__.startswith("pandas"):
        try:
            return pl.from_pandas(_with_index(given, kind))
        except (TypeError, ValueError, OverflowError) as problem:  # duplicate column names, or mixed types in a column
            raise TableError(f"the {kind} table cannot be read from pandas: {problem}") from problem
    if not isinstance(given, pl.DataFrame):
        raise TableError(f"{kind} must be a file or a polars or pandas data frame; got {type(given).__name__}")
    return given


# The name and the first bytes of a file.


def extension(path: Path) -> str:
    """Return the extension that says the format: that before .gz or .zip, if there is one, in lower case."""
    name = path.name.lower()
    inner = name.removesuffix(".gz").removesuffix(".zip").rsplit(".", 1)[-1]
    return "zip" if name.endswith(".zip") and inner not in _FORMATS else inner


def _check_path(path: Path, kind: TableName) -> Format:
    form = _FORMATS.get(extension(path))
    if path.is_dir():
        raise TableError(f"{kind}: {printable(path)} is a folder, and a table is expected; give a file in it")
    if form is None:
        raise TableError(f"{kind}: {printable(path)} must end in {ENDINGS}; got .{extension(path)}")
    if not path.is_file():
        raise TableError(f"{kind}: there is no file {printable(path)}")
    if path.stat().st_size == 0:
        raise TableError(f"{kind}: {printable(path)} is empty")
    return form


# How a file begins, the format whose name it may have, what it is, and what to do.
_STARTS: Sequence[tuple[bytes, Format | None, str, str]] = (
    (
        rb"PK\x03\x04(?s:.{26})(?:\[Content_Types\]|_rels|docProps|xl/|mimetype)", "excel", "an Excel workbook",
        "call it .xlsx, or save the sheet as CSV",
    ),
    (rb"PK\x03\x04", "excel", "a zip archive", "unpack it, or call it .csv.zip if it holds one CSV file"),
    (
        rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "excel", "an Excel workbook of the old kind",
        "call it .xls, or save the sheet as CSV",
    ),
    (rb"PAR1", "parquet", "a Parquet file", "call it .parquet"),
    (rb"ARROW1", "arrow", "an Arrow file", "call it .arrow"),
    (rb"\x1f\x8b|\x28\xb5\x2f\xfd|x\x01|x\x9c|x\xda", None, "compressed once more, or by zlib", "decompress it"),
    (
        rb"\s*(?i:<!doctype|<html|<head|<body|<table|<\?xml)", None, "a web page (HTML or XML)",
        "give the table itself; a download may have ended at a page to log in",
    ),
    (rb'\s*(?:\{\s*"|\[\s*[\[{"])', None, "JSON", "write it as CSV or Parquet, with one row per node or edge"),
)  # fmt: skip


def _check_content(path: Path, kind: TableName, start: bytes) -> None:
    """Raise if the first bytes of a file show that it is something else than its name says."""
    form, name = _FORMATS.get(extension(path)), f"{kind}: {printable(path)}"
    for pattern, own_form, what, remedy in _STARTS:
        if re.match(pattern, start):
            if form == own_form:
                return
            raise TableError(f"{name} is {what}, not {extension(path)} as its name says; {remedy}")
    if form == "excel":
        raise TableError(f"{name} is no Excel workbook, whatever its name says; if it is text, call it .csv or .tsv")


# Errors.


@contextmanager
def table_errors() -> Iterator[None]:
    """Turn the errors of polars and Arrow about values they cannot process into a TableError."""
    try:
        with memory_errors():
            yield
    except files.value_errors() as problem:
        raise TableError(f"the tables hold values of a type that cannot be used: {reason_of(problem)}") from problem


@contextmanager
def read_errors(path: Path | None, kind: TableName, *, of_values: bool = False) -> Iterator[None]:
    """Turn errors of the libraries about a file that they cannot read into a TableError that says why.

    Args:
        path: the file.
        kind: "nodes" or "edges".
        of_values: errors about values alone, where others may be those of a file that is written.
    """
    expected = files.value_errors if of_values else files.file_errors
    try:
        yield
    except expected() as problem:
        reason, path = reason_of(problem), path or Path()
        if _FORMATS.get(extension(path)) == "text" and "utf-8" in reason.lower():
            with open_bytes(path) as file:
                for _ in utf8_blocks(file, f"{kind}: {printable(path)}", None, file.read(BLOCK)):
                    pass  # the bytes that are not UTF-8 are an error
        raise TableError(f"{kind}: {printable(path)} cannot be read as {extension(path)}: {reason}") from problem
