"""Graphs of PyTorch Geometric <-> the arguments of NodeGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from recoslip.errors import GraphError

if TYPE_CHECKING:
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
