"""Scores of source and target nodes -> how large a part of the target is known (mixture proportion estimation)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class BestBin:
    """A best-bin estimate of the fraction of known nodes in the target."""

    prior: float  # π̂, in [0, 1]
    upper: float  # with probability 1 - δ the fraction is at most this, if known target nodes score as source nodes do
    cut: float  # the bin: nodes whose probability of being source is at least this


def best_bin(source: ArrayLike, target: ArrayLike, *, delta: float = 0.1, gamma: float = 0.01) -> BestBin:
    r"""Best-bin estimation (Garg et al. 2021).

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
    >>> round(best_bin(rng.uniform(0.4, 1, 6000), np.concatenate([known, novel])).prior, 1)
    0.6
    """
    s, t = np.sort(np.asarray(source, dtype=float)), np.sort(np.asarray(target, dtype=float))
    cuts = np.unique(s)
    q_source = 1 - np.searchsorted(s, cuts, side="left") / len(s)  # > 0: the cut itself is a source node's
    q_target = 1 - np.searchsorted(t, cuts, side="left") / len(t)
    width = np.sqrt(np.log(4 / delta) / (2 * len(t))) + np.sqrt(np.log(4 / delta) / (2 * len(s)))
    bound = (q_target + (1 + gamma) * width) / q_source
    best = int(np.argmin(bound))
    ratio = float(q_target[best] / q_source[best])
    return BestBin(min(1.0, ratio), min(1.0, float((q_target[best] + width) / q_source[best])), float(cuts[best]))
