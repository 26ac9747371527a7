"""Seed nodes -> a few of their neighbours, and of theirs: the part of a graph that a batch needs to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from recoslip.fleet.bits import derive, words
from recoslip.graph import NodeGraph


class VectorisedSampler(BaseSampler):  # type: ignore[misc]
    """PyG's neighbour sampling in plain PyTorch: nothing to compile, and the same draws everywhere.

    A node with more neighbours than wanted gives one from each of as many equal stretches of its list. So every
    neighbour is drawn equally often, though now and then one twice (docs/decisions/batches.md).

    Args:
        start: (nodes + 1,) where each node's neighbours begin.
        neighbour: (entries,) the neighbours, node by node.
        fan_out: how many neighbours to draw at each hop; -1 for all.
        stage: another one draws others.
        calls: how often it was asked before.
    """

    def __init__(
        self, start: Tensor, neighbour: Tensor, fan_out: Sequence[int], stage: int = 0, calls: int = 0
    ) -> None:
        self.start, self.neighbour, self.fan_out = start, neighbour, tuple(fan_out)
        self.key = derive(torch.tensor(stage), 13)
        self.calls = calls
        self.place = torch.full((len(start) - 1,), -1)  # of a node in the present batch

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """Sample around the seeds, which come first among the nodes."""
        key = derive(self.key, self.calls)
        self.calls += 1
        found = [index.node]
        self.place[index.node] = torch.arange(len(index.node))
        total = len(index.node)
        rows, columns, edges, edge_counts = [], [], [], []
        for hop, count in enumerate(self.fan_out):
            frontier = found[-1]
            entry, owner = self._draw(frontier, count, derive(key, hop))
            other = self.neighbour[entry]
            fresh = torch.unique(other[self.place[other] < 0])
            self.place[fresh] = torch.arange(total, total + len(fresh))
            columns.append(total - len(frontier) + owner)  # the frontier was the last to be numbered
            total += len(fresh)
            rows.append(self.place[other])
            edges.append(entry)
            edge_counts.append(len(entry))
            found.append(fresh)
        node = torch.cat(found)
        self.place[node] = -1
        return SamplerOutput(
            node,
            torch.cat(rows),
            torch.cat(columns),
            torch.cat(edges),
            num_sampled_nodes=[len(part) for part in found],
            num_sampled_edges=edge_counts,
            metadata=(index.input_id, index.time),
        )

    def _draw(self, nodes: Tensor, count: int, key: Tensor) -> tuple[Tensor, Tensor]:
        """Draw entries of the neighbour list; return them and whose each is, as a position in `nodes`."""
        begin = self.start[nodes]
        degree = self.start[nodes + 1] - begin
        drawn = degree if count < 0 else degree.clamp(max=count)
        owner = torch.repeat_interleave(torch.arange(len(nodes)), drawn)
        first = torch.cumsum(drawn, 0) - drawn
        stretch = torch.arange(len(owner)) - first[owner]  # 0, 1, ... for each node
        length = degree[owner].double() / drawn[owner]
        within = ((words(key, len(owner)) >> 11) & (2**53 - 1)).double() / 2**53  # uniform in [0, 1)
        within[length == 1] = 0.0
        offset = ((stretch + within) * length).long().clamp(max=degree[owner] - 1)
        return begin[owner] + offset, owner

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        """Not needed here."""
        raise NotImplementedError("this sampler starts from nodes")


def neighbour_loader(
    graph: NodeGraph, start: Tensor, fan_out: Sequence[int], batches: Sequence[Tensor], stage: int, first: int = 0
) -> NodeLoader:
    """Return a PyG loader of the sampled surroundings of batches of nodes.

    Args:
        graph: its edges are both ways and sorted by their first end.
        start: (nodes + 1,) where each node's edges begin.
        fan_out: neighbours to draw at each hop.
        batches: the seeds of each batch, as positions.
        stage: another one draws other neighbours.
        first: how many batches went before.
    """
    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    sampler = VectorisedSampler(start, graph.edge_index[1], fan_out, stage, first)
    return NodeLoader(data, sampler, batch_sampler=batches)
