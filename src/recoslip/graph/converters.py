"""Graphs of PyTorch Geometric, NetworkX, igraph and SciPy <-> the arguments of NodeGraph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from recoslip.errors import GraphError
from recoslip.graph.validation import as_array

if TYPE_CHECKING:
    import igraph
    import networkx as nx
    from torch_geometric.data import Data


def pyg_arguments(data: Data, is_target: Tensor | ArrayLike | str, **more: Any) -> dict[str, Any]:
    """Turn a PyTorch Geometric `Data` into the arguments of NodeGraph; see `NodeGraph.from_pyg`."""
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
    edges = data.edge_index if data.edge_index is not None else torch.empty(2, 0, dtype=torch.long)
    more.setdefault("edge_weight", data.get("edge_weight"))
    more.setdefault("categories", data.get("y"))
    return {"x": data.x, "edge_index": edges, "is_target": is_target, **more}


def pyg_data(
    x: Tensor, edge_index: Tensor, is_target: Tensor, edge_weight: Tensor | None, categories: NDArray[Any] | None
) -> Data:
    """Build a PyTorch Geometric `Data`; see `NodeGraph.to_pyg`."""
    from torch_geometric.data import Data

    data = Data(x=x.clone(), edge_index=edge_index.clone(), is_target=is_target.clone())
    if edge_weight is not None:
        data.edge_weight = edge_weight.clone()
    if categories is not None:
        y = categories
        if not np.issubdtype(y.dtype, np.integer):
            y = np.unique(y, return_inverse=True)[1]
        data.y = torch.from_numpy(y.astype(np.int64))
    return data


def networkx_arguments(
    graph: nx.Graph,
    features: str | Sequence[str],
    is_target: str,
    weight: str | None,
    category: str | None,
    time: str | None,
) -> dict[str, Any]:
    """Turn a NetworkX graph into the arguments of NodeGraph; see `NodeGraph.from_networkx`."""
    ids = list(graph.nodes)
    position = {node: k for k, node in enumerate(ids)}
    return {
        **_attribute_arguments(
            ids, [graph.nodes[node] for node in ids], features, is_target=is_target, categories=category, times=time
        ),
        "edge_index": _edge_index([(position[a], position[b]) for a, b in graph.edges()]),
        "edge_weight": None if weight is None else _weights(graph.edges(data=weight), weight),
    }


def _weights(edges: Iterable[tuple[Any, Any, Any]], name: str) -> list[Any]:
    """Return the weights of edges; raise where one has none, which NetworkX's own algorithms count as 1."""
    given = list(edges)
    missing = [(start, end) for start, end, weight in given if weight is None]
    if missing:
        raise GraphError(
            f"{len(missing)} edges have no attribute {name!r} (first: the one from {missing[0][0]!r} to "
            f"{missing[0][1]!r}); set it on every edge, or leave weight out"
        )
    return [weight for *_, weight in given]


def igraph_arguments(
    graph: igraph.Graph,
    features: str | Sequence[str],
    is_target: str,
    weight: str | None,
    category: str | None,
    time: str | None,
) -> dict[str, Any]:
    """Turn an igraph graph into the arguments of NodeGraph; see `NodeGraph.from_igraph`."""
    ids = graph.vs["name"] if "name" in graph.vs.attributes() else list(range(graph.vcount()))
    if weight is not None and weight not in graph.es.attributes():
        raise GraphError(f"the edges have no attribute {weight!r}; they have {graph.es.attributes()}")
    return {
        **_attribute_arguments(
            ids, [v.attributes() for v in graph.vs], features, is_target=is_target, categories=category, times=time
        ),
        "edge_index": _edge_index(graph.get_edgelist()),
        "edge_weight": None if weight is None else _weights(_named_edges(graph, ids, weight), weight),
    }


def _named_edges(graph: igraph.Graph, ids: Sequence[Any], weight: str) -> Iterable[tuple[Any, Any, Any]]:
    """Return the ends of each edge by their names, and its weight."""
    return ((ids[a], ids[b], value) for (a, b), value in zip(graph.get_edgelist(), graph.es[weight], strict=True))


def scipy_arguments(adjacency: Any, **more: Any) -> dict[str, Any]:
    """Turn a matrix of edges into the arguments of NodeGraph; see `NodeGraph.from_scipy`."""
    entries = sp.coo_array(adjacency)
    if entries.shape[0] != entries.shape[1]:
        raise GraphError(f"a matrix of edges must have as many rows as columns; got shape {entries.shape}")
    weights = None if (entries.data == 1).all() else entries.data
    return {"edge_index": np.stack(entries.coords).astype(np.int64), "edge_weight": weights, **more}


def _edge_index(edges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.asarray(edges, dtype=np.int64).reshape(-1, 2).T


def _attribute_arguments(
    ids: Sequence[Any], nodes: Sequence[Mapping[str, Any]], features: str | Sequence[str], **names: str | None
) -> dict[str, Any]:
    """Return the arguments that attributes of nodes stand for, given by their names."""

    def attribute(name: str) -> list[Any]:
        missing = [node for node, attributes in zip(ids, nodes, strict=True) if name not in attributes]
        if missing:
            raise GraphError(
                f"{len(missing)} nodes have no attribute {name!r} (first: {missing[0]!r}); set it on every node"
            )
        return [attributes[name] for attributes in nodes]

    if isinstance(features, str):
        x, feature_names = as_array("features", attribute(features)), None
        x = x.reshape(len(ids), -1) if len(ids) else x
    else:
        x, feature_names = as_array("features", list(zip(*map(attribute, features), strict=True))), features
    own = {argument: None if name is None else attribute(name) for argument, name in names.items()}
    return {"x": x, "ids": ids, "feature_names": feature_names, **own}
