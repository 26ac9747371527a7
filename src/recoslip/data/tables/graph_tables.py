"""A graph in a file or of another library -> a table of nodes and a table of edges, as if they had been given.

GraphML, GEXF and GML files, graphs of NetworkX and igraph, and cells (`cells.py`) all become two tables, so that there
is one way from a table to features, and a graph has the same scores in whatever form it comes."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp

from recoslip.base.errors import OutOfMemory, TableError, need
from recoslip.base.files import printable
from recoslip.data.tables.files import file_errors, read_bytes, reason_of
from recoslip.data.tables.table import extension
from recoslip.data.validation import as_array, is_tensor

GRAPH_FILES = ("graphml", "gexf", "gml", "pt")
GRAPH_BYTES = 40  # bytes of memory per byte of such a file
EDGE_LISTS = ("edgelist", "edges")  # as NetworkX and SNAP write them: no header, blanks between, # for comments
ID, ENDS, WEIGHT = "id", ("source", "target"), "weight"
KIND, RELATION = "node type", "relation"


class GraphTables(NamedTuple):
    """The two tables of a graph, and how they are read where the user does not say."""

    nodes: pl.DataFrame  # the names of the nodes are in the column "id"
    edges: pl.DataFrame  # columns "source" and "target", and the attributes of edges
    weight: str | None = None  # the attribute of edges that is their weight, by convention
    features: Sequence[str] | None = None  # the only columns that are features; None: all that are suitable
    node_type: str | None = None  # the column of the kinds of nodes
    relation: str | None = None  # the column of the kinds of edges


def graph_tables(graph: Any) -> GraphTables | None:
    """Return the tables of a graph that is one file or one object; None where it is a table itself."""
    if isinstance(graph, str | os.PathLike):
        path = Path(graph)
        if extension(path) not in GRAPH_FILES or path.is_dir():
            return None
        require_file(path)
        graph = load_pyg(path) if extension(path) == "pt" else _read_networkx(path)
    library = type(graph).__module__.partition(".")[0]
    if library == "networkx":
        return networkx_tables(graph)
    if library == "igraph":
        return igraph_tables(graph)
    if library == "torch_geometric":
        return hetero_tables(graph) if hasattr(graph, "node_types") else homogeneous_tables(graph)
    return None


def require_file(path: Path) -> None:
    """Raise unless there is a file."""
    if not path.is_file():
        raise TableError(f"there is no file {printable(path)}")


def _read_networkx(path: Path) -> Any:
    import networkx as nx

    try:
        content = io.BytesIO(read_bytes(path, GRAPH_BYTES))
        return {"graphml": nx.read_graphml, "gexf": nx.read_gexf, "gml": nx.read_gml}[extension(path)](content)
    except (TableError, OutOfMemory):
        raise
    except Exception as problem:  # networkx lets through whatever its parsers and conversions raise
        raise TableError(f"{printable(path)} cannot be read as {extension(path)}: {reason_of(problem)}") from problem


def networkx_tables(graph: Any) -> GraphTables:
    """Return the tables of a NetworkX graph; its nodes are the ids, and attributes are columns."""
    nodes = dict(graph.nodes(data=True))
    *ends, edges = zip(*graph.edges(data=True), strict=True) if graph.number_of_edges() else ((), (), ())
    return _tables(list(nodes), _columns(list(nodes.values())), ends, _columns(edges))


def igraph_tables(graph: Any) -> GraphTables:
    """Return the tables of an igraph graph; vertices go by their attribute "name" where they have one."""
    attributes = {name: list(graph.vs[name]) for name in graph.vs.attributes()}
    names = attributes.pop("name", range(graph.vcount()))
    ends = [[names[edge[k]] for edge in graph.get_edgelist()] for k in range(2)]
    return _tables(names, attributes, ends, {name: list(graph.es[name]) for name in graph.es.attributes()})


def _tables(
    names: Sequence[Any],
    attributes: Mapping[str, Sequence[Any]],
    ends: Sequence[Sequence[Any]],
    edge_attributes: Mapping[str, Sequence[Any]],
) -> GraphTables:
    """Put ids and attributes together; an attribute with the name of one of our columns gets another."""
    nodes = {ID: pl.Series(list(map(str, names)), dtype=pl.String)}
    nodes |= {free_name(name, (ID,)): series(values) for name, values in attributes.items()}
    edges = {name: pl.Series(list(map(str, own)), dtype=pl.String) for name, own in zip(ENDS, ends, strict=True)}
    frame = pl.DataFrame(edges | {free_name(name, ENDS): series(own) for name, own in edge_attributes.items()})
    is_weighted = WEIGHT in frame.columns and frame[WEIGHT].dtype.is_numeric() and frame[WEIGHT].count() > 0
    return GraphTables(pl.DataFrame(nodes), frame, WEIGHT if is_weighted else None)


def require_weights(graph: GraphTables) -> None:
    """Raise unless every edge has a positive and finite weight, where the graph has weights.

    NetworkX's own algorithms count an edge without a weight as 1, which may be far from all others: the user decides.
    """
    if graph.weight is None:
        return
    weight = graph.edges[graph.weight].cast(pl.Float64)
    wrong = (~((weight > 0) & weight.is_finite())).fill_null(True)
    if wrong.any():
        start, end, value = graph.edges.filter(wrong).select(*ENDS, graph.weight).row(0)
        found = "no weight" if value is None else f"weight {value}"
        raise TableError(
            f"each edge of the graph must have a positive and finite weight, as others have; {wrong.sum()} have not "
            f"(first: the edge from {start!r} to {end!r} has {found}); set it, such as to 1, or leave out all weights: "
            "weight=''"
        )


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name of a column for an attribute, which is another where one of ours is called so."""
    return f"{name} (attribute)" if name in taken else str(name)


