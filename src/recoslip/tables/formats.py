"""The name and the first line of a table file -> its format, separator and columns."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Literal, TypeAlias

import polars as pl

Format: TypeAlias = Literal["text", "parquet", "arrow"]

_FORMATS: dict[str, Format] = {
    **dict.fromkeys(("csv", "tsv", "txt"), "text"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
    **dict.fromkeys(("arrow", "feather", "ipc"), "arrow"),
}


def extension(path: Path) -> str:
    """Return the extension that says the format: that before .gz, in lower case."""
    return path.name.lower().removesuffix(".gz").rsplit(".", 1)[-1]


def table_format(path: Path) -> Format | None:
    """Return the format that the name of a file says, if it is one of a table."""
    return _FORMATS.get(extension(path))


def csv_header(source: Path | IO[bytes], path: Path) -> tuple[str, list[str]]:
    """Return the separator and the columns of a text file called `path`, by its first line in `source`."""
    separator = "," if extension(path) == "csv" else "\t"
    header = pl.read_csv(source, separator=separator, n_rows=0).columns
    if len(header) == 1 and ";" in header[0]:
        separator = ";"
        if not isinstance(source, Path):
            source.seek(0)
        header = pl.read_csv(source, separator=separator, n_rows=0).columns
    return separator, header
