"""A graph that is looked at in parts: sampled batches to train on, exact chunks to evaluate."""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from recoslip.fleet import together
from recoslip.fleet.bits import derive, keep_mask
from recoslip.fleet.modules import gather
from recoslip.fleet.network import Fleet, MemberLayer, Part
from recoslip.fleet.products import DenseProduct, Product, SparseProduct, on_device
from recoslip.fleet.sampling import neighbour_loader
from recoslip.fleet.view import Encoder, is_dense
from recoslip.graph import NodeGraph, csr_tensor, to_scipy
from recoslip.memory import memory

T = TypeVar("T")

FAN_OUT = (10, 5)  # neighbours drawn of a seed, and of each of them
CHUNK = 2**16  # nodes evaluated at once


@dataclass(frozen=True, eq=False)
class BatchView:
    """What an encoder's two layers multiply by, for some seeds: to a fleet it is what a whole graph's view is."""

    nodes: int  # the seeds
    inner: int  # the seeds and their drawn neighbours, which the first layer represents
    features: Tensor | sp.csr_array  # of those and their own drawn neighbours
    spread: tuple[Any, ...]  # (inner, all of them): a product, or a matrix for sparse features; None is the node itself
    hidden: tuple[Product, ...]  # (inner, any) -> (seeds, any)
    device: torch.device
    dtype: torch.dtype

    @property
    def first(self) -> tuple[Product, ...]:
        """The first layer's products, with the features multiplied in."""
        return self._first(self.features)

    def first_dropped(self, key: Tensor, keep: float) -> tuple[Product, ...]:
        """Return the same with each feature of each node kept with probability `keep`."""
        if isinstance(self.features, Tensor):
            rows, columns = self.features.shape
            return self._first(self.features * keep_mask(key.view(1), rows, columns, keep, self.dtype)[:, 0])
        dropped = self.features.copy()
        dropped.data *= keep_mask(key.cpu().view(1), 1, len(dropped.data), keep).view(-1).numpy()
        return self._first(dropped)

    def _first(self, features: Tensor | sp.csr_array) -> tuple[Product, ...]:
        products: list[Product] = []
        for part in self.spread:
            if isinstance(features, Tensor):
                products.append(DenseProduct(features[: self.inner] if part is None else part(features)))
            else:
                matrix = sp.csr_array(features[: self.inner] if part is None else part @ features)
                products.append(SparseProduct.of(matrix, self.device, self.dtype))
        return tuple(products)


