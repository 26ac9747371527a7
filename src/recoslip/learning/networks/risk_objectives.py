"""A risk on two sets of nodes -> an objective for the training loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask, Split
from recoslip.learning.networks.interfaces import BatchObjective, Output, ProblemState
from recoslip.learning.networks.rates import domain_risk


class DomainNodes(NamedTuple):
    """Source and target nodes of one subset of a split, by position."""

    source: Tensor
    target: Tensor


def positions(mask: Mask, device: torch.device) -> Tensor:
    """Return the positions where a mask is true, on a device."""
    return torch.from_numpy(np.flatnonzero(mask)).to(device)


def domain_nodes(graph: NodeGraph, split: Split, device: torch.device) -> tuple[DomainNodes, DomainNodes]:
    """Return the training and the validation nodes."""
    target = graph.is_target
    train, validation = (
        DomainNodes(positions(subset & ~target, device), positions(subset & target, device))
        for subset in (split.train, split.validation)
    )
    return train, validation


def batch_nodes(batch: Sequence[Tensor], device: torch.device) -> DomainNodes:
    """Return the positions of source and target nodes in a batch that holds the one after the other."""
    source, target = (len(nodes) for nodes in batch)
    return DomainNodes(torch.arange(source, device=device), torch.arange(source, source + target, device=device))


class WeightedCrossEntropy(BatchObjective):
    r"""$\frac{\sum_v u_v \log(1 + e^{-m_v}) + d_v \log(1 + e^{m_v})}{\sum_v u_v + d_v}$ of margins m, per member.

    Args:
        up: (nodes, members) weight of the label "high margin" for v.
        down: (nodes, members) weight of the label "low margin" for v.
        train: training nodes.
        validation: validation nodes.
    """

    def __init__(self, up: Tensor, down: Tensor, train: Tensor, validation: Tensor) -> None:
        self.up, self.down, self.nodes, self.held_out = up, down, train, validation

    def _value(self, margin: Tensor, nodes: Tensor) -> Tensor:
        up, down, m = self.up[nodes], self.down[nodes], margin[nodes]
        total = (up * F.softplus(-m) + down * F.softplus(m)).sum(dim=0)
        return total / self._total_weight(nodes)

    def _total_weight(self, nodes: Tensor) -> Tensor:
        return (self.up[nodes] + self.down[nodes]).sum(dim=0).clamp(min=1e-12)

    @cached_property
    def _totals(self) -> tuple[Tensor, Tensor]:
        return self._total_weight(self.nodes), self._total_weight(self.held_out)

    def node_sets(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Return all nodes as one set: which label a node has differs from member to member."""
        return (self.held_out if held_out else self.nodes,)

    def on_batch(self, batch: Sequence[Tensor], *, held_out: bool) -> WeightedCrossEntropy:
        """Return the unbiased estimate from a batch."""
        device = self.up.device
        nodes = batch[0].to(device)
        inverse_sampling_rate = len(self.held_out if held_out else self.nodes) / len(nodes)
        weight = inverse_sampling_rate / self._totals[held_out]
        everyone = torch.arange(len(nodes), device=device)
        return _NormalisedCrossEntropy(self.up[nodes] * weight, self.down[nodes] * weight, everyone, everyone)

    def loss(self, output: Output, epoch: Tensor) -> ProblemState:
        """Compute the value on the training nodes."""
        return ProblemState(self._value(output.margin, self.nodes))

    def validation(self, output: Output) -> Tensor:
        """Compute the value on the validation nodes."""
        return self._value(output.margin, self.held_out)


class _NormalisedCrossEntropy(WeightedCrossEntropy):
    """The same with weights that were divided by their total over the whole graph already."""

    def _total_weight(self, nodes: Tensor) -> Tensor:
        return self.up.new_ones(())


Risk: TypeAlias = Callable[[Output, DomainNodes], Tensor]  # -> (members,)


class RiskObjective(BatchObjective):
    """Descend on a risk of the training nodes, keep the weights with the lowest risk of the validation nodes.

    Args:
        risk: what to validate with, and to descend on unless `surrogate` is given.
        train: training nodes.
        validation: validation nodes.
        surrogate: what to descend on instead.
    """

    def __init__(self, risk: Risk, train: DomainNodes, validation: DomainNodes, surrogate: Risk | None = None) -> None:
        self.risk = risk
        self.nodes = train
        self.held_out = validation
        self.surrogate = surrogate or risk

    def loss(self, output: Output, epoch: Tensor) -> ProblemState:
        """Compute the risk of the training nodes."""
        return ProblemState(self.surrogate(output, self.nodes))

    def validation(self, output: Output) -> Tensor:
        """Compute the risk of the validation nodes."""
        return self.risk(output, self.held_out)

    def node_sets(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Return source and target nodes."""
        return self.held_out if held_out else self.nodes

    def on_batch(self, batch: Sequence[Tensor], *, held_out: bool) -> RiskObjective:
        """Return the risk of a batch."""
        nodes = batch_nodes(batch, self.nodes.source.device)
        return RiskObjective(self.risk, nodes, nodes, self.surrogate)


def discriminate(output: Output, nodes: DomainNodes) -> Tensor:
    """Compute the cross-entropy of source against target nodes, per member."""
    return domain_risk(output.margin, nodes.source, nodes.target)
