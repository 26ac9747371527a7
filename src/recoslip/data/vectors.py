"""NodeGraph -> short vectors of its nodes: their own features, their neighbours', and those two hops far.

Of a table with texts or vectors beside other columns, there are vectors of these alone, too: the other columns may hide
what is new in them.

No domain enters, so they are the same whatever is hidden or asked afterwards. They are computed once for a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.data.blocks import current
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import derived
from recoslip.data.neighbours import mean_of_rows
from recoslip.data.tables.table_encoder import TableEncoder

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]

WIDTH = 128
MAX_FIT = 100_000  # nodes that singular vectors are fitted on at most
MAX_SAMPLED = 10_000  # nodes that tell whether most values are zero
ROWS = 2**14  # scaled at a time, in double precision
BLOCK_NAMES = {"text": "texts", "vector": "vectors"}  # kinds of columns that nodes are also compared by alone
FEATURES = "features"  # the name of the own vectors of all columns
AROUND = ("neighbours", "neighbours of neighbours", "features and neighbours")
LARGEST = 1e12  # of a scaled value; those of other nodes may be far from the fitted ones


@dataclass(frozen=True, eq=False)
class Reducer:
    """Features of a graph -> vectors of length 1, also for the nodes of other graphs.

    Counts are weighted by their inverse document frequency and compared by their angle. Other columns are standardised;
    a constant as long as a typical row is added to them, so that vectors of length 1 still tell small rows from large
    ones.
    """

    mean: F64 | None  # (features,) that is subtracted; None of sparse features
    weight: F64  # (features,) that columns are multiplied by
    basis: F32 | None  # (features, width) singular vectors; None where features are few
    constant: float  # that is added as a column; 0 of counts
    has_edges: bool  # whether nodes have vectors of their neighbours, too
    blocks: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)  # (features,) of texts, and of vectors

    @classmethod
    def fit(cls, graph: NodeGraph) -> Self:
        """Fit to the features of a graph."""
        rows = _features(graph.x, slice(None, None, -(-graph.num_nodes // MAX_FIT)), _is_sparse(graph.x))
        is_count = sp.issparse(rows) and (rows.nnz == 0 or rows.data.min() >= 0)
        mean = None if sp.issparse(rows) else rows.mean(axis=0, dtype=np.float64)
        if graph.encoding is not None:  # columns of a table are weighted already
            weight = np.ones(rows.shape[1])
        elif is_count:
            frequency = np.bincount(rows.indices[rows.data != 0], minlength=rows.shape[1])
            weight = np.log((1 + rows.shape[0]) / (1 + frequency)) + 1
        else:
            weight = _inverse_spread(rows, mean)
        scaled = cls(mean, weight, None, 0.0 if is_count else 1.0, graph.num_edges > 0)
        rows = scaled._scaled(rows)
        constant = 0.0 if is_count else max(float(np.sqrt(_squares(rows).mean())), 1e-6)
        basis = _singular_vectors(rows) if min(rows.shape) > WIDTH else None
        return cls(mean, weight, basis, constant, graph.num_edges > 0, _blocks_of(graph))

    def _scaled(self, rows: Any, block: str | None = None) -> Any:
        weight = self.weight if block is None else np.where(self.blocks[block], self.weight, 0.0)
        if sp.issparse(rows) and self.mean is None:
            rows = sp.csr_array(rows.astype(np.float64) * weight[None, :])
        else:
            rows = (rows.toarray() if sp.issparse(rows) else rows) - (0.0 if self.mean is None else self.mean)
            rows = rows * weight
        return _in_single_precision(_of_length_one(rows) if self.constant == 0 else rows)

    @property
    def width(self) -> int:
        """The length of a vector."""
        return int(self.weight.shape[0] if self.basis is None else self.basis.shape[1]) + (self.constant > 0)

    def of_rows(self, rows: slice, x: Any, is_sparse: bool, block: str | None = None) -> F32:
        """Return the vectors of some nodes, (rows, width), of which `x` has the features; or of a block of these."""
        result = np.empty((rows.stop - rows.start, self.width), np.float32)
        for begin in range(rows.start, rows.stop, ROWS):
            features = _features(x, slice(begin, min(begin + ROWS, rows.stop)), is_sparse)
            reduced = self._scaled(features, block)
            reduced = reduced if self.basis is None else reduced @ self.basis
            reduced = reduced.toarray() if sp.issparse(reduced) else reduced
            result[begin - rows.start :][: reduced.shape[0], : reduced.shape[1]] = reduced
        if self.constant > 0:
            result[:, -1] = self.constant
        return np.asarray(_of_length_one(result))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was fitted, to save."""
        named = {"mean": self.mean, "weight": self.weight, "basis": self.basis}
        numbers = {"constant": np.array([self.constant]), "has_edges": np.array([self.has_edges])}
        blocks = {f"block.{name}": mask for name, mask in self.blocks.items()}
        return {name: value for name, value in named.items() if value is not None} | numbers | blocks

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build from what `arrays` returned."""
        constant, has_edges = float(arrays["constant"][0]), bool(arrays["has_edges"][0])
        blocks = {name.removeprefix("block."): mask for name, mask in arrays.items() if name.startswith("block.")}
        return cls(arrays.get("mean"), arrays["weight"], arrays.get("basis"), constant, has_edges, blocks)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of length 1, or 0, one per node: (nodes, width)."""

    own: F32
    one: F32 | None  # the mean of its neighbours' own; of a node without neighbours, its own; None without edges
    two: F32 | None  # the mean of these means over its neighbours
    total: F32  # the sum of the three
    reducer: Reducer
    blocks: tuple[F32, ...] = ()  # own vectors of each block of the reducer

    @classmethod
    def of(cls, graph: NodeGraph, reducer: Reducer | None = None) -> Vectors:
        """Return the vectors of a graph; computed once for a reducer and kept with the graph; by default its own."""
        if reducer is not None:
            kept = [each for each in graph.kept(Vectors) if np.shares_memory(each.reducer.weight, reducer.weight)]
            name = f"vectors by {reducer.weight.ctypes.data}"  # which no other has while these are kept
            return kept[0] if kept else graph.derived(name, lambda: cls._compute(graph, reducer))
        return derived(graph, "vectors", lambda ordered: cls._compute(ordered, Reducer.fit(ordered)))

    @classmethod
    def _compute(cls, graph: NodeGraph, reducer: Reducer) -> Vectors:
        blocks, shape = current(), (graph.num_nodes, reducer.width)
        given = graph.x, _is_sparse(graph.x), reducer
        own, *parts = (blocks.fill(shape, np.float32, _own_rows, *given, block) for block in (None, *reducer.blocks))
        if not reducer.has_edges:
            return cls(own, None, None, own, reducer, tuple(parts))
        edges = graph.edge_index, graph.edge_weight
        mean = blocks.fill(shape, np.float32, mean_of_rows, *edges, own, own)
        two = blocks.fill(shape, np.float32, _two_rows, *edges, mean, own)
        one = blocks.fill(shape, np.float32, _one_rows, mean)
        del mean
        return cls(own, one, two, blocks.fill(shape, np.float32, _total_rows, own, one, two), reducer, tuple(parts))

    def views(self) -> list[F32]:
        """Return the vectors that nodes are compared by: own, neighbours', two hops far, and the sum of the three.

        Those of blocks come first. The last are the most general.
        """
        around = [] if self.one is None or self.two is None else [self.one, self.two, self.total]
        return [*self.blocks, self.own, *around]

    @property
    def names(self) -> tuple[str, ...]:
        """What nodes that are alike in each of the views are alike in."""
        return (*self.reducer.blocks, FEATURES, *(() if self.one is None else AROUND))

    def summary(self) -> F32:
        """Return one vector per node: the sum of the three, of length 1."""
        return self.total

    def beside(self, nodes: NDArray[np.int64] | slice = slice(None)) -> F32:
        """Return the three side by side, of some nodes."""
        parts = [part[nodes] for part in (self.own, self.one, self.two) if part is not None]
        return np.hstack(parts)

    def permuted(self, order: NDArray[np.int64]) -> Vectors:
        """Return the vectors of the same nodes in another order."""
        blocks = tuple(block[order] for block in self.blocks)
        if self.one is None or self.two is None:
            own = self.own[order]
            return Vectors(own, None, None, own, self.reducer, blocks)
        return Vectors(self.own[order], self.one[order], self.two[order], self.total[order], self.reducer, blocks)


