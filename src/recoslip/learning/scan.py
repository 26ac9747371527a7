r"""The scan: counts of source and target nodes in the bins of partitions that know no domain, and a linear student."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from recoslip.base.progress import Progress
from recoslip.base.settings import Choice, Integer, Number, Optional, learned, param
from recoslip.data.blocks import current
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import hashes_of
from recoslip.data.neighbours import mean_of_rows
from recoslip.data.partitions import TREES, Partitions, share_bound
from recoslip.data.split import Mask
from recoslip.data.vectors import F32, Reducer, Vectors
from recoslip.learning.base import Attributes, Detector, Presentation, Scores

Student = Literal["linear"]

CONFIDENCE = 0.8  # of the bound of a bin's source share
CORE = 0.05  # fraction of the target that the student takes for novel
LEAST_CORE = 10  # nodes of it
SOURCE_WEIGHT = 0.3  # of a source node, where a node of the lower half of the target has 1
FOLDS = 3
PENALTY = 1e-3  # of the student's squared weights
STEPS = 80  # of its optimiser
FEATURE_LENGTH = 4.0
MAX_ROWS = 20_000  # of either kind that the student learns from
SMOOTHING = 0.5
RANKS = 10_000  # values that ranks are found by


@dataclass(frozen=True, eq=False)
class Ranks:
    """Values of nodes -> their ranks among those of the nodes that were fitted, in [0, 1]."""

    value: NDArray[np.float64]  # (points,) ascending
    rank: NDArray[np.float64]  # (points,)

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Ranks:
        """Take the nodes' values; equal ones share the mean of their ranks."""
        distinct, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
        rank = (np.cumsum(counts) - (counts + 1) / 2) / max(1, counts.sum() - 1)
        points = np.unique(np.linspace(0, len(distinct) - 1, RANKS).round().astype(np.int64))
        return cls(distinct[points], rank[points])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `Ranks` is built from, to save."""
        return {"value": self.value, "rank": self.rank}

    def __call__(self, values: NDArray[np.floating]) -> Scores:
        """Return ranks, interpolated between values."""
        return np.asarray(np.interp(values, self.value, self.rank))


@dataclass(frozen=True, eq=False)
class ScanModel:
    """What one presentation of a graph taught."""

    reducer: Reducer
    partitions: Partitions
    novelty: NDArray[np.float64]  # (bins,) how much the bin, or one around it, says against "known"
    weights: F32 | None  # (folds, features + 1) of the student
    ranks: tuple[Ranks, ...]  # of the scan's values and the student's

    @classmethod
    def fit(
        cls, graph: NodeGraph, seed: int, *, trees: int, confidence: float = CONFIDENCE, student: bool = True
    ) -> tuple[ScanModel, Scores]:
        """Count the domains in the bins of a graph, and teach the student; return the scores of the nodes, too."""
        vectors, partitions = Vectors.of(graph), Partitions.of(graph, seed, trees)
        is_target = graph.is_target
        novelty = _novelty(partitions, is_target, confidence)
        values, weights = [partitions.largest(novelty)], None
        if student:
            weights = _teach(vectors.beside, is_target, values[0], _folds(graph))
            values.append(_student_values(vectors, weights, graph))
        model = cls(vectors.reducer, partitions.without_nodes(), novelty, weights, tuple(map(Ranks.of, values)))
        return model, model._mean_rank(values)

    def recounted(self, graph: NodeGraph, confidence: float = CONFIDENCE) -> ScanModel:
        """Return the same bins and student with the counts of another graph."""
        partitions = self.partitions.among(graph, Vectors.of(graph, self.reducer))
        return replace(self, novelty=_novelty(partitions, graph.is_target, confidence))

    def scores(self, graph: NodeGraph) -> Scores:
        """Return the mean rank of each node by the scan and the student."""
        vectors = Vectors.of(graph, self.reducer)
        values = [self.partitions.among(graph, vectors).largest(self.novelty)]
        if self.weights is not None:
            values.append(_student_values(vectors, self.weights, graph))
        return self._mean_rank(values)

    def _mean_rank(self, values: Sequence[NDArray[np.float64]]) -> Scores:
        return np.asarray(np.mean([rank(each) for rank, each in zip(self.ranks, values, strict=True)], axis=0))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, to save."""
        arrays = {f"reducer.{name}": value for name, value in self.reducer.arrays().items()}
        arrays |= {f"partitions.{name}": value for name, value in self.partitions.arrays().items()}
        arrays["novelty"] = self.novelty
        if self.weights is not None:
            arrays["weights"] = self.weights
        for k, ranks in enumerate(self.ranks):
            arrays |= {f"ranks.{k}.value": ranks.value, f"ranks.{k}.rank": ranks.rank}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ScanModel:
        """Build from what `arrays` returned."""

        def below(prefix: str) -> dict[str, NDArray[Any]]:
            return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}

        count = 1 + ("weights" in arrays)
        return cls(
            Reducer.from_arrays(below("reducer.")),
            Partitions.from_arrays(below("partitions.")),
            arrays["novelty"],
            arrays.get("weights"),
            tuple(Ranks(arrays[f"ranks.{k}.value"], arrays[f"ranks.{k}.rank"]) for k in range(count)),
        )


