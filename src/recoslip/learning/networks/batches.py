"""A graph too large to train on whole: sampled batches to train on, exact evaluation chunk by chunk."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from recoslip.data.graph import NodeGraph
from recoslip.learning.networks import training
from recoslip.learning.networks.device import device_memory
from recoslip.learning.networks.interfaces import BatchObjective, OutputName, Product, Schedule
from recoslip.learning.networks.network import MemberLayer, NetworkFleet
from recoslip.learning.networks.random_bits import derive, drop, keep_mask, words
from recoslip.learning.networks.sparse_products import (
    DenseProduct,
    Entries,
    SparseProduct,
    concatenated_ranges,
    csr_of_entries,
    csr_tensor,
    on_device,
    to_tensor,
)
from recoslip.learning.networks.whole_graph import Encoder, is_dense

T = TypeVar("T")

FAN_OUT = (10, 5)  # neighbours drawn of a seed, and of each of them
NO_NEIGHBOURS = (0, 0)  # of an encoder that does not look at them
CHUNK = 2**16  # nodes evaluated at once
NODES_PER_SEED = 32  # nodes that a step computes on for each seed, about
PER_NODE = 3 * 4 * 64 + 40  # bytes on a GPU besides: layers of an evaluation of networks 64 wide, degrees and the like
MAX_RESIDENT = 1 / 16  # of a GPU's memory, for the arrays of a graph that is copied there


@dataclass(frozen=True, eq=False)
class Batch:
    """The propagation of a batch: what an encoder's two layers multiply by, for some seed nodes."""

    inner: int  # the seeds and their drawn neighbours, which the first layer represents
    features: Tensor | sp.csr_array  # of those and their own drawn neighbours
    propagation: tuple[Any, ...]  # (inner, all of them): products, or matrices for sparse features; None: identity
    second_layer: tuple[Product, ...]  # (inner, any) -> (seeds, any)
    device: torch.device
    dtype: torch.dtype

    @property
    def first_layer(self) -> tuple[Product, ...]:
        """The first layer's products, with the features multiplied in."""
        return self._with_features(self.features)

    def first_layer_dropped(self, key: Tensor, keep: float) -> tuple[Product, ...]:
        """Return the same with each feature of each node kept with probability `keep`."""
        if isinstance(self.features, Tensor):
            return self._with_features(drop(self.features[:, None], key.view(1), keep)[:, 0])
        dropped = self.features.copy()
        dropped.data *= keep_mask(key.cpu().view(1), 1, len(dropped.data), keep).view(-1).numpy()
        return self._with_features(dropped)

    def _with_features(self, features: Tensor | sp.csr_array) -> tuple[Product, ...]:
        products: list[Product] = []
        for matrix in self.propagation:
            if isinstance(features, Tensor):
                products.append(DenseProduct(features[: self.inner] if matrix is None else matrix(features)))
            else:
                propagated = sp.csr_array(features[: self.inner] if matrix is None else matrix @ features)
                products.append(SparseProduct.of(propagated, self.device, self.dtype))
        return tuple(products)