def _blocks_of(graph: NodeGraph) -> dict[str, NDArray[np.bool_]]:
    """Return which features are of texts, and which of vectors, if there are others beside them."""
    if graph.encoding is None or len(graph.encoding) < 2:
        return {}
    columns = TableEncoder.from_json(graph.encoding).columns
    kind = np.array([each.encoding for each in columns for _ in each.feature_names])
    if len(kind) != graph.num_features or (kind == kind[:1]).all():
        return {}
    return {name: kind == block for block, name in BLOCK_NAMES.items() if (kind == block).any()}


def _own_rows(rows: slice, x: Any, is_sparse: bool, reducer: Reducer, block: str | None) -> F32:
    return reducer.of_rows(rows, x, is_sparse, block)


def _one_rows(rows: slice, mean: F32) -> F32:
    return np.asarray(_of_length_one(mean[rows]))


def _two_rows(rows: slice, edge_index: NDArray[np.int64], edge_weight: F32 | None, mean: F32, own: F32) -> F32:
    return np.asarray(_of_length_one(mean_of_rows(rows, edge_index, edge_weight, mean, own)))


def _total_rows(rows: slice, own: F32, one: F32, two: F32) -> F32:
    return np.asarray(_of_length_one(own[rows] + one[rows] + two[rows]))


