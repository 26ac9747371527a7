"""The arguments of `read_graph` -> what they mean for a nodes table and an edges table."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.encoders.blocks import check_block_weights
from recoslip.encoders.columns import FRAME, Column, ColumnReader, Origin, describe, plan_columns, require_column
from recoslip.errors import TableError
from recoslip.tables.kept_columns import choose_kept, choose_label
from recoslip.tables.node_columns import domains_from_column, domains_from_time, own_ids
from recoslip.tables.text_files import check_encoding
from recoslip.tables.times import Since

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


@dataclass(frozen=True)
class ReadOptions:
    """Which columns of the tables to read and how: the arguments of `read_graph`, documented there."""

    id: str = "id"
    domain: str = "domain"
    target_value: object = None
    time: str | None = None
    since: Since | None = None
    category: str | None = None
    features: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    text: Sequence[str] = ()
    source_column: str | None = None
    target_column: str | None = None
    weight: str | None = None
    drop_unknown: bool = False
    impute: bool = False
    block_weights: Mapping[str, float] = field(default_factory=dict)
    label: str | None = None
    keep: Sequence[str] = ()
    encoding: str | None = None
    relation: str | None = None
    edge_features: Sequence[str] = ()
    node_type: str | None = None
    scored: str | None = None

    def __post_init__(self) -> None:
        for name in ("features", "ignore", "text", "keep", "edge_features"):
            if isinstance(value := getattr(self, name), str):
                raise TableError(f"{name} must be a list of column names; got the text {value!r}, write [{value!r}]")
        check_block_weights(self.block_weights)
        if self.encoding is not None:
            check_encoding(self.encoding)
        if (self.time is None) != (self.since is None):
            raise TableError("a domain from time needs both: the column (time) and the first target time (since)")
        if self.time is not None and (self.target_value is not None or self.domain != ReadOptions.domain):
            raise TableError("the domain is taken from a column (domain, target_value) or from time; give one of them")
        if (self.node_type is None) != (self.scored is None):
            raise TableError("several kinds of nodes need both: their column (node_type) and the one to score (scored)")

    @property
    def is_relational(self) -> bool:
        """Whether there are several kinds of nodes or edges, or edges with features."""
        return bool(self.relation or self.edge_features or self.node_type)

    def node_rows(self, table: ColumnReader, origin: Origin = FRAME) -> NodeRows:
        """Read ids and domains of a nodes table, and decide how its other columns are encoded.

        Args:
            table: the nodes table.
            origin: where it comes from.
        """
        require_column(table.columns, self.id, "nodes")
        names = own_ids(table[self.id], "nodes", origin)
        if self.time is None:
            is_target = domains_from_column(table, self.domain, self.target_value, origin)
        else:
            is_target = domains_from_time(table, self.time, self.since, origin)
        if self.category is not None:
            require_column(table.columns, self.category, "nodes")
            if (dtype := table.schema[self.category]).is_nested():
                raise TableError(f"the category column {self.category!r} must hold one value per row; got {dtype}")
        reserved = {self.id, self.category, self.time, self.domain, self.node_type} - {None}
        columns = plan_columns(table, reserved, self.features, self.ignore, self.text, origin)
        log.info("features: %s", describe(columns))
        label = choose_label(table, reserved, self.label)
        return NodeRows(names.cast(pl.String), names, is_target, columns, choose_kept(table, self.keep, label), label)

    def end_columns(self, columns: Sequence[str]) -> list[str | None]:
        """Return the columns of an edges table that hold the two ends of an edge.

        An end whose column is not among the options takes the first column that has no other use; None if none is left.
        """
        named = (self.source_column, self.target_column)
        unnamed = (column for column in columns if column not in (*named, self.weight))
        return [next(unnamed, None) if name is None else name for name in named]
