"""Edges and source nodes -> how far every node is from the source, without a table of nodes x nodes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

BLOCK = 64 * 64  # sources searched from at once; each takes a bit per node


def mean_distance(adjacency: sp.csr_array, sources: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean shortest-path length from each node to the sources it can reach; infinite where it reaches none.

    Breadth-first searches from thousands of sources at once: each node holds a bit per source, and one step ors the
    bits of its neighbours. A source's distance to itself is 0 and counts.
    """
    nodes = adjacency.shape[0]
    total, reached = np.zeros(nodes), np.zeros(nodes)
    for start in range(0, len(sources), BLOCK):
        block = sources[start : start + BLOCK]
        seen = np.zeros((nodes, -(-len(block) // 64)), dtype=np.uint64)
        bit = np.arange(len(block))
        np.bitwise_or.at(seen, (block, bit // 64), np.uint64(1) << (bit % 64).astype(np.uint64))
        fresh, distance = seen.copy(), 0
        while (count := np.bitwise_count(fresh).sum(axis=1)).any():
            total += distance * count
            reached += count
            fresh = or_neighbours(adjacency, fresh) & ~seen
            seen |= fresh
            distance += 1
    return np.divide(total, reached, out=np.full(nodes, np.inf), where=reached > 0)


def or_neighbours(adjacency: sp.csr_array, bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each node, the bitwise or of its neighbours' words: (nodes, words) -> (nodes, words)."""
    result = np.zeros_like(bits)
    rows = np.flatnonzero(np.diff(adjacency.indptr))  # reduceat cannot do empty rows
    if len(rows):
        result[rows] = np.bitwise_or.reduceat(bits[adjacency.indices], adjacency.indptr[rows], axis=0)
    return result


def within_hops(adjacency: sp.csr_array, sources: NDArray[np.int64], hops: int) -> NDArray[np.bool_]:
    """Nodes at most `hops` edges away from any source; the sources themselves are."""
    inside = np.zeros(adjacency.shape[0], dtype=bool)
    inside[sources] = True
    for _ in range(hops):
        inside |= adjacency @ inside.astype(np.float32) > 0
    return inside
