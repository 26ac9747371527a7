"""uPU: the unbiased risk of positive-unlabelled learning."""

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
from recoslip.objectives.pu import unbiased_risk
from recoslip.objectives.rates import soft_rate


class UPU(PriorDetector):
    r"""Minimise $\pi E_S[f] + E_T[1 - f] - \pi E_S[1 - f]$, an unbiased estimate of the target's risk under SCAR.

    Target nodes count as novel, and what known ones among them add to that is taken off again, estimated on the
    source. A flexible network can push the difference below zero, where it means nothing.
    """

    name: ClassVar[str] = "upu"

    batch_size: int | None = BATCHES

    def _pu_objective(self, graph: NodeGraph, split: Split, data: GraphInput, warm_up: WarmUp) -> Objective:
        prior = warm_up.prior

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            f = torch.sigmoid(output.margin)
            return unbiased_risk(soft_rate(f, nodes.source), soft_rate(f, nodes.target), prior)

        return RiskObjective(risk, *domain_nodes(graph, split, data.device))
