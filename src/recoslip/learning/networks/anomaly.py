"""Anomaly detection: energy-based OOD detection and DOMINANT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.base.settings import Integer, Number, learned, param
from recoslip.data.alignment import k_means, neighbourhood_features
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours, adjacency_of, diffuse
from recoslip.data.split import Split
from recoslip.learning.base import Attributes, Scores
from recoslip.learning.networks.device import resolve_device
from recoslip.learning.networks.interfaces import Fleet, Objective, Output, OutputName, ProblemState, Product
from recoslip.learning.networks.network import Architecture, NetworkFleet, gathered_state
from recoslip.learning.networks.network_detector import (
    PATIENCE,
    FleetDetector,
    NetworkDetector,
    TrainingSet,
    standardised,
)
from recoslip.learning.networks.objectives import DomainNodes, RiskObjective, positions
from recoslip.learning.networks.sparse_products import SparseProduct
from recoslip.learning.networks.whole_graph import WholeGraph


class EnergyOOD(NetworkDetector):
    r"""$E(v) = -\log \sum_c e^{l_c(v)}$ of a classifier's logits l, smoothed over the graph: high for the unfamiliar.

    Such detectors learn from category labels of the source, which nobody has here. They are replaced by clusters of the
    source nodes (k-means on features averaged over two hops). The target takes no part in training, so what it could
    tell is left unused. The score is $σ((E - m) / s)$ with mean and deviation of the validation source nodes' energy.
    """

    name: ClassVar[str] = "energy"
    supports_batches: ClassVar[bool] = False

    categories: int = param(Integer(2), "clusters that the classifier learns to tell apart", default=10)
    smoothing: int = param(Integer(0), r"steps of $E \leftarrow \alpha E + (1 - \alpha) D^{-1} A E$", default=2)
    alpha: float = param(Number(0, 1), "α", default=0.5)
    epochs: int = 1000
    patience: int = PATIENCE

    energy_mean_: float = learned("mean energy of the validation source nodes")
    energy_deviation_: float = learned("its standard deviation")

    def _num_classes(self) -> int:
        return self.categories

    def _objective(self, given: TrainingSet) -> Objective:
        cluster = torch.from_numpy(source_clusters(given.graph, self.categories)).to(given.data.device)

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            log_p = F.log_softmax(output.logits[nodes.source], dim=-1)  # (nodes, members, clusters)
            label = cluster[nodes.source][:, None, None].expand(-1, log_p.shape[1], 1)
            return -log_p.gather(2, label).mean(dim=(0, 2))

        return RiskObjective(risk, *given.nodes)

    def _energy(self, output: Tensor, graph: NodeGraph) -> NDArray[np.float64]:
        energy: NDArray[np.float64] = -torch.logsumexp(output, dim=1).numpy()
        neighbours = Neighbours(graph, weighted=False)
        isolated = neighbours.degree == 0
        return diffuse(energy, neighbours.mean, 1 - self.alpha, self.smoothing, restart=False, isolated=isolated)

    def _numbers(self, output: Tensor, given: TrainingSet) -> Attributes:
        energy = self._energy(output, given.graph)[given.held_out_source]
        return {"energy_mean_": float(energy.mean()), "energy_deviation_": float(energy.std() + 1e-6)}

    def _from_output(self, output: Tensor, graph: NodeGraph, numbers: Mapping[str, Any]) -> Scores:
        return standardised(self._energy(output, graph), numbers["energy_mean_"], numbers["energy_deviation_"])


def source_clusters(graph: NodeGraph, clusters: int) -> NDArray[np.int64]:
    """Cluster the source nodes by their features averaged over two hops; target nodes get -1."""
    x = neighbourhood_features(graph)
    source = ~graph.is_target
    found = np.full(graph.num_nodes, -1, dtype=np.int64)
    found[source] = k_means(x[source], clusters, n_init=3)
    return found


class Dominant(FleetDetector):
    r"""Score a node by $w \lVert x_v - \hat x_v \rVert + (1 - w) \lVert a_v - \hat a_v \rVert$.

    A GCN encodes the nodes as H; $\hat X = \hat A H W$ decodes the features and $H H^\top$ the adjacency. It takes no
    notice of domains and knows nothing of categories: a comparison, not a competitor. The errors are summed up without
    either reconstruction: $\lVert x - \hat x \rVert^2 = \lVert x \rVert^2 - 2 z \cdot (x W^\top) + z W W^\top z^\top$
    with $z = (\hat A H)_v$, and likewise with $H^\top H$ for the adjacency, whose links are linear here where the paper
    has a sigmoid. The score is σ of the error, standardised on the validation source nodes.
    """

    name: ClassVar[str] = "dominant"

    feature_weight: float = param(Number(0, 1), "w", default=0.5)
    dropout: float = 0.0
    epochs: int = 200
    learning_rate: float = 0.005

    error_mean_: float = learned("mean error of the validation source nodes")
    error_deviation_: float = learned("its standard deviation")

    def _graph_input(self, graph: NodeGraph) -> Reconstructed:
        return Reconstructed.on(resolve_device(self.device), graph)

    def _build_fleet(self, features: int, seeds: Sequence[int]) -> Autoencoder:
        architecture = Architecture(features, self.hidden_channels, self.out_channels, 1, "gcn", self.dropout)
        return Autoencoder(architecture, seeds, self.feature_weight)

    def _objective(self, given: TrainingSet) -> Objective:
        return MeanError(given.split, given.data.device)

    def _numbers(self, output: Tensor, given: TrainingSet) -> Attributes:
        errors = output.numpy()[given.held_out_source]
        return {"error_mean_": float(errors.mean()), "error_deviation_": float(errors.std() + 1e-6)}

    def _from_output(self, output: Tensor, graph: NodeGraph, numbers: Mapping[str, Any]) -> Scores:
        return standardised(output.numpy(), numbers["error_mean_"], numbers["error_deviation_"])


@dataclass(frozen=True, eq=False)
class Reconstructed(WholeGraph):
    """A graph, and what its reconstruction is compared with."""

    adjacency: Product  # multiplies by A
    feature_norms: Tensor  # |x_v|², (nodes, 1)
    degrees: Tensor  # |a_v|², (nodes, 1)

    @classmethod
    def on(cls, device: torch.device, graph: NodeGraph) -> Self:
        """Put the graph on a device."""
        adjacency, x, whole = adjacency_of(graph), graph.x, WholeGraph.of(graph, "gcn", device)
        with np.errstate(over="ignore"):  # the loss is non-finite then, which is reported
            squares = x.power(2).sum(axis=1) if sp.issparse(x) else np.square(x).sum(axis=1)
        return cls(
            **vars(whole),
            adjacency=SparseProduct.of(adjacency, device, whole.dtype, symmetric=True),
            feature_norms=torch.from_numpy(squares).to(device, whole.dtype)[:, None],
            degrees=torch.from_numpy(np.diff(adjacency.indptr)).to(device, whole.dtype)[:, None],
        )

    def evaluate(self, fleet: Fleet, output: OutputName = "logits") -> Tensor:
        """Return the error of every node and member, (nodes, members), in double precision, on the CPU."""
        with torch.no_grad():
            errors: Tensor = fleet(self)
            return errors.double().cpu()


class Autoencoder(Fleet):
    """A fleet of encoders, each with a linear decoder of the features; it returns errors, of which features weigh w."""

    def __init__(self, architecture: Architecture, seeds: Sequence[int], feature_weight: float) -> None:
        super().__init__()
        self.architecture, self.members, self.feature_weight = architecture, len(seeds), feature_weight
        self.encoder = NetworkFleet(architecture, seeds)
        bound = (6 / (architecture.out_channels + architecture.in_channels)) ** 0.5
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        size = (architecture.out_channels, architecture.in_channels)
        drawn = [torch.empty(size).uniform_(-bound, bound, generator=g) for g in generators]
        self.decoder = nn.Parameter(torch.stack(drawn))  # (members, out, features)

    def gather(self, chosen: Sequence[tuple[Self, int]]) -> Self:
        """Build autoencoders, on the CPU, of members picked from others."""
        fleet = type(self)(self.architecture, [0] * len(chosen), self.feature_weight)
        fleet.load_state_dict(gathered_state(chosen))
        return fleet

    def first_layer(self, graph: Reconstructed) -> Tensor | None:
        """Compute the encoder's first convolution, which training and evaluation share."""
        return self.encoder.first_layer(graph)

    def forward(
        self, graph: Reconstructed, *, epoch: int | Tensor | None = None, first_layer: Tensor | None = None
    ) -> Tensor:
        """Reconstruct, and return the error of every node and member, (nodes, members)."""
        h = self.encoder(graph, epoch=epoch, first_layer=first_layer).representation  # (nodes, members, out)
        z = graph.second_layer[0](h.reshape(graph.num_nodes, -1)).view_as(h)
        flat = self.decoder.permute(2, 0, 1).reshape(self.decoder.shape[2], -1)  # (features, members * out)
        decoded = graph.features(flat).view_as(h)  # x Wᵀ
        neighbours = graph.adjacency(h.reshape(graph.num_nodes, -1)).view_as(h)
        features = squared_error(graph.feature_norms, z, decoded, self.decoder @ self.decoder.transpose(1, 2))
        structure = squared_error(graph.degrees, h, neighbours, torch.einsum("nmi,nmj->mij", h, h))
        return self.feature_weight * _root(features) + (1 - self.feature_weight) * _root(structure)


