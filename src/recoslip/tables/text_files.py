"""A text file, maybe compressed, maybe in another encoding than UTF-8 -> its text in UTF-8, a part at a time."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from recoslip.errors import TableError
from recoslip.storage import printable
from recoslip.tables.paths import polars_path, temporary_file

BLOCK = 2**20  # bytes that are decoded at a time
HEAD = 2**16  # bytes by which an encoding is recognised
LEAST_ROOM = 2**24  # bytes that stay free on the disk where a copy of a file is made
GZIP, ZSTD, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"  # the first bytes of compressed files
_BOM = "\ufeff"


class BadBytes(NamedTuple):
    """The first bytes of a file that are not UTF-8."""

    position: int
    found: bytes
    cell: str  # the text around them, as it reads in the likely encoding
    likely: str  # the encoding that it probably is


def is_compressed(path: Path) -> bool:
    """Return whether the bytes of a text file have to be decompressed."""
    return _start(path).startswith((GZIP, ZSTD)) or _is_zip(path)


@contextmanager
def open_text(path: Path, encoding: str | None = None) -> Iterator[IO[bytes]]:
    """Open the text of a file as UTF-8, whatever it is compressed and encoded by."""
    with open_bytes(path) as file:
        if _is_utf8(path, encoding):
            yield file
        else:
            yield io.BufferedReader(_Recoded(file, str(encoding), path), BLOCK)


@contextmanager
def plain_text(path: Path, encoding: str | None = None) -> Iterator[Path]:
    """Yield a path from which polars reads the text: that of the file, or of a copy that is removed afterwards."""
    if _is_utf8(path, encoding) and not _is_zip(path):
        yield polars_path(path)  # polars decompresses the other formats itself
        return
    with temporary_file() as copy:
        with open_text(path, encoding) as source, copy.open("wb") as target:
            while block := source.read(16 * BLOCK):
                if shutil.disk_usage(copy.parent).free < LEAST_ROOM + len(block):
                    raise TableError(
                        f"{printable(path)} needs a copy in plain UTF-8, and the disk of {copy.parent.parent} has no "
                        "room for it; set TMPDIR to a folder of another disk, or give the file unpacked and in UTF-8"
                    )
                target.write(block)
        yield copy


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file; what is compressed is decompressed on the way."""
    start = _start(path)
    with ExitStack() as opened:
        file: Any
        if start.startswith(GZIP):
            file = opened.enter_context(gzip.open(path))
        elif start.startswith(ZSTD):
            import pyarrow as pa

            file = opened.enter_context(pa.input_stream(path, compression="zstd"))
        elif _is_zip(path):
            try:
                archive = opened.enter_context(zipfile.ZipFile(path))
                file = opened.enter_context(archive.open(_only_member(archive, path)))
            except RuntimeError as problem:  # a password, or a method that Python lacks
                raise TableError(f"{printable(path)} cannot be unpacked: {problem}; unpack it yourself") from problem
        else:
            file = opened.enter_context(path.open("rb"))
        yield file


def likely_encoding(head: bytes) -> str | None:
    """Return the encoding that the first bytes of a text are in if it is none that begins like ASCII."""
    for mark, name in ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")):
        if head.startswith(mark):
            return name
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for name, nul, other in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if len(nul) > 1 and nul.count(0) > 0.5 * len(nul) and other.count(0) < 0.1 * len(other):
            return name
    return None


def find_bad_bytes(path: Path, most: int | None = None) -> BadBytes | None:
    """Return the first bytes of a text file that are not UTF-8; None if all are, of the first `most`."""
    with open_bytes(path) as file:
        decoder = codecs.getincrementaldecoder("utf-8")()
        position, before, block = 0, b"", b"-"
        while block:
            block = file.read(BLOCK if most is None else min(BLOCK, most - position))
            held = len(decoder.getstate()[0])  # bytes of a character that began before
            try:
                decoder.decode(block, final=not block and most is None)
            except UnicodeDecodeError as problem:
                context = before + block
                return _bad_bytes(position - held + problem.start, context, len(before) - held + problem.start)
            position, before = position + len(block), (before + block)[-100:]
    return None


def _bad_bytes(position: int, context: bytes, start: int) -> BadBytes:
    found = re.match(rb"[\x80-\xff]{1,4}", context[start:])
    likely = "cp1252" if re.search(rb"[\x80-\x9f]", context) else "latin-1"
    cells = re.compile(rb'[^,;\t\n\r"]+')
    cell = next((each.group() for each in cells.finditer(context) if each.end() > start), b"")
    shown = cell.decode(likely, "replace").strip()[:60]
    return BadBytes(position, found.group() if found else context[start : start + 1], shown, likely)


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _is_zip(path: Path) -> bool:
    return path.name.lower().endswith(".zip") and _start(path).startswith(ZIP)


def _is_utf8(path: Path, encoding: str | None) -> bool:
    """Return whether a text is to be read as UTF-8: none else is asked for, or it plainly is no other."""
    if encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        return True
    with open_bytes(path) as file:
        head = file.read(HEAD)
    wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    return head.startswith(codecs.BOM_UTF8) or (wide and likely_encoding(head) is None and 0 not in head)


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


class _Recoded(io.RawIOBase):
    """A file in some encoding, as UTF-8."""

    def __init__(self, file: IO[bytes], encoding: str, path: Path) -> None:
        self.file, self.encoding, self.path = file, encoding, path
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.pending, self.lines, self.at_start, self.at_end = b"", 1, True, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.pending and not self.at_end:
            block = self.file.read(BLOCK)
            self.at_end = not block
            try:
                text = self.decoder.decode(block, final=self.at_end)
                text = text.removeprefix(_BOM) if self.at_start else text
                self.at_start = self.at_start and not text
                self.pending = text.encode()
            except UnicodeError as problem:
                read = problem.object[: problem.start] if isinstance(problem, UnicodeDecodeError) else b""
                line = self.lines + read.decode(self.encoding, "ignore").count("\n")
                raise TableError(
                    f"{printable(self.path)} is not {self.encoding}: line {line:,} cannot be decoded "
                    f"({getattr(problem, 'reason', problem)}); pass the --encoding that it was saved in"
                ) from problem
            self.lines += text.count("\n")
        count = min(len(buffer), len(self.pending))
        buffer[:count], self.pending = self.pending[:count], self.pending[count:]
        return count
