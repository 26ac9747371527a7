"""The arguments of `read_graph` -> what they mean for a nodes table and an edges table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.errors import TableError
from recoslip.read_options import ReadOptions
from recoslip.tables.columns import FRAME, Column, ColumnReader, Origin, describe, plan_columns, require_column
from recoslip.tables.node_columns import choose_kept, choose_label, domains_from_column, domains_from_time, own_ids

log = logging.getLogger("recoslip")

TableName: TypeAlias = Literal["nodes", "edges"]


class NodeRows(NamedTuple):
    """The ids and domains of a nodes table, one per row, how its other columns are encoded, and which are kept."""

    ids: pl.Series  # as text
    names: pl.Series  # the ids as text or whole numbers
    is_target: NDArray[np.bool_]
    columns: list[Column]
    kept: list[str]  # columns that are shown beside the nodes
    label: str | None  # the one of these that names the nodes


def node_rows(options: ReadOptions, table: ColumnReader, origin: Origin = FRAME) -> NodeRows:
    """Read ids and domains of a nodes table, and decide how its other columns are encoded.

    Args:
        table: the nodes table.
        origin: where it comes from.
    """
    require_column(table.columns, options.id, "nodes")
    names = own_ids(table[options.id], "nodes", origin)
    if options.time is None:
        is_target = domains_from_column(table, options.domain, options.target, origin)
    else:
        is_target = domains_from_time(table, options.time, options.since, origin)
    if options.category is not None:
        require_column(table.columns, options.category, "nodes")
        if (dtype := table.schema[options.category]).is_nested():
            raise TableError(f"the category column {options.category!r} must hold one value per row; got {dtype}")
    reserved = {options.id, options.category, options.time, options.domain, options.node_type} - {None}
    columns = plan_columns(table, reserved, options.features, options.ignore, options.text, origin)
    log.info("features: %s", describe(columns))
    label = choose_label(table, reserved, options.label)
    return NodeRows(names.cast(pl.String), names, is_target, columns, choose_kept(table, options.keep, label), label)


def end_columns(options: ReadOptions, columns: Sequence[str]) -> list[str | None]:
    """Return the columns of an edges table that hold the two ends of an edge.

    An end whose column is not among the options takes the first column that has no other use; None if none is left.
    """
    named = (options.edge_from, options.edge_to)
    unnamed = (column for column in columns if column not in (*named, options.weight))
    return [next(unnamed, None) if name is None else name for name in named]
