"""Rows of an edges table, which name nodes by id -> positions of their ends, and weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.encoders.columns import require_column
from recoslip.errors import TableError
from recoslip.tables.node_columns import ids_as_text
from recoslip.tables.options import ReadOptions

log = logging.getLogger("recoslip")


def log_dropped_edges(edges: int) -> None:
    """Log how many edges were dropped, if any."""
    if edges:
        log.info("edges: %s dropped that name unknown nodes", f"{edges:,}")


class EdgeReader:
    """Rows of an edges table -> node positions of their ends, and weights.

    Args:
        columns: the columns of the table.
        name: how error messages call the table.
        ids: the ids of the nodes, as text.
        options: which columns to read.
    """

    def __init__(self, columns: Sequence[str], name: str, ids: pl.Series, options: ReadOptions) -> None:
        for column in (options.source_column, options.target_column, options.weight):
            if column:
                require_column(columns, column, "edges")
        left, right = options.end_columns(columns)
        if left is None or right is None:
            besides = f" besides the weights in {options.weight!r}" if options.weight else ""
            raise TableError(f"{name} must have two columns of node ids{besides}; it has {list(columns)}")
        if left == right:
            raise TableError(f"both ends of an edge cannot be in one column, {left!r}; name two")
        self.left, self.right = left, right
        self.columns = [left, right, *([options.weight] if options.weight else [])]  # those that are read
        self.name, self.ids, self.weight, self.drop_unknown = name, ids, options.weight, options.drop_unknown
        self.positions = pl.DataFrame({"id": ids, "position": np.arange(len(ids))})
        if ids.is_duplicated().any():
            repeated = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
            raise TableError(
                f"ids in the nodes table must be unique; {len(repeated)} are repeated "
                f"(first: {', '.join(map(repr, repeated[:3].to_list()))})"
            )
        self.dropped = 0  # edges with an unknown end that were dropped so far

    def check_header(self) -> None:
        """Raise if the header of a file is an edge, because the file has no header."""
        if self.ids.is_in([self.left]).any() and self.ids.is_in([self.right]).any():
            raise TableError(f"{self.name}: the first line, {self.left!r} and {self.right!r}, is an edge; add a header")

    def read(self, frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Return the node positions of the ends of the given rows, (2, edges), and their weights."""
        ends = [
            pl.DataFrame({"id": ids_as_text(frame[column], "edges")}).join(
                self.positions, on="id", how="left", maintain_order="left"
            )["position"]
            for column in (self.left, self.right)
        ]
        known = ends[0].is_not_null() & ends[1].is_not_null()
        dropped = int((~known).sum())
        if dropped and not self.drop_unknown:
            unknown = [
                name
                for column, position in zip((self.left, self.right), ends, strict=True)
                for name in frame[column].filter(position.is_null()).cast(pl.String).unique(maintain_order=True)
            ]
            unknown = list(dict.fromkeys(unknown))
            raise TableError(
                f"{self.name} names {len(unknown)} ids that the nodes table does not have (first: "
                f"{', '.join(map(repr, unknown[:3]))}), in {dropped} edges; add those nodes or pass --drop-unknown"
            )
        self.dropped += dropped
        edge_index = np.stack([position.filter(known).to_numpy().astype(np.int64) for position in ends])
        edge_weight = None
        if self.weight is not None:
            column = frame[self.weight].filter(known)
            if not column.dtype.is_numeric() or column.null_count():
                raise TableError(f"the edges table's weight column {self.weight!r} must hold a number in every row")
            edge_weight = column.to_numpy().astype(np.float64)
        return edge_index, edge_weight
