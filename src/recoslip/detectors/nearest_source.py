"""Nearest source: how far a node is from the source nodes nearest to it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from recoslip.detectors.base import Scores
from recoslip.detectors.params import Integer, Number, param
from recoslip.detectors.untrained import UntrainedDetector
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import Neighbours
from recoslip.graph.alignment import match_moments
from recoslip.graph.neighbourhood import average_over_neighbours, reduced_features

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

    nearest: float = param(0.1, Number(0, 1), "fraction of the source nodes that are a node's nearest; one at least")
    hops: int = param(3, Integer(0, 20), "how far features are averaged over neighbours")

    def _score(self, graph: NodeGraph) -> Scores:
        is_target = graph.is_target.numpy()
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
    rows, chosen = torch.from_numpy(unit).float(), torch.from_numpy(references)
    count = max(1, round(fraction * len(references)))
    distance = torch.empty(len(rows))
    for own in torch.split(torch.arange(len(rows)), BLOCK):
        nearest = (rows[own] @ rows[chosen].T).topk(count, dim=1).values
        distance[own] = 1 - nearest.mean(dim=1)
    return distance.double().numpy()