def _columns(rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[Any]]:
    """Return the attributes of nodes or edges by name; those that hold more than a value or a vector are left out."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, Mapping))
    return {str(name): [row.get(name) for row in rows] for name in names}


def series(values: Sequence[Any]) -> pl.Series:
    """Return values as a column: numbers, true and false, text, or vectors of numbers."""
    plain = [value.tolist() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if kinds <= {int, float}:
        return pl.Series(plain, dtype=pl.Float64 if float in kinds else pl.Int64, strict=False)
    if kinds <= {bool}:
        return pl.Series(plain, dtype=pl.Boolean)
    if kinds <= {list, tuple}:
        try:
            return pl.Series(
                [None if value is None else list(map(float, value)) for value in plain], dtype=pl.List(pl.Float64)
            )
        except (TypeError, ValueError):
            pass
    return pl.Series([None if value is None else str(value) for value in plain], dtype=pl.String)


# Edges that are no table.


def edge_table(edges: Any, ids: pl.Series) -> tuple[Any, str | None]:
    """Return edges that are no table as one, and the column of their weights; a table as it is, and None.

    Args:
        edges: a SciPy matrix over the rows of the nodes table, a file that lists edges without a header, or a table.
        ids: the ids of the nodes, as text.
    """
    if sp.issparse(edges):
        if edges.shape != (len(ids), len(ids)):
            raise TableError(f"a matrix of edges must have shape ({len(ids)}, {len(ids)}); got {edges.shape}")
        entries = sp.coo_array(edges)
        ends = {end: ids[index] for end, index in zip(ENDS, entries.coords, strict=True)}
        return pl.DataFrame({**ends, WEIGHT: entries.data}), None if (entries.data == 1).all() else WEIGHT
    if isinstance(edges, str | os.PathLike) and extension(Path(edges)) in EDGE_LISTS and Path(edges).is_file():
        frame = _read_edge_list(Path(edges))
        return frame, WEIGHT if WEIGHT in frame.columns else None
    return edges, None


def _read_edge_list(path: Path) -> pl.DataFrame:
    """Read lines of two ids, and perhaps a weight, with blanks or tabs between them."""
    try:
        lines = pl.Series(read_bytes(path, GRAPH_BYTES).decode("utf-8").splitlines(), dtype=pl.String)
    except file_errors() as problem:
        raise TableError(f"{printable(path)} cannot be read as a list of edges: {problem}") from problem
    lines = lines.str.strip_chars()
    lines = lines.filter((lines != "") & ~lines.str.contains("^[#%]"))
    fields = lines.str.extract_all(r"[^\s,;]+")
    count = fields.list.len()
    odd = lines.filter(~count.is_in([2, 3]) | (count != (count[0] if len(count) else 2)))
    if len(odd):
        raise TableError(f"{printable(path)}: each line must hold two ids, or each also a weight; got {odd[0]!r}")
    names = (*ENDS, WEIGHT)[: count[0] if len(count) else 2]
    frame = pl.DataFrame({name: fields.list.get(k, null_on_oob=True) for k, name in enumerate(names)})
    return frame.with_columns(pl.col(WEIGHT).cast(pl.Float64, strict=False)) if WEIGHT in names else frame


def homogeneous_tables(data: Any) -> GraphTables:
    """Return the tables of a `Data`; a column of `edge_attr` is called edge_attr[0], and so on."""
    if data.num_nodes is None or data.edge_index is None:
        raise TableError("the graph of PyTorch Geometric needs x and edge_index")
    nodes = pl.DataFrame({ID: range(data.num_nodes), **_fields(data, data.num_nodes, "")})
    edges: dict[str, Any] = dict(zip(ENDS, as_array("edge_index", data.edge_index), strict=True))
    if (weight := data.get("edge_weight")) is not None:
        edges[WEIGHT] = as_array("edge_weight", weight).astype(float).ravel()
    if is_tensor(attributes := data.get("edge_attr")) and len(attributes) == len(edges[ENDS[0]]):
        rows = as_array("edge_attr", attributes).reshape(len(attributes), -1).astype(float)
        edges |= {f"edge_attr[{k}]": column for k, column in enumerate(rows.T)}
    features = ["x"] if "x" in nodes.columns else None
    return GraphTables(nodes, pl.DataFrame(edges), None if weight is None else WEIGHT, features)


def _fields(store: Any, nodes: int, prefix: str) -> dict[str, Any]:
    """Return the fields that hold one number per node as columns, and those that hold a row as columns of vectors."""
    columns: dict[str, Any] = {}
    for name, value in store.items():
        if is_tensor(value) and value.dim() and len(value) == nodes and str(value.layout) == "torch.strided":
            array = as_array(name, value)
            if array.ndim == 1:
                columns[name] = array
            elif array.ndim == 2 and array.shape[1]:
                columns[prefix + name] = pl.Series(array, dtype=pl.Array(pl.Float32, array.shape[1]))
    return columns


def load_pyg(path: Path) -> Any:
    """Load what `torch.save(data, path)` wrote, without running any code that the file may hold."""
    torch = need("torch", "a .pt file")
    need("torch_geometric", "a .pt file")
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    try:
        parts = [Data, HeteroData, DataEdgeAttr, DataTensorAttr, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage]
        # Those that are safe already are left out: when the block ends, PyTorch forgets all that it was given.
        safe = torch.serialization.get_safe_globals()
        with torch.serialization.safe_globals([part for part in parts if part not in safe]):
            data = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:  # pickle, zip and torch raise errors of many kinds
        lines = (line.strip() for line in str(problem).splitlines() if "WeightsUnpickler" in line)
        reason = next(lines, None) or reason_of(problem)
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
    edges = [pl.DataFrame(schema=dict.fromkeys((*ENDS, RELATION), pl.String))]
    for start, relation, end in data.edge_types:
        pairs = zip((start, end), data[start, relation, end].edge_index.tolist(), strict=True)
        ends = dict(zip(ENDS, ([f"{kind}:{k}" for k in places] for kind, places in pairs), strict=True))
        edges.append(pl.DataFrame(ends).with_columns(pl.lit(relation).alias(RELATION)))
    nodes = pl.concat(frames, how="diagonal_relaxed")
    return GraphTables(nodes, pl.concat(edges, how="vertical_relaxed"), node_type=KIND, relation=RELATION)
