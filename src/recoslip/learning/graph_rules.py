"""Scores by a rule, without training: LP-PUL and nearest source."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.progress import Progress
from recoslip.base.settings import Integer, Number, param
from recoslip.data.alignment import average_over_neighbours, match_moments, reduced_features
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours, adjacency_of, diffuse, mean_distance, symmetric_scale
from recoslip.data.split import Split
from recoslip.learning.base import Attributes, Detector, Scores


class UntrainedDetector(Detector):
    """A detector whose scores follow from the graph alone, so that all seeds give the same and nothing is saved."""

    scores_need_source: ClassVar[bool] = True

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        progress(0, 1)
        scores = self._score(graph)
        progress(1, 1)
        return [{"scores_": scores.copy()} for _ in seeds]


class LpPul(UntrainedDetector):
    r"""Label propagation from positive and unlabelled nodes; edges alone, no features, nothing random.

    1. $d(v)$: mean shortest-path distance from target node v to the source nodes it reaches, else infinite.
    2. The fraction `novel_ratio` of target nodes with the largest d are novel seeds, all source nodes known seeds.
    3. $Y \leftarrow \alpha \hat A Y + (1 - \alpha) Y_0$, `layers` times, with $\hat A = D^{-1/2} A D^{-1/2}$.

    The score of a node is its novel label. Ties in d at the cut are treated alike: all are seeds if that brings the
    number of seeds nearer to the ratio, else none.
    """

    name: ClassVar[str] = "lp-pul"

    novel_ratio: float = param(Number(0, 1), "fraction of the target nodes that become novel seeds", default=0.5)
    layers: int = param(Integer(1), "steps of propagation", default=3)
    alpha: float = param(Number(0, 1), "α, how much a step takes from the neighbours", default=0.9)

    def _score(self, graph: NodeGraph) -> Scores:
        adjacency = adjacency_of(graph)
        target = graph.is_target
        distance = mean_distance(adjacency, np.flatnonzero(~target))
        novel = farthest(distance[target], self.novel_ratio)
        y = np.zeros((graph.num_nodes, 2))
        y[~target, 0] = 1
        y[np.flatnonzero(target)[novel], 1] = 1
        return propagate(adjacency, y, self.layers, self.alpha)[:, 1]


def farthest(distance: NDArray[np.float64], ratio: float) -> NDArray[np.bool_]:
    """Choose about `ratio` of the nodes by largest distance; nodes of one distance are chosen or left together.

    >>> farthest(np.array([1.0, 2.0, 2.0, np.inf]), 0.5).tolist()
    [False, True, True, True]
    """
    wanted = int(len(distance) * ratio)
    if wanted == 0:
        return np.zeros(len(distance), dtype=bool)
    cut = np.sort(distance)[-wanted]
    with_ties, without = distance >= cut, distance > cut
    return np.asarray(with_ties if with_ties.sum() - wanted <= wanted - without.sum() else without)


def propagate(adjacency: sp.csr_array, y: NDArray[np.float64], layers: int, alpha: float) -> NDArray[np.float64]:
    r"""$Y \leftarrow \alpha D^{-1/2} A D^{-1/2} Y + (1 - \alpha) Y_0$, kept in [0, 1]."""
    scale = symmetric_scale(np.diff(adjacency.indptr).astype(float))[:, None]
    return diffuse(y, lambda current: scale * (adjacency @ (scale * current)), alpha, layers, clip=True)


MAX_REFERENCES = 20_000  # source nodes that nodes are compared with, at most
BLOCK = 1024  # nodes compared at a time
SMOOTHING = 2  # hops that the score is averaged over


class NearestSource(UntrainedDetector):
    r"""Mean distance to the nearest source nodes; it trains nothing, and nothing in it is random.

    1. Features, weighted by tf-idf and reduced to 64, are averaged with those of the neighbours, `hops` far.
    2. The target's are shifted and scaled to the source's means and standard deviations, and directions are taken
       from the source's mean, so that what all nodes have in common, and what all of a domain have, is left out.
    3. $d(v)$: mean cosine distance to the nearest source nodes, the fraction `nearest` of all of them.

    The score is $d / 2$, averaged with that of the neighbours, two hops far. It ranks where source and target are
    separable, such as two networks; where their proportions alone differ, detectors that learn are far better.
    """

    name: ClassVar[str] = "nearest-source"

    nearest: float = param(
        Number(0, 1), "fraction of the source nodes that are a node's nearest; one at least", default=0.1
    )
    hops: int = param(Integer(0, 20), "how far features are averaged over neighbours", default=3)

    def _score(self, graph: NodeGraph) -> Scores:
        is_target = graph.is_target
        neighbours = Neighbours(graph, weighted=False)
        x = average_over_neighbours(reduced_features(graph, tf_idf=True), neighbours, self.hops)
        if is_target.any():
            x = match_moments(x, is_target)
        x -= x[~is_target].mean(axis=0, dtype=np.float64)
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        distance = mean_distance_to_nearest(x, np.flatnonzero(~is_target), self.nearest)
        smoothed = average_over_neighbours(distance[:, None], neighbours, SMOOTHING)[:, 0]
        return np.clip(smoothed / 2, 0, 1)


def mean_distance_to_nearest(
    unit: NDArray[np.float64], references: NDArray[np.int64], fraction: float
) -> NDArray[np.float64]:
    """Return each node's mean cosine distance to the nearest of some nodes, a fraction of them, itself included.

    >>> unit = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> mean_distance_to_nearest(unit, np.array([0, 1]), 0.5).tolist()
    [0.0, 0.0, 1.0]
    """
    references = references[:: -(-len(references) // MAX_REFERENCES)]
    rows = unit.astype(np.float32)
    chosen = rows[references]
    count = max(1, round(fraction * len(references)))
    distance = np.empty(len(rows))
    for begin in range(0, len(rows), BLOCK):
        similarity = rows[begin : begin + BLOCK] @ chosen.T
        nearest = np.partition(similarity, -count, axis=1)[:, -count:]
        distance[begin : begin + BLOCK] = 1 - nearest.mean(axis=1, dtype=np.float64)
    return distance