class SampledGraph:
    r"""A graph for networks of two layers that is never computed on as a whole.

    Training draws seeds and some of their neighbours. A node's sum over its neighbours is estimated by the sum over the
    drawn ones, with the weights of the whole graph's propagation, times the inverse sampling rate. Evaluation goes
    layer by layer through all nodes, a chunk at a time, and is exact.

    A graph with dense features that takes little of a GPU's memory is copied there, and batches are drawn there. Any
    other stays where it is, and a thread draws batches ahead of the GPU.

    Args:
        graph: the graph.
        encoder: "gcn", "sage" or "mlp".
        device: where to compute.
        batch_size: seeds of a batch, 2 or more.
        fan_out: neighbours drawn of each seed, and of each of those; -1 for all.
    """

    def __init__(
        self,
        graph: NodeGraph,
        encoder: Encoder,
        device: torch.device,
        *,
        batch_size: int,
        fan_out: Sequence[int] = FAN_OUT,
    ) -> None:
        self.graph, self.encoder, self.device, self.dtype = graph, encoder, device, torch.float32
        self.num_nodes, self.batch_size = graph.num_nodes, max(2, batch_size)
        self.fan_out = NO_NEIGHBOURS if encoder == "mlp" else tuple(fan_out)
        self.nodes_per_step = min(self.num_nodes, NODES_PER_SEED * self.batch_size)
        self.has_dense_features = is_dense(graph.x)
        self.graph_device = device if self._fits_on(device) else torch.device("cpu")  # where the graph's arrays are
        self.x = to_tensor(graph.x).to(self.graph_device) if self.has_dense_features else graph.x
        edge_index = to_tensor(graph.edge_index)
        weight = None if graph.edge_weight is None else to_tensor(graph.edge_weight)
        self.neighbour = edge_index[1].to(self.graph_device)
        self.weight = None if weight is None else weight.to(self.graph_device)
        degree = torch.bincount(edge_index[0], minlength=self.num_nodes)
        total = degree.double()  # weight of each node's edges
        if weight is not None:
            total.zero_()
            for begin in range(0, len(weight), CHUNK):
                chunk = slice(begin, begin + CHUNK)
                total.index_add_(0, edge_index[0, chunk], weight[chunk].double())
        self.degree, self.total = degree.to(self.graph_device), total.to(self.graph_device)
        self.start = F.pad(self.degree.cumsum(0), (1, 0))
        self.self_loop = 1 / (self.total + 1)  # of a GCN, normalised: D^-1 with self-loops

    def _fits_on(self, device: torch.device) -> bool:
        if device.type != "cuda" or not self.has_dense_features:
            return False
        edges = self.graph.edge_index[1]
        size = 4 * self.graph.x.size + (8 + 4 * (self.graph.edge_weight is not None)) * len(edges)
        return bool(size + PER_NODE * self.num_nodes <= device_memory(device).total * MAX_RESIDENT)

    def train(self, fleet: NetworkFleet, objective: BatchObjective, schedule: Schedule) -> Tensor:
        """Train on one batch in every epoch."""
        return training.train_on_batches(fleet, partial(self.draw, stage=schedule.stage), objective, schedule)

    def draw(self, sets: Sequence[Tensor], steps: int, stage: int = 0) -> Iterator[tuple[list[Tensor], Batch]]:
        """Draw batches with nodes of every set; yield the drawn nodes of each set, and the propagation of them all.

        Every set is passed through in a random order, again and again; what is left of a pass and does not fill a batch
        is skipped. The draws do not depend on any seed, so that a network sees the same batches alone and in a fleet.

        Args:
            sets: disjoint sets of nodes, by position.
            steps: how many batches.
            stage: another one draws other batches.
        """
        sets = [nodes.cpu() for nodes in sets]
        sizes = proportional_sizes([len(nodes) for nodes in sets], self.batch_size)
        seeds = list(_seeds(sets, sizes, steps, stage))
        sampler = NeighbourSampler(self.start, self.neighbour, self.fan_out, stage)
        batches = (self._batch(sampler.sample(torch.cat(drawn).to(self.graph_device))) for drawn in seeds)
        yield from zip(seeds, batches if self.graph_device.type == self.device.type else prefetch(batches), strict=True)

    def _batch(self, sample: Sample) -> Batch:
        """Turn a sample into the products of the two layers."""
        node, owner, neighbour = sample.node, sample.owner, sample.neighbour
        seeds, inner = sample.nodes_per_hop[0], sum(sample.nodes_per_hop[:2])
        near = sample.edges_per_hop[0]  # the edges of the seeds come first
        inverse_rate = self.degree[node] / torch.bincount(owner, minlength=len(node)).clamp(min=1).double()
        value = self._weights(node[owner], node[neighbour], sample.entry) * inverse_rate[owner]
        outer: tuple[Any, ...] = self._matrices(node, value, owner, neighbour, (inner, len(node)))
        propagation = tuple(None if entries is None else self._outer(entries) for entries in outer)
        last = self._matrices(node, value[:near], owner[:near], neighbour[:near], (seeds, inner))
        second_layer = tuple(
            (lambda h: h[:seeds]) if entries is None else SparseProduct.of_entries(entries, self.device, self.dtype)
            for entries in last
        )
        return Batch(inner, self._features(node), propagation, second_layer, self.device, self.dtype)

    def _outer(self, entries: Entries) -> Any:
        """Return a matrix of the first layer as dense features are multiplied by it, or sparse ones."""
        if not self.has_dense_features:
            return entries.scipy()
        return on_device(csr_of_entries(*entries), self.device, self.dtype)

    def _features(self, nodes: Tensor | slice) -> Tensor | sp.csr_array:
        if self.has_dense_features:
            rows = self.x[nodes]
            if self.device.type == "cuda" and self.graph_device.type == "cpu":
                rows = rows.pin_memory()
            return rows.to(self.device, self.dtype, non_blocking=True)
        return sp.csr_array(self.x[nodes if isinstance(nodes, slice) else nodes.numpy()])

    def _weights(self, owner: Tensor, neighbour: Tensor, entry: Tensor) -> Tensor:
        """Weigh edges as the whole graph's propagation does, in double precision."""
        weight = 1.0 if self.weight is None else self.weight[entry].double()
        if self.encoder == "gcn":
            return weight / ((self.total[owner] + 1) * (self.total[neighbour] + 1)).sqrt()
        return weight / self.total[owner]

    def _matrices(
        self, node: Tensor, value: Tensor, owner: Tensor, neighbour: Tensor, shape: tuple[int, int]
    ) -> tuple[Entries | None, ...]:
        """Return a layer's matrices, (owners, neighbours); the owners come first among the neighbours."""
        if self.encoder == "mlp":
            return (None,)
        if self.encoder == "sage":
            return (Entries(owner, neighbour, value, shape), None)
        loop = torch.arange(shape[0], device=node.device)
        ends = torch.cat([owner, loop]), torch.cat([neighbour, loop])
        return (Entries(*ends, torch.cat([value, self.self_loop[node[: shape[0]]]]), shape),)

    def evaluate(self, fleet: NetworkFleet, output: OutputName = "logits", chunk: int = CHUNK) -> Tensor:
        """Evaluate all nodes, (nodes, members, any), in double precision, on the CPU.

        One member after another, one layer after another. Held at once are the result, three layers of one member for
        all nodes, one of them on the device, and a chunk; layers that are large are held on disk. A graph on a GPU has
        its layers there, too.
        """
        chunks = [slice(begin, min(begin + chunk, self.num_nodes)) for begin in range(0, self.num_nodes, chunk)]
        width = fleet.architecture.classes if output == "logits" else fleet.architecture.out_channels
        result = torch.zeros(self.num_nodes, fleet.members, width)
        with torch.no_grad():
            for index in range(fleet.members):
                member = fleet.gather([(fleet, index)]).to(self.device)
                h = self._convolve(member.conv1, chunks, self._features)
                for rows in chunks:
                    h[rows] = F.relu(member.norm1(h[rows, None].to(self.device), False)).to(self.graph_device)
                h = self._convolve(member.conv2, chunks, partial(self._rows, h))
                for rows in chunks:
                    result[rows, index] = getattr(member.head(h[rows, None].to(self.device)), output)[:, 0].cpu()
            return result.double()

    def _convolve(
        self, layer: MemberLayer, chunks: Sequence[slice], inputs: Callable[[slice], Tensor | sp.csr_array]
    ) -> Tensor:
        """Apply a convolution of one member to the inputs of each chunk's nodes: (nodes, out), where the graph is."""
        result = scratch(self.num_nodes, layer.bias.shape[1], self.graph_device)
        result[:] = layer.bias[0].to(self.graph_device)
        for k, weight in enumerate(layer.weights):
            propagates = self.encoder != "mlp" and k == 0  # the other weight of SAGE is the node's own
            projected = scratch(self.num_nodes, result.shape[1], self.graph_device) if propagates else result
            for rows in chunks:
                values = inputs(rows)
                product = (
                    DenseProduct(values) if isinstance(values, Tensor) else on_device(values, self.device, self.dtype)
                )
                h = product(weight[0])
                if propagates:
                    projected[rows] = (h * self._scale(rows) if self.encoder == "gcn" else h).to(self.graph_device)
                else:
                    result[rows] += h.to(self.graph_device)
            if propagates:
                projected = projected.to(self.device)
                for rows in chunks:
                    result[rows] += self._propagate(rows, projected).to(self.graph_device)
        return result

    def _rows(self, h: Tensor, rows: slice) -> Tensor:
        return h[rows].to(self.device)

    def _propagate(self, rows: slice, h: Tensor) -> Tensor:
        """Propagate h, (nodes, any), to some nodes; for a GCN, h has been multiplied by D^-1/2 already."""
        entries = slice(int(self.start[rows.start]), int(self.start[rows.stop]))
        neighbour = self.neighbour[entries]
        value = torch.ones(len(neighbour), device=self.graph_device) if self.weight is None else self.weight[entries]
        if self.encoder == "sage":  # the mean; divided first, so that no weights are too large or small to add
            value = (value.double() / self.total[rows].repeat_interleave(self.degree[rows])).float()
        row_start = self.start[rows.start : rows.stop + 1] - self.start[rows.start]
        matrix = csr_tensor(row_start, neighbour, value, (rows.stop - rows.start, self.num_nodes))
        result = on_device(matrix, self.device, self.dtype)(h)
        return result if self.encoder == "sage" else (result + h[rows]) * self._scale(rows)

    def _scale(self, rows: slice) -> Tensor:
        """D^-1/2 of a GCN, of some nodes."""
        return self.self_loop[rows].sqrt().to(self.device, self.dtype)[:, None]


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


