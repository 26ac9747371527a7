"""A table of edges -> the sorted edges of a simple undirected graph, by an external merge sort.

Chunks of the table are sorted into *runs*. The runs are then merged, one *range* of nodes after the other: every run is
sorted, so the entries of a range are a slice of each run. An edge from u to v is in a run as the entries (u, v, 0) and
(v, u, 1), so that it is found at both of its ends together with its direction; an entry is one whole number, its *key*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.files import WORK, Folder
from recoslip.base.progress import Phases
from recoslip.data.packed.reader import EDGE_INDEX, EDGE_WEIGHT, create_array, map_array
from recoslip.data.tables.edges import EdgeReader, log_dropped_edges
from recoslip.data.validation import EdgeRepairs, check_total_weights

SAMPLED_KEYS = 2**20  # keys that the ranges of nodes are chosen by


class EdgeFile(NamedTuple):
    """Some of the edges: a file of keys or ends, and the file of their weights."""

    edges: Path
    weights: Path | None


class RunCounts(NamedTuple):
    """What was counted while a chunk of the table was sorted into a run."""

    edges: int  # edges read, without those that were dropped
    loops: int


class RangeCounts(NamedTuple):
    """What was counted while the runs were merged in a range of nodes."""

    one_way: int  # undirected edges that were given in one direction only
    distinct: int  # directed edges that were given, repetitions not counted
    weights: list[float]  # the lowest and the highest weight of an edge; empty without edges or weights


class SortedEdges(NamedTuple):
    """The sorted edges in both directions, in consecutive files, and how the given edges were repaired."""

    ranges: list[EdgeFile]
    distinct: int  # directed edges that were given, repetitions not counted
    repairs: EdgeRepairs

    def write(self, folder: Folder) -> None:
        """Write the edges as one array, and their weights as another."""
        _concatenate([file.edges for file in self.ranges], folder.path(EDGE_INDEX), np.int64, rows=(2,))
        if weights := [file.weights for file in self.ranges if file.weights is not None]:
            _concatenate(weights, folder.path(EDGE_WEIGHT), np.float32)


def sort_edges(
    chunks: Iterable[pl.DataFrame],
    rows: int,
    reader: EdgeReader,
    nodes: int,
    folder: Folder,
    chunk_rows: int,
    phases: Phases,
) -> SortedEdges:
    """Sort the edges by their ends and make them a simple undirected graph, with one chunk in memory at a time.

    Args:
        chunks: the table of edges, in parts.
        rows: how many rows it has.
        reader: reads a part.
        nodes: how many nodes there are.
        folder: where runs and ranges go.
        chunk_rows: rows of a part, but for the last.
        phases: is told how many rows were sorted and merged.
    """
    if rows == 0:
        return SortedEdges([], 0, EdgeRepairs(0, 0, 0))
    runs, run_counts = _sort_chunks(chunks, reader, nodes, folder, phases.phase(rows))
    log_dropped_edges(reader.dropped)
    ranges, range_counts = _merge_runs(runs, nodes, folder, 4 * chunk_rows, phases.phase(rows))
    if weights := [weight for counts in range_counts for weight in counts.weights]:
        check_total_weights(min(weights), max(weights))
    loops = sum(counts.loops for counts in run_counts)
    distinct = sum(counts.distinct for counts in range_counts)
    repetitions = sum(counts.edges for counts in run_counts) - loops - distinct
    repairs = EdgeRepairs(mirrored=sum(counts.one_way for counts in range_counts), merged=repetitions, loops=loops)
    return SortedEdges(ranges, distinct, repairs)


def _sort_chunks(
    chunks: Iterable[pl.DataFrame], reader: EdgeReader, nodes: int, folder: Folder, report: Callable[[int], None]
) -> tuple[list[EdgeFile], list[RunCounts]]:
    """Sort the table into runs, one per chunk."""
    runs: list[EdgeFile] = []
    counts: list[RunCounts] = []
    offset = 0
    for chunk in chunks:
        run = _edge_file(folder, "run", len(runs), weighted=reader.weight is not None)
        counts.append(_write_run(run, chunk, reader, nodes, offset))
        runs.append(run)
        offset += chunk.height
        report(offset)
    return runs, counts


def _write_run(run: EdgeFile, chunk: pl.DataFrame, reader: EdgeReader, nodes: int, offset: int) -> RunCounts:
    """Sort a chunk of the table, which is from row `offset` on, into a run."""
    (left, right), weight = reader.read(chunk, offset)
    no_loop = left != right
    forward = left[no_loop] * nodes + right[no_loop]
    backward = right[no_loop] * nodes + left[no_loop]
    keys, inverse = np.unique(np.concatenate([2 * forward, 2 * backward + 1]), return_inverse=True)
    if weight is not None and run.weights is not None:
        np.save(run.weights, np.bincount(inverse, np.tile(weight[no_loop], 2), minlength=len(keys)))
    np.save(run.edges, keys)
    return RunCounts(len(left), int((~no_loop).sum()))


def _merge_runs(
    runs: Sequence[EdgeFile], nodes: int, folder: Folder, range_keys: int, report: Callable[[int], None]
) -> tuple[list[EdgeFile], list[RangeCounts]]:
    """Merge the runs into files of sorted edges, each of a range of nodes with about `range_keys` keys."""
    keys = [map_array(run.edges) for run in runs]
    boundaries = _range_boundaries(keys, nodes, range_keys)
    merged = 0
    ranges: list[EdgeFile] = []
    counts: list[RangeCounts] = []
    for index, (start, stop) in enumerate(pairwise(boundaries)):
        bounds = [start * 2 * nodes, stop * 2 * nodes]
        slices = [slice(*np.searchsorted(run_keys, bounds).tolist()) for run_keys in keys]
        file = _edge_file(folder, "range", index, weighted=runs[0].weights is not None)
        counts.append(_merge_range(runs, keys, slices, nodes, file))
        ranges.append(file)
        merged += sum(entries.stop - entries.start for entries in slices)
        report(merged // 2)
    return ranges, counts


def _range_boundaries(keys: Sequence[NDArray[np.int64]], nodes: int, range_keys: int) -> list[int]:
    """Cut the nodes into ranges with about equally many keys, estimated from a sample; a node is never cut."""
    step = max(1, sum(map(len, keys)) // SAMPLED_KEYS)
    sample = np.sort(np.concatenate([run_keys[::step] for run_keys in keys])) // (2 * nodes)
    inner = sample[:: max(1, range_keys // step)][1:]
    boundaries: list[int] = np.unique(np.concatenate([[0], inner, [nodes]])).tolist()
    return boundaries


def _merge_range(
    runs: Sequence[EdgeFile], keys: Sequence[NDArray[np.int64]], slices: Sequence[slice], nodes: int, file: EdgeFile
) -> RangeCounts:
    """Merge a slice of each run."""
    range_keys = [run_keys[entries] for run_keys, entries in zip(keys, slices, strict=True)]
    key, key_inverse = np.unique(np.concatenate(range_keys), return_inverse=True)
    pair, pair_inverse, directions = np.unique(key // 2, return_inverse=True, return_counts=True)
    left, right = pair // nodes, pair % nodes
    extremes: list[float] = []
    if file.weights is not None:
        weights = [map_array(r.weights)[s] for r, s in zip(runs, slices, strict=True) if r.weights is not None]
        directed = np.bincount(key_inverse, np.concatenate(weights), minlength=len(key))
        weight = np.bincount(pair_inverse, directed, minlength=len(pair)) / directions
        with np.errstate(over="ignore", under="ignore"):  # what single precision cannot hold is refused by the extremes
            np.save(file.weights, weight.astype(np.float32))
        extremes = [weight.min().item(), weight.max().item()] if len(weight) else []
    np.save(file.edges, np.stack([left, right]))
    one_way = (directions == 1) & (left < right)  # an undirected edge is a pair at both of its ends; count it once
    return RangeCounts(int(one_way.sum()), int((key % 2 == 0).sum()), extremes)


def _edge_file(folder: Folder, stem: str, index: int, *, weighted: bool) -> EdgeFile:
    edges = folder.path(f"{stem}-{index:06d}.edges.npy", WORK)
    return EdgeFile(edges, folder.path(f"{stem}-{index:06d}.weights.npy", WORK) if weighted else None)


def _concatenate(files: Sequence[Path], path: Path, dtype: type, rows: tuple[int, ...] = ()) -> None:
    """Write arrays of shape (*rows, edges) as one, one after the other."""
    arrays = [map_array(file) for file in files]
    shape = (*rows, sum(array.shape[-1] for array in arrays))
    result = create_array(path, dtype, shape)
    offset = 0
    for array in arrays:
        result[..., offset : offset + array.shape[-1]] = array
        offset += array.shape[-1]
    result.flush()
