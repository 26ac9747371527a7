"""Graphs of PyTorch Geometric and NetworkX <-> the arguments of NodeGraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from recoslip.errors import GraphError
from recoslip.graph.validation import as_array

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data


def pyg_arguments(data: Data, is_target: Tensor | ArrayLike | str, **more: Any) -> dict[str, Any]:
    """Turn a PyTorch Geometric `Data` into the arguments of NodeGraph; see `NodeGraph.from_pyg`."""
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

    def attribute(name: str) -> list[Any]:
        missing = [node for node in ids if name not in graph.nodes[node]]
        if missing:
            raise GraphError(
                f"{len(missing)} nodes have no attribute {name!r} (first: {missing[0]!r}); set it on every node"
            )
        return [graph.nodes[node][name] for node in ids]

    if isinstance(features, str):
        x, names = as_array("features", attribute(features)), None
        x = x.reshape(len(ids), -1) if len(ids) else x
    else:
        x, names = as_array("features", list(zip(*map(attribute, features), strict=True))), features
    edges = [(position[a], position[b]) for a, b in graph.edges()]
    return {
        "x": x,
        "edge_index": np.asarray(edges, dtype=np.int64).reshape(-1, 2).T,
        "is_target": attribute(is_target),
        "edge_weight": None if weight is None else [d for _, _, d in graph.edges(data=weight)],
        "ids": ids,
        "categories": None if category is None else attribute(category),
        "times": None if time is None else attribute(time),
        "feature_names": names,
    }
