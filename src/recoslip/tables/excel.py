"""The first sheet of an Excel workbook -> a frame, if its cells fit into memory."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from recoslip.errors import TableError
from recoslip.storage import printable
from recoslip.tables import excel_process
from recoslip.tables.paths import temporary_file

CELL = 80  # bytes of memory per cell of the rectangle around all cells
BYTE = 3  # bytes of memory per byte of the workbook before compression
BLOCK = 2**20
_REFERENCE = re.compile(rb'\br="([A-Z]{1,3})([0-9]{1,7})"')
_LONGEST_REFERENCE = 16


def read_excel(path: Path, most_bytes: int) -> pl.DataFrame:
    """Read the first sheet; its first row is the header. Empty rows at the end are left out.

    Args:
        path: the workbook.
        most_bytes: of memory to take, where the system can limit it.
    """
    if find_spec("fastexcel") is None:
        raise TableError(
            f"{printable(path)} is an Excel workbook; to read those, pip install 'recoslip[excel]', or save it as CSV"
        )
    with temporary_file() as result:
        command = [sys.executable, "-P", str(excel_process.__file__), str(path), str(result), str(most_bytes)]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if ended.returncode != 0:
            reason = ended.stdout.strip() or "it is damaged, or takes more memory than is free"
            raise TableError(
                f"{printable(path)} cannot be read as an Excel workbook: {reason}; save it again, or as CSV"
            )
        frame = pl.read_parquet(result)
    if not frame.width:
        return frame
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    return frame.head(int(filled[-1]) + 1 if len(filled) else 0)


def excel_bytes(path: Path, most_bytes: int) -> int:
    """Return how many bytes of memory it takes at most to read a workbook; more than `most_bytes` are not counted.

    All cells of the rectangle around those that are filled take memory: one that is filled by mistake, far below and to
    the right, may take more than there is.
    """
    if not zipfile.is_zipfile(path):
        return BYTE * path.stat().st_size  # at most 65,536 rows
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if BYTE * size > most_bytes:
                return BYTE * size
            sheets = [each for each in archive.namelist() if re.fullmatch(r"xl/worksheets/[^/]*\.xml", each)]
            cells = max((_cells(archive, sheet) for sheet in sheets), default=0)
    except RuntimeError as problem:  # a password, or a version that Python does not know
        raise TableError(f"{printable(path)} cannot be unpacked: {problem}; save it again, or as CSV") from problem
    return BYTE * size + CELL * cells


def _cells(archive: zipfile.ZipFile, sheet: str) -> int:
    """Return the number of cells of the rectangle from the first cell of a sheet to the last filled ones."""
    rows = columns = 0
    with archive.open(sheet) as file:
        before = b""
        while block := file.read(BLOCK):
            for letters, digits in _REFERENCE.findall(before + block):
                rows, columns = max(rows, int(digits)), max(columns, _column(letters))
            before = block[-_LONGEST_REFERENCE:]
    return rows * columns


@functools.cache
def _column(letters: bytes) -> int:
    """Return the number of a column: A is 1, AA is 27."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - ord("A") + 1
    return number
