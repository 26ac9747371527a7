"""NodeGraph + encoder -> the matrices its layers multiply by, on the device, built once."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from recoslip.data.alignment import is_mostly_zero
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import gcn_adjacency, mean_over_neighbours
from recoslip.learning.networks import training as full_batch
from recoslip.learning.networks.interfaces import Fleet, Objective, OutputName, Product, Schedule
from recoslip.learning.networks.sparse_products import DenseProduct, Features, SparseProduct, chain, identity, to_tensor

Encoder: TypeAlias = Literal["gcn", "sage", "mlp"]


@dataclass(frozen=True, eq=False)
class WholeGraph:
    r"""What an encoder's layers multiply by: $\sum_k P_k H W_k$, with one product $P_k$ per weight.

    gcn: $\hat A = D^{-1/2} (A + I) D^{-1/2}$ (Kipf & Welling); sage: the neighbours' mean $D^{-1} A$ and the
    node itself; mlp: the node itself. In the first layer $H$ is the feature matrix, part of the product.
    """

    num_nodes: int
    first_layer: tuple[Product, ...]  # (features, any) -> (nodes, any)
    second_layer: tuple[Product, ...]  # (nodes, any) -> (nodes, any)
    device: torch.device
    dtype: torch.dtype
    x: Any  # as given; a tensor on the device for user-supplied modules, which alone take the edges
    edge_index: Tensor | None
    edge_weight: Tensor | None

    @classmethod
    def of(
        cls, graph: NodeGraph, encoder: Encoder | None, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> Self:
        """Build for one of our encoders, or with `encoder=None` for a user's module alone."""
        first_layer: tuple[Product, ...] = ()
        second_layer: tuple[Product, ...] = ()
        x, edge_index, edge_weight = graph.x, None, None
        if encoder is not None:
            matrices = _propagation(graph, encoder)
            second_layer = tuple(
                identity if m is None else SparseProduct.of(m, device, dtype, symmetric=encoder != "sage")
                for m in matrices
            )
            first_layer = tuple(
                _with_features(x, m, p, device, dtype) for m, p in zip(matrices, second_layer, strict=True)
            )
        else:
            x, edge_index = to_tensor(x).to(device, dtype), to_tensor(graph.edge_index).to(device)
            edge_weight = None if graph.edge_weight is None else to_tensor(graph.edge_weight).to(device, dtype)
        return cls(graph.num_nodes, first_layer, second_layer, device, dtype, x, edge_index, edge_weight)

    @property
    def nodes_per_step(self) -> int:
        """All of them."""
        return self.num_nodes

    @cached_property
    def features(self) -> Features:
        """The feature matrix alone, for input dropout, which comes before propagation."""
        return _features(self.x, self.device, self.dtype, droppable=True)

    def first_layer_dropped(self, key: Tensor, keep: float) -> tuple[Product, ...]:
        """Return the first layer's products with each feature of each node kept with probability `keep`."""
        features = self.features.dropped(key, keep)
        return tuple(chain(product, features) for product in self.second_layer)

    def train(self, fleet: Fleet, objective: Objective, schedule: Schedule) -> Tensor:
        """Train on all nodes in every epoch."""
        return full_batch.train(fleet, self, objective, schedule)

    def evaluate(self, fleet: Fleet, output: OutputName = "logits") -> Tensor:
        """Evaluate all nodes, (nodes, members, any), in double precision, on the CPU."""
        with torch.no_grad():
            result: Tensor = getattr(fleet(self), output)
            return result.double().cpu()


def _propagation(graph: NodeGraph, encoder: Encoder) -> tuple[sp.csr_array | None, ...]:
    """Return the matrices P of a layer; None is the identity."""
    if encoder == "mlp":
        return (None,)
    if encoder == "sage":
        return (mean_over_neighbours(graph), None)
    return (gcn_adjacency(graph),)


def _with_features(
    x: Any, matrix: sp.csr_array | None, product: Product, device: torch.device, dtype: torch.dtype
) -> Product:
    """Multiply the feature matrix in: $P X$ beforehand where $X$ is dense, $P (X \\cdot)$ where it is sparse."""
    if is_dense(x):
        values = x.astype(np.float64)
        propagated = values if matrix is None else matrix @ values
        return DenseProduct(torch.from_numpy(propagated).to(device, dtype))
    features = _features(x, device, dtype)
    return features if matrix is None else chain(product, features)


def _features(x: Any, device: torch.device, dtype: torch.dtype, *, droppable: bool = False) -> Features:
    """Return the product with the feature matrix, dense or sparse by how many of its entries are zero."""
    if is_dense(x):
        return DenseProduct(to_tensor(x).to(device, dtype))
    return SparseProduct.of(sp.csr_array(x), device, dtype, droppable=droppable)


def is_dense(x: Any) -> bool:
    """Whether the dense product with a feature matrix is the faster one."""
    return not sp.issparse(x) and not is_mostly_zero(x)
