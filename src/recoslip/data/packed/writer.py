"""Tables of nodes and edges -> the folder of a packed graph, with little memory.

Edges are sorted by an external merge sort. Chunks of the table are sorted into *runs*. The runs are then merged, one
*range* of nodes after the other: every run is sorted, so the entries of a range are a slice of each run. An edge from u
to v is in a run as the entries (u, v, 0) and (v, u, 1), so that it is found at both of its ends together with its
direction; an entry is one whole number, its *key*.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import GraphError, TableError
from recoslip.base.files import WORK, Folder, writing
from recoslip.base.progress import Phases, Progress
from recoslip.data.options import ReadOptions, reads
from recoslip.data.packed import reader as packed_files
from recoslip.data.packed.reader import CHUNK_ROWS, create_array, map_array
from recoslip.data.tables.candidates import id_columns
from recoslip.data.tables.column_encoders import ColumnEncoder, VectorEncoder, fit_column
from recoslip.data.tables.columns import Column, refuse_missing
from recoslip.data.tables.edges import SAMPLE_EDGES, EdgeReader, choose_ends, log_dropped_edges
from recoslip.data.tables.node_columns import NodeRows, node_rows, noun_of, shown_values
from recoslip.data.tables.table import Table, TableName, open_table, table_errors
from recoslip.data.tables.table_encoder import DENSE_FRACTION, TableEncoder, column_weights, weighted
from recoslip.data.validation import EdgeRepairs, check_total_weights

SAMPLED_KEYS = 2**20  # keys that the ranges of nodes are chosen by


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
    if read_options.neighbours is not None:
        raise TableError("neighbours joins the nodes of a table without edges; leave it out")
    if read_options.is_relational:
        raise TableError(
            "nodes and edges of several kinds, and features of edges, cannot be packed; give the tables to detect"
        )
    files = Path(nodes), Path(edges)
    with writing(folder, "packed graph", replace=replace, inputs=files) as packed, table_errors():
        index = _write_arrays(packed, *files, read_options, progress, chunk_rows)
        packed.write(packed_files.INDEX, json.dumps(index) + "\n")


def _write_arrays(
    packed: Folder, nodes: Path, edges: Path, options: ReadOptions, progress: Progress | None, chunk_rows: int
) -> dict[str, Any]:
    """Write all files but the index, and return what the index says of the graph."""
    options = replace(options, noun=options.noun or noun_of(nodes))
    with (
        open_table(nodes, "nodes", options, on_disk=True) as given_nodes,
        open_table(edges, "edges", options, on_disk=True) as given_edges,
    ):
        rows = node_rows(options, given_nodes.stored(id_columns(given_nodes, options.id), _store(packed, "nodes")))
        node_table = rows.table
        options = choose_ends(given_edges.head(SAMPLE_EDGES), rows.ids, options)
        edge_table = given_edges.stored([options.edge_from, options.edge_to], _store(packed, "edges"))
    reader = EdgeReader(edge_table, rows.ids, options, rows.given_ids)
    used = [column for column in rows.columns if column.encoding != "unused"]
    phases = Phases(progress, node_table.height * len(used) + 2 * edge_table.height)
    encoders, matrices = [], []
    for number, column in enumerate(used):
        encoder, matrix = _encode(node_table, column, options.impute, packed, f"column-{number:06d}", chunk_rows)
        encoders.append(encoder)
        matrices.append(matrix)
        phases.phase(node_table.height)(node_table.height)
    repairs = _write_edges(edge_table, reader, node_table.height, packed, chunk_rows, phases)
    weights = _write_features(matrices, used, options.block_weights, chunk_rows, packed)
    _write_nodes(node_table, rows, options, packed)
    table_encoder = TableEncoder(tuple(encoders), weights)
    return {
        "format": packed_files.FORMAT,
        "version": packed_files.VERSION,
        "nodes": len(rows.ids),
        "features": len(table_encoder.feature_names),
        "feature_names": table_encoder.feature_names,
        "encoding": table_encoder.to_json(),
        "label": rows.label,
        "terms": asdict(rows.terms),
        "reading": rows.reading,
        "repairs": [repairs.mirrored, repairs.merged, repairs.loops],
    }


def _store(folder: Folder, name: TableName) -> Callable[[pl.LazyFrame], Path]:
    """Return what writes a table as Parquet, because only there can rows be read without reading those before."""
    return lambda lazy: folder.write(f"{name}.parquet", lazy.sink_parquet, WORK)


def _write_edges(
    table: Table, reader: EdgeReader, nodes: int, folder: Folder, chunk_rows: int, phases: Phases
) -> EdgeRepairs:
    """Write the edges of a simple undirected graph, and return how those of the table were repaired."""
    sorter = EdgeSorter(nodes, folder, weighted=reader.weight is not None)
    report, offset = phases.phase(table.height), 0
    for chunk in table.chunks(chunk_rows, reader.columns):
        sorter.add(*reader.read(chunk, offset))
        offset += chunk.height
        report(offset)
    if table.height and not sorter.given:
        reader.refuse_no_edge(table.head(1))
    log_dropped_edges(reader.dropped)
    sorter.write(4 * chunk_rows, phases.phase(table.height))
    return sorter.repairs


def _encode(
    table: Table, column: Column, impute: bool | None, folder: Folder, stem: str, chunk_rows: int
) -> tuple[ColumnEncoder, Any]:
    """Encode a column; return its features as a dense or a CSR matrix that is mapped from files."""
    if column.encoding == "vector":
        return _encode_vectors(table, column.name, impute, folder.path(f"{stem}.npy", WORK), chunk_rows)
    given = table[column.name]
    series = column.read(given)
    if impute is False:
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
    table: Table, name: str, impute: bool | None, path: Path, chunk_rows: int
) -> tuple[VectorEncoder, NDArray[np.float32]]:
    """Copy a column of vectors chunk by chunk; a missing vector is replaced by the mean of the others."""

    def chunks() -> Iterator[pl.Series]:
        offset = 0
        for frame in table.chunks(chunk_rows, [name]):
            if impute is False:
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
        x = create_array(folder.path(packed_files.DENSE_FEATURES), np.float32, (nodes, width))
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
    column_indices = create_array(folder.path(packed_files.COLUMN_INDICES), np.int64, (non_zeros,))
    values = create_array(folder.path(packed_files.VALUES), np.float32, (non_zeros,))
    for rows, parts in zip(ranges, blocks, strict=True):
        block = sp.csr_array(sp.hstack(parts, format="csr"))
        block.sum_duplicates()
        row_starts[rows.start + 1 : rows.stop + 1] = row_starts[rows.start] + block.indptr[1:]
        entries = slice(row_starts[rows.start], row_starts[rows.stop])
        column_indices[entries], values[entries] = block.indices, block.data
    column_indices.flush()
    values.flush()
    np.save(folder.path(packed_files.ROW_STARTS), row_starts)


def _write_nodes(table: Table, rows: NodeRows, options: ReadOptions, folder: Folder) -> None:
    np.save(folder.path(packed_files.IS_TARGET), rows.is_target)
    own = {"category": options.category, "time": options.time}
    columns = {"id": rows.names.alias("id")}
    columns |= {name: table[column].alias(name) for name, column in own.items() if column is not None}
    columns |= {f"{packed_files.KEPT}{name}": shown_values(table[name]) for name in rows.kept}
    folder.write(packed_files.NODES, pl.DataFrame(columns).write_parquet)


class EdgeFile(NamedTuple):
    """Some of the edges: a file of keys or ends, and one of their weights, which is there if edges have weights."""

    edges: Path
    weights: Path


class EdgeSorter:
    """Sorts edges by their ends and makes them a simple undirected graph, with one chunk in memory at a time.

    Args:
        nodes: how many nodes there are.
        folder: where the edges, and intermediate files, go.
        weighted: whether edges have weights.
    """

    def __init__(self, nodes: int, folder: Folder, *, weighted: bool) -> None:
        self.nodes, self.folder, self.weighted = nodes, folder, weighted
        self.runs: list[EdgeFile] = []
        self.given = self.loops = 0  # edges, and those of them from a node to itself
        self.distinct = self.one_way = 0  # without repetitions, directed; and in one direction only, undirected

    @property
    def repairs(self) -> EdgeRepairs:
        """How the given edges were repaired."""
        return EdgeRepairs(self.one_way, self.given - self.loops - self.distinct, self.loops)

    def add(self, ends: NDArray[np.int64], weight: NDArray[np.float64] | None) -> None:
        """Sort some edges, (2, edges), into a run."""
        run = self._file("run", len(self.runs))
        left, right = no_loop = ends[:, ends[0] != ends[1]]
        both = [2 * (left * self.nodes + right), 2 * (right * self.nodes + left) + 1]
        keys, inverse = np.unique(np.concatenate(both), return_inverse=True)
        if weight is not None:
            weight = np.tile(weight[ends[0] != ends[1]], 2)
            np.save(run.weights, np.bincount(inverse, weight, minlength=len(keys)))
        np.save(run.edges, keys)
        self.runs.append(run)
        self.given += ends.shape[1]
        self.loops += ends.shape[1] - no_loop.shape[1]

    def write(self, range_keys: int, report: Callable[[int], None]) -> None:
        """Merge the runs, and write the edges as one array, and their weights as another.

        Args:
            range_keys: how many keys are merged at a time, about.
            report: called with how many edges were merged.
        """
        keys = [map_array(run.edges) for run in self.runs]
        ranges, extremes, merged = [], [], 0
        for index, (start, stop) in enumerate(pairwise(_boundaries(keys, self.nodes, range_keys))):
            bounds = [start * 2 * self.nodes, stop * 2 * self.nodes]
            slices = [slice(*np.searchsorted(run_keys, bounds).tolist()) for run_keys in keys]
            ranges.append(self._file("range", index))
            extremes += self._merge(keys, slices, ranges[-1])
            merged += sum(entries.stop - entries.start for entries in slices)
            report(merged // 2)
        if extremes:
            check_total_weights(min(extremes), max(extremes))
        _concatenate([file.edges for file in ranges], self.folder.path(packed_files.EDGE_INDEX), np.int64, rows=(2,))
        if self.weighted and ranges:
            _concatenate([file.weights for file in ranges], self.folder.path(packed_files.EDGE_WEIGHT), np.float32)

    def _merge(self, keys: Sequence[NDArray[np.int64]], slices: Sequence[slice], file: EdgeFile) -> list[float]:
        """Merge a slice of each run; return the lowest and the highest weight, if there are any."""
        parts = [run_keys[entries] for run_keys, entries in zip(keys, slices, strict=True)]
        key, key_inverse = np.unique(np.concatenate(parts), return_inverse=True)
        pair, pair_inverse, directions = np.unique(key // 2, return_inverse=True, return_counts=True)
        left, right = pair // self.nodes, pair % self.nodes
        np.save(file.edges, np.stack([left, right]))
        # An undirected edge is a pair at both of its ends; it counts once.
        self.one_way += int(((directions == 1) & (left < right)).sum())
        self.distinct += int((key % 2 == 0).sum())
        if not self.weighted:
            return []
        weights = [map_array(run.weights)[entries] for run, entries in zip(self.runs, slices, strict=True)]
        directed = np.bincount(key_inverse, np.concatenate(weights), minlength=len(key))
        weight = np.bincount(pair_inverse, directed, minlength=len(pair)) / directions
        with np.errstate(over="ignore", under="ignore"):  # what single precision cannot hold is refused by the extremes
            np.save(file.weights, weight.astype(np.float32))
        return [weight.min().item(), weight.max().item()] if len(weight) else []

    def _file(self, stem: str, index: int) -> EdgeFile:
        return EdgeFile(*(self.folder.path(f"{stem}-{index:06d}.{kind}.npy", WORK) for kind in ("edges", "weights")))


def _boundaries(keys: Sequence[NDArray[np.int64]], nodes: int, range_keys: int) -> list[int]:
    """Cut the nodes into ranges with about equally many keys, estimated from a sample; a node is never cut."""
    if not keys:
        return []
    step = max(1, sum(map(len, keys)) // SAMPLED_KEYS)
    sample = np.sort(np.concatenate([run_keys[::step] for run_keys in keys])) // (2 * nodes)
    inner = sample[:: max(1, range_keys // step)][1:]
    boundaries: list[int] = np.unique(np.concatenate([[0], inner, [nodes]])).tolist()
    return boundaries


def _concatenate(files: Sequence[Path], path: Path, dtype: type, rows: tuple[int, ...] = ()) -> None:
    """Write arrays of shape (*rows, edges) as one, one after the other."""
    arrays = [map_array(file) for file in files]
    result = create_array(path, dtype, (*rows, sum(array.shape[-1] for array in arrays)))
    offset = 0
    for array in arrays:
        result[..., offset : offset + array.shape[-1]] = array
        offset += array.shape[-1]
    result.flush()
