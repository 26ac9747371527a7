"""A table of nodes and a table of edges -> NodeGraph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.encoders.table_encoder import fit_encoder
from recoslip.errors import TableError
from recoslip.graph import NodeGraph
from recoslip.storage import printable
from recoslip.tables.edges import EdgeReader, log_dropped_edges
from recoslip.tables.files import read_file, table_errors
from recoslip.tables.kept_columns import column_arrays
from recoslip.tables.options import ReadOptions, TableName
from recoslip.tables.times import Since

Table: TypeAlias = "str | os.PathLike[str] | pl.DataFrame | Any"  # a path, or a polars or pandas data frame


def read_graph(
    nodes: Table,
    edges: Table | None,
    *,
    id: str = "id",  # noqa: A002
    domain: str = "domain",
    target_value: object = None,
    time: str | None = None,
    since: Since | None = None,
    category: str | None = None,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    text: Sequence[str] = (),
    source_column: str | None = None,
    target_column: str | None = None,
    weight: str | None = None,
    drop_unknown: bool = False,
    impute: bool = False,
    block_weights: Mapping[str, float] | None = None,
    label: str | None = None,
    keep: Sequence[str] = (),
) -> NodeGraph:
    """Read a graph from a table of nodes and a table of edges.

    Args:
        nodes: one row per node: a CSV, TSV, Parquet or Arrow file, or a data frame (polars, pandas).
        edges: one row per edge, in the same formats; None for a graph without edges.
        id: column of the nodes table with the ids; text or whole numbers.
        domain: column of the nodes table with the domains: true/false, 0/1, source/target, or any two values with
            `target_value`.
        target_value: the value of `domain` that means target.
        time: column of the nodes table with times. It replaces `domain`: nodes from `since` on are target. A column
            called "domain" is then no feature.
        since: the first time that is target: a number, a date such as 2007-01-31, or a time such as
            2007-01-31T12:00. Times with an offset from UTC, such as 2007-01-31T12:00+01:00 or 2007-01-31T11:00Z, and
            columns with a time zone are compared as instants; `since` must have an offset where the column has one.
        category: column of the nodes table with true categories, kept for scoring and never used as a feature.
        features: columns to use as features; by default all that look like features (they are logged).
        ignore: columns not to use as features.
        text: columns of free text, encoded as tf-idf weights of words.
        source_column: column of the edges table with one end of the edge; the first column by default.
        target_column: column of the edges table with the other end; the second column by default.
        weight: column of the edges table with positive weights.
        drop_unknown: drop edges whose ends are not in the nodes table, instead of raising an error.
        impute: fill missing values: numbers by the median, vectors by the mean, categories by a category "(missing)",
            text by the empty text.
        block_weights: weights of the blocks "number", "category", "text" and "vector", such as {"text": 2}, on top of
            those that bring the blocks of a table to the same weight; 1 by default.
        label: column whose values name the nodes on the page; by default one that is called so, such as "title", if it
            is text that seldom repeats. "" for none.
        keep: further columns to show beside the nodes, on the page and in the table of scores.

    >>> frame = pl.DataFrame({"id": ["a", "b", "c"], "domain": ["source", "source", "target"], "size": [1, 2, 3]})
    >>> read_graph(frame, pl.DataFrame({"from": ["a", "b"], "to": ["b", "c"]}))
    NodeGraph(3 nodes: 2 source, 1 target; 2 edges; 1 features)
    """
    options = ReadOptions(
        id=id,
        domain=domain,
        target_value=target_value,
        time=time,
        since=since,
        category=category,
        features=features,
        ignore=ignore,
        text=text,
        source_column=source_column,
        target_column=target_column,
        weight=weight,
        drop_unknown=drop_unknown,
        impute=impute,
        block_weights=block_weights or {},
        label=label,
        keep=keep,
    )
    with table_errors():
        frame = to_frame(nodes, "nodes", options)
        rows = options.node_rows(frame)
        encoder, encoded = fit_encoder(frame, rows.columns, impute=impute, weights=options.block_weights)
        edge_index, edge_weight, _ = read_edges(edges, rows.ids, options, besides=_copy_bytes(encoded.matrix))
        return NodeGraph(
            encoded.matrix,
            edge_index,
            rows.is_target,
            edge_weight=edge_weight,
            ids=frame[id].to_numpy(),
            categories=None if category is None else frame[category].to_numpy(),
            times=None if time is None else frame[time].to_numpy(),
            feature_names=encoder.feature_names,
            encoding=encoder.to_json(),
            missing=encoded.missing,
            columns=column_arrays(frame, rows.kept),
            label=rows.label,
        )


def _copy_bytes(matrix: Any) -> int:
    """Return the bytes that a NodeGraph takes for its own copy of the features, and for checking them."""
    if sp.issparse(matrix):
        return 4 * int(matrix.data.nbytes + matrix.indices.nbytes)
    return int(matrix.nbytes) * 5 // 4


def to_frame(table: Table, name: TableName, options: ReadOptions, besides: int = 0) -> pl.DataFrame:
    """Read a table from a file or a data frame of polars or pandas.

    Args:
        table: the table.
        name: "nodes" or "edges".
        options: which columns to read.
        besides: bytes of memory that must stay free for something else.
    """
    if isinstance(table, str | os.PathLike):
        frame = read_file(Path(table), name, options, besides)
    elif isinstance(table, pl.DataFrame):
        frame = table
    elif type(table).__module__.startswith("pandas"):
        try:
            frame = pl.from_pandas(table)
        except (TypeError, ValueError, OverflowError) as problem:  # duplicate column names, or mixed types in a column
            raise TableError(f"the {name} table cannot be read from pandas: {problem}") from problem
    else:
        raise TableError(f"{name} must be a file or a polars or pandas data frame; got {type(table).__name__}")
    if frame.height == 0 and name == "nodes":
        raise TableError(f"{_describe_table(table, name)} has no rows")
    return frame


def read_edges(
    table: Table | None, ids: pl.Series, options: ReadOptions, besides: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None, int]:
    """Edges between ids -> edges between node positions, (2, edges), their weights, and how many were dropped."""
    if table is None:
        return np.empty((2, 0), dtype=np.int64), None, 0
    frame = to_frame(table, "edges", options, besides)
    reader = EdgeReader(frame.columns, _describe_table(table, "edges"), ids, options)
    if isinstance(table, str | os.PathLike):
        reader.check_header()
    if frame.height == 0:
        return np.empty((2, 0), dtype=np.int64), None, 0
    edge_index, edge_weight = reader.read(frame)
    log_dropped_edges(reader.dropped)
    return edge_index, edge_weight, reader.dropped


def _describe_table(table: Table, name: TableName) -> str:
    return printable(table) if isinstance(table, str | os.PathLike) else f"the {name} table"
