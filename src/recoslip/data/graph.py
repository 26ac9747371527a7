"""Features, edges and domains -> NodeGraph: validated at the door, immutable, the only thing detectors see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from recoslip.base.errors import GraphError, need
from recoslip.base.text import Terms
from recoslip.data import validation
from recoslip.data.validation import EdgeRepairs, check_domains, check_feature_names, check_features

if TYPE_CHECKING:
    from torch_geometric.data import Data


log = logging.getLogger("recoslip")

Features: TypeAlias = "ArrayLike | sp.sparray | sp.spmatrix"


class Permutable(Protocol):
    """What is derived from a graph, and can follow its nodes into another order."""

    def permuted(self, order: NDArray[np.int64]) -> Permutable:
        """Return the same of the same nodes in another order."""


Derived = TypeVar("Derived", bound=Permutable)


class ReadColumn(NamedTuple):
    """How a column of a table was read."""

    column: str
    read_as: str  # "id", "domain", "date", "number", "category", "list", "text", "vector" or "left out"
    why: str = ""
    option: str = ""  # what reads it in another way, as an argument of Python


class Reading(NamedTuple):
    """How a nodes table was read."""

    columns: tuple[ReadColumn, ...]  # of the whole table
    notes: tuple[str, ...] = ()  # what was left out or assumed, a sentence each


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
        times: one time per node, which drift is told from.
        feature_names: one name per feature.
        encoding: of features made of table columns: each column's name, and its encoder as JSON values.
        missing: of features made of table columns: how many values were filled, by column.
        columns: values that are shown beside the nodes and no detector sees, one per node, by the column's name.
        label: which of these columns names the nodes.
        terms: what sentences call the domains and the nodes.
        reading: of features made of table columns: how the table was read.
        one_domain: allow a graph of one domain, which can be scored and not fitted.

    >>> graph = NodeGraph([[0.0], [1.0], [1.0]], [[0, 1, 1], [1, 0, 2]], [False, False, True])
    >>> graph
    NodeGraph(3 nodes: 2 source, 1 target; 2 edges; 1 features)
    >>> graph.edge_index.tolist()
    [[0, 1, 1, 2], [1, 0, 2, 1]]
    """

    FIELDS = (
        "categories", "columns", "edge_index", "edge_weight", "encoding", "feature_names", "ids", "is_target", "label",
        "missing", "reading", "repairs", "terms", "times", "x",
    )  # fmt: skip
    __slots__ = (*FIELDS, "_derived")

    x: Any  # (nodes, features), float32: an array, or a csr_array of SciPy
    edge_index: NDArray[np.int64]  # (2, 2 * edges), both directions, sorted by row then column
    edge_weight: NDArray[np.float32] | None  # (2 * edges,)
    is_target: NDArray[np.bool_]  # (nodes,)
    ids: NDArray[Any]  # (nodes,)
    categories: NDArray[Any] | None  # (nodes,)
    times: NDArray[Any] | None  # (nodes,)
    feature_names: tuple[str, ...] | None
    encoding: dict[str, dict[str, Any]] | None
    missing: dict[str, int] | None  # values of table columns that were filled
    columns: dict[str, NDArray[Any]]  # name -> (nodes,); None for a missing value
    label: str | None  # the column that names the nodes
    terms: Terms  # what sentences call the domains and the nodes
    reading: Reading | None  # how the table was read
    repairs: EdgeRepairs
    _derived: dict[str, Any]

    def __init__(
        self,
        x: Features,
        edge_index: ArrayLike,
        is_target: ArrayLike,
        *,
        edge_weight: ArrayLike | None = None,
        ids: Sequence[Hashable] | NDArray[Any] | None = None,
        categories: ArrayLike | None = None,
        times: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        encoding: Mapping[str, dict[str, Any]] | None = None,
        missing: Mapping[str, int] | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
        label: str | None = None,
        terms: Terms | None = None,
        reading: Reading | None = None,
        one_domain: bool = False,
    ) -> None:
        features = check_features(x)
        nodes = features.shape[0]
        edges, weight, repairs = validation.simple_edges(validation.check_edges(edge_index, nodes), edge_weight, nodes)
        fields = {
            "x": features,
            "edge_index": edges,
            "edge_weight": weight,
            "is_target": check_domains(is_target, nodes, one_domain=one_domain),
            "ids": validation.check_ids(ids, nodes),
            "categories": validation.check_per_node("categories", categories, nodes),
            "times": validation.check_per_node("times", times, nodes),
            "feature_names": check_feature_names(feature_names, features.shape[1]),
            "encoding": None if encoding is None else dict(encoding),
            "missing": None if missing is None else dict(missing),
            "columns": (shown := validation.check_kept_columns(columns, nodes)),
            "label": validation.check_label(label, shown),
            "terms": terms or Terms(),
            "reading": reading,
            "repairs": repairs,
        }
        self.__setstate__(fields)
        if repairs != EdgeRepairs(0, 0, 0):
            log.info("edges: %s", repairs)

    @classmethod
    def from_checked(cls, **fields: Any) -> Self:
        """Build from attributes that were checked elsewhere, given by name."""
        graph = cls.__new__(cls)
        graph.__setstate__(fields)
        return graph

    def derived(self, key: str, make: Callable[[], Derived]) -> Derived:
        """Return what follows from features and edges alone: it is made once, and kept for all domains."""
        if key not in self._derived:
            self._derived[key] = make()
        found: Derived = self._derived[key]
        return found

    def kept(self, kind: type[Derived]) -> list[Derived]:
        """Return what was derived so far and is of a kind."""
        return [each for each in self._derived.values() if isinstance(each, kind)]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"NodeGraph is immutable; build a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"NodeGraph is immutable; {name!r} cannot be deleted")

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.FIELDS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in {**state, "_derived": {}}.items():
            object.__setattr__(self, name, value)

    def __copy__(self) -> Self:
        return self._with()

    def _with(self, **fields: Any) -> Self:
        """Return the same graph with other fields, which were checked."""
        return self.from_checked(**({name: getattr(self, name) for name in self.FIELDS} | fields))

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

    @property
    def nbytes(self) -> int:
        """Bytes of features and edges, about."""
        entries = 3 * self.x.nnz if sp.issparse(self.x) else self.x.size
        return 4 * int(entries) + 32 * self.num_edges

    def require_both_domains(self) -> None:
        """Raise if there are no source or no target nodes."""
        check_domains(self.is_target, self.num_nodes)

    @classmethod
    def from_pyg(cls, data: Data, is_target: ArrayLike | str, **more: Any) -> Self:
        """Build from a PyTorch Geometric `Data`; `is_target` may also be the name of one of its fields.

        `y` becomes `categories`, `edge_weight` is taken where present; keyword arguments override both.
        """
        if hasattr(data, "node_types"):
            raise GraphError(
                "a graph of several types of nodes is read by recoslip.read_graph(data, scored=..., domain=...)"
            )
        if data.x is None:
            raise GraphError("the PyG graph has no node features: expected data.x of shape (nodes, features)")
        if isinstance(is_target, str):
            if is_target not in data:
                raise GraphError(f"the PyG graph has no field {is_target!r}; it has {sorted(data.keys())}")
            is_target = data[is_target]
        edges = data.edge_index if data.edge_index is not None else np.empty((2, 0), dtype=np.int64)
        own = {"edge_weight": data.get("edge_weight"), "categories": data.get("y")}
        return cls(data.x, edges, is_target, **(own | more))

    def to_pyg(self) -> Data:
        """Return a PyTorch Geometric `Data` with x, edge_index, is_target and, where known, edge_weight and y.

        Categories that are not numbers are numbered in sorted order.
        """
        torch, pyg = need("torch", "to_pyg"), need("torch_geometric.data", "to_pyg")
        if sp.issparse(self.x):
            places = (torch.from_numpy(each.astype(np.int64)) for each in (self.x.indptr, self.x.indices))
            x = torch.sparse_csr_tensor(*places, torch.from_numpy(self.x.data.copy()), size=self.x.shape)
        else:
            x = torch.from_numpy(self.x.copy())
        fields = {"edge_index": self.edge_index, "is_target": self.is_target, "edge_weight": self.edge_weight}
        if (y := self.categories) is not None:
            y = y if np.issubdtype(y.dtype, np.integer) else np.unique(y, return_inverse=True)[1]
            fields["y"] = y.astype(np.int64)
        given = {name: torch.from_numpy(each.copy()) for name, each in fields.items() if each is not None}
        data: Data = pyg.Data(x=x, **given)
        return data

    def with_target(self, is_target: ArrayLike) -> Self:
        """Return the same graph with other domains; everything else is shared."""
        other = self._with(is_target=check_domains(is_target, self.num_nodes))
        object.__setattr__(other, "_derived", self._derived)
        return other

    def called(self, terms: Terms) -> Self:
        """Return the same graph with other words for its domains and nodes; everything else is shared."""
        other = self._with(terms=terms)
        object.__setattr__(other, "_derived", self._derived)
        return other

    def without_edges(self) -> Self:
        """Return the same nodes with no edges."""
        return self._with(edge_index=np.empty((2, 0), dtype=np.int64), edge_weight=None)

    def with_features(self, x: Features, feature_names: Sequence[str] | None = None) -> Self:
        """Return the same nodes and edges with other features."""
        features = check_features(x)
        if features.shape[0] != self.num_nodes:
            raise GraphError(f"features have {features.shape[0]} rows; the graph has {self.num_nodes} nodes")
        return self._with(
            x=features, feature_names=check_feature_names(feature_names, features.shape[1]), encoding=None
        )

    def with_edges(self, edge_index: ArrayLike, edge_weight: ArrayLike | None = None) -> Self:
        """Return the same nodes with other edges."""
        return self._changed(edge_index=edge_index, edge_weight=edge_weight)

    def permuted(self, order: ArrayLike) -> Self:
        """Return the same graph with its nodes in another order: new node k is old node `order[k]`."""
        index = np.ascontiguousarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(index), np.arange(self.num_nodes)):
            raise GraphError(f"order must name each of the {self.num_nodes} nodes once")
        other = self.subgraph(index)
        other._derived.update({key: value.permuted(index) for key, value in self._derived.items()})
        return other

    def subgraph(self, nodes: ArrayLike) -> Self:
        """Return the graph of some of the nodes and the edges among them; one domain may be left.

        Args:
            nodes: positions of the nodes, in the order that they shall have.
        """
        index = np.ascontiguousarray(nodes, dtype=np.int64)
        position = np.full(self.num_nodes, -1, dtype=np.int64)
        position[index] = np.arange(len(index))
        ends = position[self.edge_index]
        inside = (ends >= 0).all(axis=0)
        weight = None if self.edge_weight is None else self.edge_weight[inside]
        return self._changed(edge_index=ends[:, inside], edge_weight=weight, **self._rows(index))

    def _rows(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return what is known of some nodes, by the names of the constructor's arguments."""
        values = {name: getattr(self, name) for name in ("ids", "categories", "times")}
        return {
            "x": self.x[rows],
            "is_target": self.is_target[rows],
            "columns": {name: column[rows] for name, column in self.columns.items()},
            **{name: None if value is None else value[rows] for name, value in values.items()},
        }

    def _changed(self, **arguments: Any) -> Self:
        """Return a graph with other arguments; one domain may be left."""
        own = {name: getattr(self, name) for name in self.FIELDS if name != "repairs"}
        return type(self)(**(own | arguments), one_domain=True)


def require_graph(graph: Any) -> None:
    """Raise unless it is a NodeGraph."""
    if not isinstance(graph, NodeGraph):
        raise GraphError(f"expected a NodeGraph; got {type(graph).__name__} (NodeGraph.from_pyg may help)")
