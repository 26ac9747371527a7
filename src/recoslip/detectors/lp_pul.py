"""LP-PUL: the target nodes farthest from the source seed the novel label, and labels propagate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor

from recoslip.detectors import checks
from recoslip.detectors.base import Detector, Progress, Scores
from recoslip.graph import NodeGraph, adjacency_of
from recoslip.objectives.paths import mean_distance
from recoslip.shift import Split


class LpPul(Detector):
    r"""Label propagation from positive and unlabelled nodes; edges alone, no features, nothing random.

    1. $d(v)$: mean shortest-path distance from target node v to the source nodes it reaches, else infinite.
    2. The share `novel_ratio` of target nodes with the largest d are novel seeds, all source nodes known seeds.
    3. $Y \leftarrow \alpha \hat A Y + (1 - \alpha) Y_0$, `layers` times, with $\hat A = D^{-1/2} A D^{-1/2}$.

    The score of a node is its novel label. Ties in d at the cut share one fate: all are seeds if that brings the number
    of seeds nearer to the ratio, else none.

    Args:
        novel_ratio: share of target nodes that become novel seeds.
        layers: steps of propagation.
        alpha: α, how much a step takes from the neighbours.
        max_fpr: share of the validation source nodes that may score above the threshold.
        device: not used.
        random_state: seed of the split, without one.
    """

    name: ClassVar[str] = "lp-pul"
    paper: ClassVar[str] = "Carnevali et al. 2021"
    needs: ClassVar[str] = "edges"
    trains: ClassVar[bool] = False

    def __init__(
        self,
        *,
        novel_ratio: float = 0.5,
        layers: int = 3,
        alpha: float = 0.9,
        max_fpr: float = 0.01,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.novel_ratio = novel_ratio
        self.layers = layers
        self.alpha = alpha
        self.max_fpr = max_fpr
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        self._check_common()
        checks.number("novel_ratio", self.novel_ratio, 0, 1)
        checks.whole("layers", self.layers, 1)
        checks.number("alpha", self.alpha, 0, 1)

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        progress(0, 1)
        scores = self._score(graph)
        progress(1, 1)
        return [{"scores_": scores.copy()} for _ in seeds]

    def _score(self, graph: NodeGraph) -> Scores:
        adjacency = adjacency_of(graph)
        target = graph.is_target.numpy()
        distance = mean_distance(adjacency, np.flatnonzero(~target))
        novel = farthest(distance[target], self.novel_ratio)
        y = np.zeros((graph.num_nodes, 2))
        y[~target, 0] = 1
        y[np.flatnonzero(target)[novel], 1] = 1
        return propagate(adjacency, y, self.layers, self.alpha)[:, 1]

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {}, {}

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        return {}


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
    degree = np.diff(adjacency.indptr).astype(float)
    scale = np.where(degree > 0, degree, 1) ** -0.5
    current = y
    for _ in range(layers):
        current = alpha * scale[:, None] * (adjacency @ (scale[:, None] * current)) + (1 - alpha) * y
        current = current.clip(0, 1)
    return current
