"""The files of a packed graph: their names, and how arrays are mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
