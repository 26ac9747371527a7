"""The folder of a packed graph -> NodeGraph, after every file was compared with the manifest."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import GraphError
from recoslip.base.files import ManifestError, check_manifest, printable
from recoslip.base.json_files import JsonFileError, read_json
from recoslip.base.text import Terms
from recoslip.data.graph import NodeGraph, ReadColumn, Reading
from recoslip.data.tables.files import frame_within_memory
from recoslip.data.tables.node_columns import column_arrays
from recoslip.data.validation import EdgeRepairs

FORMAT, VERSION = "recoslip packed graph", 4

INDEX = "graph.json"  # format, sizes, feature names
DENSE_FEATURES = "x.npy"
ROW_STARTS, COLUMN_INDICES, VALUES = "x.start.npy", "x.column.npy", "x.value.npy"  # features in CSR format
EDGE_INDEX, EDGE_WEIGHT, IS_TARGET = "edge_index.npy", "edge_weight.npy", "is_target.npy"
NODES = "nodes.parquet"  # columns id, category and time where they are known, and those that are kept to be shown
KEPT = "kept:"  # before the names of the latter

CHUNK_ROWS = 2**20  # rows of a table or an array that are in memory at a time


def map_array(path: Path) -> NDArray[Any]:
    """Map an array into memory; changes to it are not written to the file."""
    array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return array


def create_array(path: Path, dtype: type, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Create a file for an array and map it into memory, to be filled in."""
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)


def open_packed(folder: str | os.PathLike[str]) -> NodeGraph:
    """Open a graph that `pack` wrote; features and edges stay on disk and are mapped into memory.

    Every file is read once, to check that it is undamaged.
    """
    path = Path(folder).expanduser()
    try:
        files = check_manifest(path, "packed graph").files
        index = read_json(path / INDEX)
        if (index["format"], index["version"]) != (FORMAT, VERSION):
            raise ManifestError(f"it has version {str(index['version'])[:20]}, this recoslip reads {VERSION}")
    except (OSError, KeyError, JsonFileError, ManifestError) as problem:
        raise GraphError(
            f"{printable(path)} cannot be used as a packed graph: {problem}; pack the tables again"
        ) from problem
    return _graph(path, index, files)


def _graph(folder: Path, index: dict[str, Any], files: Collection[str]) -> NodeGraph:
    with (folder / NODES).open("rb") as file:
        frame = frame_within_memory(pl.scan_parquet(file), NODES, 1, "free some memory")
    kept = [name for name in frame.columns if name.startswith(KEPT)]
    return NodeGraph.from_checked(
        x=_features(folder, index, files),
        edge_index=map_array(folder / EDGE_INDEX),
        edge_weight=map_array(folder / EDGE_WEIGHT) if EDGE_WEIGHT in files else None,
        is_target=np.array(map_array(folder / IS_TARGET)),
        ids=frame["id"].to_numpy(),
        categories=frame["category"].to_numpy() if "category" in frame.columns else None,
        times=frame["time"].to_numpy() if "time" in frame.columns else None,
        feature_names=tuple(index["feature_names"]),
        encoding=index["encoding"],
        missing=None,
        columns={name.removeprefix(KEPT): values for name, values in column_arrays(frame, kept).items()},
        label=index["label"],
        terms=Terms(**index.get("terms", {})),
        reading=_reading(index.get("reading")),
        repairs=EdgeRepairs(*index["repairs"]),
    )


def _reading(said: Any) -> Reading | None:
    """Return how the nodes table was read; None where the folder does not say."""
    return None if said is None else Reading(tuple(ReadColumn(*each) for each in said[0]), tuple(said[1]))


def _features(folder: Path, index: dict[str, Any], files: Collection[str]) -> Any:
    if DENSE_FEATURES in files:
        return map_array(folder / DENSE_FEATURES)
    matrix = sp.csr_array((index["nodes"], index["features"]), dtype=np.float32)
    # One by one: the constructor would copy the indices into memory.
    names = ROW_STARTS, COLUMN_INDICES, VALUES
    matrix.indptr, matrix.indices, matrix.data = (map_array(folder / name) for name in names)
    return matrix
