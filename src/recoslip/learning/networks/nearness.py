"""NodeGraph, as it is presented -> how far target nodes are from the source, counted in nodes that are near them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.data.alignment import similarity_features
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask
from recoslip.learning.base import Scores

NEAREST = 3  # which of the nearest source nodes counts: one may be there by chance
MAX_RANK = 400  # more target nodes than these say no more
MAX_REFERENCES = 20_000  # nodes that each node is compared with, at most
BLOCK = 1024  # nodes compared at a time
TIE = 1e-6  # cosines that differ by less are equal: rounding would rank nodes with the same features


class Nearness:
    """How near nodes are to each other, by their features and their neighbours'.

    A known category that grew still has source nodes among its own; a novel one has none. Nearness is the cosine of
    `similarity_features`.

    Args:
        graph: the graph.
        nodes: (nodes,) those to compare with, some of them where they are many; a node is not compared with itself.
        features: of the nodes (see `similarity_features`), where they are known.
        device: where to compare.
    """

    def __init__(
        self,
        graph: NodeGraph,
        nodes: Mask,
        features: NDArray[np.float32] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.unit = torch.from_numpy(similarity_features(graph) if features is None else features).to(device)
        self.is_target = graph.is_target
        chosen = np.flatnonzero(nodes)
        chosen = chosen[:: -(-len(chosen) // MAX_REFERENCES)]
        self.source, self.target = (
            torch.from_numpy(chosen[self.is_target[chosen] == side]).to(device) for side in (False, True)
        )

    def isolation(self) -> Scores:
        """Return log(1 + the number of target nodes that are nearer than the third source node), for target nodes.

        It is 0 for source nodes.

        >>> x = np.array([[1.0, 0.0], [1, 0.1], [1, 0.2], [1, 0.3], [0, 1], [0.1, 1], [0.2, 1]])
        >>> graph = NodeGraph(x, np.empty((2, 0), dtype=int), [False, False, False, True, True, True, True])
        >>> np.expm1(Nearness(graph, np.ones(7, dtype=bool)).isolation()).round().tolist()
        [0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0]
        """
        isolation = np.zeros(len(self.is_target))
        if len(self.source) < NEAREST:
            return isolation
        for rows, to_source, to_target in self._cosines(np.flatnonzero(self.is_target)):
            third = to_source.topk(NEAREST, dim=1).values[:, -1:]
            nearer = to_target.gt_(third + TIE).sum(dim=1).clamp_(max=MAX_RANK)  # in place: a mask of bytes sums slowly
            isolation[rows.cpu()] = nearer.log1p().cpu()
        return isolation

    def source_ratio(self, chosen: NDArray[np.int64], k: int) -> float:
        """Return the source nodes among the `k` nearest of each of these nodes, for each target node among them.

        Both are counted as if the domains were equally large.

        >>> x = np.array([[1.0, 0.0], [1, 0.1], [1, 0.2], [1, 0.3], [0, 1], [0.1, 1], [0.2, 1]])
        >>> graph = NodeGraph(x, np.empty((2, 0), dtype=int), [False, False, False, True, True, True, True])
        >>> Nearness(graph, np.ones(7, dtype=bool)).source_ratio(np.array([4, 5]), 3)  # 3, too, is nearer than 2
        0.0
        >>> Nearness(graph, np.ones(7, dtype=bool)).source_ratio(np.array([3, 5]), 3)  # 3 source and 3 target nodes
        1.3333333333333333
        """
        sources = targets = 0
        for _, to_source, to_target in self._cosines(chosen):
            both = torch.cat([to_source, to_target], dim=1)
            near = both.topk(min(k, both.shape[1]), dim=1).indices
            sources += int((near < len(self.source)).sum())
            targets += int((near >= len(self.source)).sum())
        return sources / max(len(self.source), 1) * len(self.target) / max(targets, 1)

    def _cosines(self, chosen: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield some of these nodes at a time, and their cosines to the source and to the target."""
        sides = [(side, self.unit[side].T) for side in (self.source, self.target)]
        for rows in torch.split(torch.from_numpy(chosen).to(self.unit.device), BLOCK):
            to_source, to_target = (_without_own(self.unit[rows] @ vectors, rows, side) for side, vectors in sides)
            yield rows, to_source, to_target


def _without_own(cosines: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Set the cosine of a node with itself below all others, in place; columns are nodes in ascending order."""
    if len(columns):
        place = torch.searchsorted(columns, rows).clamp_(max=len(columns) - 1)[:, None]
        is_own = columns[place] == rows[:, None]
        cosines.scatter_(1, place, torch.where(is_own, -2.0, cosines.gather(1, place)))
    return cosines


@dataclass(eq=False)
class Presentation:
    """The graph as it is presented to networks: which nodes are target, and which train."""

    graph: NodeGraph
    train: Mask
    nodes: Mask  # that train or are predicted out of fold
    nearness: Nearness | None  # None where there are no rounds

    @cached_property
    def is_target(self) -> Mask:
        """Which nodes are target."""
        return self.graph.is_target

    @cached_property
    def isolation(self) -> Scores:
        """How far target nodes are from the source."""
        assert self.nearness is not None
        return self.nearness.isolation()

    def source_ratio(self, chosen: NDArray[np.int64], nearest: int, count: int) -> float:
        """Return the source nodes near these, among `nearest` nodes, or fewer where so few are compared."""
        assert self.nearness is not None
        return self.nearness.source_ratio(chosen, min(nearest, max(3, count)))