class Batches:
    r"""A graph for networks of two layers that is never looked at as a whole.

    Training draws seeds and some of their neighbours. A node's sum over its neighbours is estimated by the sum over the
    drawn ones, with the weights of the whole graph's propagation, times how many stand behind one drawn. Evaluation
    goes layer by layer through all nodes, a chunk at a time, and is exact.

    Args:
        graph: the graph.
        encoder: "gcn", "sage" or "mlp".
        device: where to compute. The graph stays where it is.
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
        self.nodes, self.batch_size, self.fan_out = graph.num_nodes, max(2, batch_size), tuple(fan_out)
        self.has_dense_features = is_dense(graph.x)
        self.degree = torch.bincount(graph.edge_index[0], minlength=self.nodes)
        self.start = F.pad(self.degree.cumsum(0), (1, 0))
        total = self.degree.double()
        if graph.edge_weight is not None:
            total.zero_()
            for begin in range(0, len(graph.edge_weight), CHUNK):
                some = slice(begin, begin + CHUNK)
                total.index_add_(0, graph.edge_index[0, some], graph.edge_weight[some].double())
        self.total = (total + 1 if encoder == "gcn" else total).numpy()  # weight of a node's edges, its loop included

    def draw(
        self, parts: Sequence[Tensor], steps: int, stage: int = 0, *, first: int = 0, shared: bool = True
    ) -> Iterator[tuple[list[Tensor], BatchView]]:
        """Draw batches in which each part has its share; give the chosen nodes of each part, and the view of them all.

        Every part is gone through in a random order, again and again; what is left of a pass and does not fill a batch
        is skipped. The draws do not depend on any seed, so that a network sees the same batches alone and in company.

        Args:
            parts: nodes, by position; no node is in two of them.
            steps: how many batches.
            stage: another one draws other batches.
            first: how many of them to leave out, where earlier work goes on.
            shared: whether processes that train together divide each batch among them.
        """
        parts = [part.cpu() for part in parts]
        sizes = shares([len(part) for part in parts], self.batch_size)
        seeds = [
            [together.share(part) for part in chosen] if shared else chosen
            for chosen in itertools.islice(_seeds(parts, sizes, steps, stage), first, None)
        ]
        loader = neighbour_loader(self.graph, self.start, self.fan_out, [torch.cat(s) for s in seeds], stage, first)
        views = (self._view(drawn) for drawn in loader)
        yield from zip(seeds, ahead(views) if self.device.type == "cuda" else views, strict=True)

    def _view(self, drawn: Any) -> BatchView:
        """Turn what PyG's loader gives into the products of the two layers."""
        node, entry = drawn.n_id, drawn.e_id
        neighbour, owner = drawn.edge_index.numpy()
        seeds, inner = drawn.num_sampled_nodes[0], sum(drawn.num_sampled_nodes[:2])
        near = drawn.num_sampled_edges[0]  # the edges of the seeds come first
        behind = self.degree[node].numpy() / np.maximum(np.bincount(owner, minlength=len(node)), 1)
        value = self._weights(node.numpy()[owner], node.numpy()[neighbour], entry) * behind[owner]
        spread: tuple[Any, ...] = self._with_loops(node.numpy(), value, owner, neighbour, (inner, len(node)))
        if self.has_dense_features:
            spread = tuple(part if part is None else on_device(part, self.device, self.dtype) for part in spread)
        last = self._with_loops(node.numpy(), value[:near], owner[:near], neighbour[:near], (seeds, inner))
        hidden = tuple(
            (lambda h: h[:seeds]) if matrix is None else SparseProduct.of(matrix, self.device, self.dtype)
            for matrix in last
        )
        return BatchView(seeds, inner, self._features(node), spread, hidden, self.device, self.dtype)

    def _features(self, nodes: Tensor | slice) -> Tensor | sp.csr_array:
        x = self.graph.x
        if self.has_dense_features:
            rows = x[nodes]
            if self.device.type == "cuda":
                rows = rows.pin_memory()
            return rows.to(self.device, self.dtype, non_blocking=True)
        if x.layout == torch.strided:
            return sp.csr_array(x[nodes].numpy())
        return to_scipy(x)[nodes if isinstance(nodes, slice) else nodes.numpy()]

    def _weights(self, owner: NDArray[np.int64], neighbour: NDArray[np.int64], entry: Tensor) -> NDArray[np.float64]:
        """Weigh edges as the whole graph's propagation does."""
        weight = 1.0 if self.graph.edge_weight is None else self.graph.edge_weight[entry].double().numpy()
        if self.encoder == "gcn":
            return np.asarray(weight / np.sqrt(self.total[owner] * self.total[neighbour]))
        return np.asarray(weight / self.total[owner])

    def _with_loops(
        self,
        node: NDArray[np.int64],
        value: NDArray[np.float64],
        owner: NDArray[np.int64],
        neighbour: NDArray[np.int64],
        shape: tuple[int, int],
    ) -> tuple[sp.csr_array | None, ...]:
        """Put a layer's matrices together, (owners, neighbours); the owners come first among the neighbours."""
        if self.encoder == "mlp":
            return (None,)
        if self.encoder == "sage":
            return (sp.csr_array((value, (owner, neighbour)), shape=shape), None)
        own = np.arange(shape[0])
        value = np.concatenate([value, 1 / self.total[node[own]]])
        places = np.concatenate([owner, own]), np.concatenate([neighbour, own])
        return (sp.csr_array((value, places), shape=shape),)

    def evaluate(self, fleet: Fleet, part: Part = "logits", chunk: int = CHUNK) -> Tensor:
        """Logits or representation of every node and member, (nodes, members, any), on the CPU.

        One member after another, one layer after another. Held at once are the result, three layers of one member for
        all nodes, one of them on the device, and a chunk; layers that are large are held on disk.
        """
        chunks = [slice(begin, min(begin + chunk, self.nodes)) for begin in range(0, self.nodes, chunk)]
        width = fleet.architecture.classes if part == "logits" else fleet.architecture.out_channels
        result = torch.zeros(self.nodes, fleet.members, width)
        rank, size = together.place()
        with torch.no_grad():
            for member in range(rank, fleet.members, size):
                alone = gather([(fleet, member)]).to(self.device)
                assert isinstance(alone, Fleet)
                h = self._convolve(alone.conv1, chunks, self._features)
                for rows in chunks:
                    h[rows] = F.relu(alone.norm1(h[rows, None].to(self.device), False))[:, 0].cpu()
                h = self._convolve(alone.conv2, chunks, partial(self._rows, h))
                for rows in chunks:
                    result[rows, member] = getattr(alone.head(h[rows, None].to(self.device)), part)[:, 0].cpu()
        return together.gathered(result, self.device)

    def _convolve(
        self, layer: MemberLayer, chunks: Sequence[slice], source: Callable[[slice], Tensor | sp.csr_array]
    ) -> Tensor:
        """Apply a convolution of one member to what `source` gives for a chunk's nodes: (nodes, out), on the CPU."""
        result = scratch(self.nodes, layer.bias.shape[1])
        result[:] = layer.bias[0].cpu()
        for k, weight in enumerate(layer.weights):
            spreads = self.encoder != "mlp" and k == 0  # else it is a node's own part
            turned = scratch(*result.shape) if spreads else result
            for rows in chunks:
                own = source(rows)
                dense = DenseProduct(own) if isinstance(own, Tensor) else on_device(own, self.device, self.dtype)
                part = dense(weight[0])
                if spreads:
                    turned[rows] = (part * self._root(rows) if self.encoder == "gcn" else part).cpu()
                else:
                    result[rows] += part.cpu()
            if spreads:
                turned = turned.to(self.device)
                for rows in chunks:
                    result[rows] += self._spread(rows, turned).cpu()
        return result

    def _rows(self, h: Tensor, rows: slice) -> Tensor:
        return h[rows].to(self.device)

    def _spread(self, rows: slice, h: Tensor) -> Tensor:
        """Propagate h, (nodes, any), to some nodes; of a GCN, h has been multiplied by D^-1/2 already."""
        entry = slice(int(self.start[rows.start]), int(self.start[rows.stop]))
        neighbour, weight = self.graph.edge_index[1, entry], self.graph.edge_weight
        value = torch.ones(len(neighbour)) if weight is None else weight[entry]
        if self.encoder == "sage":  # the mean; divided first, so that no weights are too large or small to add
            total = torch.from_numpy(self.total[rows]).repeat_interleave(self.degree[rows])
            value = (value.double() / total).float()
        begin = self.start[rows.start : rows.stop + 1] - self.start[rows.start]
        matrix = csr_tensor(begin, neighbour, value, (rows.stop - rows.start, self.nodes))
        result = on_device(matrix, self.device, self.dtype)(h)
        return result if self.encoder == "sage" else (result + h[rows]) * self._root(rows)

    def _root(self, rows: slice) -> Tensor:
        """D^-1/2 of a GCN, of some nodes."""
        return torch.from_numpy(self.total[rows] ** -0.5).to(self.device, self.dtype)[:, None]


