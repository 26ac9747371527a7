"""Nodes and edges of several kinds -> the nodes that are scored, with columns that say how each kind joins them.

A network sees edges without their kinds. What the kinds tell is therefore put into columns of the nodes, one kind of
edges (a relation) at a time: how many edges of it a node has, what these edges are like, what the neighbours by them
are like, and, where the neighbours are nodes of another kind, what else is joined to these. It is the first layer of a
relational network, with means in place of learned weights (R-GCN, Schlichtkrull et al. 2018; NARS, Yu et al. 2020).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import TableError, nearest
from recoslip.data.options import ReadOptions
from recoslip.data.tables.columns import plan_columns, require_column
from recoslip.data.tables.edges import EdgeReader
from recoslip.data.tables.node_columns import require_values
from recoslip.data.tables.table import Table
from recoslip.data.tables.table_encoder import fit_encoder

WIDTH = 16  # of the vectors that neighbours are described by
MOST_RELATIONS = 50  # kinds of edges, at most: each becomes columns
MOST_VALUES = 20  # of a category of edges, each a column; the most frequent ones
ALL = "edges"  # the one relation where edges have no kinds


class Relational(NamedTuple):
    """The nodes that are scored and the edges among them."""

    nodes: pl.DataFrame  # with the columns that say how nodes are joined
    edges: pl.DataFrame
    added: list[str]  # those columns


def add_relations(nodes: Table, edges: Table, reader: EdgeReader, options: ReadOptions) -> Relational:
    """Describe the nodes that are scored by how they are joined.

    Args:
        nodes: all nodes, of whatever kind.
        edges: all edges.
        reader: of the edges, with the ids of all nodes.
        options: which columns hold the kinds of nodes and edges, and what edges are like.
    """
    kinds, relations = _kinds(nodes, options), _relations(edges, options)
    ends, known = reader.ends(edges.frame)
    rows, relation = edges.frame.filter(known), relations.filter(known).to_numpy()
    of_kind = pl.DataFrame({"kind": kinds})
    place = of_kind.select(pl.int_range(pl.len()).over("kind")).to_series().to_numpy()  # of a node among its kind
    vectors = {kind: _vectors(nodes.frame.filter(kinds == kind), options) for kind in dict.fromkeys(kinds.to_list())}
    own, codes = options.scored or "", kinds.to_numpy()
    is_scored, columns = codes == own, list[pl.Series]()
    for name in sorted(set(relation)):
        of_name = np.flatnonzero(relation == name)
        both = np.hstack([ends[:, of_name], ends[::-1, of_name]])  # every edge from both of its ends
        for kind, features in vectors.items():
            here = is_scored[both[0]] & (codes[both[1]] == kind)
            if not here.any():
                continue
            places = place[both[:, here]]
            joins = sp.csr_array((np.ones(len(places[0])), places), shape=(is_scored.sum(), (codes == kind).sum()))
            described = rows[np.tile(of_name, 2)[here]].select(options.edge_features)
            title = name if len(vectors) == 1 else f"{name} {kind}"
            columns += _columns(title, joins, places[0], features, None if kind == own else vectors[own], described)
    kept = nodes.frame.filter(is_scored)
    kept = kept.select([name for name in kept.columns if kept[name].null_count() < kept.height])
    among = rows.filter(is_scored[ends].all(axis=0))
    return Relational(kept.with_columns(columns), among, [column.name for column in columns])


def _kinds(nodes: Table, options: ReadOptions) -> pl.Series:
    """Return the kind of each node; the empty text where there is one kind."""
    if options.node_type is None:
        return pl.Series([""] * nodes.height)
    require_column(nodes.columns, options.node_type, "nodes")
    kinds = nodes[options.node_type].cast(pl.String)
    require_values(kinds, f"the column {options.node_type!r} of kinds of nodes", nodes.origin, "fill it")
    values = kinds.unique().sort().to_list()
    if options.scored not in values:
        raise TableError(
            f"scored must be one of the kinds of nodes in {options.node_type!r}, {', '.join(map(repr, values[:10]))}"
            f"; got {options.scored!r}{nearest(str(options.scored), values)}"
        )
    return kinds


def _relations(edges: Table, options: ReadOptions) -> pl.Series:
    """Return the kind of each edge; check that the columns which say what edges are like are there."""
    for column in options.edge_features:
        require_column(edges.columns, column, "edges")
    if not options.relation:
        return pl.Series([ALL] * edges.height, dtype=pl.String)
    require_column(edges.columns, options.relation, "edges")
    relation = edges[options.relation].cast(pl.String)
    require_values(relation, f"the column {options.relation!r} of kinds of edges", edges.origin, "fill it")
    if relation.n_unique() > MOST_RELATIONS:
        raise TableError(
            f"the column {options.relation!r} has {relation.n_unique():,} kinds of edges; expected at most "
            f"{MOST_RELATIONS}; pool the rare ones, or use a number as an edge feature (edge_features=...)"
        )
    return relation


def _vectors(nodes: pl.DataFrame, options: ReadOptions) -> NDArray[np.float64] | None:
    """Return a short vector of each node's own columns; None where it has none that are features."""
    reserved = {options.id, options.domain, options.time, options.category, options.node_type}
    filled = [name for name in nodes.columns if name in reserved or nodes[name].null_count() < nodes.height]
    nodes = nodes.select(filled)
    own: dict[str, Any] = {
        name: None if (given := getattr(options, name)) is None else [column for column in given if column in filled]
        for name in ("features", "ignore", "text")
    }
    try:
        columns = plan_columns(Table("nodes", nodes), reserved, replace(options, **own))
    except TableError:  # no column is a feature
        return None
    matrix: Any = fit_encoder(nodes, columns, impute=True, weights=options.block_weights)[1].matrix
    if matrix.shape[1] > WIDTH and min(matrix.shape) > WIDTH:
        from sklearn.decomposition import TruncatedSVD

        with np.errstate(all="ignore"):  # in the explained variance, which is not used
            return np.asarray(TruncatedSVD(WIDTH, random_state=0).fit_transform(matrix))
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)


