"""A risk on two sets of nodes -> an objective for the training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recoslip.fleet.network import Output
from recoslip.graph import NodeGraph
from recoslip.shift import Mask, Split


@dataclass(frozen=True, eq=False)
class Nodes:
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


class WeightedCrossEntropy:
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
        return total / (up + down).sum(dim=0).clamp(min=1e-12)

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Return the value on the training nodes."""
        return self._value(output.margin, self.nodes)

    def after_step(self) -> None:
        """Nothing is learned beside the weights."""

    def validation(self, output: Output) -> Tensor:
        """Return the value on the validation nodes."""
        return self._value(output.margin, self.held_out)


Risk: TypeAlias = Callable[[Output, Nodes], Tensor]  # -> (members,)


class RiskObjective:
    """Descend on a risk of the training nodes, keep the weights with the lowest risk of the validation nodes.

    Args:
        risk: what to validate with, and to descend on unless `step` says otherwise.
        train: training nodes.
        validation: validation nodes.
        step: what to descend on instead: a function of output and epoch.
    """

    def __init__(
        self, risk: Risk, train: Nodes, validation: Nodes, step: Callable[[Output, Tensor], Tensor] | None = None
    ) -> None:
        self.risk = risk
        self.nodes = train
        self.held_out = validation
        self.step = step

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Return the risk of the training nodes."""
        return self.risk(output, self.nodes) if self.step is None else self.step(output, epoch)

    def after_step(self) -> None:
        """Nothing is learned beside the weights."""

    def validation(self, output: Output) -> Tensor:
        """Return the risk of the validation nodes."""
        return self.risk(output, self.held_out)
