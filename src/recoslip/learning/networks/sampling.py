"""Seed nodes -> a sample of their neighbourhoods; nodes and edges -> random pairs of nodes that no edge joins.

All is drawn where the graph's arrays are: on a CPU or on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recoslip.learning.networks.random_bits import derive, words
from recoslip.learning.networks.tensors import concatenated_ranges


class Sample(NamedTuple):
    """Nodes hop by hop, and the edges that they were drawn by, by the index of their ends among those nodes."""

    node: Tensor  # (nodes,) the seeds, their drawn neighbours, and the drawn neighbours of those; no node twice
    owner: Tensor  # (edges,) the end that a neighbour was drawn for, ascending
    neighbour: Tensor  # (edges,) the other end
    entry: Tensor  # (edges,) which of the graph's entries it is
    nodes_per_hop: list[int]
    edges_per_hop: list[int]


class NeighbourSampler:
    """PyG's neighbour sampling in plain PyTorch: nothing to compile, and the same draws on every device.

    Of a node with more neighbours than wanted, one is drawn from each of as many equally long strata of its list. So
    every neighbour is drawn equally often, though sometimes one twice (docs/decisions/batches.md).

    Args:
        start: (nodes + 1,) where each node's neighbours begin.
        neighbour: (entries,) the neighbours, node by node.
        fan_out: how many neighbours to draw at each hop; -1 for all.
        stage: another one draws others.
    """

    def __init__(self, start: Tensor, neighbour: Tensor, fan_out: Sequence[int], stage: int = 0) -> None:
        self.start, self.neighbour, self.fan_out = start, neighbour, tuple(fan_out)
        self.key = derive(torch.tensor(stage, device=start.device), 13)
        self.calls = 0
        self.local_index = torch.full((len(start) - 1,), -1, device=start.device)  # of a node in the present sample

    def sample(self, seeds: Tensor) -> Sample:
        """Sample around the seeds, which come first among the nodes."""
        key = derive(self.key, self.calls)
        self.calls += 1
        hops = [seeds]
        self.local_index[seeds] = torch.arange(len(seeds), device=seeds.device)
        total = len(seeds)
        owners, neighbours, entries = [], [], []
        for hop, count in enumerate(self.fan_out):
            frontier = hops[-1]
            entry, owner = self._draw(frontier, count, derive(key, hop))
            drawn = self.neighbour[entry]
            unseen = torch.unique(drawn[self.local_index[drawn] < 0])
            self.local_index[unseen] = torch.arange(total, total + len(unseen), device=seeds.device)
            owners.append(total - len(frontier) + owner)  # the frontier was numbered last
            total += len(unseen)
            neighbours.append(self.local_index[drawn])
            entries.append(entry)
            hops.append(unseen)
        node = torch.cat(hops)
        self.local_index[node] = -1
        return Sample(
            node,
            torch.cat(owners),
            torch.cat(neighbours),
            torch.cat(entries),
            [len(nodes) for nodes in hops],
            [len(entry) for entry in entries],
        )

    def _draw(self, nodes: Tensor, count: int, key: Tensor) -> tuple[Tensor, Tensor]:
        """Draw entries of the neighbour list; return them, and the index in `nodes` of the node they belong to."""
        begin = self.start[nodes]
        degree = self.start[nodes + 1] - begin
        drawn = degree if count < 0 else degree.clamp(max=count)
        owner, stratum = concatenated_ranges(drawn)
        length = degree[owner].double() / drawn[owner]  # of a stratum
        within = ((words(key, len(owner)) >> 11) & (2**53 - 1)).double() / 2**53  # uniform in [0, 1)
        within[length == 1] = 0.0
        offset = ((stratum + within) * length).long().clamp(max=degree[owner] - 1)
        return begin[owner] + offset, owner


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
