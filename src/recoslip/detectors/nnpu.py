"""nnPU: the unbiased risk, kept from going where a risk cannot be."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from recoslip.detectors.prior import PriorDetector, WarmUp
from recoslip.detectors.risk import Nodes, RiskObjective, parts
from recoslip.fleet.batches import Batches
from recoslip.fleet.network import Output
from recoslip.fleet.training import Objective
from recoslip.fleet.view import GraphView
from recoslip.graph import NodeGraph
from recoslip.objectives.pu import non_negative_risk, non_negative_step
from recoslip.objectives.rates import soft_rate
from recoslip.shift import Split


class NNPU(PriorDetector):
    r"""Minimise $\pi E_S[f] + \max(0, E_T[1 - f] - \pi E_S[1 - f])$.

    Where the second part is below zero the step goes back up on it instead (their Algorithm 1 with β = 0, γ = 1).
    Arguments: `PriorDetector`.
    """

    name: ClassVar[str] = "nnpu"
    paper: ClassVar[str] = "Kiryo et al. 2017"

    def _objective(self, graph: NodeGraph, split: Split, view: GraphView | Batches, warm_up: WarmUp) -> Objective:
        prior = warm_up.prior
        training, validation = parts(graph, split, view.device)

        def rates(output: Output, nodes: Nodes) -> tuple[Tensor, Tensor]:
            f = torch.sigmoid(output.margin)
            return soft_rate(f, nodes.source), soft_rate(f, nodes.target)

        return RiskObjective(
            lambda output, nodes: non_negative_risk(*rates(output, nodes), prior),
            training,
            validation,
            step=lambda output, nodes: non_negative_step(*rates(output, nodes), prior),
        )
