"""The files of a packed graph: their names, their checksums, and how arrays are mapped into memory."""

from __future__ import annotations

import stat
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT, VERSION = "recoslip packed graph", 3

INDEX = "graph.json"  # format, sizes, feature names, and the size and checksum of each other file
DENSE_FEATURES = "x.npy"
ROW_STARTS, COLUMN_INDICES, VALUES = "x.start.npy", "x.column.npy", "x.value.npy"  # features in CSR format
EDGE_INDEX, EDGE_WEIGHT, IS_TARGET = "edge_index.npy", "edge_weight.npy", "is_target.npy"
NODES = "nodes.parquet"  # columns id, category and time where they are known, and those that are kept to be shown
KEPT = "kept:"  # before the names of the latter
FILES = (
    INDEX,
    DENSE_FEATURES,
    ROW_STARTS,
    COLUMN_INDICES,
    VALUES,
    EDGE_INDEX,
    EDGE_WEIGHT,
    IS_TARGET,
    NODES,
)

CHUNK_ROWS = 2**20  # rows of a table or an array that are in memory at a time


def is_plain_file(path: Path) -> bool:
    """Return whether there is a file at `path`, and not a link, a folder, a pipe or a device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def map_array(path: Path) -> NDArray[Any]:
    """Map an array into memory; changes to it are not written to the file."""
    array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return array


def create_array(path: Path, dtype: type, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Create a file for an array and map it into memory, to be filled in."""
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            value = zlib.crc32(block, value)
    return value
