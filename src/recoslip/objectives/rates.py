"""Scores -> rates, and rates -> the Lagrangian of the recall-constrained problem (paper, section 4.1)."""

from torch import Tensor


def soft_rate(scores: Tensor, nodes: Tensor) -> Tensor:
    r"""Mean score over a set of nodes, $\frac{1}{|V|}\sum_{v \in V} f(v)$: β̂ on source, α̂ on target nodes.

    Args:
        scores: (nodes, members).
        nodes: positions; or, where sets differ between members, (nodes, members) weights with sum 1.

    >>> import torch
    >>> scores = torch.tensor([[0.2], [0.4], [0.9]])
    >>> soft_rate(scores, torch.tensor([0, 1])), soft_rate(scores, torch.tensor([[0.5], [0.5], [0.0]]))
    (tensor([0.3000]), tensor([0.3000]))
    """
    if nodes.dim() == 2:
        return (scores * nodes).sum(dim=0)
    return scores[nodes].mean(dim=0)  # (nodes, members) -> (members,)


def hard_rate(scores: Tensor, nodes: Tensor) -> Tensor:
    r"""Share of a set of nodes called novel, $\frac{1}{|V|}\sum_{v \in V} 1[f(v) > 1/2]$; sets as for `soft_rate`.

    >>> import torch
    >>> hard_rate(torch.tensor([[0.2], [0.5], [0.9]]), torch.tensor([1, 2]))
    tensor([0.5000])
    """
    if nodes.dim() == 2:
        return ((scores > 0.5) * nodes).sum(dim=0).to(scores.dtype)
    return (scores[nodes] > 0.5).to(scores.dtype).mean(dim=0)  # (nodes, members) -> (members,)


def lagrangian(fpr: Tensor, recall: Tensor, recall_target: Tensor, multiplier: Tensor) -> Tensor:
    r"""$\mathcal{L} = \hat\beta + \lambda (\tilde\alpha - \hat\alpha)$, without the link loss.

    >>> import torch
    >>> lagrangian(*map(torch.tensor, (0.1, 0.3, 0.2, 2.0)))
    tensor(-0.1000)
    """
    return fpr + multiplier * (recall_target - recall)
