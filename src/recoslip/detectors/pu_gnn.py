"""PU-GNN: label distributions near to and far from the source, and representations that keep the edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from recoslip.detectors.params import Integer, Number, param
from recoslip.detectors.prior_detector import PriorDetector, WarmUp, estimated_priors
from recoslip.detectors.risk_objectives import DomainNodes, Risk, RiskObjective, domain_nodes, positions
from recoslip.fleet.interfaces import GraphInput, Objective, Output, ProblemState
from recoslip.fleet.sampling import NonEdges
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import adjacency_of, within_hops
from recoslip.graph.split import Mask, Split
from recoslip.objectives.links import inner_products, structure_loss
from recoslip.objectives.pu import label_distribution
from recoslip.objectives.rates import soft_rate


class PuGnn(PriorDetector):
    r"""Minimise $|E_S[1 - f] - 1| + w (|E_N[1 - f] - \pi_N| + |E_F[1 - f] - \pi_F|) + \rho \mathcal{L}_{str}(g)$.

    N are the target nodes within `hops` edges of any source node, F the others, each with its own prior by best-bin
    estimation, and $w = 1 / (2 (\pi_N + \pi_F))$. $\mathcal{L}_{str}$ is the squared error of $σ(g_i \cdot g_j)$
    against 1 on edges and against 0 on `negatives_per_edge` non-edges for each.
    """

    name: ClassVar[str] = "pu-gnn"
    supports_batches: ClassVar[bool] = False

    hops: int = param(3, Integer(1), "δ, edges within which a target node is near the source")
    structure_weight: float = param(0.1, Number(0, np.inf), "ρ")
    negatives_per_edge: int = param(50, Integer(1), "K")

    def _pu_objective(self, graph: NodeGraph, split: Split, data: GraphInput, warm_up: WarmUp) -> Objective:
        target = graph.is_target.numpy()
        near = within_hops(adjacency_of(graph), np.flatnonzero(~target), self.hops)
        # A set that training or validation has no node of has no mean to align and is left out; if both are, all target
        # nodes are one set.
        sets: list[Mask] = [
            s for s in (near, ~near) if all((s & target & subset).any() for subset in (split.train, split.validation))
        ] or [target]
        estimated = torch.stack([estimated_priors(graph, split, warm_up.source_probability, s) for s in sets])
        estimated = estimated.to(data.device, data.dtype)  # (sets, members)
        wanted = torch.cat([torch.ones_like(estimated[:1]), estimated])
        weight = 1 / (2 * estimated.sum(dim=0, keepdim=True).clamp(min=0.01))
        weights = torch.cat([torch.ones_like(weight), weight.expand_as(estimated)])
        training, validation = domain_nodes(graph, split, data.device)
        members_of = {
            id(nodes): [positions(s & target & subset, data.device) for s in sets]
            for nodes, subset in ((training, split.train), (validation, split.validation))
        }

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            f = torch.sigmoid(output.margin)
            means = torch.stack([soft_rate(f, nodes.source), *(soft_rate(f, s) for s in members_of[id(nodes)])])
            return label_distribution(means, wanted, weights)

        left, right = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].to(data.device)
        if len(left) == 0 or self.structure_weight == 0:
            return RiskObjective(risk, training, validation)
        everyone = torch.arange(graph.num_nodes, device=data.device)
        non_edges = NonEdges(everyone, left, right, self.negatives_per_edge * len(left))

        def structure(output: Output, epoch: Tensor) -> Tensor:
            drawn = non_edges.draw(epoch)
            g = output.representation
            loss = structure_loss(
                inner_products(g, left, right), inner_products(g, drawn.left, drawn.right), drawn.valid
            )
            return self.structure_weight * loss

        return WithStructure(risk, training, validation, structure)


class WithStructure(RiskObjective):
    """A risk to validate with, and to descend on together with a loss of the edges."""

    def __init__(
        self, risk: Risk, train: DomainNodes, validation: DomainNodes, structure: Callable[[Output, Tensor], Tensor]
    ) -> None:
        super().__init__(risk, train, validation)
        self.structure = structure

    def loss(self, output: Output, epoch: Tensor) -> ProblemState:
        """Compute the risk of the training nodes and the loss of this epoch's pairs."""
        return ProblemState(super().loss(output, epoch).loss + self.structure(output, epoch))
