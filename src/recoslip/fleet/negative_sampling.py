"""Nodes and the edges among them -> negative samples: random pairs of those nodes that no edge joins."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from recoslip.fleet.counter_rng import derive, words


class Pairs(NamedTuple):
    """Unordered pairs of nodes, the same for all members."""

    left: Tensor  # (pairs,)
    right: Tensor  # (pairs,)
    valid: Tensor  # (pairs,) false where a draw hit an edge or a node with itself


class NonEdges:
    """Uniform draws from the pairs of some nodes that are joined by no edge.

    A pool is drawn once per epoch for all members. A member that keeps the pairs inside its own subset has a
    uniform sample of the non-edges of that subset, so nothing is lost by sharing, and the pairs are looked up
    in the edge list once instead of once per member.

    Args:
        nodes: (count,) the nodes that pairs are made of.
        left: (edges,) one end of each edge among them, every edge once.
        right: (edges,) the other end.
        size: pairs in a pool.
    """

    def __init__(self, nodes: Tensor, left: Tensor, right: Tensor, size: int) -> None:
        self.nodes = nodes
        self.size = size
        self.total = int(nodes.max()) + 1
        low, high = torch.minimum(left, right), torch.maximum(left, right)
        self.edges = torch.sort(low * self.total + high).values
        self.key = derive(torch.zeros((), dtype=torch.long, device=nodes.device), 7)

    def draw(self, epoch: int | Tensor) -> Pairs:
        """Draw the pool of one epoch."""
        word = words(derive(self.key, epoch), self.size)
        count = len(self.nodes)
        left = self.nodes[((word >> 32) & 0xFFFFFFFF) * count >> 32]
        right = self.nodes[(word & 0xFFFFFFFF) * count >> 32]
        pair = torch.minimum(left, right) * self.total + torch.maximum(left, right)
        valid = left != right
        if len(self.edges):
            nearest = torch.searchsorted(self.edges, pair).clamp_(max=len(self.edges) - 1)
            valid &= self.edges[nearest] != pair
        return Pairs(left, right, valid)
