"""What positive-unlabelled methods that need the class prior have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.domain_discriminator import discriminate
from recoslip.detectors.networked import SingleNetworkDetector
from recoslip.detectors.risk import RiskObjective, parts
from recoslip.errors import SettingError
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Fleet
from recoslip.fleet.training import Objective, evaluate, train
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import NodeGraph
from recoslip.objectives.prior import best_bin
from recoslip.shift import Mask, Split


@dataclass(frozen=True, eq=False)
class WarmUp:
    """What the warm-up leaves behind."""

    source_probability: Tensor  # (nodes, members), on the CPU: what priors are estimated with
    prior: Tensor  # π̂ of the whole target, (members,), on the device


class PriorDetector(SingleNetworkDetector):
    r"""Warm up as a domain discriminator, estimate π with it by best-bin estimation, then train with a PU risk.

    Args:
        prior_epochs: epochs of the warm-up.
        epochs: at most so many in all, the warm-up's among them.
        max_fpr: share of the validation source nodes that may score above the threshold.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        patience: epochs without a lower validation risk after which training ends; the best weights are kept.
        learning_rate: Adam's.
        batch_size: nodes of a batch, of which each epoch sees one; 0 for the whole graph, None to let memory decide.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.
    """

    prior_: float  # π̂, the estimated share of known nodes in the target

    def __init__(
        self,
        *,
        prior_epochs: int = 150,
        epochs: int = 1000,
        max_fpr: float = 0.01,
        hidden_channels: int = 64,
        out_channels: int = 32,
        head_channels: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        patience: int = 50,
        learning_rate: float = 0.001,
        batch_size: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        super().__init__(
            max_fpr=max_fpr,
            hidden_channels=hidden_channels,
            out_channels=out_channels,
            head_channels=head_channels,
            encoder=encoder,
            dropout=dropout,
            epochs=epochs,
            patience=patience,
            learning_rate=learning_rate,
            batch_size=batch_size,
            device=device,
            random_state=random_state,
        )
        self.prior_epochs = prior_epochs

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.whole("prior_epochs", self.prior_epochs, 1)
        if self.prior_epochs >= self.epochs:
            raise SettingError(f"prior_epochs must be fewer than epochs; got {self.prior_epochs} of {self.epochs}")

    @abstractmethod
    def _objective(self, graph: NodeGraph, split: Split, view: GraphView | Batches, warm_up: WarmUp) -> Objective:
        """Build the risk to train with, from what the warm-up found."""

    def _train(
        self,
        fleet: Fleet | ModuleFleet,
        view: GraphView | Batches,
        graph: NodeGraph,
        split: Split,
        progress: Callable[[int], None],
        **given: Any,
    ) -> list[dict[str, Any]]:
        warm_up = RiskObjective(discriminate, *parts(graph, split, view.device))
        train(fleet, view, warm_up, epochs=self.prior_epochs, learning_rate=self.learning_rate, progress=progress)
        z = torch.sigmoid(-evaluate(fleet, view).diff(dim=-1)[..., 0])
        prior = priors(graph, split, z, graph.is_target.numpy())
        train(
            fleet,
            view,
            self._objective(graph, split, view, WarmUp(z, prior.to(view.device, view.dtype))),
            epochs=self.epochs - self.prior_epochs,
            learning_rate=self.learning_rate,
            patience=self.patience,
            first_epoch=self.prior_epochs,
            stage=1,
            progress=lambda done: progress(self.prior_epochs + done),
        )
        return [{"prior_": float(p)} for p in prior]


def priors(graph: NodeGraph, split: Split, source_probability: Tensor, among: Mask) -> Tensor:
    """Best-bin estimate of π among some target nodes, from the validation nodes, (members,)."""
    target = graph.is_target.numpy()
    z, source, chosen = source_probability.numpy(), split.validation & ~target, split.validation & target & among
    return torch.tensor([best_bin(z[source, m], z[chosen, m]).prior for m in range(z.shape[1])])
