"""A table of nodes and a table of edges -> NodeGraph."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.data.graph import NodeGraph
from recoslip.data.options import ReadOptions, reads
from recoslip.data.tables.cells import cell_tables
from recoslip.data.tables.columns import Origin, require_column
from recoslip.data.tables.edges import SAMPLE_EDGES, EdgeReader, choose_ends, log_dropped_edges
from recoslip.data.tables.graph_tables import edge_table, graph_tables, pyg_tables, require_weights
from recoslip.data.tables.node_columns import checked_ids, column_arrays, end_columns, node_rows
from recoslip.data.tables.relations import add_relations, check_relational
from recoslip.data.tables.table import open_table, table_errors, text_head
from recoslip.data.tables.table_encoder import fit_encoder

Table: TypeAlias = "str | os.PathLike[str] | pl.DataFrame | Any"  # a path, or a polars or pandas data frame


@reads()
def read_graph(
    nodes: Table | Any, edges: Table | Any | None = None, *, use_rep: str | None = None, **read: Any
) -> NodeGraph:
    """Read a graph from a table of nodes and a table of edges, or from a graph of another library or its file.

    Numbers may be written as text, with decimal commas (12,5), thousands set apart (1.234,56 or 1,234.56) and missing
    values spelled out (NA, n/a, null, -, ? and the like; all are in `recoslip.data.tables.numbers.MISSING_SPELLINGS`).
    What may be read in two ways is not used, and the log says so. Error messages count the rows of text and Excel files
    as a spreadsheet does, and those of data frames, Parquet and Arrow files from 0.

    Args:
        nodes: one row per node: a CSV or TSV file (also .gz, or .zip with one file), a Parquet or Arrow file, the first
            sheet of an Excel file (with the extra recoslip[excel]), or a data frame (polars, pandas). Or a whole graph:
            GraphML, GEXF, GML, .pt and .h5ad files, and objects of NetworkX, igraph, PyTorch Geometric and AnnData.
        edges: one row per edge, in the same formats; None for a graph without edges.
        use_rep: of AnnData, the representation in `obsm` that is taken for features, or "X"; by default "X_pca", and X
            where it has no more than 50 columns.

    >>> frame = pl.DataFrame({"id": ["a", "b", "c"], "domain": ["source", "source", "target"], "size": [1, 2, 3]})
    >>> read_graph(frame, pl.DataFrame({"from": ["a", "b"], "to": ["b", "c"]}))
    NodeGraph(3 nodes: 2 source, 1 target; 2 edges; 1 features)
    """
    given = graph_tables(nodes) or cell_tables(nodes, use_rep) or pyg_tables(nodes)
    if given is not None:
        if edges is not None:
            raise TableError("a graph or a file of cells has its own edges; leave the edges out")
        if read.get("weight") in (None, given.weight):
            require_weights(given)
        nodes, edges = given.nodes, given.edges
        names = ("weight", "features", "node_type", "relation")
        of_graph = {name: value for name in names if (value := getattr(given, name)) is not None}
        read = of_graph | {name: value for name, value in read.items() if value is not None}
    options = ReadOptions(**read)
    options = replace(options, weight=options.weight or None)
    with table_errors():
        if options.is_relational:
            nodes, edges, options = _relational_tables(nodes, edges, options)
        frame, origin = read_nodes(nodes, options)
        rows = node_rows(options, frame, origin)
        encoder, encoded = fit_encoder(
            frame, rows.columns, impute=options.impute, weights=options.block_weights, origin=origin
        )
        edge_index, edge_weight, _ = read_edges(edges, rows.ids, options)
        return NodeGraph(
            encoded.matrix,
            edge_index,
            rows.is_target,
            edge_weight=edge_weight,
            ids=rows.names.to_numpy(),
            categories=None if options.category is None else frame[options.category].to_numpy(),
            times=None if options.time is None else frame[options.time].to_numpy(),
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
            edge_from=reader.left,
            edge_to=reader.right,
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
    frame = opened.frame(end_columns(options, opened.columns))
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