def ahead(items: Iterator[T], count: int = 3) -> Iterator[T]:
    """Give what an iterator gives, while a thread already makes the next ones."""
    with ThreadPoolExecutor(1) as thread:
        coming = deque(thread.submit(next, items, None) for _ in range(count))
        while (item := coming.popleft().result()) is not None:
            coming.append(thread.submit(next, items, None))
            yield item


def scratch(rows: int, columns: int) -> Tensor:
    """Return an empty matrix: in memory, or in a file that vanishes with it where it would fill much of the memory."""
    if 4 * rows * columns <= memory(torch.device("cpu")).total / 16:
        return torch.empty(rows, columns)
    with tempfile.TemporaryFile() as file:
        file.truncate(4 * rows * columns)
        return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(rows, columns)))


def _seeds(parts: Sequence[Tensor], sizes: Sequence[int], steps: int, stage: int) -> Iterator[list[Tensor]]:
    generators = [torch.Generator().manual_seed(int(derive(torch.tensor(stage), 17, k))) for k in range(len(parts))]
    waiting = [part[:0] for part in parts]
    for _ in range(steps):
        chosen = []
        for k, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            if len(waiting[k]) < size:  # what is left does not fill a batch: the next pass begins
                waiting[k] = part[torch.randperm(len(part), generator=generators[k])]
            chosen.append(waiting[k][:size])
            waiting[k] = waiting[k][size:]
        yield chosen


def shares(sizes: Sequence[int], batch_size: int) -> list[int]:
    """Divide a batch among parts by their sizes, at least one node each and no more than there are.

    >>> shares([900, 90, 1], 100)
    [91, 9, 1]
    """
    total = sum(sizes)
    return [min(size, max(1, round(size * batch_size / total))) for size in sizes]
