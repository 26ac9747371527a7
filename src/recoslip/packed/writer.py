"""Tables of nodes and edges -> the folder of a packed graph, with little memory, resumable where it was interrupted."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from recoslip.encoders.table_encoder import TableEncoder, column_weights
from recoslip.errors import OutOfMemory, RecoslipError, TableError
from recoslip.json_files import JsonFileError, read_json
from recoslip.packed.edge_sort import EdgeFile, SortedEdges, sort_edges
from recoslip.packed.feature_files import encode_to_files, write_feature_matrix
from recoslip.packed.format import (
    CHUNK_ROWS,
    FILES,
    FORMAT,
    INDEX,
    IS_TARGET,
    KEPT,
    NODES,
    VERSION,
    checksum,
    map_array,
    remove,
)
from recoslip.packed.table_file import TableFile
from recoslip.progress import Phases, Progress
from recoslip.storage import atomic_write, check_output_folder, output_lock, printable, replace_folder, resolve
from recoslip.tables.edges import SAMPLE_EDGES, EdgeReader
from recoslip.tables.kept_columns import shown_values
from recoslip.tables.options import NodeRows, ReadOptions
from recoslip.tables.read import name_ends
from recoslip.tables.table import check_file, table_errors

WORK_VERSION = 5  # of the intermediate files
INPUTS = "inputs.json"  # in the working folder: the fingerprint of the inputs that its files are made of


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
    domains of the nodes, one column (of vectors: one chunk), and one chunk of edges. If the call is interrupted, the
    same call continues where it stopped: intermediate files are kept beside the folder, which appears when it is
    complete.

    Args:
        nodes: file of nodes, as for `read_graph`.
        edges: file of edges.
        folder: the folder to write.
        replace: whether an earlier packed graph in the folder may be replaced.
        progress: called with the steps done and the steps in all.
        chunk_rows: rows of a table to hold in memory at a time.
        **options: which columns to read: the other arguments of `read_graph`.
    """
    read_options = ReadOptions(**options)
    if read_options.is_relational:
        raise TableError(
            "nodes and edges of several kinds, and features of edges, cannot be packed; give the tables to detect"
        )
    final = resolve(folder)
    work = final.parent / f".{final.name}.packing"
    try:
        with output_lock(final), table_errors():
            check_output_folder(folder, ours=FILES, replace=replace)
            check_file(Path(nodes), "nodes", read_options)
            check_file(Path(edges), "edges", read_options)
            _prepare_working_folder(work, _fingerprint(Path(nodes), Path(edges), options, chunk_rows))
            packed = _pack_into(work, Path(nodes), Path(edges), read_options, progress, chunk_rows)
            check_output_folder(folder, ours=FILES, replace=replace)  # others than us may have written there
            replace_folder(packed, final)
            _remove_working_folder(work)
    except OSError as problem:
        if problem.errno == errno.ENOMEM:
            raise OutOfMemory(
                f"the arrays of {printable(folder)} cannot be mapped: this process may not address enough memory; "
                "raise its limit (ulimit -v), and the same command goes on where this one ended"
            ) from problem
        raise RecoslipError(
            f"cannot write {printable(folder)}: {problem.strerror or problem}; "
            "the same command goes on where this one ended"
        ) from problem


def _fingerprint(nodes: Path, edges: Path, options: dict[str, Any], chunk_rows: int) -> list[Any]:
    """Describe the inputs; intermediate files are reused only by a call with the same inputs."""
    files = []
    for path in (nodes, edges):
        files.append([str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns])
    plain = {name: value if isinstance(value, str | bool | None) else repr(value) for name, value in options.items()}
    return [WORK_VERSION, files, plain, chunk_rows]


def _prepare_working_folder(work: Path, fingerprint: list[Any]) -> None:
    """Make the folder of intermediate files; those of an interrupted call stay if it had the same inputs."""
    try:
        resumable = read_json(work / INPUTS, kind=list) == fingerprint
    except (FileNotFoundError, JsonFileError):
        resumable = False
    if not resumable:
        if work.exists():
            _remove_working_folder(work)
        work.mkdir(parents=True)
        atomic_write(work / INPUTS, json.dumps(fingerprint))


def _remove_working_folder(work: Path) -> None:
    """Remove the intermediate files, the fingerprint first: without it, files that are left over are not reused."""
    remove(work / INPUTS)
    remove(work)


def _pack_into(
    work: Path, nodes: Path, edges: Path, options: ReadOptions, progress: Progress | None, chunk_rows: int
) -> Path:
    """Make the packed graph in the working folder, and return its folder there."""
    node_table = TableFile(nodes, "nodes", work, options)
    rows = options.node_rows(node_table, node_table.origin)
    edge_table = TableFile(edges, "edges", work, name_ends(edges, rows.ids, options))
    sample = edge_table.rows(0, SAMPLE_EDGES, edge_table.columns)
    reader = EdgeReader(sample, printable(edges), rows.ids, edge_table.options, edge_table.origin)
    reader.check_header()
    used = [column for column in rows.columns if column.encoding != "unused"]
    phases = Phases(progress, node_table.height * len(used) + 2 * edge_table.height)
    encoded = []
    for column in used:
        encoded.append(encode_to_files(node_table, column, options.impute, work, chunk_rows))
        phases.phase(node_table.height)(node_table.height)
    sorted_edges = sort_edges(edge_table, reader, node_table.height, work, chunk_rows, phases)
    if edge_table.height and not sorted_edges.repairs.loops and not any(_size(each) for each in sorted_edges.ranges):
        reader.refuse_no_edge(sample)
    packed = work / "graph"
    remove(packed)
    packed.mkdir()
    chunks = [(start, min(start + chunk_rows, node_table.height)) for start in range(0, node_table.height, chunk_rows)]
    weights = column_weights(
        [column.encoding for column in used], [column.chunks(chunks) for column in encoded], options.block_weights
    )
    write_feature_matrix(encoded, weights, chunks, packed)
    sorted_edges.write(packed)
    _write_nodes(node_table, rows, options, packed)
    encoder = TableEncoder(tuple(column.encoder for column in encoded), weights)
    _write_index(encoder, sorted_edges, rows, packed)
    return packed


def _size(file: EdgeFile) -> int:
    return int(map_array(file.edges).size)


def _write_nodes(table: TableFile, rows: NodeRows, options: ReadOptions, folder: Path) -> None:
    np.save(folder / IS_TARGET, rows.is_target)
    own = {"category": options.category, "time": options.time}
    columns = {"id": rows.names.alias("id")}
    columns |= {name: table[column].alias(name) for name, column in own.items() if column is not None}
    columns |= {f"{KEPT}{name}": shown_values(table[name]) for name in rows.kept}
    with (folder / NODES).open("wb") as file:
        pl.DataFrame(columns).write_parquet(file)


def _write_index(encoder: TableEncoder, edges: SortedEdges, rows: NodeRows, folder: Path) -> None:
    names = encoder.feature_names
    index = {
        "format": FORMAT,
        "version": VERSION,
        "nodes": len(rows.ids),
        "features": len(names),
        "feature_names": names,
        "encoding": encoder.to_json(),
        "label": rows.label,
        "repairs": [edges.repairs.mirrored, edges.repairs.merged, edges.repairs.loops],
        "files": {path.name: [path.stat().st_size, checksum(path)] for path in sorted(folder.iterdir())},
    }
    (folder / INDEX).write_text(json.dumps(index) + "\n", encoding="utf-8")
