"""The folder of a packed graph -> NodeGraph, after every file was checked."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from recoslip.encoders.table_encoder import TableEncoder
from recoslip.errors import GraphError
from recoslip.graph import EdgeRepairs, NodeGraph
from recoslip.graph.sparse import csr_tensor
from recoslip.json_files import JsonFileError, read_json
from recoslip.packed.format import (
    CHUNK_ROWS,
    COLUMN_INDICES,
    DENSE_FEATURES,
    EDGE_INDEX,
    EDGE_WEIGHT,
    FILES,
    FORMAT,
    INDEX,
    IS_TARGET,
    KEPT,
    NODES,
    ROW_STARTS,
    VALUES,
    VERSION,
    checksum,
    is_plain_file,
    map_array,
)
from recoslip.storage import printable
from recoslip.tables.kept_columns import column_arrays
from recoslip.tables.table import file_errors, read_parquet


def open_packed(folder: str | os.PathLike[str]) -> NodeGraph:
    """Open a graph that `pack` wrote; features and edges stay on disk and are mapped into memory.

    Every file is read once, to check that it is undamaged and that no index is out of range.
    """
    return _PackedFolder(Path(folder).expanduser()).graph()


def _content_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that forged files can cause although their checksums are right."""
    return (KeyError, TypeError, ValueError, OverflowError, SyntaxError, TokenError, *file_errors())


@dataclass(frozen=True)
class _Index:
    """The content of graph.json."""

    nodes: int
    features: int
    feature_names: list[str]
    encoding: dict[str, dict[str, Any]]  # each column's encoder
    label: str | None  # the kept column that names the nodes
    repairs: list[int]
    files: dict[str, list[int]]  # the size and checksum of each file

    def __post_init__(self) -> None:
        """Raise ValueError unless every field has its type and range."""
        if not (_is_count(self.nodes, 1) and _is_count(self.features, 1)):
            raise ValueError("nodes and features must be positive whole numbers")
        names, repairs, files = self.feature_names, self.repairs, self.files
        if not (type(names) is list and len(names) == self.features and all(type(name) is str for name in names)):
            raise ValueError("feature_names must name each feature")
        if TableEncoder.from_json(self.encoding).feature_names != names:
            raise ValueError("encoding must give the encoder of each feature")
        if not (self.label is None or type(self.label) is str):
            raise ValueError("label must name a column")
        if not (type(repairs) is list and len(repairs) == 3 and all(map(_is_count, repairs))):
            raise ValueError("repairs must hold three counts")
        if not (type(files) is dict and all(_is_size_and_checksum(value) for value in files.values())):
            raise ValueError("files must give the size and checksum of each file")
        if unknown := set(files) - set(FILES):
            raise ValueError(f"it names {sorted(unknown)[0]!r}, which is not ours")
        if set(files) - {EDGE_WEIGHT} not in (_DENSE, _SPARSE):
            raise ValueError("it does not name the files of a graph")


_DENSE = {EDGE_INDEX, IS_TARGET, NODES, DENSE_FEATURES}
_SPARSE = {EDGE_INDEX, IS_TARGET, NODES, ROW_STARTS, COLUMN_INDICES, VALUES}


def _is_count(value: object, least: int = 0) -> bool:
    return type(value) is int and least <= value < 2**63


def _is_size_and_checksum(value: object) -> bool:
    return type(value) is list and len(value) == 2 and all(map(_is_count, value))


