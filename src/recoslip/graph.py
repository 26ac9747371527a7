"""Features, edges and domains -> NodeGraph: validated at the door, immutable, the only thing detectors see."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from recoslip.errors import GraphError

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data

log = logging.getLogger("recoslip")

Features: TypeAlias = "Tensor | ArrayLike | sp.sparray | sp.spmatrix"


@dataclass(frozen=True)
class EdgeRepairs:
    """What had to be done to the given edges to make them a simple undirected graph."""

    mirrored: int  # one-way edges that were given their other direction
    merged: int  # repetitions of an edge that was already there
    loops: int  # edges from a node to itself, dropped

    def __str__(self) -> str:
        parts = {
            "one-way edges mirrored": self.mirrored,
            "duplicate edges merged": self.merged,
            "self-loops dropped": self.loops,
        }
        return ", ".join(f"{count:,} {what}" for what, count in parts.items() if count) or "none needed"


class NodeGraph:
    """An undirected graph with node features, each node *source* (known world) or *target* (new world).

    Args:
        x: features, (nodes, features); dense or sparse, from torch, numpy or scipy. Sparse stays sparse.
        edge_index: (2, edges) node positions. One-way edges are mirrored, duplicates merged, self-loops
            dropped; `repairs` counts each. No edges at all is legal.
        is_target: (nodes,) true for target nodes. Both domains must be present.
        edge_weight: (edges,) positive weights; repetitions add up, two directions are averaged.
        ids: one unique, hashable name per node; positions when left out.
        categories: true categories where they are known. For scoring only: no detector's `fit` reads them.
        times: one time per node, kept for the user.
        feature_names: one name per feature.

    >>> graph = NodeGraph([[0.0], [1.0], [1.0]], [[0, 1, 1], [1, 0, 2]], [False, False, True])
    >>> graph
    NodeGraph(3 nodes: 2 source, 1 target; 2 edges; 1 features)
    >>> graph.edge_index.tolist()
    [[0, 1, 1, 2], [1, 0, 2, 1]]
    """

    __slots__ = (
        "categories",
        "edge_index",
        "edge_weight",
        "feature_names",
        "ids",
        "is_target",
        "repairs",
        "times",
        "x",
    )

    x: Tensor  # (nodes, features), float32, strided or CSR
    edge_index: Tensor  # (2, 2 * edges), int64, both directions, sorted by row then column
    edge_weight: Tensor | None  # (2 * edges,), float32
    is_target: Tensor  # (nodes,), bool
    ids: NDArray[Any]  # (nodes,)
    categories: NDArray[Any] | None  # (nodes,)
    times: NDArray[Any] | None  # (nodes,)
    feature_names: tuple[str, ...] | None
    repairs: EdgeRepairs

    def __init__(
        self,
        x: Features,
        edge_index: Tensor | ArrayLike,
        is_target: Tensor | ArrayLike,
        *,
        edge_weight: Tensor | ArrayLike | None = None,
        ids: Sequence[Hashable] | NDArray[Any] | None = None,
        categories: ArrayLike | None = None,
        times: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        features = _features(x)
        nodes = features.shape[0]
        edges, weight, repairs = _simple_edges(_edge_array(edge_index, nodes), edge_weight, nodes)
        fields = {
            "x": features,
            "edge_index": edges,
            "edge_weight": weight,
            "is_target": _domains(is_target, nodes),
            "ids": _unique_ids(ids, nodes),
            "categories": _per_node("categories", categories, nodes),
            "times": _per_node("times", times, nodes),
            "feature_names": _names(feature_names, features.shape[1]),
            "repairs": repairs,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if repairs != EdgeRepairs(0, 0, 0):
            log.info("edges: %s", repairs)

    @classmethod
    def of_parts(cls, **fields: Any) -> Self:
        """Put together what was checked elsewhere; the names are those of the attributes."""
        graph = cls.__new__(cls)
        for name in cls.__slots__:
            object.__setattr__(graph, name, fields[name])
        return graph

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"NodeGraph is immutable; build a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"NodeGraph is immutable; {name!r} cannot be deleted")

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.__slots__}
        if self.x.layout != torch.strided:
            state["x"] = to_scipy(self.x)  # PyTorch cannot pickle CSR tensors
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, to_csr(value) if sp.issparse(value) else value)

    def __copy__(self) -> Self:
        return self.of_parts(**{name: getattr(self, name) for name in self.__slots__})

    def __repr__(self) -> str:
        target = int(self.is_target.sum())
        return (
            f"NodeGraph({self.num_nodes:,} nodes: {self.num_nodes - target:,} source, {target:,} target; "
            f"{self.num_edges:,} edges; {self.num_features:,} features)"
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self.x.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return int(self.edge_index.shape[1]) // 2

    @property
    def num_features(self) -> int:
        """Number of features of a node."""
        return int(self.x.shape[1])

    @classmethod
    def from_pyg(cls, data: Data, is_target: Tensor | ArrayLike, **more: Any) -> Self:
        """Build from a PyTorch Geometric `Data`; `is_target` may also be the name of one of its fields.

        `y` becomes `categories`, `edge_weight` is taken where present; keyword arguments override both.
        """
        if data.x is None:
            raise GraphError("the PyG graph has no node features: expected data.x of shape (nodes, features)")
        if isinstance(is_target, str):
            if is_target not in data:
                raise GraphError(f"the PyG graph has no field {is_target!r}; it has {sorted(data.keys())}")
            is_target = data[is_target]
        edges = data.edge_index if data.edge_index is not None else torch.empty(2, 0, dtype=torch.long)
        more.setdefault("edge_weight", data.get("edge_weight"))
        more.setdefault("categories", data.get("y"))
        return cls(data.x, edges, is_target, **more)

    def to_pyg(self) -> Data:
        """Return a PyTorch Geometric `Data` with x, edge_index, is_target and, where known, edge_weight and y.

        Categories that are not numbers are numbered in sorted order.
        """
        from torch_geometric.data import Data

        data = Data(x=self.x.clone(), edge_index=self.edge_index.clone(), is_target=self.is_target.clone())
        if self.edge_weight is not None:
            data.edge_weight = self.edge_weight.clone()
        if self.categories is not None:
            y = self.categories
            if not np.issubdtype(y.dtype, np.integer):
                y = np.unique(y, return_inverse=True)[1]
            data.y = torch.from_numpy(y.astype(np.int64))
        return data

    @classmethod
    def from_networkx(
        cls,
        graph: nx.Graph,
        *,
        features: str | Sequence[str] = "x",
        is_target: str = "is_target",
        weight: str | None = None,
        category: str | None = None,
        time: str | None = None,
    ) -> Self:
        """Build from a NetworkX graph whose nodes carry their features and domain as attributes.

        Args:
            graph: directed or not; its nodes become the ids.
            features: the attribute that holds a node's feature vector, or several numeric attributes.
            is_target: the attribute that is true for target nodes.
            weight: the edge attribute to use as weight.
            category: the node attribute to use as true category.
            time: the node attribute to use as time.
        """
        ids = list(graph.nodes)
        position = {node: k for k, node in enumerate(ids)}

        def column(name: str) -> list[Any]:
            missing = [node for node in ids if name not in graph.nodes[node]]
            if missing:
                raise GraphError(
                    f"{len(missing)} nodes have no attribute {name!r} (first: {missing[0]!r}); set it on every node"
                )
            return [graph.nodes[node][name] for node in ids]

        if isinstance(features, str):
            x, names = _array("features", column(features)), None
            x = x.reshape(len(ids), -1) if len(ids) else x
        else:
            x, names = _array("features", list(zip(*map(column, features), strict=True))), features
        edges = [(position[a], position[b]) for a, b in graph.edges()]
        return cls(
            x,
            np.asarray(edges, dtype=np.int64).reshape(-1, 2).T,
            column(is_target),
            edge_weight=None if weight is None else [d for _, _, d in graph.edges(data=weight)],
            ids=ids,
            categories=None if category is None else column(category),
            times=None if time is None else column(time),
            feature_names=names,
        )

    def with_target(self, is_target: Tensor | ArrayLike) -> Self:
        """Return the same graph with other domains; everything else is shared."""
        other = copy.copy(self)
        object.__setattr__(other, "is_target", _domains(is_target, self.num_nodes))
        return other

    def without_edges(self) -> Self:
        """Return the same nodes with no edges."""
        other = copy.copy(self)
        object.__setattr__(other, "edge_index", torch.empty(2, 0, dtype=torch.long))
        object.__setattr__(other, "edge_weight", None)
        return other

    def with_edges(self, edge_index: Tensor | ArrayLike, edge_weight: Tensor | ArrayLike | None = None) -> Self:
        """Return the same nodes with other edges."""
        return type(self)(
            self.x,
            edge_index,
            self.is_target,
            edge_weight=edge_weight,
            ids=self.ids,
            categories=self.categories,
            times=self.times,
            feature_names=self.feature_names,
        )

    def permuted(self, order: ArrayLike) -> Self:
        """Return the same graph with its nodes in another order: new node k is old node `order[k]`."""
        index = torch.as_tensor(np.asarray(order), dtype=torch.long)
        if not torch.equal(index.sort().values, torch.arange(self.num_nodes)):
            raise GraphError(f"order must name each of the {self.num_nodes} nodes once")
        place = torch.empty_like(index)
        place[index] = torch.arange(self.num_nodes)
        kept: Mapping[str, Any] = {
            name: None if (value := getattr(self, name)) is None else value[index.numpy()]
            for name in ("ids", "categories", "times")
        }
        return type(self)(
            select_rows(self.x, index),
            place[self.edge_index],
            self.is_target[index],
            edge_weight=self.edge_weight,
            feature_names=self.feature_names,
            **kept,
        )


def to_scipy(x: Tensor) -> sp.csr_array:
    """CSR tensor -> scipy CSR sharing its memory."""
    return sp.csr_array((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))


def to_csr(matrix: sp.sparray | sp.spmatrix) -> Tensor:
    """Any scipy sparse matrix -> float32 CSR tensor with sorted, unique columns."""
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    crow, column = torch.from_numpy(csr.indptr.astype(np.int64)), torch.from_numpy(csr.indices.astype(np.int64))
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        values = torch.from_numpy(csr.data.astype(np.float32))
    return csr_tensor(crow, column, values, csr.shape)


def csr_tensor(crow: Tensor, column: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Put a CSR tensor together, without PyTorch's remarks that these are in beta, and unchecked as was asked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(crow, column, values, size=tuple(shape), check_invariants=False)


def adjacency_of(graph: NodeGraph) -> sp.csr_array:
    """The unweighted adjacency matrix."""
    rows, columns = graph.edge_index.numpy()
    return sp.csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(graph.num_nodes,) * 2)


def weighted_adjacency(graph: NodeGraph) -> sp.csr_array:
    """The adjacency matrix with the edges' weights, in double precision."""
    rows, columns = graph.edge_index.numpy()
    weight = np.ones(len(rows)) if graph.edge_weight is None else graph.edge_weight.numpy().astype(np.float64)
    return sp.csr_array((weight, (rows, columns)), shape=(graph.num_nodes,) * 2)


