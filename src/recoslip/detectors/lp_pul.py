"""LP-PUL: the target nodes farthest from the source seed the novel label, and labels propagate."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.detectors.base import Scores
from recoslip.detectors.params import Integer, Number, param
from recoslip.detectors.untrained import UntrainedDetector
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import SymmetricNormalisation, adjacency_of, diffuse, mean_distance


class LpPul(UntrainedDetector):
    r"""Label propagation from positive and unlabelled nodes; edges alone, no features, nothing random.

    1. $d(v)$: mean shortest-path distance from target node v to the source nodes it reaches, else infinite.
    2. The fraction `novel_ratio` of target nodes with the largest d are novel seeds, all source nodes known seeds.
    3. $Y \leftarrow \alpha \hat A Y + (1 - \alpha) Y_0$, `layers` times, with $\hat A = D^{-1/2} A D^{-1/2}$.

    The score of a node is its novel label. Ties in d at the cut are treated alike: all are seeds if that brings the
    number of seeds nearer to the ratio, else none.
    """

    name: ClassVar[str] = "lp-pul"

    novel_ratio: float = param(0.5, Number(0, 1), "fraction of the target nodes that become novel seeds")
    layers: int = param(3, Integer(1), "steps of propagation")
    alpha: float = param(0.9, Number(0, 1), "α, how much a step takes from the neighbours")

    def _score(self, graph: NodeGraph) -> Scores:
        adjacency = adjacency_of(graph)
        target = graph.is_target.numpy()
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
    scale = SymmetricNormalisation(np.diff(adjacency.indptr).astype(float)).scale[:, None]
    return diffuse(y, lambda current: scale * (adjacency @ (scale * current)), alpha, layers, clip=True)
