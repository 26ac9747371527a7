"""Dist-PU: make the scores' means those of the label distribution."""

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
from recoslip.objectives.pu import entropy, label_distribution
from recoslip.objectives.rates import soft_rate


class DistPU(PriorDetector):
    r"""Minimise $2\pi |E_S[1 - f] - 1| + |E_T[1 - f] - \pi| + \mu H_T(f)$.

    The means alone are met by scores that are all the same, so the entropy $H_T$ of the target's scores pushes each to
    a side. The paper's mixup is left out: mixing two nodes' features is not mixing their neighbourhoods.
    """

    name: ClassVar[str] = "dist-pu"

    batch_size: int | None = BATCHES

    ENTROPY: ClassVar[float] = 0.1  # μ

    def _pu_objective(self, graph: NodeGraph, split: Split, data: GraphInput, warm_up: WarmUp) -> Objective:
        prior = warm_up.prior
        one = torch.ones_like(prior)
        wanted, weights = torch.stack([one, prior]), torch.stack([2 * prior, one])

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            f = torch.sigmoid(output.margin)
            means = torch.stack([soft_rate(f, nodes.source), soft_rate(f, nodes.target)])
            return label_distribution(means, wanted, weights) + self.ENTROPY * entropy(output.margin, nodes.target)

        return RiskObjective(risk, *domain_nodes(graph, split, data.device))
