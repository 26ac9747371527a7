"""The first bytes of a file -> an error if it plainly is something else than its name says."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Literal, TypeAlias

from recoslip.errors import TableError
from recoslip.storage import printable
from recoslip.tables.formats import Format, extension, table_format
from recoslip.tables.text_files import HEAD, ZIP, find_bad_bytes, likely_encoding, open_bytes

Content: TypeAlias = Literal["zip", "workbook", "old workbook", "parquet", "arrow", "page", "json"]

_STARTS: dict[bytes, Content] = {
    ZIP: "zip",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "old workbook",
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
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
    "workbook": ("an Excel workbook", "call it .xlsx, or save the sheet as CSV"),
    "old workbook": ("an Excel workbook of the old kind", "call it .xls, or save the sheet as CSV"),
    "parquet": ("a Parquet file", "call it .parquet"),
    "arrow": ("an Arrow file", "call it .arrow"),
    "page": ("a web page (HTML or XML)", "give the table itself; a download may have ended at a page to log in"),
    "json": ("JSON", "write it as CSV or Parquet, with one row per node or edge"),
}


def check_content(path: Path, name: str, encoding: str | None) -> None:
    """Raise if a file is something else than its name says, or text in another encoding than the one to read it by."""
    form = table_format(path)
    with open_bytes(path) if form == "text" else path.open("rb") as file:
        start = file.read(HEAD)
    content = _content(path, start)
    if content is not None and form is not None and content not in _EXPECTED[form]:
        what, remedy = _NAMES[content]
        raise TableError(f"{name}: {printable(path)} is {what}, not {extension(path)} as its name says; {remedy}")
    if form == "excel" and content is None:
        raise TableError(
            f"{name}: {printable(path)} is no Excel workbook, whatever its name says; if it is text, call it .csv or "
            ".tsv"
        )
    if form == "text" and encoding is None:
        _check_utf8(path, name)


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


def _check_utf8(path: Path, name: str) -> None:
    with open_bytes(path) as file:
        head = file.read(HEAD)
    if encoding := likely_encoding(head):
        raise TableError(
            f"{name}: {printable(path)} is no UTF-8 text: it looks like {encoding.upper()}; pass --encoding {encoding}"
        )
    refuse_bad_bytes(path, name, most=HEAD)


def refuse_bad_bytes(path: Path, name: str, most: int | None = None) -> None:
    """Raise if a text file is not UTF-8, in its first `most` bytes."""
    if bad := find_bad_bytes(path, most):
        raise TableError(
            f"{name}: {printable(path)} is no UTF-8 text: row {_row(path, bad.position):,} holds the bytes "
            f"{bad.found.hex(' ')}, which would be {bad.cell!r} in {bad.likely}; pass --encoding {bad.likely}, or the "
            "encoding that it was saved in"
        )


def _row(path: Path, position: int) -> int:
    """Return the row of a text file that the byte at a position is in; the header is row 1."""
    row, quoted = 1, False
    with open_bytes(path) as file:
        while position > 0 and (block := file.read(min(position, 2**20))):
            position -= len(block)
            for index, part in enumerate(block.split(b'"')):
                quoted ^= index > 0
                row += 0 if quoted else part.count(b"\n")
    return row
