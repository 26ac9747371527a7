"""Scores -> rates, the Lagrangian of the recall-constrained problem (paper, section 4.1), PU risks, the class prior.

In positive-unlabelled (PU) learning, known (not novel) is the positive class; source nodes are labelled positives,
target nodes are unlabelled. With f the probability of being novel, the sigmoid loss of calling a node known is f and of
calling it novel is 1 - f. π is the fraction of known nodes among the target.

Below them, the objectives that minimise a risk of two sets of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask, Split
from recoslip.learning.networks.interfaces import BatchObjective, Output, ProblemState


def soft_rate(scores: Tensor, nodes: Tensor) -> Tensor:
    r"""Mean score over a set of nodes, $\frac{1}{|V|}\sum_{v \in V} f(v)$: β̂ on source, α̂ on target nodes.

    Args:
        scores: (nodes, members).
        nodes: positions.

    >>> import torch
    >>> scores = torch.tensor([[0.2], [0.4], [0.9]])
    >>> soft_rate(scores, torch.tensor([0, 1]))
    tensor([0.3000])
    """
    return scores[nodes].mean(dim=0)  # (nodes, members) -> (members,)


def soft_rates(output: Output, nodes: DomainNodes) -> tuple[Tensor, Tensor]:
    """Return β̂ and α̂ of each member, its soft rates on source and on target nodes."""
    f = torch.sigmoid(output.margin)
    return soft_rate(f, nodes.source), soft_rate(f, nodes.target)


def hard_rate(scores: Tensor, nodes: Tensor) -> Tensor:
    r"""Share of a set of nodes called novel, $\frac{1}{|V|}\sum_{v \in V} 1[f(v) > 1/2]$.

    >>> import torch
    >>> hard_rate(torch.tensor([[0.2], [0.5], [0.9]]), torch.tensor([1, 2]))
    tensor([0.5000])
    """
    return (scores[nodes] > 0.5).to(scores.dtype).mean(dim=0)  # (nodes, members) -> (members,)


def lagrangian(fpr: Tensor, recall: Tensor, recall_target: Tensor, multiplier: Tensor) -> Tensor:
    r"""$\mathcal{L} = \hat\beta + \lambda (\tilde\alpha - \hat\alpha)$, without the link loss.

    >>> import torch
    >>> lagrangian(*map(torch.tensor, (0.1, 0.3, 0.2, 2.0)))
    tensor(-0.1000)
    """
    return fpr + multiplier * (recall_target - recall)


def domain_risk(margin: Tensor, source: Tensor, target: Tensor) -> Tensor:
    r"""Cross-entropy of telling source from target: $-\frac1n(\sum_S \log(1 - f) + \sum_T \log f)$, per member."""
    total = F.softplus(margin[source]).sum(dim=0) + F.softplus(-margin[target]).sum(dim=0)
    return total / (len(source) + len(target))


def unbiased_risk(source: Tensor, target: Tensor, prior: Tensor) -> Tensor:
    r"""uPU (du Plessis et al. 2014): $\pi E_S[f] + E_T[1 - f] - \pi E_S[1 - f]$.

    Args:
        source: mean f over source nodes, (members,).
        target: mean f over target nodes, (members,).
        prior: π, (members,).
    """
    return prior * source + (1 - target) - prior * (1 - source)


def non_negative_risk(source: Tensor, target: Tensor, prior: Tensor) -> Tensor:
    r"""nnPU (Kiryo et al. 2017): the same with the novel part, which is a risk, kept from going below zero."""
    return prior * source + ((1 - target) - prior * (1 - source)).clamp(min=0)


def non_negative_step(source: Tensor, target: Tensor, prior: Tensor) -> Tensor:
    r"""What nnPU descends on: the risk, or where its novel part is negative, minus that part, to undo the overfit."""
    novel = (1 - target) - prior * (1 - source)
    return torch.where(novel < 0, -novel, prior * source + novel)


def label_distribution(means: Tensor, priors: Tensor, weights: Tensor) -> Tensor:
    r"""Dist-PU (Zhao et al. 2022): $\sum_k w_k |E_k[1 - f] - \pi_k|$ over sets of nodes.

    Args:
        means: (sets, members) mean f of each set.
        priors: (sets, members) the fraction of known nodes it should have; 1 for source nodes.
        weights: (sets, members).
    """
    return (weights * ((1 - means) - priors).abs()).sum(dim=0)


def entropy(margin: Tensor, nodes: Tensor) -> Tensor:
    r"""Mean of $-f \log f - (1 - f) \log(1 - f)$ over nodes, per member: small where scores are decided."""
    m = margin[nodes]
    f = torch.sigmoid(m)
    return (f * F.softplus(-m) + (1 - f) * F.softplus(m)).mean(dim=0)


def posterior_known(s: Tensor, p: Tensor, e: Tensor) -> Tensor:
    r"""$P(\text{known} \mid s, v) = s + (1 - s) \frac{p (1 - e)}{1 - p e}$; a source node is known.

    >>> import torch
    >>> posterior_known(*map(torch.tensor, ([1.0, 0.0], [0.3, 0.5], [0.2, 0.5])))
    tensor([1.0000, 0.3333])
    """
    return s + (1 - s) * p * (1 - e) / (1 - p * e).clamp(min=1e-6)


def log_likelihood(s: Tensor, p: Tensor, e: Tensor) -> Tensor:
    r"""Mean of $s \log(p e) + (1 - s) \log(1 - p e)$ over nodes: (nodes, members) -> (members,)."""
    source = (p * e).clamp(1e-6, 1 - 1e-6)
    return (s * source.log() + (1 - s) * (1 - source).log()).mean(dim=0)


def best_bin(source: ArrayLike, target: ArrayLike, *, delta: float = 0.1, gamma: float = 0.01) -> float:
    r"""Return π̂, the fraction of known nodes in the target, by best-bin estimation (Garg et al. 2021).

    Among the nodes that look most like source, nearly all target nodes should be known. For a cut c let $q_S(c)$ and
    $q_T(c)$ be the fractions of source and target nodes whose probability of being source is at least c. Then

    $$\hat c = \arg\min_c \frac{q_T(c)}{q_S(c)} + \frac{1 + \gamma}{q_S(c)}
      \left(\sqrt{\frac{\log(4/\delta)}{2 n_T}} + \sqrt{\frac{\log(4/\delta)}{2 n_S}}\right), \qquad
      \hat\pi = \frac{q_T(\hat c)}{q_S(\hat c)}.$$

    Args:
        source: probability of being source of held-out source nodes.
        target: the same of held-out target nodes.
        delta: δ, the bound's risk.
        gamma: γ, how much more the bound's width counts than it is.

    >>> rng = np.random.default_rng(0)
    >>> known, novel = rng.uniform(0.4, 1, 6000), rng.uniform(0, 0.6, 4000)
    >>> round(best_bin(rng.uniform(0.4, 1, 6000), np.concatenate([known, novel])), 1)
    0.6
    """
    s, t = np.sort(np.asarray(source, dtype=float)), np.sort(np.asarray(target, dtype=float))
    cuts = np.unique(s)
    q_source = 1 - np.searchsorted(s, cuts, side="left") / len(s)  # > 0: the cut itself is a source node's
    q_target = 1 - np.searchsorted(t, cuts, side="left") / len(t)
    width = np.sqrt(np.log(4 / delta) / (2 * len(t))) + np.sqrt(np.log(4 / delta) / (2 * len(s)))
    bound = (q_target + (1 + gamma) * width) / q_source
    best = int(np.argmin(bound))
    return min(1.0, float(q_target[best] / q_source[best]))


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
        normalised: whether the weights were divided by their total already.
    """

    def __init__(
        self, up: Tensor, down: Tensor, train: Tensor, validation: Tensor, *, normalised: bool = False
    ) -> None:
        self.up, self.down, self.nodes, self.held_out, self.normalised = up, down, train, validation, normalised

    def _value(self, margin: Tensor, nodes: Tensor) -> Tensor:
        up, down, m = self.up[nodes], self.down[nodes], margin[nodes]
        total = (up * F.softplus(-m) + down * F.softplus(m)).sum(dim=0)
        return total if self.normalised else total / self._total_weight(nodes)

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
        up, down = self.up[nodes] * weight, self.down[nodes] * weight
        return WeightedCrossEntropy(up, down, everyone, everyone, normalised=True)

    def loss(self, output: Output, epoch: Tensor) -> ProblemState:
        """Compute the value on the training nodes."""
        return ProblemState(self._value(output.margin, self.nodes))

    def validation(self, output: Output) -> Tensor:
        """Compute the value on the validation nodes."""
        return self._value(output.margin, self.held_out)


