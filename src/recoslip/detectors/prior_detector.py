"""Warm-up, estimate of the class prior, PU risk: the steps of positive-unlabelled methods that need the prior."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from recoslip.detectors.network_detector import PATIENCE, NetworkDetector
from recoslip.detectors.params import Integer, learned, param
from recoslip.detectors.risk_objectives import RiskObjective, discriminate, domain_nodes
from recoslip.errors import SettingError
from recoslip.fleet.interfaces import Fleet, GraphInput, Objective, Schedule
from recoslip.graph import NodeGraph
from recoslip.graph.split import Mask, Split
from recoslip.objectives.prior import best_bin


@dataclass(frozen=True, eq=False)
class WarmUp:
    """What the warm-up found."""

    source_probability: Tensor  # (nodes, members), on the CPU: what priors are estimated with
    prior: Tensor  # π̂ of the whole target, (members,), on the device


class PriorDetector(NetworkDetector):
    r"""Warm up as a domain discriminator, estimate π with it by best-bin estimation, then train with a PU risk."""

    prior_epochs: int = param(150, Integer(1), "epochs of the warm-up as domain discriminator")
    epochs: int = param(1000, Integer(1), "how many at most, those of the warm-up included")
    patience: int = PATIENCE

    prior_: float = learned("π̂, the estimated fraction of known nodes in the target")

    def _check_params_jointly(self) -> None:
        if self.prior_epochs >= self.epochs:
            raise SettingError(f"prior_epochs must be fewer than epochs; got {self.prior_epochs} of {self.epochs}")

    @abstractmethod
    def _pu_objective(self, graph: NodeGraph, split: Split, data: GraphInput, warm_up: WarmUp) -> Objective:
        """Build the risk to train with, from what the warm-up found."""

    def _train(
        self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, schedule: Schedule, **truth: Any
    ) -> list[dict[str, Any]]:
        discriminator = RiskObjective(discriminate, *domain_nodes(graph, split, data.device))
        data.train(fleet, discriminator, replace(schedule, epochs=self.prior_epochs, patience=None))
        z = torch.sigmoid(-data.evaluate(fleet).diff(dim=-1)[..., 0])
        prior = estimated_priors(graph, split, z, graph.is_target.numpy())
        report = schedule.progress
        data.train(
            fleet,
            self._pu_objective(graph, split, data, WarmUp(z, prior.to(data.device, data.dtype))),
            replace(
                schedule,
                epochs=self.epochs - self.prior_epochs,
                first_epoch=self.prior_epochs,
                stage=1,
                progress=None if report is None else lambda done: report(self.prior_epochs + done),
            ),
        )
        return [{"prior_": float(p)} for p in prior]


def estimated_priors(graph: NodeGraph, split: Split, source_probability: Tensor, among: Mask) -> Tensor:
    """Best-bin estimate of π among some target nodes, from the validation nodes, (members,)."""
    target = graph.is_target.numpy()
    z, source, chosen = source_probability.numpy(), split.validation & ~target, split.validation & target & among
    return torch.tensor([best_bin(z[source, m], z[chosen, m]).prior for m in range(z.shape[1])])
