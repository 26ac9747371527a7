"""Graphs of PyTorch Geometric, in memory or in a .pt file -> a table of nodes and a table of edges."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recoslip.errors import TableError
from recoslip.graph.validation import as_array
from recoslip.storage import printable
from recoslip.tables.graph_tables import ENDS, ID, WEIGHT, GraphTables

KIND, RELATION = "node type", "relation"
PYG_FILES = (".pt",)


def pyg_tables(graph: Any) -> GraphTables | None:
    """Return the tables of a `Data`, a `HeteroData` or a .pt file of one; None for anything else."""
    if isinstance(graph, str | os.PathLike):
        path = Path(graph)
        if path.suffix.lower() not in PYG_FILES or path.is_dir():
            return None
        graph = load_pyg(path)
    if type(graph).__module__.partition(".")[0] != "torch_geometric":
        return None
    return hetero_tables(graph) if hasattr(graph, "node_types") else homogeneous_tables(graph)


def homogeneous_tables(data: Any) -> GraphTables:
    """Return the tables of a `Data`; a column of `edge_attr` is called edge_attr[0], and so on."""
    if data.num_nodes is None or data.edge_index is None:
        raise TableError("the graph of PyTorch Geometric needs x and edge_index")
    nodes = pl.DataFrame({ID: range(data.num_nodes), **_fields(data, data.num_nodes, "")})
    weight = data.get("edge_weight")
    ends = dict(zip(ENDS, as_array("edge_index", data.edge_index), strict=True))
    weights = {} if weight is None else {WEIGHT: as_array("edge_weight", weight).astype(float).ravel()}
    edges = pl.DataFrame({**ends, **weights})
    if isinstance(attributes := data.get("edge_attr"), Tensor) and len(attributes) == edges.height:
        rows = as_array("edge_attr", attributes).reshape(edges.height, -1).astype(float)
        edges = edges.with_columns(pl.Series(f"edge_attr[{k}]", rows[:, k]) for k in range(rows.shape[1]))
    features = ["x"] if "x" in nodes.columns else None
    return GraphTables(nodes, edges, None if weight is None else WEIGHT, features)


def _fields(store: Any, nodes: int, prefix: str) -> dict[str, Any]:
    """Return the fields that hold one number per node as columns, and those that hold a row as columns of vectors."""
    columns: dict[str, Any] = {}
    for name, value in store.items():
        if isinstance(value, Tensor) and value.dim() and len(value) == nodes and value.layout == torch.strided:
            array = as_array(name, value)
            if array.ndim == 1:
                columns[name] = array
            elif array.ndim == 2 and array.shape[1]:
                columns[prefix + name] = pl.Series(array, dtype=pl.Array(pl.Float32, array.shape[1]))
    return columns


def load_pyg(path: Path) -> Any:
    """Load what `torch.save(data, path)` wrote, without running any code that the file may hold."""
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    if not path.is_file():
        raise TableError(f"there is no file {printable(path)}")
    try:
        parts = [Data, HeteroData, DataEdgeAttr, DataTensorAttr, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage]
        # Those that are safe already are left out: when the block ends, PyTorch forgets all that it was given.
        safe = torch.serialization.get_safe_globals()
        with torch.serialization.safe_globals([part for part in parts if part not in safe]):
            data = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:  # pickle, zip and torch raise errors of many kinds
        lines = (str(problem).strip() or type(problem).__name__).splitlines()
        reason = next((line.strip() for line in lines if "WeightsUnpickler" in line), lines[0])
        raise TableError(
            f"{printable(path)} cannot be read as a graph that torch.save(data, path) wrote: {reason}"
        ) from problem
    if not isinstance(data, Data | HeteroData):
        raise TableError(f"{printable(path)} must hold a graph of PyTorch Geometric; got {type(data).__name__}")
    return data


def hetero_tables(data: Any) -> GraphTables:
    """Return the tables of a `HeteroData`: nodes of all types, and edges with their relations.

    The nodes of each type go by its name and their position, such as paper:0.
    """
    frames = []
    for kind in data.node_types:
        count = data[kind].num_nodes
        names = {ID: [f"{kind}:{k}" for k in range(count)], KIND: [kind] * count}
        frames.append(pl.DataFrame({**names, **_fields(data[kind], count, f"{kind} ")}))
    edges = [
        pl.DataFrame(
            {
                ENDS[0]: [f"{start}:{k}" for k in data[start, relation, end].edge_index[0].tolist()],
                ENDS[1]: [f"{end}:{k}" for k in data[start, relation, end].edge_index[1].tolist()],
                RELATION: [relation] * data[start, relation, end].num_edges,
            }
        )
        for start, relation, end in data.edge_types
    ]
    nodes = pl.concat(frames, how="diagonal_relaxed")
    empty = pl.DataFrame(schema=dict.fromkeys((*ENDS, RELATION), pl.String))
    return GraphTables(nodes, pl.concat(edges) if edges else empty, node_type=KIND, relation=RELATION)