def _features(x: Any, rows: slice, is_sparse: bool) -> Any:
    """Return some rows of the features: a SciPy matrix where most values are zero."""
    return x[rows] if sp.issparse(x) or not is_sparse else sp.csr_array(x[rows])


def _is_sparse(x: Any) -> bool:
    """Return whether most values of a dense matrix are zero, as those of counts of words are."""
    if sp.issparse(x):
        return True
    sample = x[:MAX_SAMPLED]
    return bool(2 * np.count_nonzero(sample) < sample.size)


def _inverse_spread(rows: Any, mean: F64 | None) -> F64:
    """Return one over the standard deviation of each column, or 0 of a constant column; sparse ones have no mean."""
    squares = rows.astype(np.float64).power(2).mean(axis=0) if mean is None else rows.var(axis=0, dtype=np.float64)
    spread = np.sqrt(np.asarray(squares).ravel())
    size = np.abs(rows).max(axis=0)
    size = np.asarray(size.toarray() if sp.issparse(size) else size, np.float64).ravel()
    return np.asarray(np.divide(1, spread, out=np.zeros_like(spread), where=spread > 1e-6 * size))


def _squares(rows: Any) -> NDArray[np.float64]:
    """Return the squared length of each row."""
    if sp.issparse(rows):
        return np.asarray(rows.power(2).sum(axis=1), np.float64).ravel()
    return np.asarray(np.einsum("nd,nd->n", rows, rows), np.float64)


def _of_length_one(rows: Any) -> Any:
    """Divide rows by their lengths; rows of zeros stay."""
    length = np.sqrt(_squares(rows))
    factor = np.divide(1, length, out=np.zeros_like(length), where=length > 0).astype(rows.dtype)
    return sp.csr_array(sp.diags_array(factor) @ rows) if sp.issparse(rows) else rows * factor[:, None]


def _in_single_precision(rows: Any) -> Any:
    """Return rows as single-precision numbers whose squares are, too."""
    if not sp.issparse(rows):
        return rows.clip(-LARGEST, LARGEST).astype(np.float32)
    rows.data = rows.data.clip(-LARGEST, LARGEST).astype(np.float32)
    return rows


def _singular_vectors(rows: Any) -> F32:
    """Return the first right singular vectors; with one thread, for the steps are small."""
    from sklearn.decomposition import TruncatedSVD
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1, user_api="blas"), np.errstate(all="ignore"):  # the explained variance is not used
        return np.ascontiguousarray(TruncatedSVD(WIDTH, random_state=0).fit(rows).components_.T, np.float32)
