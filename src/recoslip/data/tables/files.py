"""A file in any format, compression and encoding -> its text in UTF-8 or its rows, as far as they fit into memory."""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import logging
import os
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import polars as pl

from recoslip.base.errors import OutOfMemory, TableError
from recoslip.base.files import printable
from recoslip.base.memory import memory

BLOCK = 2**20  # bytes that are decoded at a time
CONTEXT = 2**14  # bytes before and after those that cannot be decoded, by which an encoding is recognised
LEAST_ROOM = 2**24  # bytes that stay free on the disk where a copy of a file is made
GZIP, ZSTD, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"  # the first bytes of compressed files
FACTOR = 8  # bytes of memory per byte of a table before compression, until the graph is made of it
VALUE = 8  # bytes of a value, about
CELL = 32  # bytes of a cell of a workbook, also of an empty one
USUAL_ENCODINGS = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac_roman", "koi8_r", "shift_jis", "euc_jp", "gb18030", "big5",
    "euc_kr", "utf_16", "utf_16_le", "utf_16_be", "utf_32",
)  # fmt: skip
REMEDY = "free some memory, or write the graph as a folder that stays on disk (recoslip pack), and give that"


@dataclass(frozen=True)
class Text:
    """The text of a table in UTF-8, and what its first line says."""

    file: IO[bytes]
    head: bytes  # its first whole lines
    separator: str
    header: list[str]

    @classmethod
    def parse(cls, file: IO[bytes], start: bytes, usual: str) -> Text:
        """Find the separator and the columns of a text by its first line.

        Args:
            file: all of the text.
            start: its first bytes.
            usual: the separator where the first line has no other.
        """
        head = start if len(start) < BLOCK else start[: start.rfind(b"\n") + 1] or start
        header = pl.read_csv(head, separator=usual, n_rows=0).columns
        others = (mark for mark in (";", "\t", ",") if mark != usual and len(header) == 1 and mark in header[0])
        if (mark := next(others, None)) is not None:
            return cls(file, head, mark, pl.read_csv(head, separator=mark, n_rows=0).columns)
        return cls(file, head, usual, header)

    def rows(self, count: int) -> pl.DataFrame:
        """Return the first rows, all of them as text; as many as its first mebibyte holds."""
        try:
            return pl.read_csv(
                self.head, separator=self.separator, infer_schema=False, n_rows=count, truncate_ragged_lines=True,
                ignore_errors=True,
            )  # fmt: skip
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # the reader of the whole file will say why
            return pl.DataFrame(schema=dict.fromkeys(self.header, pl.String()))

    def lazy(self, as_text: Collection[str | None]) -> pl.LazyFrame:
        """Return the table; the types of the columns in `as_text` are not guessed: 007 is not 7."""
        types = {column: pl.String() for column in self.header if column in as_text}
        return pl.scan_csv(self.file, separator=self.separator, infer_schema_length=None, schema_overrides=types)


def require_memory(needed: int, what: str, remedy: str = REMEDY) -> None:
    """Raise if this many bytes are more than the free memory."""
    free = memory().free
    if needed > free:
        raise OutOfMemory(
            f"{what} may take {needed / 2**30:.1f} GiB in memory or more, and {free / 2**30:.1f} GiB are free; {remedy}"
        )


