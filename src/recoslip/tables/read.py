"""A table of nodes and a table of edges -> NodeGraph."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.encoders.columns import require_column
from recoslip.encoders.origin import FRAME, Origin
from recoslip.encoders.table_encoder import fit_encoder
from recoslip.errors import TableError
from recoslip.graph import NodeGraph
from recoslip.read_options import ReadOptions, reads
from recoslip.storage import printable
from recoslip.tables.cells import cell_tables
from recoslip.tables.edges import SAMPLE_EDGES, EdgeReader, choose_ends, log_dropped_edges
from recoslip.tables.files import check_file, origin_of, read_errors, read_file, table_errors
from recoslip.tables.formats import table_format
from recoslip.tables.graph_tables import edge_table, graph_tables
from recoslip.tables.kept_columns import column_arrays
from recoslip.tables.node_columns import checked_ids
from recoslip.tables.options import TableName, node_rows
from recoslip.tables.pyg import pyg_tables
from recoslip.tables.relations import add_relations, check_relational
from recoslip.tables.samples import text_rows

Table: TypeAlias = "str | os.PathLike[str] | pl.DataFrame | Any"  # a path, or a polars or pandas data frame


@reads()
def read_graph(
    nodes: Table | Any, edges: Table | Any | None = None, *, use_rep: str | None = None, **read: Any
) -> NodeGraph:
    """Read a graph from a table of nodes and a table of edges, or from a graph of another library or its file.

    Numbers may be written as text, with decimal commas (12,5), thousands set apart (1.234,56 or 1,234.56) and missing
    values spelled out (NA, n/a, null, -, ? and the like; `MISSING_SPELLINGS` in `recoslip.encoders.numbers` has all).
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
    options = ReadOptions(**read)
    given = graph_tables(nodes) or cell_tables(nodes, use_rep) or pyg_tables(nodes)
    if given is not None:
        if edges is not None:
            raise TableError("a graph or a file of cells has its own edges; leave the edges out")
        nodes, edges = given.nodes, given.edges
        options = replace(
            options,
            weight=given.weight if options.weight is None else options.weight,
            features=given.features if options.features is None else options.features,
            node_type=options.node_type or given.node_type,
            relation=options.relation or given.relation,
        )
    options = replace(options, weight=options.weight or None)
    with table_errors():
        if options.is_relational:
            nodes, edges, options = _relational_tables(nodes, edges, options)
        frame = to_frame(nodes, "nodes", options)
        origin = table_origin(nodes, "nodes", options)
        rows = node_rows(options, frame, origin)
        encoder, encoded = fit_encoder(
            frame, rows.columns, impute=options.impute, weights=options.block_weights, origin=origin
        )
        edge_index, edge_weight, _ = read_edges(edges, rows.ids, options, besides=_copy_bytes(encoded.matrix))
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
    frame = to_frame(nodes, "nodes", options)
    require_column(frame.columns, options.id, "nodes")
    ids = checked_ids(frame[options.id], "nodes", table_origin(nodes, "nodes", options)).cast(pl.String)
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


def _copy_bytes(matrix: Any) -> int:
    """Return the bytes that a NodeGraph takes for its own copy of the features, and for checking them."""
    if sp.issparse(matrix):
        return 4 * int(matrix.data.nbytes + matrix.indices.nbytes)
    return int(matrix.nbytes) * 5 // 4


def to_frame(
    table: Table, name: TableName, options: ReadOptions, besides: int = 0, as_text: Collection[str] = ()
) -> pl.DataFrame:
    """Read a table from a file or a data frame of polars or pandas.

    Args:
        table: the table.
        name: "nodes" or "edges".
        options: which columns to read.
        besides: bytes of memory that must stay free for something else.
        as_text: columns of a text file whose types are not to be guessed.
    """
    if isinstance(table, str | os.PathLike):
        frame = read_file(Path(table), name, options, besides, as_text)
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


def table_origin(table: Table, name: TableName, options: ReadOptions) -> Origin:
    """Return where a table comes from: how its rows are counted, and which decimal mark it uses."""
    return origin_of(Path(table), name, options) if isinstance(table, str | os.PathLike) else FRAME


def read_edges(
    table: Table | None, ids: pl.Series, options: ReadOptions, besides: int = 0, *, may_drop_all: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None, int]:
    """Edges between ids -> edges between node positions, (2, edges), their weights, and how many were dropped.

    Args:
        table: the edges table.
        ids: the ids of the nodes, as text.
        options: which columns to read.
        besides: bytes of memory that must stay free for something else.
        may_drop_all: whether it is no error if every edge names an unknown node and is dropped.
    """
    if table is None:
        return np.empty((2, 0), dtype=np.int64), None, 0
    frame, reader = open_edges(table, ids, options, besides)
    if frame.height == 0:
        return np.empty((2, 0), dtype=np.int64), None, 0
    edge_index, edge_weight = reader.read(frame)
    if reader.dropped == frame.height and not may_drop_all:
        reader.refuse_no_edge(frame)
    log_dropped_edges(reader.dropped)
    return edge_index, edge_weight, reader.dropped


def open_edges(table: Table, ids: pl.Series, options: ReadOptions, besides: int = 0) -> tuple[pl.DataFrame, EdgeReader]:
    """Read an edges table, and return it with the reader of its rows; the arguments are those of `read_edges`."""
    table, own_weight = edge_table(table, ids)
    options = replace(options, weight=options.weight or own_weight)
    if isinstance(table, str | os.PathLike):
        options = name_ends(Path(table), ids, options)
    frame = to_frame(table, "edges", options, besides)
    origin = table_origin(table, "edges", options)
    reader = EdgeReader(frame.head(SAMPLE_EDGES), _describe_table(table, "edges"), ids, options, origin)
    if isinstance(table, str | os.PathLike):
        reader.check_header()
    return frame, reader


def name_ends(path: Path, ids: pl.Series, options: ReadOptions) -> ReadOptions:
    """Return the options with the columns of the ends of a text file, which must be known before it is read as text.

    Those of other files have types, and are found when the rows are there.
    """
    check_file(path, "edges", options)
    if table_format(path) != "text" or None not in (options.edge_from, options.edge_to):
        return options
    with read_errors(path, "edges"):
        return choose_ends(text_rows(path, SAMPLE_EDGES, options.encoding), ids, options)


def _describe_table(table: Table, name: TableName) -> str:
    return printable(table) if isinstance(table, str | os.PathLike) else f"the {name} table"
