"""Scores -> rates, and rates -> the Lagrangian of the recall-constrained problem (paper, section 4.1)."""

from torch import Tensor


def soft_rate(scores: Tensor, nodes: Tensor) -> Tensor:
    r"""Mean score over a set of nodes, $\frac{1}{|V|}\sum_{v \in V} f(v)$: β̂ on source, α̂ on target nodes.

    >>> import torch
    >>> soft_rate(torch.tensor([[0.2], [0.4], [0.9]]), torch.tensor([0, 1]))
    tensor([0.3000])
    """
    return scores[nodes].mean(dim=0)  # (nodes, members) -> (members,)


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
