"""PU-GNN: label distributions near to and far from the source, and representations that keep the edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.prior import PriorDetector, WarmUp, priors
from recoslip.detectors.risk import Nodes, Risk, RiskObjective, parts, positions
from recoslip.fleet.batches import Batches
from recoslip.fleet.negatives import NonEdges
from recoslip.fleet.network import Output
from recoslip.fleet.training import Objective
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import NodeGraph, adjacency_of
from recoslip.objectives.links import inner_products, structure_loss
from recoslip.objectives.paths import within_hops
from recoslip.objectives.pu import label_distribution
from recoslip.objectives.rates import soft_rate
from recoslip.shift import Mask, Split


class PuGnn(PriorDetector):
    r"""Minimise $|E_S[1 - f] - 1| + w (|E_N[1 - f] - \pi_N| + |E_F[1 - f] - \pi_F|) + \rho \mathcal{L}_{str}(g)$.

    N are the target nodes within `hops` edges of any source node, F the others, each with its own prior by best-bin
    estimation, and $w = 1 / (2 (\pi_N + \pi_F))$. $\mathcal{L}_{str}$ is the squared error of $σ(g_i \cdot g_j)$
    against 1 on edges and against 0 on `negatives_per_edge` non-edges for each.

    Args:
        hops: δ, how near is near.
        structure_weight: ρ.
        negatives_per_edge: K.
        prior_epochs: epochs of the warm-up as domain discriminator.
        epochs: at most so many in all, the warm-up's among them.
        max_fpr: share of the validation source nodes that may score above the threshold.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        patience: epochs without a lower validation risk after which training ends; the best weights are kept.
        learning_rate: Adam's.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.
    """

    name: ClassVar[str] = "pu-gnn"
    paper: ClassVar[str] = "Yang et al. 2023"
    divisible: ClassVar[bool] = False

    def __init__(
        self,
        *,
        hops: int = 3,
        structure_weight: float = 0.1,
        negatives_per_edge: int = 50,
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
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        super().__init__(
            prior_epochs=prior_epochs,
            epochs=epochs,
            max_fpr=max_fpr,
            hidden_channels=hidden_channels,
            out_channels=out_channels,
            head_channels=head_channels,
            encoder=encoder,
            dropout=dropout,
            patience=patience,
            learning_rate=learning_rate,
            device=device,
            random_state=random_state,
        )
        self.hops = hops
        self.structure_weight = structure_weight
        self.negatives_per_edge = negatives_per_edge

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.whole("hops", self.hops, 1)
        checks.number("structure_weight", self.structure_weight, 0, np.inf)
        checks.whole("negatives_per_edge", self.negatives_per_edge, 1)

    def _objective(self, graph: NodeGraph, split: Split, view: GraphView | Batches, warm_up: WarmUp) -> Objective:
        target = graph.is_target.numpy()
        near = within_hops(adjacency_of(graph), np.flatnonzero(~target), self.hops)
        # A set that training or validation has no node of has no mean to align and is left out.
        sets: list[Mask] = [
            s for s in (near, ~near) if all((s & target & p).any() for p in (split.train, split.validation))
        ]
        estimated = torch.stack([priors(graph, split, warm_up.source_probability, s) for s in sets])
        estimated = estimated.to(view.device, view.dtype)  # (sets, members)
        wanted = torch.cat([torch.ones_like(estimated[:1]), estimated])
        weight = 1 / (2 * estimated.sum(dim=0, keepdim=True).clamp(min=0.01))
        weights = torch.cat([torch.ones_like(weight), weight.expand_as(estimated)])
        training, validation = parts(graph, split, view.device)
        members_of = {
            id(nodes): [positions(s & target & part, view.device) for s in sets]
            for nodes, part in ((training, split.train), (validation, split.validation))
        }

        def risk(output: Output, nodes: Nodes) -> Tensor:
            f = torch.sigmoid(output.margin)
            means = torch.stack([soft_rate(f, nodes.source), *(soft_rate(f, s) for s in members_of[id(nodes)])])
            return label_distribution(means, wanted, weights)

        left, right = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].to(view.device)
        if len(left) == 0 or self.structure_weight == 0:
            return RiskObjective(risk, training, validation)
        everyone = torch.arange(graph.num_nodes, device=view.device)
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
        self, risk: Risk, train: Nodes, validation: Nodes, structure: Callable[[Output, Tensor], Tensor]
    ) -> None:
        super().__init__(risk, train, validation)
        self.structure = structure

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Return the risk of the training nodes and the loss of this epoch's pairs."""
        total: Tensor = super().loss(output, epoch) + self.structure(output, epoch)
        return total