class Scan(Detector):
    r"""Divide all nodes into bins, many times, at many scales, by vectors that do not depend on the domains, and count.

    In a bin with s source nodes among m, the upper confidence bound u of its source share says how much it speaks
    against "known". A node's value is the largest $-\log u$ of any bin that it lies in. On one partition, sorting bins
    by their source share solves the recall-constrained problem exactly, for all recall targets at once.

    The student is a logistic regression on the nodes' vectors that learns, out of fold, to tell the 5 % of the target
    with the largest values from the source and the lower half of the target. The score of a node is the mean of its
    ranks by the scan and by the student.
    """

    name: ClassVar[str] = "scan"
    uses_validation: ClassVar[bool] = False
    fits_in_seconds: ClassVar[bool] = True

    trees: int = param(Integer(1, 1000), "how many times to divide the nodes, by each kind of vectors", default=TREES)
    confidence: float = param(Number(0, 1, open_ends=True), "of the bound of a bin's source share", default=CONFIDENCE)
    student: Student | None = param(
        Optional(Choice(Student)), "the model taught by the scan, or None", default="linear"
    )

    model_: ScanModel = learned("bins, what was counted in them, and the student")

    def _learn(self, shown: Sequence[Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
        learned = []
        for done, (graph, _, seed) in enumerate(shown):
            progress(done, len(shown))
            model, scores = ScanModel.fit(
                graph, seed, trees=self.trees, confidence=self.confidence, student=self.student is not None
            )
            learned.append({"scores_": scores, "model_": model})
        progress(len(shown), len(shown))
        return learned

    def _rotated_seed(self, rotation: int) -> int:
        """Return the seed itself: all rotations have the same partitions, and hiding changes the counts alone."""
        return self.random_state

    def _score(self, graph: NodeGraph) -> Scores:
        return self.model_.scores(graph)

    def _rescore(self, graph: NodeGraph) -> Scores:
        """Count the domains of the graph: a new category may fill bins that held few target nodes in the fit."""
        return self.model_.recounted(graph, self.confidence).scores(graph)

    def representation(self, graph: NodeGraph, nodes: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float64]:
        """Return the vectors that nodes are compared by, (nodes, width)."""
        return Vectors.of(graph).summary()[nodes].astype(np.float64)

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> ScanModel:
        return ScanModel.from_arrays(arrays)


def _novelty(partitions: Partitions, is_target: Mask, confidence: float) -> NDArray[np.float64]:
    """Return of each bin the most that it or a bin around it says against "known", (bins,)."""
    counts = partitions.count(is_target)
    size = counts.sum(axis=1)
    value = np.where(size > 0, -np.log(share_bound(counts[:, 0], size, confidence)), 0.0)
    return np.asarray(value[partitions.strongest(value)])


def _folds(graph: NodeGraph) -> NDArray[np.int64]:
    """Return the fold of each node, which its id decides."""
    return np.asarray((hashes_of(graph) >> 3) % FOLDS)


def _teach(
    features: Callable[[NDArray[np.int64]], F32],
    is_target: Mask,
    value: NDArray[np.float64],
    fold: NDArray[np.int64],
) -> F32:
    """Fit the student of each fold on the others: (folds, features + 1), the intercept last.

    Args:
        features: returns those of some nodes, (nodes, features).
        is_target: (nodes,).
        value: (nodes,) by the scan.
        fold: (nodes,).
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    target = np.flatnonzero(is_target)
    order = target[np.argsort(-value[target], kind="stable")]
    novel, known = np.zeros(len(value), bool), np.where(is_target, 0.0, SOURCE_WEIGHT)
    novel[order[: max(LEAST_CORE, int(CORE * len(order)))]] = True
    known[order[len(order) // 2 :]] = 1
    known[novel] = 0
    weights = np.zeros((FOLDS, features(target[:1]).shape[1] + 1), np.float32)
    for k in range(FOLDS):
        rows = np.concatenate([_thinned(np.flatnonzero(side & (fold != k))) for side in (novel, known > 0)])
        y, weight = novel[rows], np.where(novel[rows], 1.0, known[rows])
        if y.all() or not y.any():
            continue
        weight = weight / np.where(y, weight[y].sum(), weight[~y].sum())
        model = LogisticRegression(C=1 / PENALTY, max_iter=STEPS)
        with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # further steps change no rank that matters
            model.fit(FEATURE_LENGTH * features(rows), y, weight)
        weights[k] = np.append(FEATURE_LENGTH * model.coef_[0], model.intercept_)
    return weights


def _thinned(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return every row, or every second or third, so that there are at most `MAX_ROWS`."""
    return rows[:: max(1, -(-len(rows) // MAX_ROWS))]


def _student_values(vectors: Vectors, weights: F32, graph: NodeGraph) -> NDArray[np.float64]:
    """Return the margin of each node by the student of its fold, averaged with that of its neighbours."""
    blocks, shape = current(), (graph.num_nodes,)
    margin = blocks.fill(shape, np.float64, _margins, vectors.own, vectors.one, vectors.two, weights, _folds(graph))
    around = blocks.fill(shape, np.float64, mean_of_rows, graph.edge_index, graph.edge_weight, margin, margin)
    return (1 - SMOOTHING) * margin + SMOOTHING * around


def _margins(
    rows: slice, own: F32, one: F32 | None, two: F32 | None, weights: F32, fold: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the margin of some nodes by the student of their fold."""
    features = np.hstack([part[rows] for part in (own, one, two) if part is not None])
    margins = features @ weights[:, :-1].T + weights[:, -1]
    return np.asarray(margins[np.arange(len(features)), fold[rows]], np.float64)
