"""A graph of PyTorch Geometric in a .pt file -> NodeGraph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from recoslip.errors import TableError
from recoslip.graph import NodeGraph
from recoslip.storage import printable

USED = ("domain", "category")  # arguments of `read_graph` that name fields of the graph


def read_pyg_file(path: Path, edges: Path | None = None, **arguments: Any) -> NodeGraph:
    """Read what `torch.save(data, path)` wrote, without running any code that the file may hold.

    Args:
        path: the file, which holds a `Data` with x, edge_index and a field of domains.
        edges: must be None: the graph has its own.
        **arguments: of `read_graph`; only `domain`, the name of the field that is true for target nodes, is used.
    """
    from torch_geometric.data import Data

    if edges is not None:
        raise TableError("a graph of PyTorch Geometric has its own edges; leave the edges out")
    if not path.is_file():
        raise TableError(f"there is no file {printable(path)}")
    try:
        data = torch.load(path, weights_only=True)  # PyTorch Geometric declares its own classes as safe
    except Exception as problem:  # pickle, zip and torch raise errors of many kinds
        raise TableError(
            f"{printable(path)} cannot be read as a graph that torch.save(data, path) wrote: "
            f"{(str(problem).strip() or type(problem).__name__).splitlines()[0]}"
        ) from problem
    if not isinstance(data, Data):
        raise TableError(f"{printable(path)} must hold a torch_geometric.data.Data; got {type(data).__name__}")
    domain = arguments.get("domain") or "domain"
    return NodeGraph.from_pyg(data, "is_target" if domain not in data and "is_target" in data else domain)
