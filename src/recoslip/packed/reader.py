"""The folder of a packed graph -> NodeGraph, after every file was compared with the manifest."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import polars as pl
import torch

from recoslip.errors import GraphError, OutOfMemory
from recoslip.graph import EdgeRepairs, NodeGraph
from recoslip.graph.sparse import csr_tensor
from recoslip.json_files import JsonFileError, read_json
from recoslip.packed.format import (
    COLUMN_INDICES,
    DENSE_FEATURES,
    EDGE_INDEX,
    EDGE_WEIGHT,
    FORMAT,
    INDEX,
    IS_TARGET,
    KEPT,
    NODES,
    ROW_STARTS,
    VALUES,
    VERSION,
    map_array,
)
from recoslip.storage import MANIFEST, ManifestError, check_manifest, printable, put_right
from recoslip.tables.kept_columns import column_arrays
from recoslip.tables.table import read_parquet

_DENSE = {EDGE_INDEX, IS_TARGET, NODES, DENSE_FEATURES}
_SPARSE = {EDGE_INDEX, IS_TARGET, NODES, ROW_STARTS, COLUMN_INDICES, VALUES}


def open_packed(folder: str | os.PathLike[str]) -> NodeGraph:
    """Open a graph that `pack` wrote; features and edges stay on disk and are mapped into memory.

    Every file is read once, to check that it is undamaged.
    """
    path = Path(folder).expanduser()
    try:
        put_right(path)
        index = _read_index(path)
        files = check_manifest(path, "packed graph").files
        if {*files} - {INDEX, EDGE_WEIGHT} not in (_DENSE, _SPARSE):
            raise _error(path, f"{MANIFEST} does not name the files of a graph")
        return _graph(path, index, files)
    except ManifestError as problem:
        raise _error(path, str(problem)) from problem
    except (GraphError, OutOfMemory):
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        RuntimeError,
        pl.exceptions.PolarsError,
    ) as problem:
        raise _error(path, f"its files do not fit together ({type(problem).__name__}: {problem})") from problem


def _error(folder: Path, reason: str) -> GraphError:
    return GraphError(f"{printable(folder)} cannot be used as a packed graph: {reason}; pack the tables again")


def _read_index(folder: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = read_json(folder / INDEX)
    except FileNotFoundError as problem:
        raise _error(folder, f"it holds no {INDEX}") from problem
    except JsonFileError as problem:
        raise _error(folder, f"{INDEX} cannot be read: {problem}") from problem
    if index.get("format") != FORMAT:
        raise _error(folder, f'{INDEX} is not recoslip\'s (expected "format": "{FORMAT}")')
    if index.get("version") != VERSION:
        raise _error(folder, f"it has version {str(index.get('version'))[:20]}, this recoslip reads {VERSION}")
    return index


def _graph(folder: Path, index: dict[str, Any], files: Collection[str]) -> NodeGraph:
    with (folder / NODES).open("rb") as file:
        frame = read_parquet(file, NODES, 1, "free some memory")
    kept = [name for name in frame.columns if name.startswith(KEPT)]
    return NodeGraph.from_checked(
        x=_features(folder, index, files),
        edge_index=_tensor(folder / EDGE_INDEX),
        edge_weight=_tensor(folder / EDGE_WEIGHT) if EDGE_WEIGHT in files else None,
        is_target=_tensor(folder / IS_TARGET).clone(),
        ids=frame["id"].to_numpy(),
        categories=frame["category"].to_numpy() if "category" in frame.columns else None,
        times=frame["time"].to_numpy() if "time" in frame.columns else None,
        feature_names=tuple(index["feature_names"]),
        encoding=index["encoding"],
        missing=None,
        columns={name.removeprefix(KEPT): values for name, values in column_arrays(frame, kept).items()},
        label=index["label"],
        repairs=EdgeRepairs(*index["repairs"]),
    )


def _features(folder: Path, index: dict[str, Any], files: Collection[str]) -> torch.Tensor:
    if DENSE_FEATURES in files:
        return _tensor(folder / DENSE_FEATURES)
    crow, column, value = (_tensor(folder / name) for name in (ROW_STARTS, COLUMN_INDICES, VALUES))
    return csr_tensor(crow, column, value, (index["nodes"], index["features"]))


def _tensor(path: Path) -> torch.Tensor:
    return torch.from_numpy(map_array(path))
