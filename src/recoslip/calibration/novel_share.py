"""Scores of target and calibration nodes -> the fraction of the target nodes that is novel, with an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

RANKS = (1, 3, 10)  # ranks of the calibration scores that are tried as thresholds of the lower end
HIGH_TAIL = 0.05  # the upper end takes novel nodes to score above all but this fraction of the known ones
ESTIMATE_TAIL = 0.01  # the estimate counts the target nodes above all but this fraction of the known ones


@dataclass(frozen=True)
class NovelShare:
    """The novel share of the target nodes."""

    estimate: float  # from the highest scores, as if proportions had not shifted
    low: float  # lower end, with `confidence`, if no known category grew more than `max_growth` times
    low_unshifted: float  # the same, if known categories kept their proportions
    high: float  # upper end, if novel nodes score above 95 % of the known ones; says nothing about those that do not
    max_growth: float
    confidence: float
    breaks_at: float  # the growth of a known category from which on `low` is 0: there may be nothing novel at all


def novel_share(
    target: ArrayLike, calibration: ArrayLike, *, max_growth: float = 10.0, confidence: float = 0.95
) -> NovelShare:
    r"""Count the target nodes above a threshold and subtract as many known ones as there may be among them.

    Let $c_{(j)}$ be the j-th highest of n calibration scores. The probability B that a known node of the source
    exceeds it is at most Beta(j, n + 1 - j) distributed (exactly, without ties). If no known category is more than g
    times as frequent in the target as in the source, a known target node exceeds it with probability at most $g B$;
    taking the known nodes' scores for independent given the threshold, of m target nodes at most a Binomial(m, g B)
    number are known and above. The lower end subtracts its upper quantile at the upper quantile of B, with the error
    probability divided over the thresholds that are tried. The estimate subtracts the fraction of known nodes that
    exceed a threshold without shift.

    Args:
        target: scores of the target nodes.
        calibration: scores of the calibration nodes, which the detector took for target.
        max_growth: g ≥ 1; 1 is no shift of proportions.
        confidence: of the lower end, one-sided.
    """
    target_scores = np.asarray(target, dtype=float)
    descending = np.sort(np.asarray(calibration, dtype=float))[::-1]
    m, n = len(target_scores), len(descending)
    ranks = np.array([rank for rank in RANKS if rank <= n])
    above = np.array([(target_scores > descending[rank - 1]).sum() for rank in ranks])

    def low(growth: float) -> float:
        return _lower_end(above, ranks, m, n, growth, confidence)

    high = max(low(1.0), float((target_scores > descending[min(n - 1, int(HIGH_TAIL * n))]).mean()))
    rank = max(1, int(ESTIMATE_TAIL * (n + 1)))
    estimate = float(np.clip((target_scores > descending[rank - 1]).mean() - rank / (n + 1), low(max_growth), high))
    return NovelShare(
        estimate, low(max_growth), low(1.0), high, float(max_growth), confidence, breaks_at=_largest_positive(low)
    )


def _lower_end(
    above: NDArray[np.int64], ranks: NDArray[np.int64], m: int, n: int, growth: float, confidence: float
) -> float:
    """Return the lower end of the novel share, given how many target nodes are above each threshold."""
    from scipy.stats import beta, binom

    error = (1 - confidence) / (2 * len(ranks))  # half for B, half for the count, at each threshold
    exceeds = np.minimum(1, growth * beta.ppf(1 - error, ranks, n + 1 - ranks))
    return float(max(0, np.max(above - binom.ppf(1 - error, m, exceeds))) / m)


def _largest_positive(low: Callable[[float], float]) -> float:
    """Return, by geometric bisection, the largest growth whose lower end is above 0; 1 if there is none.

    The lower end falls as the growth rises.
    """
    positive, zero = 1.0, 2.0**10
    for _ in range(10):
        middle = (positive * zero) ** 0.5
        positive, zero = (middle, zero) if low(middle) > 0 else (positive, middle)
    return positive
