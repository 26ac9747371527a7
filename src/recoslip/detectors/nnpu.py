"""nnPU: the unbiased risk, kept from going where a risk cannot be."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from recoslip.detectors.network_detector import BATCHES
from recoslip.detectors.prior_detector import PriorDetector, WarmUp
from recoslip.detectors.risk_objectives import DomainNodes, RiskObjective, domain_nodes
from recoslip.fleet.interfaces import GraphInput, Objective, Output
from recoslip.graph import NodeGraph
from recoslip.graph.split import Split
from recoslip.objectives.pu import non_negative_risk, non_negative_step
from recoslip.objectives.rates import soft_rate


class NNPU(PriorDetector):
    r"""Minimise $\pi E_S[f] + \max(0, E_T[1 - f] - \pi E_S[1 - f])$.

    Where the second part is below zero the step goes back up on it instead (their Algorithm 1 with β = 0, γ = 1).
    """

    name: ClassVar[str] = "nnpu"

    batch_size: int | None = BATCHES

    def _pu_objective(self, graph: NodeGraph, split: Split, data: GraphInput, warm_up: WarmUp) -> Objective:
        prior = warm_up.prior
        training, validation = domain_nodes(graph, split, data.device)

        def rates(output: Output, nodes: DomainNodes) -> tuple[Tensor, Tensor]:
            f = torch.sigmoid(output.margin)
            return soft_rate(f, nodes.source), soft_rate(f, nodes.target)

        return RiskObjective(
            lambda output, nodes: non_negative_risk(*rates(output, nodes), prior),
            training,
            validation,
            surrogate=lambda output, nodes: non_negative_step(*rates(output, nodes), prior),
        )
