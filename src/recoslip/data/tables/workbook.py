"""A workbook -> its first sheet, read by a process of its own.

A few bytes of a workbook may stand for more cells than memory holds, in more spellings than one can foresee, and the
library that reads it ends its process when memory is short.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from typing import IO

import polars as pl
import psutil

from recoslip.base.errors import OutOfMemory, TableError
from recoslip.base.memory import WORDS

CHECK_EVERY = 0.05  # seconds between looks at how much memory the process takes
KILLED = -9  # by the system, when memory is short
REMEDY = "save the sheet as CSV, without cells that are far from it"
CHILD = "import json, sys; sys.path = json.loads(sys.argv[1]); from recoslip.data.tables.workbook import main; main()"


def read_workbook(file: IO[bytes], what: str, free: int) -> pl.DataFrame:
    """Read the first sheet of a workbook; its first row is the header. Empty rows at the end are left out.

    Args:
        file: the workbook.
        what: how messages call it.
        free: bytes of memory that may be taken.
    """
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(sys.path)],
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"POLARS_MAX_THREADS": "1"},
    )
    try:
        rows, said = _watched(child, free)
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        text = said.decode("utf-8", "replace").strip() or "its reader ended"
        if child.returncode == KILLED or WORDS.search(text):
            raise OutOfMemory(f"{what} takes more memory than the {free / 2**30:.1f} GiB that are free; {REMEDY}")
        raise TableError(
            f"{what} cannot be read as an Excel workbook: {text.splitlines()[-1]}; save it again, or as CSV"
        )
    return _without_empty_end(pl.read_ipc(rows))


def _watched(child: subprocess.Popen[bytes], free: int) -> tuple[bytes, bytes]:
    """Return what a process writes; it is killed when it takes more memory than is free."""
    while True:
        try:
            return child.communicate(timeout=CHECK_EVERY)
        except subprocess.TimeoutExpired:
            with suppress(psutil.Error):
                if psutil.Process(child.pid).memory_info().rss > free:
                    child.kill()


def _without_empty_end(frame: pl.DataFrame) -> pl.DataFrame:
    if not frame.width:
        return frame
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    return frame.head(int(filled[-1]) + 1 if len(filled) else 0)


def main() -> None:
    """Read a workbook from standard input and write its first sheet to standard output, in the child process."""
    logging.getLogger("fastexcel").setLevel(logging.ERROR)  # it warns of each column without values
    rows = io.BytesIO()
    try:
        frame = pl.read_excel(
            sys.stdin.buffer.read(), sheet_id=1, infer_schema_length=None, drop_empty_rows=False, raise_if_empty=False
        )
        frame.write_ipc(rows)
    except KeyboardInterrupt:
        sys.exit(KILLED)
    except BaseException as problem:  # a panic of the library is no Exception
        sys.exit((str(problem).strip() or type(problem).__name__).splitlines()[0])
    sys.stdout.buffer.write(rows.getbuffer())
