"""A risk on two sets of nodes -> an objective for the training loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recoslip.fleet.network import Output
from recoslip.fleet.training import Batchable
from recoslip.graph import NodeGraph
from recoslip.shift import Mask, Split


class Nodes(NamedTuple):
    """Source and target nodes of one part of a split, by position."""

    source: Tensor
    target: Tensor


def positions(mask: Mask, device: torch.device) -> Tensor:
    """Return the places where a mask is true, on a device."""
    return torch.from_numpy(np.flatnonzero(mask)).to(device)


def parts(graph: NodeGraph, split: Split, device: torch.device) -> tuple[Nodes, Nodes]:
    """Return the training and the validation nodes."""
    target = graph.is_target.numpy()
    train, validation = (
        Nodes(positions(part & ~target, device), positions(part & target, device))
        for part in (split.train, split.validation)
    )
    return train, validation


class WeightedCrossEntropy(Batchable):
    r"""$\frac{\sum_v u_v \log(1 + e^{-m_v}) + d_v \log(1 + e^{m_v})}{\sum_v u_v + d_v}$ of margins m, per member.

    Args:
        up: (nodes, members) weight of v as an example of a high margin.
        down: (nodes, members) weight of v as an example of a low one.
        train: training nodes.
        validation: validation nodes.
    """

    def __init__(self, up: Tensor, down: Tensor, train: Tensor, validation: Tensor) -> None:
        self.up, self.down, self.nodes, self.held_out = up, down, train, validation

    def _value(self, margin: Tensor, nodes: Tensor) -> Tensor:
        up, down, m = self.up[nodes], self.down[nodes], margin[nodes]
        total = (up * F.softplus(-m) + down * F.softplus(m)).sum(dim=0)
        return total / self._weight(nodes)

    def _weight(self, nodes: Tensor) -> Tensor:
        return (self.up[nodes] + self.down[nodes]).sum(dim=0).clamp(min=1e-12)

    @cached_property
    def _totals(self) -> tuple[Tensor, Tensor]:
        return self._weight(self.nodes), self._weight(self.held_out)

    def parts(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """All nodes are one part: who is an example of what differs from member to member."""
        return (self.held_out if held_out else self.nodes,)

    def on(self, chosen: Sequence[Tensor], *, held_out: bool) -> WeightedCrossEntropy:
        """Return the unbiased estimate from a batch, whose nodes stand for all."""
        device = self.up.device
        nodes = chosen[0].to(device)
        behind = len(self.held_out if held_out else self.nodes) / len(nodes)
        weight = behind / self._totals[held_out]
        everyone = torch.arange(len(nodes), device=device)
        return _Estimate(self.up[nodes] * weight, self.down[nodes] * weight, everyone, everyone)

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Return the value on the training nodes."""
        return self._value(output.margin, self.nodes)

    def after_step(self) -> None:
        """Nothing is learned beside the weights."""

    def validation(self, output: Output) -> Tensor:
        """Return the value on the validation nodes."""
        return self._value(output.margin, self.held_out)


class _Estimate(WeightedCrossEntropy):
    """Weights that are shares of the whole's already."""

    def _weight(self, nodes: Tensor) -> Tensor:
        return self.up.new_ones(())


Risk: TypeAlias = Callable[[Output, Nodes], Tensor]  # -> (members,)


class RiskObjective(Batchable):
    """Descend on a risk of the training nodes, keep the weights with the lowest risk of the validation nodes.

    Args:
        risk: what to validate with, and to descend on unless `step` says otherwise.
        train: training nodes.
        validation: validation nodes.
        step: what to descend on instead.
    """

    def __init__(self, risk: Risk, train: Nodes, validation: Nodes, step: Risk | None = None) -> None:
        self.risk = risk
        self.nodes = train
        self.held_out = validation
        self.step = step or risk

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Return the risk of the training nodes."""
        return self.step(output, self.nodes)

    def after_step(self) -> None:
        """Nothing is learned beside the weights."""

    def validation(self, output: Output) -> Tensor:
        """Return the risk of the validation nodes."""
        return self.risk(output, self.held_out)

    def parts(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Source and target nodes."""
        return self.held_out if held_out else self.nodes

    def on(self, chosen: Sequence[Tensor], *, held_out: bool) -> RiskObjective:
        """Return the risk of a batch."""
        nodes = first_places(chosen, self.nodes.source.device)
        return RiskObjective(self.risk, nodes, nodes, self.step)


def first_places(chosen: Sequence[Tensor], device: torch.device) -> Nodes:
    """Return where source and target nodes stand in a batch of the one after the other."""
    source, target = (len(part) for part in chosen)
    return Nodes(torch.arange(source, device=device), torch.arange(source, source + target, device=device))
