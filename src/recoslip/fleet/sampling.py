"""Seed nodes -> a sample of their two-hop neighbourhoods, through PyTorch Geometric's loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from recoslip.fleet.counter_rng import derive, words
from recoslip.graph import NodeGraph
from recoslip.graph.sparse import concatenated_ranges


class VectorisedSampler(BaseSampler):  # type: ignore[misc]
    """PyG's neighbour sampling in plain PyTorch: nothing to compile, and the same draws everywhere.

    Of a node with more neighbours than wanted, one is drawn from each of as many equally long strata of its list. So
    every neighbour is drawn equally often, though sometimes one twice (docs/decisions/batches.md).

    Args:
        start: (nodes + 1,) where each node's neighbours begin.
        neighbour: (entries,) the neighbours, node by node.
        fan_out: how many neighbours to draw at each hop; -1 for all.
        stage: another one draws others.
        calls: how many batches were drawn before.
    """

    def __init__(
        self, start: Tensor, neighbour: Tensor, fan_out: Sequence[int], stage: int = 0, calls: int = 0
    ) -> None:
        self.start, self.neighbour, self.fan_out = start, neighbour, tuple(fan_out)
        self.key = derive(torch.tensor(stage), 13)
        self.calls = calls
        self.local_index = torch.full((len(start) - 1,), -1)  # of a node in the present batch

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """Sample around the seeds, which come first among the nodes."""
        key = derive(self.key, self.calls)
        self.calls += 1
        hops = [index.node]
        self.local_index[index.node] = torch.arange(len(index.node))
        total = len(index.node)
        rows, columns, edges, edge_counts = [], [], [], []
        for hop, count in enumerate(self.fan_out):
            frontier = hops[-1]
            entry, owner = self._draw(frontier, count, derive(key, hop))
            neighbour = self.neighbour[entry]
            unseen = torch.unique(neighbour[self.local_index[neighbour] < 0])
            self.local_index[unseen] = torch.arange(total, total + len(unseen))
            columns.append(total - len(frontier) + owner)  # the frontier was numbered last
            total += len(unseen)
            rows.append(self.local_index[neighbour])
            edges.append(entry)
            edge_counts.append(len(entry))
            hops.append(unseen)
        node = torch.cat(hops)
        self.local_index[node] = -1
        return SamplerOutput(
            node,
            torch.cat(rows),
            torch.cat(columns),
            torch.cat(edges),
            num_sampled_nodes=[len(nodes) for nodes in hops],
            num_sampled_edges=edge_counts,
            metadata=(index.input_id, index.time),
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

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        """Raise: only sampling from nodes is implemented."""
        raise NotImplementedError("this sampler starts from nodes")


def neighbour_loader(
    graph: NodeGraph, start: Tensor, fan_out: Sequence[int], batches: Sequence[Tensor], stage: int, skipped: int = 0
) -> NodeLoader:
    """Return a PyG loader of the sampled neighbourhoods of batches of nodes.

    Args:
        graph: its edges are both ways and sorted by their first end.
        start: (nodes + 1,) where each node's edges begin.
        fan_out: neighbours to draw at each hop.
        batches: the seed nodes of each batch.
        stage: another one draws other neighbours.
        skipped: how many batches were drawn before.
    """
    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    sampler = VectorisedSampler(start, graph.edge_index[1], fan_out, stage, skipped)
    return NodeLoader(data, sampler, batch_sampler=batches)