def frame_within_memory(lazy: pl.LazyFrame, what: str, factor: int = FACTOR, remedy: str = REMEDY) -> pl.DataFrame:
    """Return all rows, if `factor` times as many values of usual size fit into memory, and then these values do."""
    values = len(lazy.collect_schema()) * int(lazy.select(pl.len()).collect().item())
    require_memory(factor * VALUE * values, what, remedy)
    frame = lazy.collect()
    require_memory(factor * int(frame.estimated_size()), what, remedy)
    return frame


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file; what is compressed is decompressed on the way."""
    with ExitStack() as opened:
        file: Any = opened.enter_context(path.open("rb"))
        start = file.peek(4)
        if start.startswith(GZIP):
            file = opened.enter_context(gzip.GzipFile(fileobj=file))
        elif start.startswith(ZSTD):
            import pyarrow as pa

            file = opened.enter_context(pa.input_stream(file, compression="zstd"))
        elif start.startswith(ZIP) and path.name.lower().endswith(".zip"):
            try:
                archive = opened.enter_context(zipfile.ZipFile(file))
                file = opened.enter_context(archive.open(_only_member(archive, path)))
            except RuntimeError as problem:  # a password, or a method that Python lacks
                raise TableError(f"{printable(path)} cannot be unpacked: {problem}; unpack it yourself") from problem
        yield file


def read_bytes(path: Path, factor: int) -> bytes:
    """Read a file, decompressed, if `factor` times its bytes fit into memory."""
    content = bytearray()
    with open_bytes(path) as file:
        while block := file.read(BLOCK):
            content += block
            require_memory(factor * len(content), printable(path))
    return bytes(content)


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """Return the only file of an archive; what a Mac adds does not count."""
    members = [
        member
        for member in archive.infolist()
        if not (member.is_dir() or member.filename.startswith("__MACOSX/") or member.filename.endswith(".DS_Store"))
    ]
    if len(members) == 1:
        return members[0]
    names = ", ".join(member.filename for member in members[:5]) + (", ..." if len(members) > 5 else "")
    raise TableError(
        f"{printable(path)} must hold one table; it holds {len(members)} files{f' ({names})' if names else ''}: unpack "
        "it and give the one that is meant"
    )


def utf8_blocks(
    file: IO[bytes], what: str, encoding: str | None, block: bytes, guessed: list[str] | None = None
) -> Iterator[bytes]:
    """Yield the text of a file in UTF-8.

    Args:
        file: the file.
        what: how messages call it.
        encoding: the one that the user named.
        block: what was read of the file already.
        guessed: takes the encoding that was recognised where the file is no UTF-8; without it, that is an error.
    """
    encoding = None if _is_utf8(block, encoding) else encoding
    if encoding is None and 0 in block and (likely := likely_encoding(block[:CONTEXT])).startswith("utf-"):
        if guessed is None:
            raise TableError(f"{what} is no UTF-8 text: it looks like {likely.upper()}; pass encoding={likely!r}")
        guessed.append(likely)
        encoding = likely
    decoder = codecs.getincrementaldecoder(encoding or "utf-8-sig")()
    lines, is_ascii = 1, True
    while True:
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeError as problem:
            content, start = getattr(problem, "object", block), getattr(problem, "start", 0)
            lines += content[:start].decode(encoding or "utf-8", "ignore").count("\n")
            likely = likely_encoding(content[max(0, start - CONTEXT) : start + CONTEXT])
            decoder = codecs.getincrementaldecoder(likely)()
            may_guess = guessed is not None and encoding is None and is_ascii and content[:start].isascii()
            read = _decoded(decoder, content, not block) if may_guess else None
            if read is None:
                raise TableError(
                    f"{what} is no {(encoding or 'utf-8').upper()} text: line {lines:,} holds the bytes "
                    f"{content[start : start + 4].hex(' ')}; it looks like {likely}; pass encoding={likely!r}, or the "
                    "encoding that it was saved in"
                ) from problem
            text, encoding = read, likely
            guessed.append(likely)  # type: ignore[union-attr]
        is_ascii = is_ascii and text.isascii()
        lines += text.count("\n")
        yield text.encode(errors="replace")  # a few encodings can hold half of a character
        if not block:
            return
        block = file.read(BLOCK)


def _decoded(decoder: codecs.IncrementalDecoder, content: bytes, final: bool) -> str | None:
    """Return the text of some bytes; None where they are none."""
    try:
        return decoder.decode(content, final)
    except UnicodeError:
        return None


def _rest_is_utf8(file: IO[bytes], start: bytes) -> bool:
    """Return whether a file of which `start` was read is UTF-8 to its end, and go back to where it was."""
    decoder, block = codecs.getincrementaldecoder("utf-8")(), start
    try:
        while block:
            decoder.decode(block)
            block = file.read(BLOCK)
        decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    finally:
        file.seek(len(start))
    return True


def _is_utf8(start: bytes, encoding: str | None) -> bool:
    """Return whether a text is to be read as UTF-8: no other encoding is asked for, or it plainly is in no other."""
    name = "utf-8" if encoding is None else codecs.lookup(encoding).name
    is_wide = name.startswith(("utf-16", "utf-32"))
    return name.startswith("utf-8") or start.startswith(codecs.BOM_UTF8) or (is_wide and 0 not in start)


def likely_encoding(sample: bytes) -> str:
    """Return the encoding that a text probably is in, as Python calls it."""
    from charset_normalizer import from_bytes

    if 0 not in sample:  # lines in plain ASCII are in all encodings
        sample = b"\n".join(line for line in sample.split(b"\n") if not line.isascii())
    matches = from_bytes(sample, cp_isolation=list(USUAL_ENCODINGS))
    names = {name for match in matches for name in match.could_be_from_charset}
    best = matches.best()
    return "cp1252" if best is None or "cp1252" in names else best.encoding.replace("_", "-")


@contextmanager
def utf8_file(
    file: IO[bytes], what: str, encoding: str | None, start: bytes, factor: int, guessed: list[str]
) -> Iterator[tuple[IO[bytes], bytes]]:
    """Yield a text as a file in UTF-8, which is a copy where it is compressed or encoded, and its first bytes.

    Args:
        file: an open file, of which `start` was read.
        what: how messages call it.
        encoding: the one that the user named.
        start: its first bytes.
        factor: bytes of memory per byte of it that must be free; 0 where it stays on disk.
        guessed: takes the encoding that was recognised, where it is no UTF-8 and none was named.
    """
    is_plain = isinstance(file, io.BufferedReader) and _is_utf8(start, encoding) and 0 not in start
    if is_plain and _rest_is_utf8(file, start):
        require_memory(factor * os.fstat(file.fileno()).st_size, what)
        start = start.removeprefix(codecs.BOM_UTF8)
        file.seek(0)
        yield file, start
        return
    with tempfile.TemporaryFile() as copy:
        for block in utf8_blocks(file, what, encoding, start, guessed):
            require_memory(factor * (copy.tell() + len(block)), what)
            if shutil.disk_usage(tempfile.gettempdir()).free < LEAST_ROOM + len(block):
                raise TableError(
                    f"{what} needs a copy in plain UTF-8, and the disk of {tempfile.gettempdir()} has no room for it; "
                    "set TMPDIR to a folder of another disk, or give the file unpacked and in UTF-8"
                )
            copy.write(block)
        copy.seek(0)
        start = copy.read(BLOCK)
        copy.seek(0)
        yield copy, start


def file_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that polars and Arrow raise for a file that they cannot read."""
    return (OSError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile, *value_errors())


