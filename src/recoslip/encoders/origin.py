"""Where a table comes from -> how its rows are counted in messages, and which decimal mark its file uses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from recoslip.encoders.numbers import DecimalMark


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

    def first(self, rows: pl.Series) -> str:
        """Name the first row for which a column of true and false is true: "row 7"."""
        return f"row {self.first_row + int(rows.arg_max() or 0)}"

    def from_row(self, position: int) -> Origin:
        """Return the origin of the rows from a position on."""
        return replace(self, first_row=self.first_row + position)


FRAME = Origin()


def file_origin(decimal: DecimalMark | None = None) -> Origin:
    """Return the origin of a file with a header, whose rows are counted as a spreadsheet shows them."""
    return Origin(2, "the header is row 1", decimal)