def mean_over_neighbours(graph: NodeGraph) -> sp.csr_array:
    """The matrix $D^{-1} A$; the row of a node without neighbours is empty."""
    adjacency = weighted_adjacency(graph)
    degree = adjacency.sum(axis=1)
    return sp.csr_array(sp.diags_array(1 / np.where(degree > 0, degree, 1)) @ adjacency)


class Neighbours:
    """Who is next to whom, asked some nodes at a time: the edges stay where they are, on disk if need be.

    Args:
        graph: the graph.
        weighted: whether its edges count by their weights, or all alike.

    >>> path = Neighbours(NodeGraph([[0.0], [1.0], [2.0]], [[0, 1], [1, 2]], [False, False, True]))
    >>> path.mean(np.array([0.0, 1.0, 4.0])).tolist()
    [1.0, 2.0, 1.0]
    >>> [part.tolist() for part in path.of([0, 1])]
    [[0, 1, 1], [1, 0, 2]]
    """

    AT_ONCE = 2**17  # nodes

    def __init__(self, graph: NodeGraph, *, weighted: bool = True) -> None:
        self.nodes, self.ends = graph.num_nodes, graph.edge_index[1].numpy()
        self.weight = graph.edge_weight if weighted else None
        self.start = np.searchsorted(graph.edge_index[0].numpy(), np.arange(graph.num_nodes + 1))
        self.degree = np.diff(self.start)

    def blocks(self) -> Iterator[slice]:
        """Cut the nodes into ranges to look at one after the other."""
        for begin in range(0, self.nodes, self.AT_ONCE):
            yield slice(begin, min(begin + self.AT_ONCE, self.nodes))

    def rows(self, rows: slice) -> sp.csr_array:
        """Return those rows of the adjacency matrix, in double precision."""
        begin, end = self.start[rows.start], self.start[rows.stop]
        values = np.ones(end - begin) if self.weight is None else self.weight[begin:end].double().numpy()
        shape = rows.stop - rows.start, self.nodes
        return sp.csr_array((values, self.ends[begin:end], self.start[rows.start : rows.stop + 1] - begin), shape=shape)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Average (nodes, ...) over each node's neighbours; 0 for a node without any."""
        result = np.empty_like(values)
        for block in self.blocks():
            rows = self.rows(block)
            total = np.asarray(rows.sum(axis=1)).reshape(-1, *[1] * (values.ndim - 1))
            result[block] = (rows @ values) / np.where(total > 0, total, 1)
        return result

    def of(self, nodes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the neighbours of some nodes one after the other: whose each is, by place in `nodes`, and which."""
        chosen = np.asarray(nodes, dtype=np.int64)
        degree = self.degree[chosen]
        owner = np.repeat(np.arange(len(chosen)), degree)
        entry = np.arange(len(owner)) + (self.start[chosen] - np.cumsum(degree) + degree)[owner]
        return owner, self.ends[entry]

    def among(self, nodes: NDArray[np.int64]) -> sp.csr_array:
        """Return which of some nodes, given in ascending order, are next to each other: a matrix of ones."""
        owner, other = self.of(nodes)
        place = np.minimum(np.searchsorted(nodes, other), max(0, len(nodes) - 1))
        inside = nodes[place] == other
        ends = owner[inside], place[inside]
        return sp.csr_array((np.ones(len(ends[0]), dtype=np.float32), ends), shape=(len(nodes),) * 2)


def select_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of a dense or CSR matrix, in the order of `index`."""
    return x[index] if x.layout == torch.strided else to_csr(to_scipy(x)[index.numpy()])


def _features(x: Any) -> Tensor:
    if isinstance(x, Tensor) and x.layout != torch.strided:
        coo = x.detach().cpu().to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        x = sp.coo_array((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))
    if sp.issparse(x):
        _check_feature_shape(x.shape)
        features = to_csr(x)
        bad = ~torch.isfinite(features.values())
        if bad.any():
            _refuse_not_finite(np.column_stack(to_scipy(features).tocoo().coords)[bad.numpy()], x.shape)
        return features
    try:
        with np.errstate(over="ignore"):
            array = np.array(_array("x", x), dtype=np.float32, order="C")
    except (TypeError, ValueError, OverflowError) as problem:
        raise GraphError(f"x must hold numbers, shape (nodes, features): {problem}") from problem
    _check_feature_shape(array.shape)
    if not np.isfinite(array).all():
        _refuse_not_finite(np.argwhere(~np.isfinite(array)), array.shape)
    return torch.from_numpy(array)


def _check_feature_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise GraphError(f"x must have shape (nodes, features) with at least one of each; got shape {shape}")


def _refuse_not_finite(places: NDArray[np.int64], shape: tuple[int, ...]) -> None:
    rows, columns = np.unique(places[:, 0]), np.unique(places[:, 1])
    raise GraphError(
        f"x holds NaN, infinite or extreme values (above 3e38) in {len(rows)} of {shape[0]} rows "
        f"(first: {rows[:5].tolist()}) and {len(columns)} of {shape[1]} columns (first: {columns[:5].tolist()}); "
        "fill or drop them"
    )


def _edge_array(edge_index: Tensor | ArrayLike, nodes: int) -> NDArray[np.int64]:
    raw = _array("edge_index", edge_index)
    if raw.size == 0:
        return np.empty((2, 0), dtype=np.int64)
    if raw.ndim != 2 or raw.shape[0] != 2:
        hint = "; it looks transposed" if raw.ndim == 2 and raw.shape[1] == 2 else ""
        raise GraphError(f"edge_index must have shape (2, edges); got shape {raw.shape}{hint}")
    if not np.issubdtype(raw.dtype, np.integer):
        raise GraphError(f"edge_index must hold whole numbers (node positions); got {raw.dtype}")
    edges: NDArray[np.int64] = raw.astype(np.int64, copy=False)
    if edges.min() < 0 or edges.max() >= nodes:
        outside = np.unique(edges[(edges < 0) | (edges >= nodes)])
        raise GraphError(
            f"edge_index must hold node positions 0..{nodes - 1}; got {outside[:5].tolist()}"
            f"{' and more' if len(outside) > 5 else ''}"
        )
    return edges


def _simple_edges(
    edges: NDArray[np.int64], edge_weight: Tensor | ArrayLike | None, nodes: int
) -> tuple[Tensor, Tensor | None, EdgeRepairs]:
    """Directed edges as given -> both directions of each undirected edge, its weight, and what was repaired."""
    given = edges.shape[1]
    weight = None if edge_weight is None else _weights(edge_weight, given)
    keep = edges[0] != edges[1]
    ends = edges[:, keep].astype(np.int32 if nodes < 2**31 else np.int64, copy=False)
    directed = _adjacency(np.ones(ends.shape[1], dtype=np.int32), ends, nodes)
    directed.data[:] = 1  # repetitions merge
    directions = directed + directed.T  # 1 or 2 of each edge
    repairs = EdgeRepairs(
        mirrored=int((directions.data == 1).sum()) // 2,
        merged=ends.shape[1] - directed.nnz,
        loops=given - ends.shape[1],
    )
    merged_weight = None
    if weight is not None:
        summed = _adjacency(weight[keep], ends, nodes)
        with np.errstate(over="ignore", under="ignore"):
            mean = (summed + summed.T).data / directions.data
            merged_weight = torch.from_numpy(mean.astype(np.float32))
        if not (torch.isfinite(merged_weight) & (merged_weight > 0)).all():
            raise GraphError(
                "edge_weight must stay between 1e-45 and 3e38, repetitions of an edge added up; "
                f"got {mean.min():g} to {mean.max():g}, scale the weights"
            )
    both = np.empty((2, directions.nnz), dtype=np.int64)
    both[0] = np.repeat(np.arange(nodes), np.diff(directions.indptr))
    both[1] = directions.indices
    return torch.from_numpy(both), merged_weight, repairs


def _adjacency(values: NDArray[Any], ends: NDArray[Any], nodes: int) -> sp.csr_array:
    """Directed edges -> their sparse matrix, sorted by row and column, the values of repeated edges added up."""
    return sp.coo_array((values, (ends[0], ends[1])), shape=(nodes, nodes)).tocsr()


def _weights(edge_weight: Tensor | ArrayLike, edges: int) -> NDArray[np.float64]:
    try:
        weight: NDArray[np.float64] = np.asarray(_array("edge_weight", edge_weight), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as problem:
        raise GraphError(f"edge_weight must hold one number per edge: {problem}") from problem
    if weight.shape != (edges,):
        raise GraphError(f"edge_weight must have shape ({edges},), one per edge; got shape {weight.shape}")
    check_weights(weight)
    return weight


def check_weights(weight: NDArray[np.float64]) -> None:
    """Raise unless all are positive and finite."""
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
    if len(bad):
        raise GraphError(
            f"edge_weight must be positive and finite; {len(bad)} are not (first: edge {bad[0]}, {weight[bad[0]]})"
        )


def _domains(is_target: Tensor | ArrayLike, nodes: int) -> Tensor:
    raw = _array("is_target", is_target)
    if raw.shape != (nodes,):
        raise GraphError(f"is_target must have shape ({nodes},), one per node; got shape {raw.shape}")
    if raw.dtype != bool and (strange := [value for value in raw.tolist() if value not in (0, 1)]):
        raise GraphError(f"is_target must hold true/false or 0/1; got {strange[:5]}")
    target = torch.from_numpy(raw.astype(bool))
    if target.all() or not target.any():
        which = "source" if target.all() else "target"
        raise GraphError(f"both domains must be present: there is no {which} node among {nodes}; check is_target")
    return target


def _unique_ids(ids: Sequence[Hashable] | NDArray[Any] | None, nodes: int) -> NDArray[Any]:
    if ids is None:
        return _frozen(np.arange(nodes))
    array = ids.copy() if isinstance(ids, np.ndarray) else _object_array(ids)
    if len(array) != nodes:
        raise GraphError(f"ids must name each of the {nodes} nodes; got {len(array)}")
    seen: set[Hashable] = set()
    try:
        repeated = [name for name in array.tolist() if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    except TypeError as problem:
        raise GraphError(f"ids must be hashable names such as numbers or texts, one per node: {problem}") from problem
    if repeated:
        raise GraphError(
            f"ids must be unique; {len(repeated)} are repeated (first: {', '.join(map(repr, repeated[:3]))})"
        )
    return _frozen(array)


def _object_array(values: Sequence[Hashable]) -> NDArray[Any]:
    """Python values -> one-dimensional array: numpy's own type for plain ints and strings, else objects."""
    values = list(values)
    if values and len({type(v) for v in values}) == 1 and isinstance(values[0], int | str):
        array = np.array(values)
        if array.dtype.kind in "iuU" and array.tolist() == values:  # numpy rounds large ints and cuts off final NULs
            return array
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):  # all at once, numpy would take tuples for rows
        array[place] = value
    return array


def _per_node(name: str, values: ArrayLike | None, nodes: int) -> NDArray[Any] | None:
    if values is None:
        return None
    array = _array(name, values)
    if array.shape != (nodes,):
        raise GraphError(f"{name} must have shape ({nodes},), one per node; got shape {array.shape}")
    return _frozen(array.copy())


def _names(names: Sequence[str] | None, features: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if len(names) != features:
        raise GraphError(f"feature_names must name each of the {features} features; got {len(names)}")
    return tuple(map(str, names))


def _array(name: str, values: Any) -> NDArray[Any]:
    try:
        return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except (TypeError, ValueError, OverflowError) as problem:  # rows of different lengths, say
        raise GraphError(f"{name} cannot be read as an array: {problem}") from problem


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
