"""Counts of source and target nodes -> how much more frequent a set of nodes must have become."""

from __future__ import annotations


def least_growth(source: int, target: int, sources: int, targets: int, confidence: float = 0.95) -> float:
    r"""Return a lower confidence bound of $\frac{\text{target} / \text{targets}}{\text{fraction of the source}}$.

    The number of source nodes is Poisson distributed around its mean, and an upper bound of that mean (one-sided,
    exact) gives a lower bound of the growth. With no source node at all the bound is finite: three might have been
    expected.

    >>> round(least_growth(0, 30, 1000, 1000), 2)
    10.01
    >>> round(least_growth(100, 300, 1000, 1000), 2)
    2.54
    """
    from scipy.stats import chi2

    most_source = chi2.ppf(confidence, 2 * (source + 1)) / 2 / max(1, sources)
    return float(target / max(1, targets) / most_source)
