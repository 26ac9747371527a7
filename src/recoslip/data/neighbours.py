"""NodeGraph -> its adjacency matrix: whole, normalised, or some rows at a time; diffusion and distances with it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from recoslip.data.graph import NodeGraph

LARGEST = 1e30  # weight in a sum of products; larger ones overflow in single precision


def nearest_edges(x: Any, ids: pl.Series, count: int) -> NDArray[np.int64]:
    """Return edges from each row of a feature matrix to those nearest by the cosine, (2, edges).

    Args:
        x: the features, (nodes, features), dense or sparse.
        ids: the ids, by which rows are sorted first: ties depend on the order.
        count: how many others each node is joined to.
    """
    from sklearn.neighbors import NearestNeighbors

    order = ids.arg_sort().to_numpy().astype(np.int64)
    count = min(count, len(order) - 1)
    if count < 1:
        return np.empty((2, 0), dtype=np.int64)
    nearest = NearestNeighbors(n_neighbors=count, metric="cosine").fit(x[order]).kneighbors(return_distance=False)
    return np.stack([np.repeat(order, count), order[nearest.ravel()]])


def adjacency_of(graph: NodeGraph) -> sp.csr_array:
    """The unweighted adjacency matrix."""
    rows, columns = graph.edge_index
    return sp.csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(graph.num_nodes,) * 2)


def weighted_adjacency(graph: NodeGraph) -> sp.csr_array:
    """The adjacency matrix with the edges' weights, in double precision."""
    rows, columns = graph.edge_index
    weight = np.ones(len(rows)) if graph.edge_weight is None else graph.edge_weight.astype(np.float64)
    return sp.csr_array((weight, (rows, columns)), shape=(graph.num_nodes,) * 2)


def mean_over_neighbours(graph: NodeGraph) -> sp.csr_array:
    """The matrix $D^{-1} A$; the row of a node without neighbours is empty."""
    adjacency = weighted_adjacency(graph)
    degree = adjacency.sum(axis=1)
    return sp.csr_array(sp.diags_array(1 / np.where(degree > 0, degree, 1)) @ adjacency)


