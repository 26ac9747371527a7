"""Anomaly detection: energy-based OOD detection and DOMINANT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.base.progress import Phases, Progress
from recoslip.base.settings import Integer, Number, learned, param
from recoslip.data.alignment import k_means, neighbourhood_features
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours, adjacency_of, diffuse
from recoslip.data.split import Split
from recoslip.learning.base import Attributes, Detector, Presentation, Scores, each_graph
from recoslip.learning.networks import training as full_batch
from recoslip.learning.networks.device import block_size, resolve_device, torch_defaults
from recoslip.learning.networks.interfaces import Fleet, GraphInput, Objective, Output, ProblemState, Product, Schedule
from recoslip.learning.networks.network import Architecture, NetworkFleet, gathered_state, seed_key
from recoslip.learning.networks.network_detector import PATIENCE, NetworkDetector
from recoslip.learning.networks.objectives import DomainNodes, RiskObjective, domain_nodes, positions
from recoslip.learning.networks.sparse_products import SparseProduct, to_tensors
from recoslip.learning.networks.whole_graph import WholeGraph


class EnergyOOD(NetworkDetector):
    r"""$E(v) = -\log \sum_c e^{l_c(v)}$ of a classifier's logits l, smoothed over the graph: high for the unfamiliar.

    Such detectors learn from category labels of the source, which nobody has here. They are replaced by clusters of the
    source nodes (k-means on features averaged over two hops). The target takes no part in training, so what it could
    tell is left unused. The score is $σ((E - m) / s)$ with mean and deviation of the validation source nodes' energy.
    """

    name: ClassVar[str] = "energy"
    supports_batches: ClassVar[bool] = False

    categories: int = param(10, Integer(2), "clusters that the classifier learns to tell apart")
    smoothing: int = param(2, Integer(0), r"steps of $E \leftarrow \alpha E + (1 - \alpha) D^{-1} A E$")
    alpha: float = param(0.5, Number(0, 1), "α")
    epochs: int = 1000
    patience: int = PATIENCE

    energy_mean_: float = learned("mean energy of the validation source nodes")
    energy_deviation_: float = learned("its standard deviation")

    def _num_classes(self) -> int:
        return self.categories

    def _objective(self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, **truth: Any) -> Objective:
        cluster = torch.from_numpy(source_clusters(graph, self.categories)).to(data.device)

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            log_p = F.log_softmax(output.logits[nodes.source], dim=-1)  # (nodes, members, clusters)
            label = cluster[nodes.source][:, None, None].expand(-1, fleet.members, 1)
            return -log_p.gather(2, label).mean(dim=(0, 2))

        return RiskObjective(risk, *domain_nodes(graph, split, data.device))

    def _energy(self, logits: Tensor, graph: NodeGraph) -> NDArray[np.float64]:
        energy: NDArray[np.float64] = -torch.logsumexp(logits, dim=1).numpy()
        neighbours = Neighbours(graph, weighted=False)
        isolated = neighbours.degree == 0
        return diffuse(energy, neighbours.mean, 1 - self.alpha, self.smoothing, restart=False, isolated=isolated)

    def _learn_from_logits(self, logits: Tensor, graph: NodeGraph, split: Split) -> dict[str, float]:
        energy = self._energy(logits, graph)[split.validation & ~graph.is_target]
        return {"energy_mean_": float(energy.mean()), "energy_deviation_": float(energy.std() + 1e-6)}

    def _from_logits(self, logits: Tensor, graph: NodeGraph, attributes: Mapping[str, Any]) -> Scores:
        z = (self._energy(logits, graph) - attributes["energy_mean_"]) / attributes["energy_deviation_"]
        scores: Scores = torch.sigmoid(torch.from_numpy(z)).numpy()
        return scores


def source_clusters(graph: NodeGraph, clusters: int) -> NDArray[np.int64]:
    """Cluster the source nodes by their features averaged over two hops; target nodes get -1."""
    x = neighbourhood_features(graph)
    source = ~graph.is_target
    found = np.full(graph.num_nodes, -1, dtype=np.int64)
    found[source] = k_means(x[source], clusters, n_init=3)
    return found


class Dominant(Detector):
    r"""Score a node by $w \lVert x_v - \hat x_v \rVert + (1 - w) \lVert a_v - \hat a_v \rVert$.

    A GCN encodes the nodes as H; $\hat X = \hat A H W$ decodes the features and $H H^\top$ the adjacency. It takes no
    notice of domains and knows nothing of categories: a comparison, not a competitor. The errors are summed up without
    either reconstruction: $\lVert x - \hat x \rVert^2 = \lVert x \rVert^2 - 2 z \cdot (x W^\top) + z W W^\top z^\top$
    with $z = (\hat A H)_v$, and likewise with $H^\top H$ for the adjacency, whose links are linear here where the paper
    has a sigmoid. The score is σ of the error, standardised on the validation source nodes.
    """

    name: ClassVar[str] = "dominant"

    feature_weight: float = param(0.5, Number(0, 1), "w")
    hidden_channels: int = param(64, Integer(1), "width of the encoder's first layer")
    out_channels: int = param(32, Integer(1), "width of H")
    dropout: float = param(0.0, Number(0, 0.99), "fraction of the units that are dropped in the encoder")
    epochs: int = param(200, Integer(1), "how many")
    learning_rate: float = param(0.005, Number(0, np.inf, open_ends=True), "Adam's")

    autoencoder_: Autoencoder = learned("the trained autoencoder, on the CPU")
    error_mean_: float = learned("mean error of the validation source nodes")
    error_deviation_: float = learned("its standard deviation")

    def _autoencoder(self, features: int, seeds: Sequence[int]) -> Autoencoder:
        architecture = Architecture(features, self.hidden_channels, self.out_channels, 1, "gcn", self.dropout)
        return Autoencoder(architecture, seeds)

    def _learn(self, shown: Sequence[Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
        learned = []
        for graph, split, seeds, report in each_graph(shown, progress):
            learned += self._learn_seeds(graph, split, seeds, report)
        return learned

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress
    ) -> list[Attributes]:
        """Train one autoencoder for each seed."""
        inputs = Inputs.of(graph, resolve_device(self.device))
        device = inputs.graph.device
        size = block_size(graph.num_nodes, self.hidden_channels, device)
        keys = [seed_key(seed) for seed in seeds]
        blocks = [keys[start : start + size] for start in range(0, len(keys), size)]
        phases = Phases(progress, len(blocks) * self.epochs)
        held_out = split.validation & ~graph.is_target
        per_seed = []
        for block in blocks:
            model = self._autoencoder(graph.num_features, block).to(device)
            objective = MeanError(self.feature_weight, split, device)
            schedule = Schedule(self.epochs, self.learning_rate, progress=phases.phase(self.epochs))
            full_batch.train(model, inputs, objective, schedule)
            errors = self._errors(model, inputs)
            for member in range(len(block)):
                validation_errors = errors[held_out, member]
                numbers = {
                    "error_mean_": float(validation_errors.mean()),
                    "error_deviation_": float(validation_errors.std() + 1e-6),
                }
                scores = _standardised(errors[:, member], numbers)
                per_seed.append(numbers | {"autoencoder_": model.gather([(model, member)]), "scores_": scores})
        return per_seed

    def _errors(self, model: Autoencoder, inputs: Inputs) -> Scores:
        with torch.no_grad():
            errors: Scores = model(inputs).total(self.feature_weight).double().cpu().numpy()
        return errors

    def _score(self, graph: NodeGraph) -> Scores:
        inputs = Inputs.of(graph, resolve_device(self.device))
        errors = self._errors(self.autoencoder_.to(inputs.device), inputs)[:, 0]
        self.autoencoder_.to("cpu")
        return _standardised(errors, vars(self))

    def _computing(self) -> AbstractContextManager[Any]:
        """Compute in PyTorch's default state, whatever the caller's is."""
        return torch_defaults()

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Autoencoder:
        model = self._autoencoder(self.n_features_in_, [0])
        model.load_state_dict(to_tensors(arrays))
        return model


@dataclass(frozen=True, eq=False)
class Inputs:
    """The graph, and what its reconstruction is compared with."""

    graph: WholeGraph
    features: Product  # multiplies by X
    adjacency: Product  # multiplies by A
    feature_norms: Tensor  # |x_v|², (nodes, 1)
    degrees: Tensor  # |a_v|², (nodes, 1)

    @classmethod
    def of(cls, graph: NodeGraph, device: torch.device) -> Inputs:
        """Put the graph on a device."""
        whole = WholeGraph.of(graph, "gcn", device)
        adjacency = adjacency_of(graph)
        x = graph.x
        with np.errstate(over="ignore"):  # the loss is non-finite then, which is reported
            squares = x.power(2).sum(axis=1) if sp.issparse(x) else np.square(x).sum(axis=1)
        return cls(
            whole,
            WholeGraph.of(graph, "mlp", device).first_layer[0],
            SparseProduct.of(adjacency, device, whole.dtype, symmetric=True),
            torch.from_numpy(squares).to(device, whole.dtype)[:, None],
            torch.from_numpy(np.diff(adjacency.indptr)).to(device, whole.dtype)[:, None],
        )

    @property
    def device(self) -> torch.device:
        """The device that all of it is on."""
        return self.graph.device


class Reconstruction(NamedTuple):
    """Errors of every node and member, (nodes, members)."""

    features: Tensor
    structure: Tensor

    def total(self, feature_weight: float) -> Tensor:
        """Weigh both."""
        return feature_weight * self.features + (1 - feature_weight) * self.structure


class Autoencoder(Fleet):
    """A fleet of encoders, each with a linear decoder of the features."""

    def __init__(self, architecture: Architecture, seeds: Sequence[int]) -> None:
        super().__init__()
        self.architecture, self.members = architecture, len(seeds)
        self.encoder = NetworkFleet(architecture, seeds)
        bound = (6 / (architecture.out_channels + architecture.in_channels)) ** 0.5
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        size = (architecture.out_channels, architecture.in_channels)
        drawn = [torch.empty(size).uniform_(-bound, bound, generator=g) for g in generators]
        self.decoder = nn.Parameter(torch.stack(drawn))  # (members, out, features)

    def gather(self, chosen: Sequence[tuple[Self, int]]) -> Self:
        """Build autoencoders, on the CPU, of members picked from others."""
        fleet = type(self)(self.architecture, [0] * len(chosen))
        fleet.load_state_dict(gathered_state(chosen))
        return fleet

    def first_layer(self, inputs: Inputs) -> Tensor | None:
        """Compute the encoder's first convolution, which training and evaluation share."""
        return self.encoder.first_layer(inputs.graph)

    def forward(
        self, inputs: Inputs, *, epoch: int | Tensor | None = None, first_layer: Tensor | None = None
    ) -> Reconstruction:
        """Reconstruct, and return the errors."""
        graph = inputs.graph
        h = self.encoder(graph, epoch=epoch, first_layer=first_layer).representation  # (nodes, members, out)
        z = graph.second_layer[0](h.reshape(graph.nodes, -1)).view_as(h)
        flat = self.decoder.permute(2, 0, 1).reshape(self.decoder.shape[2], -1)  # (features, members * out)
        decoded = inputs.features(flat).view_as(h)  # x Wᵀ
        neighbours = inputs.adjacency(h.reshape(graph.nodes, -1)).view_as(h)
        features = squared_error(inputs.feature_norms, z, decoded, self.decoder @ self.decoder.transpose(1, 2))
        structure = squared_error(inputs.degrees, h, neighbours, torch.einsum("nmi,nmj->mij", h, h))
        return Reconstruction(_root(features), _root(structure))


