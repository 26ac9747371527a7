"""A table of edges -> the sorted edges of a simple undirected graph, by an external merge sort.

Chunks of the table are sorted into *runs*. The runs are then merged, one *range* of nodes after the other: every run is
sorted, so the entries of a range are a slice of each run. An edge from u to v is in a run as the entries (u, v, 0) and
(v, u, 1), so that it is found at both of its ends together with its direction; an entry is one whole number, its *key*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recoslip.base.files import WORK, Folder
from recoslip.data.packed.reader import EDGE_INDEX, EDGE_WEIGHT, create_array, map_array
from recoslip.data.validation import EdgeRepairs, check_total_weights

SAMPLED_KEYS = 2**20  # keys that the ranges of nodes are chosen by


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
        _concatenate([file.edges for file in ranges], self.folder.path(EDGE_INDEX), np.int64, rows=(2,))
        if self.weighted and ranges:
            _concatenate([file.weights for file in ranges], self.folder.path(EDGE_WEIGHT), np.float32)

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