class _PackedFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def graph(self) -> NodeGraph:
        try:
            self._check_files()
            return self._graph()
        except GraphError:
            raise
        except _content_errors() as problem:
            raise self._error(f"its files do not fit together ({type(problem).__name__}: {problem})") from problem

    def _error(self, reason: str) -> GraphError:
        return GraphError(f"{printable(self.folder)} cannot be used as a packed graph: {reason}; pack the tables again")

    @cached_property
    def index(self) -> _Index:
        try:
            index = read_json(self.folder / INDEX)
        except FileNotFoundError as problem:
            raise self._error(f"it holds no {INDEX}") from problem
        except JsonFileError as problem:
            raise self._error(f"{INDEX} cannot be read: {problem}") from problem
        if index.get("format") != FORMAT:
            raise self._error(f'{INDEX} is not recoslip\'s (expected "format": "{FORMAT}")')
        if index.get("version") != VERSION:
            raise self._error(f"it has version {str(index.get('version'))[:20]}, this recoslip reads {VERSION}")
        try:
            return _Index(**{field.name: index[field.name] for field in fields(_Index)})
        except KeyError as problem:
            raise self._error(f"{INDEX} lacks {problem}") from problem
        except ValueError as problem:
            raise self._error(f"{INDEX} is damaged: {problem}") from problem

    def _check_files(self) -> None:
        """Compare the size and checksum of every file with the index."""
        for name, (size, expected_checksum) in self.index.files.items():
            path = self.folder / name
            if not is_plain_file(path):
                raise self._error(f"{name} is missing or not a plain file")
            if path.stat().st_size != size or checksum(path) != expected_checksum:
                raise self._error(f"{name} is not what was written, it is truncated or damaged")

    def _graph(self) -> NodeGraph:
        nodes = self.index.nodes
        with (self.folder / NODES).open("rb") as file:
            frame = read_parquet(file, NODES, 1)
        is_target = self._array(IS_TARGET, np.bool_, (nodes,))
        edge_index = self._array(EDGE_INDEX, np.int64, (2, None))
        edge_weight = None
        if EDGE_WEIGHT in self.index.files:
            edge_weight = self._array(EDGE_WEIGHT, np.float32, (edge_index.shape[1],))
        if frame.height != nodes:
            raise self._error("its files disagree on the number of nodes")
        if self.index.label is not None and f"{KEPT}{self.index.label}" not in frame.columns:
            raise self._error(f"{NODES} lacks the column that names its nodes")
        if frame["id"].n_unique() != nodes:
            raise self._error("its ids are not unique")
        if is_target.all() or not is_target.any():
            raise self._error("it lacks source or target nodes")
        self._check_edges(edge_index, edge_weight, nodes)
        kept = [name for name in frame.columns if name.startswith(KEPT)]
        return NodeGraph.from_checked(
            x=self._features(nodes, self.index.features),
            edge_index=torch.from_numpy(edge_index),
            edge_weight=None if edge_weight is None else torch.from_numpy(edge_weight),
            is_target=torch.from_numpy(is_target.copy()),
            ids=frame["id"].to_numpy(),
            categories=self._per_node(frame, "category"),
            times=self._per_node(frame, "time"),
            feature_names=tuple(self.index.feature_names),
            encoding=self.index.encoding,
            missing=None,
            columns={name.removeprefix(KEPT): values for name, values in column_arrays(frame, kept).items()},
            label=self.index.label,
            repairs=EdgeRepairs(*self.index.repairs),
        )

    def _per_node(self, frame: pl.DataFrame, name: str) -> NDArray[Any] | None:
        """Return a column of the table of nodes, if it has it."""
        if name not in frame.columns:
            return None
        values: NDArray[Any] = frame[name].to_numpy()
        if values.ndim != 1:
            raise self._error(f"{NODES} holds arrays as {name}")
        return values

    def _array(self, name: str, dtype: type, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Map a file into memory and check its shape, in which None stands for any length."""
        array = map_array(self.folder / name)
        fits = array.ndim == len(shape) and all(
            expected in (None, length) for length, expected in zip(array.shape, shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            raise self._error(f"{name} holds {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}")
        return np.asarray(array)

    def _check_edges(self, edge_index: NDArray[np.int64], edge_weight: NDArray[np.float32] | None, nodes: int) -> None:
        """Check that all ends are nodes, that edges are sorted and unique, and that none is a self-loop."""
        last_key = -1
        for offset in range(0, edge_index.shape[1], CHUNK_ROWS):
            left, right = edge_index[:, offset : offset + CHUNK_ROWS]
            if min(left.min(), right.min()) < 0 or max(left.max(), right.max()) >= nodes or (left == right).any():
                raise self._error("its edges have ends that are no nodes, or are self-loops")
            keys = left * nodes + right
            if keys[0] <= last_key or (np.diff(keys) <= 0).any():
                raise self._error("its edges are not sorted")
            last_key = int(keys[-1])
            if edge_weight is not None:
                weights = edge_weight[offset : offset + CHUNK_ROWS]
                if not (np.isfinite(weights) & (weights > 0)).all():
                    raise self._error("its edge weights are not all positive and finite")

    def _features(self, nodes: int, features: int) -> torch.Tensor:
        if DENSE_FEATURES in self.index.files:
            x = self._array(DENSE_FEATURES, np.float32, (nodes, features))
            for offset in range(0, nodes, CHUNK_ROWS):
                if not np.isfinite(x[offset : offset + CHUNK_ROWS]).all():
                    raise self._error(f"{DENSE_FEATURES} holds NaN or infinite values")
            return torch.from_numpy(x)
        row_starts = self._array(ROW_STARTS, np.int64, (nodes + 1,))
        columns = self._array(COLUMN_INDICES, np.int64, (None,))
        values = self._array(VALUES, np.float32, (len(columns),))
        in_range = len(columns) == 0 or (columns.min() >= 0 and columns.max() < features)
        if row_starts[0] != 0 or row_starts[-1] != len(columns) or (np.diff(row_starts) < 0).any() or not in_range:
            raise self._error("its features have row or column indices that are out of range")
        if not np.isfinite(values).all():
            raise self._error(f"{VALUES} holds NaN or infinite values")
        crow, column, value = (torch.from_numpy(array) for array in (row_starts, columns, values))
        return csr_tensor(crow, column, value, (nodes, features))