def squared_error(norm: Tensor, z: Tensor, projected: Tensor, gram: Tensor) -> Tensor:
    r"""$\lVert x - z W \rVert^2 = \lVert x \rVert^2 - 2 z \cdot (x W^\top) + z (W W^\top) z^\top$, per node and member.

    Args:
        norm: $\lVert x \rVert^2$, (nodes, 1).
        z: (nodes, members, out).
        projected: $x W^\top$, (nodes, members, out).
        gram: $W W^\top$, (members, out, out).
    """
    return norm - 2 * (z * projected).sum(dim=-1) + (torch.einsum("nmi,mij->nmj", z, gram) * z).sum(dim=-1)


def _root(squares: Tensor) -> Tensor:
    return (squares.clamp(min=0) + 1e-8).sqrt()


class MeanError(Objective):
    """Descend on the training nodes' mean error, keep the weights with the lowest one of the validation nodes."""

    def __init__(self, split: Split, device: torch.device) -> None:
        self.nodes, self.held_out = positions(split.train, device), positions(split.validation, device)

    def loss(self, output: Tensor, epoch: Tensor) -> ProblemState:
        """Compute the training nodes' mean error."""
        return ProblemState(output[self.nodes].mean(dim=0))

    def validation(self, output: Tensor) -> Tensor:
        """Compute the validation nodes' mean error."""
        return output[self.held_out].mean(dim=0)
