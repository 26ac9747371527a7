r"""Scores on source and target nodes -> risks of positive-unlabelled learning, and likelihoods of being labelled.

Known (not novel) is the positive class; source nodes are labelled positives, target nodes are unlabelled. With f the
probability of being novel, the sigmoid loss of calling a node known is f and of calling it novel is 1 - f. π is the
fraction of known nodes among the target.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


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
