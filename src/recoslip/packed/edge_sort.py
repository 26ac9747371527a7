"""A table of edges -> the sorted edges of a simple undirected graph, by an external merge sort.

Chunks of the table are sorted into *runs*. The runs are then merged, one *range* of nodes after the other: every run is
sorted, so the entries of a range are a slice of each run. An edge from u to v is in a run as the entries (u, v, 0) and
(v, u, 1), so that it is found at both of its ends together with its direction; an entry is one whole number, its *key*.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recoslip.graph import EdgeRepairs
from recoslip.graph.validation import check_weights
from recoslip.packed.format import EDGE_INDEX, EDGE_WEIGHT, create_array, map_array, save_array
from recoslip.packed.table_file import TableFile
from recoslip.progress import Phases
from recoslip.storage import atomic_write
from recoslip.tables.edges import EdgeReader, log_dropped_edges

SAMPLED_KEYS = 2**20  # keys that the ranges of nodes are chosen by


@dataclass(frozen=True)
class EdgeFile:
    """Some of the edges: a file of keys or ends, the file of their weights, and the file of counts about them."""

    edges: Path
    weights: Path | None
    counts: Path  # written last: where it exists, the other files are complete

    def read_counts(self) -> list[int]:
        """Return the counts."""
        counts: list[int] = json.loads(self.counts.read_text(encoding="utf-8"))
        return counts


@dataclass(frozen=True)
class SortedEdges:
    """The sorted edges in both directions, in consecutive files, and how the given edges were repaired."""

    ranges: list[EdgeFile]
    weighted: bool
    repairs: EdgeRepairs

    def write(self, folder: Path) -> None:
        """Write the edges as one array, and their weights as another."""
        _concatenate([file.edges for file in self.ranges], folder / EDGE_INDEX, np.int64, rows=(2,))
        if self.weighted:
            weights = [file.weights for file in self.ranges if file.weights is not None]
            _concatenate(weights, folder / EDGE_WEIGHT, np.float32)


def sort_edges(
    table: TableFile, reader: EdgeReader, nodes: int, work: Path, chunk_rows: int, phases: Phases
) -> SortedEdges:
    """Sort the edges by their ends and make them a simple undirected graph, with one chunk in memory at a time."""
    weighted = reader.weight is not None
    if table.height == 0:
        return SortedEdges([], weighted, EdgeRepairs(0, 0, 0))
    report = phases.phase(table.height)
    runs = []
    for offset in range(0, table.height, chunk_rows):
        runs.append(_write_run(table, offset, reader, nodes, work, chunk_rows))
        report(min(offset + chunk_rows, table.height))
    read, loops, dropped = np.sum([run.read_counts() for run in runs], axis=0).tolist()
    log_dropped_edges(dropped)
    ranges = _merge_runs(runs, nodes, work, 4 * chunk_rows, phases.phase(table.height))
    one_way, distinct = np.sum([file.read_counts() for file in ranges], axis=0).tolist()
    repairs = EdgeRepairs(mirrored=one_way, merged=read - loops - distinct, loops=loops)
    return SortedEdges(ranges, weighted, repairs)


def _write_run(table: TableFile, offset: int, reader: EdgeReader, nodes: int, work: Path, chunk_rows: int) -> EdgeFile:
    """Sort a chunk of the table into a run, unless it is there; count edges read, self-loops and edges dropped."""
    run = _edge_file(work, "run", offset // chunk_rows, weighted=reader.weight is not None)
    if run.counts.exists():
        return run
    columns = [reader.left, reader.right, *([reader.weight] if reader.weight else [])]
    dropped_before = reader.dropped
    (left, right), weight = reader.read(table.rows(offset, chunk_rows, columns))
    no_loop = left != right
    forward = left[no_loop] * nodes + right[no_loop]
    backward = right[no_loop] * nodes + left[no_loop]
    keys, inverse = np.unique(np.concatenate([2 * forward, 2 * backward + 1]), return_inverse=True)
    if weight is not None and run.weights is not None:
        check_weights(weight)
        save_array(run.weights, np.bincount(inverse, np.tile(weight[no_loop], 2), minlength=len(keys)))
    save_array(run.edges, keys)
    counts = [len(left), int((~no_loop).sum()), reader.dropped - dropped_before]
    atomic_write(run.counts, json.dumps(counts))
    return run


def _merge_runs(
    runs: Sequence[EdgeFile], nodes: int, work: Path, range_keys: int, report: Callable[[int], None]
) -> list[EdgeFile]:
    """Merge the runs into files of sorted edges, each of a range of nodes with about `range_keys` keys."""
    keys = [map_array(run.edges) for run in runs]
    boundaries = _range_boundaries(keys, nodes, range_keys)
    merged, ranges = 0, []
    for index, (start, stop) in enumerate(pairwise(boundaries)):
        bounds = [start * 2 * nodes, stop * 2 * nodes]
        slices = [slice(*np.searchsorted(run_keys, bounds).tolist()) for run_keys in keys]
        file = _edge_file(work, "range", index, weighted=runs[0].weights is not None)
        if not file.counts.exists():
            _merge_range(runs, keys, slices, nodes, file)
        ranges.append(file)
        merged += sum(entries.stop - entries.start for entries in slices)
        report(merged // 2)
    return ranges


def _range_boundaries(keys: Sequence[NDArray[np.int64]], nodes: int, range_keys: int) -> list[int]:
    """Cut the nodes into ranges with about equally many keys, estimated from a sample; a node is never cut."""
    step = max(1, sum(map(len, keys)) // SAMPLED_KEYS)
    sample = np.sort(np.concatenate([run_keys[::step] for run_keys in keys])) // (2 * nodes)
    inner = sample[:: max(1, range_keys // step)][1:]
    boundaries: list[int] = np.unique(np.concatenate([[0], inner, [nodes]])).tolist()
    return boundaries


def _merge_range(
    runs: Sequence[EdgeFile], keys: Sequence[NDArray[np.int64]], slices: Sequence[slice], nodes: int, file: EdgeFile
) -> None:
    """Merge a slice of each run; count undirected edges that were given one way, and distinct directed edges."""
    range_keys = [run_keys[entries] for run_keys, entries in zip(keys, slices, strict=True)]
    key, key_inverse = np.unique(np.concatenate(range_keys), return_inverse=True)
    pair, pair_inverse, directions = np.unique(key // 2, return_inverse=True, return_counts=True)
    left, right = pair // nodes, pair % nodes
    if file.weights is not None:
        weights = [map_array(r.weights)[s] for r, s in zip(runs, slices, strict=True) if r.weights is not None]
        directed = np.bincount(key_inverse, np.concatenate(weights), minlength=len(key))
        total = np.bincount(pair_inverse, directed, minlength=len(pair))
        save_array(file.weights, (total / directions).astype(np.float32))
    save_array(file.edges, np.stack([left, right]))
    one_way = (directions == 1) & (left < right)  # an undirected edge is a pair at both of its ends; count it once
    atomic_write(file.counts, json.dumps([int(one_way.sum()), int((key % 2 == 0).sum())]))


def _edge_file(work: Path, stem: str, index: int, *, weighted: bool) -> EdgeFile:
    edges, weights, counts = (work / f"{stem}-{index:06d}.{suffix}" for suffix in ("edges.npy", "weights.npy", "json"))
    return EdgeFile(edges, weights if weighted else None, counts)


def _concatenate(files: Sequence[Path], path: Path, dtype: type, rows: tuple[int, ...] = ()) -> None:
    """Write arrays of shape (*rows, edges) as one, one after the other."""
    arrays = [map_array(file) for file in files]
    shape = (*rows, sum(array.shape[-1] for array in arrays))
    if not shape[-1]:  # an empty file cannot be mapped
        np.save(path, np.empty(shape, dtype=dtype))
        return
    result = create_array(path, dtype, shape)
    offset = 0
    for array in arrays:
        result[..., offset : offset + array.shape[-1]] = array
        offset += array.shape[-1]
    result.flush()