def _columns(
    title: str,
    joins: sp.csr_array,
    one: NDArray[np.int64],
    features: NDArray[np.float64] | None,
    own: NDArray[np.float64] | None,
    edges: pl.DataFrame,
) -> list[pl.Series]:
    """Return what one relation says of the nodes that are scored.

    Args:
        title: of the relation.
        joins: (scored, others) how often the nodes that are scored are joined to those at the other ends.
        one: (edges,) positions of the nodes that are scored.
        features: (others, width) what the nodes at the other ends are like.
        own: (scored, width) what the nodes that are scored are like, if the others are of another kind.
        edges: what the edges are like.
    """
    degree = np.bincount(one, minlength=joins.shape[0])
    columns = [pl.Series(f"{title}: log(1 + edges)", np.log1p(degree))]
    if features is not None:
        columns.append(_vector(f"{title}: neighbours", _mean(joins, features), joins))
    if own is not None:
        shared = _mean(joins, _mean(sp.csr_array(joins.T), own))
        columns.append(_vector(f"{title}: shared neighbours", shared, joins))
    to_node = sp.csr_array((np.ones(len(one)), (one, np.arange(len(one)))), shape=(len(degree), len(one)))
    for feature in edges.columns:
        for name, values in _edge_values(edges[feature]):
            mean = _mean(to_node, values[:, None])[:, 0]
            mean[degree == 0] = values.mean()  # a node without such an edge is like the average
            columns.append(pl.Series(f"{title}: {name}", mean))
    return columns


def _edge_values(column: pl.Series) -> list[tuple[str, NDArray[np.float64]]]:
    """Return a column of the edges as numbers: itself, or one for each of its values."""
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        numbers = column.cast(pl.Float64).fill_nan(None)
        if numbers.null_count():
            raise TableError(f"the edge feature {column.name!r} is empty in {numbers.null_count()} rows; fill them")
        return [(f"mean {column.name}", numbers.to_numpy())]
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise TableError(f"the edge feature {column.name!r} must hold numbers or categories; got {column.dtype}")
    texts = column.cast(pl.String).fill_null("(missing)")
    values = texts.value_counts().sort(["count", column.name], descending=[True, False])[column.name][:MOST_VALUES]
    return [(f"share of {column.name}={value}", (texts == value).cast(pl.Float64).to_numpy()) for value in values]


def _mean(joins: sp.csr_array, features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of what a node is joined to; 0 where that is nothing."""
    count = np.maximum(1, np.asarray(joins.sum(axis=1)).ravel())
    mean: NDArray[np.float64] = (joins @ features) / count[:, None]
    return mean


def _vector(name: str, rows: NDArray[np.float64], joins: sp.csr_array) -> pl.Series:
    """Return rows as a column of vectors; a node that is joined to nothing is like the average."""
    joined = np.diff(joins.indptr) > 0
    rows[~joined] = rows[joined].mean(axis=0)
    return pl.Series(name, rows, dtype=pl.Array(pl.Float64, rows.shape[1]))
