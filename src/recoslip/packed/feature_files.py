"""Columns of the nodes table -> files of features, one column at a time -> the files of the feature matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.encoders.blocks import Chunks
from recoslip.encoders.column_encoders import ColumnEncoder, VectorEncoder, encoder_from_json, fit_column
from recoslip.encoders.columns import Column, refuse_missing
from recoslip.encoders.table_encoder import DENSE_FRACTION, weighted
from recoslip.packed.format import (
    COLUMN_INDICES,
    DENSE_FEATURES,
    ROW_STARTS,
    VALUES,
    create_array,
    map_array,
    rename_when_written,
    save_array,
)
from recoslip.packed.steps import Step
from recoslip.packed.table_file import TableFile


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """The features of one column, mapped from files: a dense matrix, or the arrays of a CSR matrix."""

    encoder: ColumnEncoder
    values: NDArray[np.float32]  # (rows, features) if dense, else (non-zeros,)
    row_starts: NDArray[np.int64] | None = None
    column_indices: NDArray[np.int64] | None = None

    @property
    def non_zeros(self) -> int:
        """The number of entries that are not zero."""
        return int(np.count_nonzero(self.values)) if self.row_starts is None else len(self.values)

    def rows(self, start: int, stop: int) -> Any:
        """Return the rows from `start` to `stop`, dense or as a CSR matrix."""
        if self.row_starts is None or self.column_indices is None:
            return self.values[start:stop]
        entries = slice(self.row_starts[start], self.row_starts[stop])
        row_starts = self.row_starts[start : stop + 1] - self.row_starts[start]
        csr = self.values[entries], self.column_indices[entries], row_starts
        return sp.csr_array(csr, shape=(stop - start, len(self.encoder.feature_names)))

    def chunks(self, ranges: Sequence[tuple[int, int]]) -> Chunks:
        """Return the rows in ranges."""
        return lambda: (self.rows(start, stop) for start, stop in ranges)


def encode_to_files(table: TableFile, column: Column, impute: bool, work: Path, chunk_rows: int) -> EncodedColumn:
    """Encode a column and write its features to files in `work`, unless they are there already."""
    stem = f"column-{table.columns.index(column.name):06d}"
    step = Step(work / f"{stem}.json")
    values, row_starts, column_indices = (work / f"{stem}{suffix}" for suffix in (".npy", ".start.npy", ".column.npy"))
    state, sparse = step.result() or [None, False]
    if state is None:
        if column.encoding == "vector":
            encoder: ColumnEncoder = _encode_vectors(table, column.name, impute, values, chunk_rows)
        else:
            given = table[column.name]
            series = column.read(given)
            if not impute:
                refuse_missing([series], table.origin, [given])
            fitted: tuple[ColumnEncoder, Any] = fit_column(column, series)
            encoder, matrix = fitted
            sparse = sp.issparse(matrix)
            if sparse:
                matrix = sp.csr_array(matrix)
                save_array(row_starts, matrix.indptr.astype(np.int64))
                save_array(column_indices, matrix.indices.astype(np.int64))
                matrix = matrix.data
            save_array(values, np.asarray(matrix, dtype=np.float32))
        state = encoder.to_json()
        step.complete([state, sparse], [values, *([row_starts, column_indices] if sparse else [])])
    encoder = encoder_from_json(column.name, state)
    if not sparse:
        return EncodedColumn(encoder, map_array(values))
    return EncodedColumn(encoder, map_array(values), map_array(row_starts), map_array(column_indices))


def _encode_vectors(table: TableFile, name: str, impute: bool, path: Path, chunk_rows: int) -> VectorEncoder:
    """Copy a column of vectors chunk by chunk; a missing vector is replaced by the mean of the others."""
    offsets = range(0, table.height, chunk_rows)

    def chunks() -> Iterator[pl.Series]:
        for offset in offsets:
            series = table.rows(offset, chunk_rows, [name])[name]
            if not impute:
                refuse_missing([series], table.origin.from_row(offset))
            yield series

    encoder = VectorEncoder.fit_chunks(name, chunks())
    with rename_when_written(path) as temporary:
        matrix = create_array(temporary, np.float32, (table.height, len(encoder.mean)))
        for offset, series in zip(offsets, chunks(), strict=True):
            matrix[offset : offset + len(series)] = encoder.transform(series)
        matrix.flush()
    return encoder


def write_feature_matrix(
    columns: Sequence[EncodedColumn], weights: Sequence[float], ranges: Sequence[tuple[int, int]], folder: Path
) -> None:
    """Write the weighted features of all columns side by side, dense or sparse as `read_graph` would choose."""
    nodes = ranges[-1][1]
    width = sum(len(column.encoder.feature_names) for column in columns)
    non_zeros = sum(column.non_zeros for column in columns)
    own = list(zip(columns, weights, strict=True))
    if all(column.row_starts is None for column in columns) or non_zeros >= DENSE_FRACTION * nodes * width:
        _write_dense(own, ranges, (nodes, width), folder)
    else:
        _write_sparse(own, ranges, nodes, non_zeros, folder)


def _write_dense(
    columns: Sequence[tuple[EncodedColumn, float]],
    ranges: Sequence[tuple[int, int]],
    shape: tuple[int, int],
    folder: Path,
) -> None:
    x = create_array(folder / DENSE_FEATURES, np.float32, shape)
    for start, stop in ranges:
        blocks = [weighted(column.rows(start, stop), weight) for column, weight in columns]
        x[start:stop] = np.hstack([block.toarray() if sp.issparse(block) else block for block in blocks])
    x.flush()


def _write_sparse(
    columns: Sequence[tuple[EncodedColumn, float]],
    ranges: Sequence[tuple[int, int]],
    nodes: int,
    non_zeros: int,
    folder: Path,
) -> None:
    row_starts = np.zeros(nodes + 1, dtype=np.int64)
    column_indices = create_array(folder / COLUMN_INDICES, np.int64, (non_zeros,))
    values = create_array(folder / VALUES, np.float32, (non_zeros,))
    for start, stop in ranges:
        blocks = [weighted(column.rows(start, stop), weight) for column, weight in columns]
        block = sp.csr_array(sp.hstack(blocks, format="csr"))
        block.sum_duplicates()
        row_starts[start + 1 : stop + 1] = row_starts[start] + block.indptr[1:]
        entries = slice(row_starts[start], row_starts[stop])
        column_indices[entries], values[entries] = block.indices, block.data
    column_indices.flush()
    values.flush()
    np.save(folder / ROW_STARTS, row_starts)
