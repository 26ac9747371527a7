"""Tables of nodes and edges -> the folder of a packed graph, with little memory."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import GraphError, OutOfMemory, TableError
from recoslip.base.files import WORK, Folder, printable, writing
from recoslip.base.progress import Phases, Progress
from recoslip.data.options import ReadOptions, reads
from recoslip.data.packed.edge_sort import sort_edges
from recoslip.data.packed.reader import (
    CHUNK_ROWS,
    COLUMN_INDICES,
    DENSE_FEATURES,
    FORMAT,
    INDEX,
    IS_TARGET,
    KEPT,
    NODES,
    ROW_STARTS,
    VALUES,
    VERSION,
    create_array,
    map_array,
)
from recoslip.data.tables.column_encoders import ColumnEncoder, VectorEncoder, fit_column
from recoslip.data.tables.columns import Column, refuse_missing
from recoslip.data.tables.edges import SAMPLE_EDGES, EdgeReader, choose_ends
from recoslip.data.tables.node_columns import NodeRows, node_rows, shown_values
from recoslip.data.tables.table import Table, TableName, open_on_disk, table_errors
from recoslip.data.tables.table_encoder import DENSE_FRACTION, TableEncoder, column_weights, weighted


@reads()
def pack(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    replace: bool = False,
    progress: Progress | None = None,
    chunk_rows: int = CHUNK_ROWS,
    **options: Any,
) -> None:
    """Write the graph of two tables as a folder of arrays, which `open_packed` maps into memory.

    Features are encoded one column at a time, and edges are sorted one chunk at a time. The memory holds the ids and
    domains of the nodes, one column (of vectors: one chunk), and one chunk of edges. Intermediate files lie beside the
    folder, on the same disk; they are removed when the call ends.

    Args:
        nodes: file of nodes, as for `read_graph`.
        edges: file of edges.
        folder: the folder to write.
        replace: whether an earlier packed graph in the folder may be replaced.
        progress: called with the steps done and the steps in all.
        chunk_rows: rows of a table to hold in memory at a time.
    """
    read_options = ReadOptions(**options)
    if read_options.is_relational:
        raise TableError(
            "nodes and edges of several kinds, and features of edges, cannot be packed; give the tables to detect"
        )
    files = Path(nodes), Path(edges)
    with (
        writing(folder, "packed graph", replace=replace, inputs=files) as packed,
        _mapping_errors(folder),
        table_errors(),
    ):
        index = _write_arrays(packed, *files, read_options, progress, chunk_rows)
        packed.write(INDEX, json.dumps(index) + "\n")


@contextmanager
def _mapping_errors(folder: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno != errno.ENOMEM:
            raise
        raise OutOfMemory(
            f"the arrays of {printable(folder)} cannot be mapped: this process may not address enough memory; "
            "raise its limit (ulimit -v), and give the command again"
        ) from problem


def _write_arrays(
    packed: Folder, nodes: Path, edges: Path, options: ReadOptions, progress: Progress | None, chunk_rows: int
) -> dict[str, Any]:
    """Write all files but the index, and return what the index says of the graph."""
    with open_on_disk(nodes, "nodes", options) as given_nodes, open_on_disk(edges, "edges", options) as given_edges:
        node_table = given_nodes.stored([options.id], _store(packed, "nodes"))
        rows = node_rows(options, node_table)
        options = choose_ends(given_edges.head(SAMPLE_EDGES), rows.ids, options)
        edge_table = given_edges.stored([options.edge_from, options.edge_to], _store(packed, "edges"))
    reader = EdgeReader(edge_table, rows.ids, options)
    used = [column for column in rows.columns if column.encoding != "unused"]
    phases = Phases(progress, node_table.height * len(used) + 2 * edge_table.height)
    encoders, matrices = [], []
    for number, column in enumerate(used):
        encoder, matrix = _encode(node_table, column, options.impute, packed, f"column-{number:06d}", chunk_rows)
        encoders.append(encoder)
        matrices.append(matrix)
        phases.phase(node_table.height)(node_table.height)
    chunks = edge_table.chunks(chunk_rows, reader.columns)
    sorted_edges = sort_edges(chunks, edge_table.height, reader, node_table.height, packed, chunk_rows, phases)
    if edge_table.height and not sorted_edges.repairs.loops and not sorted_edges.distinct:
        reader.refuse_no_edge(edge_table.head(1))
    sorted_edges.write(packed)
    weights = _write_features(matrices, used, options.block_weights, chunk_rows, packed)
    _write_nodes(node_table, rows, options, packed)
    table_encoder, repairs = TableEncoder(tuple(encoders), weights), sorted_edges.repairs
    return {
        "format": FORMAT,
        "version": VERSION,
        "nodes": len(rows.ids),
        "features": len(table_encoder.feature_names),
        "feature_names": table_encoder.feature_names,
        "encoding": table_encoder.to_json(),
        "label": rows.label,
        "terms": asdict(rows.terms),
        "repairs": [repairs.mirrored, repairs.merged, repairs.loops],
    }


def _store(folder: Folder, name: TableName) -> Callable[[pl.LazyFrame], Path]:
    """Return what writes a table as Parquet, because only there can rows be read without reading those before."""
    return lambda lazy: folder.write(f"{name}.parquet", lazy.sink_parquet, WORK)


def _encode(
    table: Table, column: Column, impute: bool, folder: Folder, stem: str, chunk_rows: int
) -> tuple[ColumnEncoder, Any]:
    """Encode a column; return its features as a dense or a CSR matrix that is mapped from files."""
    if column.encoding == "vector":
        return _encode_vectors(table, column.name, impute, folder.path(f"{stem}.npy", WORK), chunk_rows)
    given = table[column.name]
    series = column.read(given)
    if not impute:
        refuse_missing([series], table.origin, [given])
    encoder, matrix = fit_column(column, series)
    if not sp.issparse(matrix):
        return encoder, _stored(np.asarray(matrix, dtype=np.float32), folder.path(f"{stem}.dense.npy", WORK))
    csr = sp.csr_array(matrix)
    parts = {"values": csr.data.astype(np.float32), "columns": csr.indices, "starts": csr.indptr}
    stored = tuple(_stored(part, folder.path(f"{stem}.{kind}.npy", WORK)) for kind, part in parts.items())
    return encoder, sp.csr_array(stored, shape=csr.shape)


def _stored(array: NDArray[Any], path: Path) -> NDArray[Any]:
    np.save(path, array)
    return map_array(path)


def _encode_vectors(
    table: Table, name: str, impute: bool, path: Path, chunk_rows: int
) -> tuple[VectorEncoder, NDArray[np.float32]]:
    """Copy a column of vectors chunk by chunk; a missing vector is replaced by the mean of the others."""

    def chunks() -> Iterator[pl.Series]:
        offset = 0
        for frame in table.chunks(chunk_rows, [name]):
            if not impute:
                refuse_missing([frame[name]], table.origin.from_row(offset))
            yield frame[name]
            offset += frame.height

    encoder = VectorEncoder.fit_chunks(name, chunks())
    matrix = create_array(path, np.float32, (table.height, len(encoder.mean)))
    offset = 0
    for series in chunks():
        matrix[offset : offset + len(series)] = encoder.transform(series)
        offset += len(series)
    return encoder, matrix


def _write_features(
    matrices: Sequence[Any], columns: Sequence[Column], asked: Any, chunk_rows: int, folder: Folder
) -> tuple[float, ...]:
    """Write the weighted features of all columns side by side, dense or sparse as `read_graph` would choose.

    Return the weight of each column.
    """
    nodes, width = matrices[0].shape[0], sum(matrix.shape[1] for matrix in matrices)
    ranges = [slice(start, min(start + chunk_rows, nodes)) for start in range(0, nodes, chunk_rows)]
    chunks = [lambda matrix=matrix: (matrix[rows] for rows in ranges) for matrix in matrices]
    weights = column_weights([column.encoding for column in columns], chunks, asked)
    non_zeros = sum(matrix.nnz if sp.issparse(matrix) else int(np.count_nonzero(matrix)) for matrix in matrices)
    blocks = (_weighted_rows(matrices, weights, rows) for rows in ranges)
    if not any(map(sp.issparse, matrices)) or non_zeros >= DENSE_FRACTION * nodes * width:
        x = create_array(folder.path(DENSE_FEATURES), np.float32, (nodes, width))
        for rows, parts in zip(ranges, blocks, strict=True):
            x[rows] = np.hstack([part.toarray() if sp.issparse(part) else part for part in parts])
        x.flush()
    else:
        _write_sparse(ranges, blocks, nodes, non_zeros, folder)
    return weights


def _weighted_rows(matrices: Sequence[Any], weights: Sequence[float], rows: slice) -> list[Any]:
    parts = [weighted(matrix[rows], weight) for matrix, weight in zip(matrices, weights, strict=True)]
    if not all(np.isfinite(part.data if sp.issparse(part) else part).all() for part in parts):
        raise GraphError("the features hold infinite or extreme values (above 3e38); scale or drop their columns")
    return parts


def _write_sparse(
    ranges: Sequence[slice], blocks: Iterator[Sequence[Any]], nodes: int, non_zeros: int, folder: Folder
) -> None:
    row_starts = np.zeros(nodes + 1, dtype=np.int64)
    column_indices = create_array(folder.path(COLUMN_INDICES), np.int64, (non_zeros,))
    values = create_array(folder.path(VALUES), np.float32, (non_zeros,))
    for rows, parts in zip(ranges, blocks, strict=True):
        block = sp.csr_array(sp.hstack(parts, format="csr"))
        block.sum_duplicates()
        row_starts[rows.start + 1 : rows.stop + 1] = row_starts[rows.start] + block.indptr[1:]
        entries = slice(row_starts[rows.start], row_starts[rows.stop])
        column_indices[entries], values[entries] = block.indices, block.data
    column_indices.flush()
    values.flush()
    np.save(folder.path(ROW_STARTS), row_starts)


def _write_nodes(table: Table, rows: NodeRows, options: ReadOptions, folder: Folder) -> None:
    np.save(folder.path(IS_TARGET), rows.is_target)
    own = {"category": options.category, "time": options.time}
    columns = {"id": rows.names.alias("id")}
    columns |= {name: table[column].alias(name) for name, column in own.items() if column is not None}
    columns |= {f"{KEPT}{name}": shown_values(table[name]) for name in rows.kept}
    folder.write(NODES, pl.DataFrame(columns).write_parquet)
