"""The name and the first line of a table file -> its format, separator and columns."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Literal, TypeAlias

import polars as pl

Format: TypeAlias = Literal["text", "parquet", "arrow", "excel"]

_FORMATS: dict[str, Format] = {
    **dict.fromkeys(("csv", "tsv", "txt", "zip"), "text"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
    **dict.fromkeys(("arrow", "feather", "ipc"), "arrow"),
    **dict.fromkeys(("xlsx", "xlsm", "xlsb", "xls", "ods"), "excel"),
}
ENDINGS = ".csv, .tsv, .txt (these also .gz or .zip), .parquet, .arrow, .feather or .xlsx"


def extension(path: Path) -> str:
    """Return the extension that says the format: that before .gz or .zip, if there is one, in lower case."""
    name = path.name.lower()
    inner = name.removesuffix(".gz").removesuffix(".zip").rsplit(".", 1)[-1]
    return "zip" if name.endswith(".zip") and inner not in _FORMATS else inner


def table_format(path: Path) -> Format | None:
    """Return the format that the name of a file says, if it is one of a table."""
    return _FORMATS.get(extension(path))


def csv_header(source: Path | IO[bytes], path: Path) -> tuple[str, list[str]]:
    """Return the separator and the columns of a text file called `path`, by its first line in `source`."""
    usual = "\t" if extension(path) in ("tsv", "txt") else ","
    own = usual, _header(source, usual)
    if len(own[1]) == 1:
        for separator in (";", "\t", ","):
            if separator != usual and separator in own[1][0]:
                return separator, _header(source, separator)
    return own


def _header(source: Path | IO[bytes], separator: str) -> list[str]:
    if not isinstance(source, Path):
        source.seek(0)
    return pl.read_csv(source, separator=separator, n_rows=0).columns
