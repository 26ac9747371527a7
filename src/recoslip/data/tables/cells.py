"""Cells as AnnData holds them -> a table of nodes and a table of edges."""

import os
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from recoslip.base.errors import GraphError, RecoslipError, TableError
from recoslip.base.files import printable
from recoslip.base.memory import memory
from recoslip.data.graph import NodeGraph
from recoslip.data.tables.files import reason_of
from recoslip.data.tables.graph_tables import ENDS, ID, WEIGHT, GraphTables, free_name, require_file, series
from recoslip.data.tables.table import extension

CELL_FILES = ("h5ad",)
MOST_MEMORY = 0.25  # of what is free, that the genes may take which groups are described by
PCA, WIDE = "X_pca", 50  # the representation that scanpy takes; a matrix with no more columns is taken as it is


def cell_tables(cells: Any, use_rep: str | None = None) -> GraphTables | None:
    """Return the tables of an AnnData object or an .h5ad file; None for anything else."""
    opened = open_if_cells(cells)
    return None if opened is None else anndata_tables(opened, use_rep)


def open_if_cells(nodes: Any) -> Any:
    """Return the AnnData object that is given, or that a file holds; None for anything else."""
    if isinstance(nodes, str | os.PathLike):
        path = Path(nodes)
        return open_cells(path) if extension(path) in CELL_FILES and not path.is_dir() else None
    return nodes if type(nodes).__module__.partition(".")[0] == "anndata" else None


def tables_of_new_cells(nodes: Any, fitted: Collection[str]) -> GraphTables | None:
    """Return the tables of new cells with the representation that a model was fitted on; None for anything else.

    Args:
        nodes: an AnnData object, an .h5ad file, or anything else.
        fitted: columns that the model was fitted on; the representation is one of them.
    """
    cells = open_if_cells(nodes)
    if cells is None:
        return None
    key = next((name for name in fitted if name in cells.obsm), "X" if "X" in fitted else None)
    if key is None:
        raise TableError(
            f"the new cells need the representation that the model was fitted on ({', '.join(map(repr, fitted))}); "
            f"obsm has {', '.join(map(repr, cells.obsm.keys())) or 'nothing'}: project them to it, as "
            "scanpy.tl.ingest does"
        )
    return anndata_tables(cells, key)


def described_by_genes(cells: Any, graph: NodeGraph) -> NodeGraph | None:
    """Return the cells with genes as features, from `raw` where there is one, as scanpy's tools take them.

    None where they take too much memory or are no finite numbers.
    """
    genes = cells if cells.raw is None else cells.raw
    matrix = genes.X
    if matrix is None or genes.n_vars < 2:
        return None
    entries = matrix.nnz * 3 if hasattr(matrix, "nnz") else genes.n_obs * genes.n_vars
    if 4 * entries > MOST_MEMORY * memory().free:
        return None
    values = matrix[:] if cells.isbacked else matrix
    try:
        return graph.with_features(sp.csr_array(values) if sp.issparse(values) else values, list(genes.var_names))
    except GraphError:
        return None


def open_cells(path: Path) -> Any:
    """Open an .h5ad file with its matrix left on disk."""
    anndata = import_cells("anndata")
    require_file(path)
    try:
        return anndata.read_h5ad(path, backed="r")
    except Exception as problem:  # h5py and anndata let through whatever their readers raise
        raise TableError(f"{printable(path)} cannot be read as h5ad: {reason_of(problem)}") from problem


def import_cells(name: str) -> Any:
    """Import anndata or scanpy, or say which extra brings them."""
    try:
        return import_module(name)
    except ImportError as problem:
        raise RecoslipError(f"cells need {name}: pip install 'recoslip[cells]'") from problem


def anndata_tables(cells: Any, use_rep: str | None = None) -> GraphTables:
    """Return the tables of an annotated matrix of cells.

    Nodes are cells with the columns of `obs`, and one vector, which is the only feature: `obsm[use_rep]`, by default
    "X_pca", or X itself where it has no more than 50 columns. Edges are `obsp["connectivities"]` with their weights.
    What is missing is computed as scanpy does by default, and left out of `cells`.
    """
    obs = cells.obs
    columns = {
        free_name(str(name), (ID,)): _obs_series(obs[name]) for name in obs.columns if str(name) != (use_rep or PCA)
    }
    key = use_rep or (PCA if PCA in cells.obsm or cells.n_vars > WIDE else "X")
    if key != "X" and key not in cells.obsm and key != PCA:
        raise TableError(f"obsm has no {key!r}; it has {', '.join(map(repr, cells.obsm.keys())) or 'nothing'}")
    graph = cells.obsp.get("connectivities")
    vectors = cells.obsm.get(key)
    if vectors is None or graph is None:
        vectors, graph = _computed(cells, key, vectors, graph)
    matrix = np.asarray(vectors.toarray() if sp.issparse(vectors) else vectors, dtype=np.float32)
    names = [str(name) for name in cells.obs_names]
    if len(set(names)) < len(names):
        raise TableError("names of cells (obs_names) must be unique; call adata.obs_names_make_unique()")
    nodes = pl.DataFrame({ID: pl.Series(ID, names, dtype=pl.String), **columns}).with_columns(
        pl.Series(key, matrix, dtype=pl.Array(pl.Float32, matrix.shape[1]))
    )
    edges = _edges(sp.csr_matrix(graph), nodes[ID])
    return GraphTables(nodes, edges, WEIGHT if edges.height else None, [key])


def _edges(graph: sp.csr_matrix, ids: pl.Series) -> pl.DataFrame:
    """Return the edges of a matrix, each once."""
    upper = sp.triu(graph.maximum(graph.T), k=1).tocoo()
    edges = {ENDS[0]: ids[upper.row], ENDS[1]: ids[upper.col], WEIGHT: upper.data.astype(np.float64)}
    return pl.DataFrame(edges).filter(pl.col(WEIGHT) != 0)


def _obs_series(values: Any) -> pl.Series:
    """Return a column of `obs`; categories as text."""
    if str(values.dtype) == "category":
        values = values.astype(object)
    return series([None if value is None or value != value else value for value in values.tolist()])


def _computed(cells: Any, key: str, vectors: Any, graph: Any) -> tuple[Any, Any]:
    """Compute principal components and neighbours as scanpy does by default, in a copy."""
    scanpy, anndata = import_cells("scanpy"), import_cells("anndata")
    if vectors is None:
        own = anndata.AnnData(cells.X[:].copy())
        if key == PCA:
            scanpy.pp.pca(own, n_comps=min(WIDE, min(own.shape) - 1))
        vectors = own.obsm.get(key, own.X)
    if graph is None:
        dense = np.asarray(vectors.toarray() if sp.issparse(vectors) else vectors)
        own = anndata.AnnData(np.zeros((cells.n_obs, 0), dtype=np.float32), obsm={PCA: dense})
        scanpy.pp.neighbors(own, use_rep=PCA)
        graph = own.obsp["connectivities"]
    return vectors, graph
