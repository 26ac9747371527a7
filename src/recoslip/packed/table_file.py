"""A table in a file -> one column, or a range of rows, at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from polars.selectors import by_name  # selects columns literally, also those called * or ^x$

from recoslip.errors import TableError
from recoslip.packed.format import rename_when_written
from recoslip.packed.steps import Step
from recoslip.storage import printable
from recoslip.tables.options import ReadOptions, TableName
from recoslip.tables.table import origin_of, read_errors, scan, table_format


class TableFile:
    """A table of which one column or a range of rows is in memory at a time.

    Args:
        path: the file. A file in another format than Parquet is first converted, because only in Parquet can a range
            of rows be read without reading the rows before it.
        name: "nodes" or "edges".
        work: folder for the converted file.
        options: which columns to read.
    """

    def __init__(self, path: Path, name: TableName, work: Path, options: ReadOptions) -> None:
        if table_format(path) == "parquet":
            with scan(path, name, options) as lazy:
                self.lazy = lazy
        else:
            converted, step = work / f"{name}.parquet", Step(work / f"{name}.json")
            if step.result() is None:
                with (
                    scan(path, name, options) as lazy,
                    rename_when_written(converted) as temporary,
                    temporary.open("wb") as file,
                    read_errors(path, name, of_values=True),
                ):
                    lazy.sink_parquet(file)
                step.complete("converted", [converted])
            with converted.open("rb") as file:
                self.lazy = pl.scan_parquet(file)
        self.options, self.origin = options, origin_of(path, name, options)
        self.schema = self.lazy.collect_schema()
        self.height = int(self.lazy.select(pl.len()).collect().item())
        if self.height == 0 and name == "nodes":
            raise TableError(f"{printable(path)} has no rows")

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names()

    def __getitem__(self, name: str) -> pl.Series:
        return self.lazy.select(by_name(name)).collect()[name]

    def rows(self, offset: int, count: int, columns: Sequence[str]) -> pl.DataFrame:
        """Read at most `count` rows of some columns, from row `offset` on."""
        return self.lazy.select(by_name(*columns)).slice(offset, count).collect()