def value_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of polars and Arrow; Arrow's only once it is loaded, for importing it takes long."""
    arrow = sys.modules.get("pyarrow.lib")
    return (pl.exceptions.PolarsError, pl.exceptions.PanicException, *([arrow.ArrowException] if arrow else []))


def reason_of(problem: BaseException) -> str:
    """Return the first line of an error; raise another where a disk is full, which is no fault of a table."""
    reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    if os.strerror(errno.ENOSPC) in reason:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from problem
    return reason


def read_excel(file: IO[bytes], what: str) -> pl.DataFrame:
    """Read the first sheet of a workbook; its first row is the header. Empty rows at the end are left out."""
    if find_spec("fastexcel") is None:
        raise TableError(
            f"{what} is an Excel workbook; to read those, pip install 'recoslip[excel]', or save it as CSV"
        )
    from fastexcel import FastExcelError

    unreadable: tuple[type[BaseException], ...] = (FastExcelError, zipfile.BadZipFile, *value_errors())
    logging.getLogger("fastexcel").setLevel(logging.ERROR)  # it warns of each column without values
    try:
        require_memory(CELL * _cells(file), what, "save the sheet as CSV, without cells that are far from it")
        file.seek(0)
        options: Any = {"infer_schema_length": None, "drop_empty_rows": False, "raise_if_empty": False}
        frame: pl.DataFrame = pl.read_excel(file, sheet_id=1, **options)
    except unreadable as problem:
        raise TableError(
            f"{what} cannot be read as an Excel workbook: {reason_of(problem)}; save it again, or as CSV"
        ) from problem
    if not frame.width:
        return frame
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    return frame.head(int(filled[-1]) + 1 if len(filled) else 0)


def _cells(file: IO[bytes]) -> int:
    """Return how many cells the largest sheet of a workbook spans, as it says: one stray cell may span billions."""
    most = 0
    if not zipfile.is_zipfile(file):  # an old workbook, whose sheets are small
        return most
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/") and name.endswith(".xml"):
                with archive.open(name) as sheet:
                    last = re.search(rb'<dimension ref="[^"]*?([A-Z]+)([0-9]+)"', sheet.read(BLOCK))
                if last is not None:
                    width = sum(26**k * (letter - 64) for k, letter in enumerate(reversed(last[1])))
                    most = max(most, width * int(last[2]))
    return most
