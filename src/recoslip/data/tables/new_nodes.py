"""Tables of new nodes + a fitted encoder -> a graph to score, joined to the old nodes where they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.data.graph import NodeGraph
from recoslip.data.options import ReadOptions, reads
from recoslip.data.tables.columns import Origin, require_column
from recoslip.data.tables.node_columns import choose_kept, choose_label, column_arrays, own_ids
from recoslip.data.tables.read import Table, read_edges, read_nodes
from recoslip.data.tables.table import table_errors
from recoslip.data.tables.table_encoder import TableEncoder, TableFeatures, same_encoding, stack_rows


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
    nodes: Table,
    edges: Table | None,
    encoder: TableEncoder,
    is_source: Callable[[NDArray[Any]], NDArray[np.bool_]],
    *,
    old_nodes: Table | NodeGraph | None = None,
    old_edges: Table | None = None,
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
        frame, origin = read_nodes(nodes, options, encoder.text_columns(rename))
        features = encoder.transform(frame, impute=options.impute, rename=rename, origin=origin)
        own = _own_ids(frame, options, origin)
        ids = known = own.cast(pl.String)
        matrix, names = features.matrix, own.to_numpy()
        naming = choose_label(frame, {options.id}, options.label)
        columns = column_arrays(frame, choose_kept(frame, options.keep, naming))
        edge_parts: list[tuple[Any, Any]] = []
        old = _old_graph(old_nodes, old_edges, encoder, is_source, options, list(columns))
        if old is not None:
            is_kept = ~_as_text(old.ids).is_in(ids.implode()).to_numpy()
            known = pl.concat([_as_text(old.ids[is_kept]), ids])
            matrix = stack_rows([_rows(old, is_kept), matrix])
            names = _joined_names(old.ids[is_kept], names)
            columns = {name: np.concatenate([_column(old, name)[is_kept], values]) for name, values in columns.items()}
            position = _positions(_as_text(old.ids), known)
            edge_parts.append((position[old.edge_index], old.edge_weight))
        else:
            options = replace(options, drop_unknown=True)
        own_index, own_weight, lost = read_edges(edges, known, options, may_drop_all=old is None)
        is_more = _not_among(own_index, edge_parts[0][0] if edge_parts else own_index[:, :0], len(known))
        edge_parts.append((own_index[:, is_more], None if own_weight is None else own_weight[is_more]))
        graph = NodeGraph(
            matrix,
            np.hstack([index for index, _ in edge_parts]),
            ~is_source(known.to_numpy()),
            edge_weight=_joined_weights(edge_parts),
            ids=names,
            feature_names=encoder.feature_names,
            encoding=encoder.to_json(),
            missing=features.missing,
            columns=columns,
            label=naming,
            one_domain=True,
        )
    used = {column.name for column in encoder.columns} | {options.id, *(rename or {}), *columns}
    return NewNodes(
        graph=graph,
        is_new=np.arange(graph.num_nodes) >= graph.num_nodes - frame.height,
        features=features,
        unused=tuple(name for name in frame.columns if name not in used),
        old=None if old is None else old.num_nodes,
        replaced=0 if old is None else old.num_nodes + frame.height - graph.num_nodes,
        lost_edges=lost,
    )


def _old_graph(
    nodes: Table | NodeGraph | None,
    edges: Table | None,
    encoder: TableEncoder,
    is_source: Callable[[NDArray[Any]], NDArray[np.bool_]],
    options: ReadOptions,
    kept: Sequence[str],
) -> NodeGraph | None:
    if nodes is None:
        return None
    if isinstance(nodes, NodeGraph):
        if nodes.encoding is None or not same_encoding(nodes.encoding, encoder.to_json()):
            raise TableError(
                "the old graph's features were made by another encoder than the model's; give the graph that the model "
                "was fitted on, or its tables"
            )
        return nodes
    frame, origin = read_nodes(nodes, options, encoder.text_columns())
    own = _own_ids(frame, options, origin)
    ids = own.cast(pl.String)
    index, weight, _ = read_edges(edges, ids, options)
    matrix = encoder.transform(frame, impute=options.impute, origin=origin).matrix
    return NodeGraph(
        matrix,
        index,
        ~is_source(ids.to_numpy()),
        edge_weight=weight,
        ids=own.to_numpy(),
        columns=column_arrays(frame, [name for name in kept if name in frame.columns]),
        one_domain=True,
    )


def _column(graph: NodeGraph, name: str) -> NDArray[Any]:
    """Return a column that is shown beside the nodes; all of it is missing where the graph has none of that name."""
    return graph.columns[name] if name in graph.columns else np.full(graph.num_nodes, None, dtype=object)


def _own_ids(frame: pl.DataFrame, options: ReadOptions, origin: Origin) -> pl.Series:
    require_column(frame.columns, options.id, "nodes")
    return own_ids(frame[options.id], "nodes", origin).alias("id")


def _joined_names(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Return the ids of old and new nodes: whole numbers if all are, else text."""
    if old.dtype.kind in "iu" and new.dtype.kind in "iu":
        return np.concatenate([old, new])
    return np.array([str(name) for name in (*old.tolist(), *new.tolist())], dtype=object)


def _as_text(ids: NDArray[Any]) -> pl.Series:
    return pl.Series("id", [str(name) for name in ids.tolist()], dtype=pl.String)


def _positions(ids: pl.Series, among: pl.Series) -> NDArray[np.int64]:
    """Return the position of each id among others, all of which are there."""
    table = pl.DataFrame({"id": among, "position": np.arange(len(among))})
    found = pl.DataFrame({"id": ids}).join(table, on="id", how="left", maintain_order="left")["position"]
    return found.to_numpy().astype(np.int64)


def _not_among(edges: NDArray[np.int64], others: NDArray[np.int64], nodes: int) -> NDArray[np.bool_]:
    """Return which edges are not among others, in either direction: an old edge that is given again counts once."""
    own, theirs = (np.minimum(*ends) * nodes + np.maximum(*ends) for ends in (edges, others))
    return ~np.isin(own, theirs)


def _rows(graph: NodeGraph, chosen: NDArray[np.bool_]) -> Any:
    x: Any = graph.x
    return x[np.flatnonzero(chosen)]


def _joined_weights(parts: Sequence[tuple[Any, Any]]) -> NDArray[np.float64] | None:
    """Return the weights of all edges; None where none has any."""
    weighted = [index.shape[1] > 0 and weight is not None for index, weight in parts]
    if not any(weighted):
        return None
    if any(weight is None and index.shape[1] for index, weight in parts):
        raise TableError("the edges of old and new nodes must all have weights, or none: weight=...")
    return np.concatenate([np.asarray(weight, dtype=np.float64) for index, weight in parts if index.shape[1]])