def squared_error(norm: Tensor, z: Tensor, projected: Tensor, gram: Tensor) -> Tensor:
    r"""$\lVert x - z W \rVert^2 = \lVert x \rVert^2 - 2 z \cdot (x W^\top) + z (W W^\top) z^\top$, per node and member.

    Args:
        norm: $\lVert x \rVert^2$, (nodes, 1).
        z: (nodes, members, out).
        projected: $x W^\top$, (nodes, members, out).
        gram: $W W^\top$, (members, out, out).
    """
    return norm - 2 * (z * projected).sum(dim=-1) + (torch.einsum("nmi,mij->nmj", z, gram) * z).sum(dim=-1)


class MeanError(Objective):
    """Descend on the training nodes' mean error, keep the weights with the lowest one of the validation nodes."""

    def __init__(self, feature_weight: float, split: Split, device: torch.device) -> None:
        self.weight = feature_weight
        self.nodes, self.held_out = positions(split.train, device), positions(split.validation, device)

    def loss(self, output: Reconstruction, epoch: Tensor) -> ProblemState:
        """Compute the training nodes' mean error."""
        return ProblemState(output.total(self.weight)[self.nodes].mean(dim=0))

    def validation(self, output: Reconstruction) -> Tensor:
        """Compute the validation nodes' mean error."""
        return output.total(self.weight)[self.held_out].mean(dim=0)


def _root(squares: Tensor) -> Tensor:
    return (squares.clamp(min=0) + 1e-8).sqrt()


def _standardised(errors: Scores, numbers: Mapping[str, Any]) -> Scores:
    z = (errors - numbers["error_mean_"]) / numbers["error_deviation_"]
    scores: Scores = torch.sigmoid(torch.from_numpy(z)).numpy()
    return scores
