"""DOMINANT-style anomaly detection: novel is what an autoencoder of the graph reconstructs badly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Detector, Progress, Scores
from recoslip.detectors.networked import below, part_of, refuse_larger
from recoslip.detectors.risk import positions
from recoslip.fleet.device import block_size, resolve_device
from recoslip.fleet.network import Architecture, Fleet, seed_key
from recoslip.fleet.products import Product, SparseProduct
from recoslip.fleet.training import train
from recoslip.fleet.view import GraphView
from recoslip.graph import NodeGraph, adjacency_of, to_scipy
from recoslip.shift import Split


class Dominant(Detector):
    r"""Score a node by $w \lVert x_v - \hat x_v \rVert + (1 - w) \lVert a_v - \hat a_v \rVert$.

    A GCN encodes the nodes as H; $\hat X = \hat A H W$ decodes the features and $H H^\top$ the adjacency. It takes no
    notice of domains and knows nothing of categories: a comparison, not a competitor. The errors are summed up without
    either reconstruction: $\lVert x - \hat x \rVert^2 = \lVert x \rVert^2 - 2 z \cdot (x W^\top) + z W W^\top z^\top$
    with $z = (\hat A H)_v$, and likewise with $H^\top H$ for the adjacency, whose links are linear here where the paper
    has a sigmoid. The score is σ of the error, standardised on the validation source nodes.

    Args:
        feature_weight: w.
        max_fpr: share of the validation source nodes that may score above the threshold.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of H.
        dropout: share of units dropped in the encoder.
        epochs: how many.
        learning_rate: Adam's.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.
    """

    name: ClassVar[str] = "dominant"
    paper: ClassVar[str] = "Ding et al. 2019"

    autoencoder_: Autoencoder
    error_mean_: float
    error_deviation_: float

    def __init__(
        self,
        *,
        feature_weight: float = 0.5,
        max_fpr: float = 0.01,
        hidden_channels: int = 64,
        out_channels: int = 32,
        dropout: float = 0.0,
        epochs: int = 200,
        learning_rate: float = 0.005,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.feature_weight = feature_weight
        self.max_fpr = max_fpr
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        self._check_common()
        checks.number("feature_weight", self.feature_weight, 0, 1)
        for name in ("hidden_channels", "out_channels", "epochs"):
            checks.whole(name, getattr(self, name), 1)
        checks.number("dropout", self.dropout, 0, 0.99)
        checks.number("learning_rate", self.learning_rate, 0, np.inf, open_ends=True)

    def _autoencoder(self, features: int, seeds: Sequence[int]) -> Autoencoder:
        shape = Architecture(features, self.hidden_channels, self.out_channels, 1, "gcn", self.dropout)
        return Autoencoder(shape, seeds)

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        material = Material.of(graph, resolve_device(self.device))
        size = block_size(graph.num_nodes, self.hidden_channels, material.view.device)
        keys = [seed_key(seed) for seed in seeds]
        blocks = [keys[start : start + size] for start in range(0, len(keys), size)]
        held_out = split.validation & ~graph.is_target.numpy()
        learned = []
        for place, block in enumerate(blocks):
            model = self._autoencoder(graph.num_features, block).to(material.view.device)
            model.material = material
            objective = MeanError(self.feature_weight, split, material.view.device)
            report = part_of(progress, place, len(blocks), self.epochs)
            train(
                model,  # type: ignore[arg-type]
                material.view,
                objective,  # type: ignore[arg-type]
                epochs=self.epochs,
                learning_rate=self.learning_rate,
                progress=report,
            )
            errors = self._errors(model, material)
            for member in range(len(block)):
                own = errors[:, member]
                numbers = {
                    "error_mean_": float(own[held_out].mean()),
                    "error_deviation_": float(own[held_out].std() + 1e-6),
                }
                alone = self._autoencoder(graph.num_features, [0])
                alone.load_state_dict({name: t[member : member + 1].cpu() for name, t in model.state_dict().items()})
                learned.append(numbers | {"autoencoder_": alone, "scores_": _standardised(own, numbers)})
        return learned

    def _errors(self, model: Autoencoder, material: Material) -> Scores:
        model.material = material
        with torch.no_grad():
            found = model(material.view)
        total = self.feature_weight * found.features + (1 - self.feature_weight) * found.structure
        errors: Scores = total.double().cpu().numpy()
        return errors

    def _score(self, graph: NodeGraph) -> Scores:
        material = Material.of(graph, resolve_device(self.device))
        errors = self._errors(self.autoencoder_.to(material.view.device), material)[:, 0]
        self.autoencoder_.to("cpu")
        return _standardised(errors, vars(self))

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors = {f"autoencoder.{name}": tensor for name, tensor in self.autoencoder_.state_dict().items()}
        return {"error_mean_": self.error_mean_, "error_deviation_": self.error_deviation_}, tensors

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        state = below("autoencoder.", tensors)
        refuse_larger(state, 1, [self.n_features_in_, self.hidden_channels, self.out_channels])
        model = self._autoencoder(self.n_features_in_, [0])
        model.load_state_dict(state)
        return {**{name: float(values[name]) for name in ("error_mean_", "error_deviation_")}, "autoencoder_": model}


@dataclass(frozen=True, eq=False)
class Material:
    """What the reconstruction is compared with."""

    view: GraphView
    features: Product  # multiply by X
    adjacency: Product  # multiply by A
    feature_norms: Tensor  # |x_v|², (nodes, 1)
    degrees: Tensor  # |a_v|², (nodes, 1)

    @classmethod
    def of(cls, graph: NodeGraph, device: torch.device) -> Material:
        """Put the graph on a device."""
        view = GraphView.of(graph, "gcn", device)
        adjacency = adjacency_of(graph)
        x = graph.x
        with np.errstate(over="ignore"):  # training then diverges, and says so
            squares = x.square().sum(dim=1).numpy() if x.layout == torch.strided else to_scipy(x).power(2).sum(axis=1)
        return cls(
            view,
            GraphView.of(graph, "mlp", device).first[0],
            SparseProduct.of(adjacency, device, view.dtype, symmetric=True),
            torch.from_numpy(squares).to(device, view.dtype)[:, None],
            torch.from_numpy(np.diff(adjacency.indptr)).to(device, view.dtype)[:, None],
        )


class Reconstruction(NamedTuple):
    """Errors of every node and member, (nodes, members)."""

    features: Tensor
    structure: Tensor


class Autoencoder(nn.Module):
    """A fleet of encoders, each with a linear decoder of the features."""

    material: Material

    def __init__(self, shape: Architecture, seeds: Sequence[int]) -> None:
        super().__init__()
        self.encoder = Fleet(shape, seeds)
        self.members = len(seeds)
        bound = (6 / (shape.out_channels + shape.in_channels)) ** 0.5
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        size = (shape.out_channels, shape.in_channels)
        drawn = [torch.empty(size).uniform_(-bound, bound, generator=g) for g in generators]
        self.decoder = nn.Parameter(torch.stack(drawn))  # (members, out, features)
        self.prepare, self.whose, self.first = self.encoder.prepare, self.encoder.whose, self.encoder.first

    def forward(self, view: GraphView, *, epoch: Tensor | None = None, first: Tensor | None = None) -> Reconstruction:
        """Reconstruct, and return by how much it failed."""
        h = self.encoder(view, epoch=epoch, first=first).representation  # (nodes, members, out)
        z = view.hidden[0](h.reshape(view.nodes, -1)).view_as(h)
        flat = self.decoder.permute(2, 0, 1).reshape(self.decoder.shape[2], -1)  # (features, members * out)
        decoded = self.material.features(flat).view_as(h)  # x Wᵀ
        around = self.material.adjacency(h.reshape(view.nodes, -1)).view_as(h)
        features = squared_error(self.material.feature_norms, z, decoded, self.decoder @ self.decoder.transpose(1, 2))
        structure = squared_error(self.material.degrees, h, around, torch.einsum("nmi,nmj->mij", h, h))
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


class MeanError:
    """Descend on the training nodes' mean error, keep the weights with the lowest one of the validation nodes."""

    def __init__(self, feature_weight: float, split: Split, device: torch.device) -> None:
        self.weight = feature_weight
        self.nodes, self.held_out = positions(split.train, device), positions(split.validation, device)

    def _mean(self, errors: Reconstruction, nodes: Tensor) -> Tensor:
        total = self.weight * errors.features + (1 - self.weight) * errors.structure
        return total[nodes].mean(dim=0)

    def loss(self, output: Reconstruction, epoch: Tensor) -> Tensor:
        """Return the training nodes' mean error."""
        return self._mean(output, self.nodes)

    def after_step(self) -> None:
        """Nothing is learned beside the weights."""

    def validation(self, output: Reconstruction) -> Tensor:
        """Return the validation nodes' mean error."""
        return self._mean(output, self.held_out)


def _root(squares: Tensor) -> Tensor:
    return (squares.clamp(min=0) + 1e-8).sqrt()


def _standardised(errors: Scores, numbers: Mapping[str, Any]) -> Scores:
    z = (errors - numbers["error_mean_"]) / numbers["error_deviation_"]
    scores: Scores = torch.sigmoid(torch.from_numpy(z)).numpy()
    return scores