def symmetric_scale(degree: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return $D^{-1/2}$ for the total weight D of each node's edges, (nodes,); 1 for a node without edges."""
    return np.asarray(np.where(degree > 0, degree, 1) ** -0.5)


def gcn_adjacency(graph: NodeGraph) -> sp.csr_array:
    r"""$\hat A = D^{-1/2} (A + I) D^{-1/2}$ (Kipf & Welling)."""
    adjacency = weighted_adjacency(graph) + sp.eye_array(graph.num_nodes, format="csr")
    scale = sp.diags_array(symmetric_scale(adjacency.sum(axis=1)))
    return sp.csr_array(scale @ adjacency @ scale)


def mean_of_rows(
    rows: slice,
    edge_index: NDArray[np.int64],
    edge_weight: NDArray[np.float32] | None,
    values: NDArray[Any],
    isolated: NDArray[Any],
) -> NDArray[Any]:
    """Average (nodes, ...) over the neighbours of some nodes; one without any has its value in another array."""
    start = np.searchsorted(edge_index[0], np.arange(rows.start, rows.stop + 1))
    result = _mean(_rows(start, edge_index[1], edge_weight, len(values)), values)
    alone = np.diff(start) == 0
    result[alone] = isolated[rows][alone]
    return result


def _rows(
    start: NDArray[np.int64], ends: NDArray[np.int64], weight: NDArray[np.float32] | None, nodes: int
) -> sp.csr_array:
    """Build the rows of the adjacency matrix whose entries begin and end there."""
    begin, end = start[0], start[-1]
    values = np.ones(end - begin) if weight is None else weight[begin:end].astype(np.float64)
    return sp.csr_array((values, ends[begin:end], start - begin), shape=(len(start) - 1, nodes))


def _mean(rows: sp.csr_array, values: NDArray[Any]) -> NDArray[Any]:
    """Average over the neighbours that some rows of the adjacency matrix, which are changed, name."""
    rows.data /= max(1.0, rows.data.max(initial=0) / LARGEST)
    total = np.asarray(rows.sum(axis=1)).reshape(-1, *[1] * (values.ndim - 1))
    rows.data = rows.data.astype(values.dtype, copy=False)  # else all of the values would be converted
    return np.asarray((rows @ values) / np.where(total > 0, total, 1), values.dtype)


class Neighbours:
    """The rows of a graph's adjacency matrix, read some nodes at a time: the edges may stay on disk.

    Args:
        graph: the graph.
        weighted: whether its edges count by their weights, or all alike.

    >>> path = Neighbours(NodeGraph([[0.0], [1.0], [2.0]], [[0, 1], [1, 2]], [False, False, True]))
    >>> path.mean(np.array([0.0, 1.0, 4.0])).tolist()
    [1.0, 2.0, 1.0]
    >>> [ends.tolist() for ends in path.of([0, 1])]
    [[0, 1, 1], [1, 0, 2]]
    """

    BLOCK = 2**17  # nodes read at a time

    def __init__(self, graph: NodeGraph, *, weighted: bool = True) -> None:
        self.nodes, self.ends = graph.num_nodes, graph.edge_index[1]
        self.weight = graph.edge_weight if weighted else None
        self.start = np.searchsorted(graph.edge_index[0], np.arange(graph.num_nodes + 1))
        self.degree = np.diff(self.start)

    def blocks(self) -> Iterator[slice]:
        """Cut the nodes into ranges to read one after the other."""
        for begin in range(0, self.nodes, self.BLOCK):
            yield slice(begin, min(begin + self.BLOCK, self.nodes))

    def rows(self, rows: slice) -> sp.csr_array:
        """Return those rows of the adjacency matrix, in double precision."""
        return _rows(self.start[rows.start : rows.stop + 1], self.ends, self.weight, self.nodes)

    def mean(self, values: NDArray[Any]) -> NDArray[Any]:
        """Average (nodes, ...) over each node's neighbours; 0 for a node without any."""
        result = np.empty_like(values)
        for block in self.blocks():
            result[block] = _mean(self.rows(block), values)
        return result

    def of(self, nodes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the neighbours of some nodes, one list after the other.

        The first array holds the index in `nodes` of the node whose neighbour it is, the second the neighbour.
        """
        positions = np.asarray(nodes, dtype=np.int64)
        owner, offset = concatenated_ranges(self.degree[positions])
        return owner, self.ends[self.start[positions][owner] + offset]

    def subgraph(self, nodes: NDArray[np.int64]) -> sp.csr_array:
        """Return the adjacency matrix of some nodes, given in ascending order: a matrix of ones.

        >>> path = Neighbours(NodeGraph([[0.0], [1.0], [2.0]], [[0, 1], [1, 2]], [False, False, True]))
        >>> path.subgraph(np.array([1, 2])).toarray().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        owner, neighbour = self.of(nodes)
        index = np.minimum(np.searchsorted(nodes, neighbour), max(0, len(nodes) - 1))
        inside = nodes[index] == neighbour
        ends = owner[inside], index[inside]
        return sp.csr_array((np.ones(len(ends[0]), dtype=np.float32), ends), shape=(len(nodes),) * 2)


def diffuse(
    x: NDArray[Any],
    propagate: Callable[[NDArray[Any]], NDArray[Any]],
    alpha: float,
    steps: int,
    *,
    restart: bool = True,
    isolated: NDArray[np.bool_] | None = None,
    clip: bool = False,
) -> NDArray[Any]:
    r"""$X \leftarrow (1 - \alpha) X_0 + \alpha P X$, several times (label propagation, personalised PageRank).

    Args:
        x: $X_0$, (nodes, ...).
        propagate: multiplies by P; returns a new array.
        alpha: α.
        steps: how many.
        restart: whether a step mixes with $X_0$; if not, with the X of the step before.
        isolated: (nodes,) nodes that P has no row for; they keep their value.
        clip: whether values are kept in [0, 1] after each step.

    >>> pair = Neighbours(NodeGraph([[0.0], [0.0], [0.0]], [[0], [1]], [False, False, True]))
    >>> diffuse(np.array([4.0, 0.0, 2.0]), pair.mean, 0.5, 3, isolated=pair.degree == 0).tolist()
    [2.5, 1.5, 2.0]
    """
    current = x
    for _ in range(steps):
        origin = x if restart else current
        mixed = propagate(current)  # and then in place: of a large graph, an array of this size is gigabytes
        mixed -= origin
        mixed *= alpha
        mixed += origin
        if isolated is not None:
            np.copyto(mixed, origin, where=isolated)
        current = mixed.clip(0, 1, out=mixed) if clip else mixed
    return current


SEARCHED = 64 * 64  # sources searched from at once; each takes a bit per node


def mean_distance(adjacency: sp.csr_array, sources: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean shortest-path length from each node to the sources it can reach; infinite where it reaches none.

    Breadth-first searches from thousands of sources at once: each node holds a bit per source, and one step ors the
    bits of its neighbours. A source's distance to itself is 0 and counts.
    """
    nodes = adjacency.shape[0]
    total, reached = np.zeros(nodes), np.zeros(nodes)
    for start in range(0, len(sources), SEARCHED):
        block = sources[start : start + SEARCHED]
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


def concatenated_ranges(lengths: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenate the ranges 0, 1, ..., `lengths[k]` - 1: the range k each number is from, and the number.

    The entries of rows of a CSR matrix, one row after the other, are `row_start[rows][k] + number`.

    >>> [each.tolist() for each in concatenated_ranges(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return owner, np.arange(len(owner)) - before[owner]
