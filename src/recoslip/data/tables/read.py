"""Tables, or a graph -> NodeGraph; tables of new nodes + a fitted encoder -> a graph to score."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import nearest_edges
from recoslip.data.options import ReadOptions, reads
from recoslip.data.tables import node_columns
from recoslip.data.tables.candidates import id_column, id_columns
from recoslip.data.tables.cells import cell_tables
from recoslip.data.tables.edges import SAMPLE_EDGES, EdgeReader, choose_ends, log_dropped_edges
from recoslip.data.tables.graph_tables import edge_table, graph_tables, require_weights
from recoslip.data.tables.node_columns import choose_label, column_arrays, node_rows, own_ids
from recoslip.data.tables.relations import add_relations
from recoslip.data.tables.table import Table, open_table, table_errors
from recoslip.data.tables.table_encoder import TableEncoder, TableFeatures, fit_encoder, same_encoding, stack_rows

GivenTable: TypeAlias = "str | os.PathLike[str] | pl.DataFrame | Any"  # a path, or a polars or pandas data frame
NO_EDGES = np.empty((2, 0), dtype=np.int64)
Edges: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.float64] | None, int]"


@reads()
def read_graph(
    nodes: GivenTable | Any, edges: GivenTable | Any | None = None, *, use_rep: str | None = None, **read: Any
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
    cells = cell_tables(nodes, use_rep)
    if use_rep is not None and cells is None:
        raise TableError(f"use_rep is about cells (AnnData), and this is another graph; got {use_rep!r}, leave it out")
    given = cells or graph_tables(nodes)
    if given is not None:
        if edges is not None:
            raise TableError("a graph or a file of cells has its own edges; leave the edges out")
        if read.get("weight") in (None, given.weight):
            require_weights(given)
        nodes, edges = given.nodes, given.edges
        names = ("weight", "features", "node_type", "relation")
        of_graph = {name: value for name in names if (value := getattr(given, name)) is not None}
        called = {} if cells is None else {"noun": "cells"}
        read = of_graph | called | {name: value for name, value in read.items() if value is not None}
    options = ReadOptions(**read)
    options = replace(options, weight=options.weight or None)
    with table_errors():
        if options.is_relational:
            nodes, edges, options = _relational_tables(nodes, edges, options)
        if options.neighbours is not None and edges is not None:
            raise TableError("neighbours joins the nodes of a table without edges; leave it or the edges out")
        rows = node_rows(options, open_nodes(nodes, options))
        table = rows.table
        encoder, encoded = fit_encoder(
            table.frame, rows.columns, impute=options.impute, weights=options.block_weights, origin=table.origin
        )
        edge_index, edge_weight, _ = read_edges(edges, rows.ids, options, given_ids=rows.given_ids)
        if options.neighbours is not None:
            if options.neighbours >= table.height:
                raise TableError(f"neighbours must be fewer than the {table.height:,} rows; got {options.neighbours}")
            edge_index = nearest_edges(encoded.matrix, rows.ids, options.neighbours)
        return NodeGraph(
            encoded.matrix,
            edge_index,
            rows.is_target,
            edge_weight=edge_weight,
            ids=rows.names.to_numpy(),
            categories=None if options.category is None else table[options.category].to_numpy(),
            times=None if options.time is None else table[options.time].to_numpy(),
            feature_names=encoder.feature_names,
            encoding=encoder.to_json(),
            missing=encoded.missing,
            columns=column_arrays(table, rows.kept),
            label=rows.label,
            terms=rows.terms,
            reading=rows.reading,
        )


def _relational_tables(nodes: Any, edges: Any, options: ReadOptions) -> tuple[pl.DataFrame, pl.DataFrame, ReadOptions]:
    """Return the nodes that are scored, with columns of how they are joined, the edges among them, and options."""
    if edges is None:
        raise TableError("several kinds of nodes or edges need a table of edges")
    table = open_nodes(nodes, options)
    ids = own_ids(table, id_column(table, options.id)).cast(pl.String)
    edge_rows, reader = open_edges(edges, ids, options)
    found = add_relations(table, edge_rows, reader, options)
    own = options.features if options.features is None else [n for n in options.features if n in found.nodes.columns]
    return (
        found.nodes,
        found.edges,
        replace(
            options,
            features=None if own is None else [*own, *found.added],
            ignore=[name for name in options.ignore if name in found.nodes.columns],
            text=[name for name in options.text if name in found.nodes.columns],
            read_as={name: kind for name, kind in options.read_as.items() if name in found.nodes.columns},
            edge_from=reader.left,
            edge_to=reader.right,
        ),
    )


def open_nodes(given: GivenTable, options: ReadOptions, as_text: Collection[str] = ()) -> Table:
    """Open a nodes table.

    Args:
        given: the table.
        options: which columns to read.
        as_text: columns of a text file whose types are not to be guessed, besides the ids.
    """
    with open_table(given, "nodes", options) as table:
        return table.typed([*id_columns(table, options.id), *as_text])


def open_edges(
    given: GivenTable, ids: pl.Series, options: ReadOptions, given_ids: pl.Series | None = None
) -> tuple[Table, EdgeReader]:
    """Open an edges table, and return it with the reader of its rows; the arguments are those of `read_edges`."""
    given, own_weight = edge_table(given, ids if given_ids is None else given_ids)
    options = replace(options, weight=options.weight or own_weight)
    with open_table(given, "edges", options) as opened:
        options = choose_ends(opened.head(SAMPLE_EDGES), ids, options)
        table = opened.typed([options.edge_from, options.edge_to])
    return table, EdgeReader(table, ids, options, given_ids)


def read_edges(
    given: GivenTable | None,
    ids: pl.Series,
    options: ReadOptions,
    *,
    given_ids: pl.Series | None = None,
    may_drop_all: bool = False,
) -> Edges:
    """Edges between ids -> edges between node positions, (2, edges), their weights, and how many were dropped.

    Args:
        given: the edges table.
        ids: the ids of the nodes, as text.
        options: which columns to read.
        given_ids: the ids of all rows of the nodes table, where some were left out.
        may_drop_all: whether it is no error if every edge names an unknown node and is dropped.
    """
    if given is None:
        return NO_EDGES, None, 0
    table, reader = open_edges(given, ids, options, given_ids)
    if not table.height:
        return NO_EDGES, None, 0
    edge_index, edge_weight = reader.read(table.frame)
    if reader.dropped == table.height and not may_drop_all:
        reader.refuse_no_edge(table.frame)
    log_dropped_edges(reader.dropped)
    return edge_index, edge_weight, reader.dropped


# Tables with a fitted encoder.


class EncodedNodes(NamedTuple):
    """A nodes table that was encoded as another one."""

    table: Table
    ids: pl.Series  # as text or whole numbers
    features: TableFeatures


def encode_nodes(
    given: GivenTable,
    options: ReadOptions,
    encoder: TableEncoder,
    rename: Mapping[str, str] | None = None,
    numbered: str | None = None,
) -> EncodedNodes:
    """Read a nodes table with the encoder of another.

    Args:
        given: the table; it needs no domain.
        options: which columns to read.
        encoder: fitted on the other table.
        rename: names of the table's columns -> the names that the encoder knows them by.
        numbered: what is before the numbers of rows, which are ids where no column holds any; None to refuse that.
    """
    table = open_nodes(given, options, encoder.text_columns(rename))
    ids = own_ids(table, id_column(table, options.id) if numbered else options.id, numbered or "")
    features = encoder.transform(table.frame, impute=options.impute, rename=rename, origin=table.origin)
    return EncodedNodes(table, ids, features)


@dataclass(frozen=True, eq=False)
class NewNodes:
    """New nodes among old ones, and what was noticed while they were read."""

    graph: NodeGraph  # all nodes, the old ones first
    is_new: NDArray[np.bool_]  # (nodes,) those of the new table
    features: TableFeatures  # of the new table
    unused: tuple[str, ...]  # columns of the new table that the encoder has no use for
    old: int | None  # how many old nodes were given; None where they were not
    replaced: int  # old nodes whose row the new table gives again
    lost_edges: int  # edges of the new nodes that lead to nodes which are not given


@reads("id", "edge_from", "edge_to", "weight", "drop_unknown", "impute", "label", "keep", "encoding")
def read_new_nodes(
    nodes: GivenTable,
    edges: GivenTable | None,
    encoder: TableEncoder,
    is_source: Callable[[NDArray[Any]], NDArray[np.bool_]],
    *,
    old_nodes: GivenTable | NodeGraph | None = None,
    old_edges: GivenTable | None = None,
    rename: Mapping[str, str] | None = None,
    **read: Any,
) -> NewNodes:
    """Read nodes that a detector was not fitted on, with the encoder of those it was fitted on.

    Edges to unknown nodes are always left out where old nodes are not given.

    Args:
        nodes: table of the new nodes; it needs no domain.
        edges: table of their edges, to each other and to old nodes.
        encoder: fitted on the old nodes.
        is_source: says which ids are source nodes of the graph that was fitted; all others are target.
        old_nodes: table of the old nodes, or their graph, so that neighbourhoods are complete. A row that the new table
            has, too, is taken from there.
        old_edges: table of the old nodes' edges; not with a graph, which has its own.
        rename: names of the new table's columns -> the names that the encoder knows them by.
    """
    options = ReadOptions(**read)
    if old_edges is not None and (old_nodes is None or isinstance(old_nodes, NodeGraph)):
        raise TableError("old edges go with a table of old nodes; a packed graph has its own edges")
    with table_errors():
        table, own, features = encode_nodes(nodes, options, encoder, rename, "new row")
        node_columns.require_unique(own.cast(pl.String))
        ids = id_column(table, options.id)
        naming = choose_label(table, {ids} - {None}, options.label)
        columns = column_arrays(table, node_columns.choose_kept(table, options.keep, naming))
        x, names, old, old_index, old_weight = features.matrix, own.to_numpy(), None, NO_EDGES, None
        if old_nodes is None:
            options = replace(options, drop_unknown=True)
        else:
            old = _old_graph(old_nodes, old_edges, encoder, is_source, options, list(columns))
            stays = ~_as_text(old.ids).is_in(_as_text(names).implode()).to_numpy()
            absent = np.full(old.num_nodes, None, dtype=object)
            x = stack_rows([old.x[np.flatnonzero(stays)], x])
            columns = {name: np.append(old.columns.get(name, absent)[stays], new) for name, new in columns.items()}
            names = _joined_ids(old.ids[stays], names)
        known = _as_text(names)
        if old is not None:
            position = _as_text(old.ids).replace_strict(known, range(len(known)), return_dtype=pl.Int64).to_numpy()
            old_index, old_weight = position[old.edge_index], old.edge_weight
        index, weight, lost = read_edges(edges, known, options, may_drop_all=old is None)
        # An old edge that is given again counts once, in whichever direction.
        key, old_key = (np.minimum(*ends) * len(known) + np.maximum(*ends) for ends in (index, old_index))
        is_more = ~np.isin(key, old_key)
        parts = [(old_index, old_weight), (index[:, is_more], None if weight is None else weight[is_more])]
        graph = NodeGraph(
            x,
            np.hstack([index for index, _ in parts]),
            ~is_source(known.to_numpy()),
            edge_weight=_joined_weights(parts),
            ids=names,
            feature_names=encoder.feature_names,
            encoding=encoder.to_json(),
            missing=features.missing,
            columns=columns,
            label=naming,
            terms=None if old is None else old.terms,
            one_domain=True,
        )
    used = {column.name for column in encoder.columns} | {ids, *(rename or {}), *columns}
    return NewNodes(
        graph=graph,
        is_new=np.arange(graph.num_nodes) >= graph.num_nodes - table.height,
        features=features,
        unused=tuple(name for name in table.columns if name not in used),
        old=None if old is None else old.num_nodes,
        replaced=0 if old is None else old.num_nodes + table.height - graph.num_nodes,
        lost_edges=lost,
    )


def _old_graph(
    nodes: GivenTable | NodeGraph,
    edges: GivenTable | None,
    encoder: TableEncoder,
    is_source: Callable[[NDArray[Any]], NDArray[np.bool_]],
    options: ReadOptions,
    kept: Sequence[str],
) -> NodeGraph:
    if isinstance(nodes, NodeGraph):
        if nodes.encoding is None or not same_encoding(nodes.encoding, encoder.to_json()):
            raise TableError(
                "the old graph's features were made by another encoder than the model's; give the graph that the model "
                "was fitted on, or its tables"
            )
        return nodes
    table, names, features = encode_nodes(nodes, options, encoder, numbered="row")
    ids = names.cast(pl.String)
    index, weight, _ = read_edges(edges, ids, options)
    return NodeGraph(
        features.matrix,
        index,
        ~is_source(ids.to_numpy()),
        edge_weight=weight,
        ids=names.to_numpy(),
        columns=column_arrays(table, [name for name in kept if name in table.columns]),
        one_domain=True,
    )


def _as_text(ids: NDArray[Any]) -> pl.Series:
    return pl.Series("id", [str(name) for name in ids.tolist()], dtype=pl.String)


def _joined_ids(*parts: NDArray[Any]) -> NDArray[Any]:
    """Return ids one after the other: numbers where all are, else text."""
    if all(part.dtype.kind in "iu" for part in parts):
        return np.concatenate(parts)
    return np.array([str(name) for part in parts for name in part], dtype=object)


def _joined_weights(parts: Sequence[tuple[Any, Any]]) -> NDArray[np.float64] | None:
    """Return the weights of all edges; None where none has any."""
    parts = [(index, weight) for index, weight in parts if index.shape[1]]
    if all(weight is None for _, weight in parts):
        return None
    if any(weight is None for _, weight in parts):
        raise TableError("the edges of old and new nodes must all have weights, or none: weight=...")
    return np.concatenate([np.asarray(weight, dtype=np.float64) for _, weight in parts])