def prefetch(items: Iterator[T], count: int = 3) -> Iterator[T]:
    """Yield what an iterator yields, while a thread already computes the next items."""
    with ThreadPoolExecutor(1) as thread:
        pending = deque(thread.submit(next, items, None) for _ in range(count))
        while (item := pending.popleft().result()) is not None:
            pending.append(thread.submit(next, items, None))
            yield item


def scratch(rows: int, columns: int, device: torch.device) -> Tensor:
    """Return an uninitialised matrix: on the device, or in a temporary file where it would fill much of the memory."""
    if device.type == "cuda" or 4 * rows * columns <= device_memory(device).total / 16:
        return torch.empty(rows, columns, device=device)
    with tempfile.TemporaryFile() as file:
        file.truncate(4 * rows * columns)
        return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(rows, columns)))


def _seeds(sets: Sequence[Tensor], sizes: Sequence[int], steps: int, stage: int) -> Iterator[list[Tensor]]:
    generators = [torch.Generator().manual_seed(int(derive(torch.tensor(stage), 17, k))) for k in range(len(sets))]
    remaining = [nodes[:0] for nodes in sets]
    for _ in range(steps):
        drawn = []
        for k, (nodes, size) in enumerate(zip(sets, sizes, strict=True)):
            if len(remaining[k]) < size:  # what is left does not fill a batch: the next pass begins
                remaining[k] = nodes[torch.randperm(len(nodes), generator=generators[k])]
            drawn.append(remaining[k][:size])
            remaining[k] = remaining[k][size:]
        yield drawn


def proportional_sizes(sizes: Sequence[int], batch_size: int) -> list[int]:
    """Divide a batch among sets by their sizes, at least one node each and no more than there are.

    >>> proportional_sizes([900, 90, 1], 100)
    [91, 9, 1]
    """
    total = sum(sizes)
    return [min(size, max(1, round(size * batch_size / total))) for size in sizes]
