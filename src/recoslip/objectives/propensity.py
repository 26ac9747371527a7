"""Source labels, P(known) and propensity -> posteriors and likelihood of selection at random."""

from torch import Tensor


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
