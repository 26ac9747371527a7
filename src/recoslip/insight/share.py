"""Scores of target and calibration nodes -> how many target nodes are novel, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

RANKS = (1, 3, 10)  # of the calibration scores that are tried as thresholds
STANDS_OUT = 0.05  # the upper end takes novel nodes to score above all but this share of the known
TYPICAL = 0.01  # the estimate counts the nodes above all but this share of the known


@dataclass(frozen=True)
class Share:
    """The novel share of the target nodes."""

    estimate: float  # by the highest scores, as if proportions had not shifted
    low: float  # with `confidence`, no less, if no known kind grew more than `max_growth` times
    low_unshifted: float  # the same, if known kinds kept their proportions
    high: float  # no more, if novel nodes score above 95 % of the known; says nothing about those that do not
    max_growth: float
    confidence: float
    breaks_at: float  # the growth of a known kind from which on `low` is 0: there may be nothing new at all


def novel_share(
    target: ArrayLike, calibration: ArrayLike, *, max_growth: float = 10.0, confidence: float = 0.95
) -> Share:
    r"""Count the target nodes above a threshold and take off as many known ones as there may be among them.

    Let $c_{(j)}$ be the j-th highest of n calibration scores. The chance B that a known node of the source exceeds it
    is at most Beta(j, n + 1 - j) distributed (exactly, without ties). If no kind of known node is more than g times as
    frequent in the target as in the source, a known target node exceeds it with chance at most $g B$; taking the known
    nodes' scores for independent given the threshold, of m target nodes at most a Binomial(m, g B) number are known and
    above. The lower end takes off its upper quantile at the upper quantile of B, the error divided over the thresholds
    that are tried. The estimate takes off the share of known nodes that exceed a threshold without shift.

    Args:
        target: scores of the target nodes.
        calibration: scores of source nodes that the detector took for target.
        max_growth: g ≥ 1; 1 is no shift of proportions.
        confidence: of the lower end, one-sided.
    """
    t, c = np.asarray(target, dtype=float), np.sort(np.asarray(calibration, dtype=float))[::-1]
    ranks = [rank for rank in RANKS if rank <= len(c)]
    above = np.array([(t > c[rank - 1]).sum() for rank in ranks])

    def low(growth: float) -> float:
        return _low(above, ranks, len(t), len(c), growth, confidence)

    high = max(low(1.0), float((t > c[min(len(c) - 1, int(STANDS_OUT * len(c)))]).mean()))
    rank = max(1, int(TYPICAL * (len(c) + 1)))
    estimate = float(np.clip((t > c[rank - 1]).mean() - rank / (len(c) + 1), low(max_growth), high))
    stands, falls = 1.0, 2.0**10  # the lower end falls with the growth, so halving finds where it reaches 0
    for _ in range(10):
        middle = (stands * falls) ** 0.5
        stands, falls = (middle, falls) if low(middle) > 0 else (stands, middle)
    return Share(estimate, low(max_growth), low(1.0), high, float(max_growth), confidence, stands)


def _low(above: NDArray[np.int64], ranks: list[int], m: int, n: int, growth: float, confidence: float) -> float:
    risk = (1 - confidence) / (2 * len(ranks))  # half for B, half for the count, at each threshold
    rank = np.array(ranks)
    chance = np.minimum(1, growth * beta.ppf(1 - risk, rank, n + 1 - rank))
    return float(max(0, np.max(above - binom.ppf(1 - risk, m, chance))) / m)
