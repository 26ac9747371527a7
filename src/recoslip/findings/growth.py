"""Counts of source and target nodes -> how much more frequent a set of nodes must have become."""

from __future__ import annotations


def least_growth(source: float, target: float, sources: int, targets: int, confidence: float = 0.95) -> float:
    r"""Return a lower confidence bound of the ratio of a set's fractions of the target and of the source.

    Both counts are Poisson distributed. Given their sum, the number of target nodes is binomial with probability
    $\frac{g T}{g T + S}$, where g is the growth and S and T are the sizes of the domains; the bound inverts the exact
    lower bound of that probability (Clopper and Pearson).

    Args:
        source: source nodes of the set.
        target: its target nodes.
        sources: S.
        targets: T.
        confidence: one-sided.

    >>> round(least_growth(0, 30, 1000, 1000), 2)
    9.52
    >>> round(least_growth(100, 300, 1000, 1000), 2)
    2.47
    >>> least_growth(5, 0, 1000, 1000)
    0.0
    """
    from scipy.stats import beta

    if target <= 0:
        return 0.0
    probability = beta.ppf(1 - confidence, target, source + 1)
    return float(probability / (1 - probability) * sources / max(1, targets))
