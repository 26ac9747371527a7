"""A table of nodes and a table of edges -> NodeGraph."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.encoders.columns import Origin, require_column
from recoslip.encoders.table_encoder import fit_encoder
from recoslip.errors import TableError
from recoslip.graph import NodeGraph
from recoslip.tables.cells import cell_tables
from recoslip.tables.edges import SAMPLE_EDGES, EdgeReader, choose_ends, log_dropped_edges
from recoslip.tables.graph_tables import edge_table, graph_tables
from recoslip.tables.kept_columns import column_arrays
from recoslip.tables.node_columns import checked_ids
from recoslip.tables.options import ReadOptions
from recoslip.tables.pyg import pyg_tables
from recoslip.tables.relations import add_relations, check_relational
from recoslip.tables.table import open_table, table_errors, text_head
from recoslip.tables.times import Since

Table: TypeAlias = "str | os.PathLike[str] | pl.DataFrame | Any"  # a path, or a polars or pandas data frame


def read_graph(
    nodes: Table | Any,
    edges: Table | Any | None = None,
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
    encoding: str | None = None,
    relation: str | None = None,
    edge_features: Sequence[str] = (),
    node_type: str | None = None,
    scored: str | None = None,
) -> NodeGraph:
    """Read a graph from a table of nodes and a table of edges.

    Numbers may be written as text, with decimal commas (12,5), thousands set apart (1.234,56 or 1,234.56) and missing
    values spelled out (NA, n/a, null, -, ? and the like; `MISSING_SPELLINGS` in `recoslip.encoders.numbers` has all).
    What may be read in two ways is not used, and the log says so. Error messages count the rows of text and Excel files
    as a spreadsheet does, and those of data frames, Parquet and Arrow files from 0.

    Args:
        nodes: one row per node: a CSV or TSV file (also .gz, or .zip with one file), a Parquet or Arrow file, the first
            sheet of an Excel file (with the extra recoslip[excel]), or a data frame (polars, pandas).
        edges: one row per edge, in the same formats; None for a graph without edges.
        id: column of the nodes table with the ids; text or whole numbers. Whole numbers that are written as 1.0 are the
            same as 1; 007 is not the same as 7.
        domain: column of the nodes table with the domains: true/false, 0/1, source/target, or any two values with
            `target_value`.
        target_value: the value of `domain` that means target.
        time: column of the nodes table with times. It replaces `domain`: nodes from `since` on are target. A column
            called "domain" is then no feature.
        since: the first time that is target: a number, a date such as 2007-01-31 or 31.01.2007, or a time such as
            2007-01-31T12:00. Dates such as 1/31/2007 are read where some value tells which part is the day. Times with
            an offset from UTC, such as 2007-01-31T12:00+01:00 or 2007-01-31T11:00Z, and columns with a time zone are
            compared as instants; `since` must have an offset where the column has one.
        category: column of the nodes table with true categories, kept for scoring and never used as a feature.
        features: columns to use as features; by default all that look like features (they are logged).
        ignore: columns not to use as features.
        text: columns of free text, encoded as tf-idf weights of words.
        source_column: column of the edges table with one end of the edge; by default the first column most of whose
            first values are ids of nodes, and if there are not two, the first column.
        target_column: column of the edges table with the other end; by default the second such column.
        weight: column of the edges table with positive weights.
        drop_unknown: drop edges whose ends are not in the nodes table, instead of raising an error; not all of them.
        impute: fill missing values: numbers by the median, vectors by the mean, categories by a category "(missing)",
            text by the empty text.
        block_weights: weights of the blocks "number", "category", "text" and "vector", such as {"text": 2}, on top of
            those that bring the blocks of a table to the same weight; 1 by default.
        label: column whose values name the nodes on the page; by default one that is called so, such as "title", if it
            is text that seldom repeats. "" for none.
        keep: further columns to show beside the nodes, on the page and in the table of scores.
        encoding: of text files that are not UTF-8, such as "utf-16", "latin-1" or "cp1252"; any that Python has.
        relation: column of the edges table with the kinds of edges. What each kind says becomes features of the nodes:
            how many such edges a node has, and what its neighbours by them are like.
        edge_features: columns of the edges table with what edges are like, numbers or categories; their means over a
            node's edges, by kind, become features.
        node_type: column of the nodes table with the kinds of nodes; only those of the kind `scored` are scored, need a
            domain, and are in the graph. The others say what those are like that they are joined to.
        scored: the kind of nodes that is scored.

    >>> frame = pl.DataFrame({"id": ["a", "b", "c"], "domain": ["source", "source", "target"], "size": [1, 2, 3]})
    >>> read_graph(frame, pl.DataFrame({"from": ["a", "b"], "to": ["b", "c"]}))
    NodeGraph(3 nodes: 2 source, 1 target; 2 edges; 1 features)
    """
    given = graph_tables(nodes) or cell_tables(nodes) or pyg_tables(nodes)
    if given is not None:
        if edges is not None:
            raise TableError("a graph or a file of cells has its own edges; leave the edges out")
        nodes, edges = given.nodes, given.edges
        weight = given.weight if weight is None else weight
        features = given.features if features is None else features
        node_type, relation = node_type or given.node_type, relation or given.relation
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
        weight=weight or None,
        drop_unknown=drop_unknown,
        impute=impute,
        block_weights=block_weights or {},
        label=label,
        keep=keep,
        encoding=encoding,
        relation=relation,
        edge_features=edge_features,
        node_type=node_type,
        scored=scored,
    )
    with table_errors():
        if options.is_relational:
            nodes, edges, options = _relational_tables(nodes, edges, options)
        frame, origin = read_nodes(nodes, options)
        rows = options.node_rows(frame, origin)
        encoder, encoded = fit_encoder(frame, rows.columns, impute=impute, weights=options.block_weights, origin=origin)
        edge_index, edge_weight, _ = read_edges(edges, rows.ids, options)
        return NodeGraph(
            encoded.matrix,
            edge_index,
            rows.is_target,
            edge_weight=edge_weight,
            ids=rows.names.to_numpy(),
            categories=None if category is None else frame[category].to_numpy(),
            times=None if time is None else frame[time].to_numpy(),
            feature_names=encoder.feature_names,
            encoding=encoder.to_json(),
            missing=encoded.missing,
            columns=column_arrays(frame, rows.kept),
            label=rows.label,
        )


def _relational_tables(nodes: Any, edges: Any, options: ReadOptions) -> tuple[pl.DataFrame, pl.DataFrame, ReadOptions]:
    """Return the nodes that are scored, with columns of how they are joined, the edges among them, and options."""
    if edges is None:
        raise TableError("several kinds of nodes or edges need a table of edges")
    frame, origin = read_nodes(nodes, options)
    require_column(frame.columns, options.id, "nodes")
    ids = checked_ids(frame[options.id], "nodes", origin).cast(pl.String)
    edge_frame, reader = open_edges(edges, ids, options)
    check_relational(options.relation, options.edge_features, edge_frame.columns)
    found = add_relations(frame, edge_frame, reader, options)
    own = options.features if options.features is None else [n for n in options.features if n in found.nodes.columns]
    return (
        found.nodes,
        found.edges,
        replace(
            options,
            features=None if own is None else [*own, *found.added],
            ignore=[name for name in options.ignore if name in found.nodes.columns],
            text=[name for name in options.text if name in found.nodes.columns],
            source_column=reader.left,
            target_column=reader.right,
        ),
    )


def read_nodes(table: Table, options: ReadOptions, as_text: Collection[str] = ()) -> tuple[pl.DataFrame, Origin]:
    """Read a nodes table, and return it with how its rows are counted.

    Args:
        table: the table.
        options: which columns to read.
        as_text: columns of a text file whose types are not to be guessed, besides the ids.
    """
    opened = open_table(table, "nodes", options)
    frame = opened.frame([options.id, *as_text])
    if frame.height == 0:
        raise TableError(f"{opened.name} has no rows")
    return frame, opened.origin


def read_edges(
    table: Table | None, ids: pl.Series, options: ReadOptions, *, may_drop_all: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None, int]:
    """Edges between ids -> edges between node positions, (2, edges), their weights, and how many were dropped.

    Args:
        table: the edges table.
        ids: the ids of the nodes, as text.
        options: which columns to read.
        may_drop_all: whether it is no error if every edge names an unknown node and is dropped.
    """
    if table is None:
        return np.empty((2, 0), dtype=np.int64), None, 0
    frame, reader = open_edges(table, ids, options)
    if frame.height == 0:
        return np.empty((2, 0), dtype=np.int64), None, 0
    edge_index, edge_weight = reader.read(frame)
    if reader.dropped == frame.height and not may_drop_all:
        reader.refuse_no_edge(frame)
    log_dropped_edges(reader.dropped)
    return edge_index, edge_weight, reader.dropped


def open_edges(table: Table, ids: pl.Series, options: ReadOptions) -> tuple[pl.DataFrame, EdgeReader]:
    """Read an edges table, and return it with the reader of its rows; the arguments are those of `read_edges`."""
    table, own_weight = edge_table(table, ids)
    options = replace(options, weight=options.weight or own_weight)
    opened = open_table(table, "edges", options)
    options = choose_ends(opened.head(SAMPLE_EDGES), ids, options)
    frame = opened.frame(options.end_columns(opened.columns))
    reader = EdgeReader(frame.head(SAMPLE_EDGES), opened.name, ids, options, opened.origin)
    if opened.is_file:
        reader.check_header()
    return frame, reader


def name_ends(path: Path, ids: pl.Series, options: ReadOptions) -> ReadOptions:
    """Return the options with the columns of the ends of a text file, which must be known before it is read as text.

    Those of other files have types, and are found when the rows are there.
    """
    text = text_head(path, "edges", options)
    return options if text is None else choose_ends(text.rows(SAMPLE_EDGES), ids, options)