Risk: TypeAlias = Callable[[Output, DomainNodes], Tensor]  # -> (members,)


class RiskObjective(BatchObjective):
    """Descend on a risk of the training nodes, keep the weights with the lowest risk of the validation nodes.

    Args:
        risk: what to validate with, and to descend on unless `descent` is given.
        train: training nodes.
        validation: validation nodes.
        descent: what to descend on instead; it is given the epoch, too.
    """

    def __init__(
        self,
        risk: Risk,
        train: DomainNodes,
        validation: DomainNodes,
        descent: Callable[[Output, DomainNodes, Tensor], Tensor] | None = None,
    ) -> None:
        self.risk, self.nodes, self.held_out = risk, train, validation
        self.descent = descent or (lambda output, nodes, epoch: risk(output, nodes))

    def loss(self, output: Output, epoch: Tensor) -> ProblemState:
        """Compute the risk of the training nodes."""
        return ProblemState(self.descent(output, self.nodes, epoch))

    def validation(self, output: Output) -> Tensor:
        """Compute the risk of the validation nodes."""
        return self.risk(output, self.held_out)

    def node_sets(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Return source and target nodes."""
        return self.held_out if held_out else self.nodes

    def on_batch(self, batch: Sequence[Tensor], *, held_out: bool) -> RiskObjective:
        """Return the risk of a batch."""
        nodes = batch_nodes(batch, self.nodes.source.device)
        return RiskObjective(self.risk, nodes, nodes, self.descent)


def discriminate(output: Output, nodes: DomainNodes) -> Tensor:
    """Compute the cross-entropy of source against target nodes, per member."""
    return domain_risk(output.margin, nodes.source, nodes.target)
