"""p-values of the target nodes -> the fraction of them that is novel, with an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recoslip.inference.p_values import ROUNDING

ALLOWED_GROWTH = 3.0  # of known categories
LEVELS = (0.01, 0.05, 0.2)  # of p-values at which nodes are counted for the lower end
ESTIMATE_LEVEL = 0.05  # at which nodes are counted for the estimate
HIGH_LEVEL = 0.3  # the upper end counts every node with a p-value up to this
DRAWS = 2000  # of what calibration nodes may have missed
MAX_BREAK = 2.0**10  # largest growth that is tried for `holds_up_to`


@dataclass(frozen=True)
class NovelShare:
    """The novel share of the target nodes."""

    estimate: float  # as if known categories had kept their proportions
    low: float  # lower end, with `confidence`, if none grew more than `max_growth` times
    high: float  # upper end, if no more novel nodes have p-values above 0.3 than known ones have below
    max_growth: float
    confidence: float
    holds_up_to: float  # the growth of known categories up to which `low` is above 0


def novel_share(
    p: ArrayLike, calibration_nodes: int, *, max_growth: float = ALLOWED_GROWTH, confidence: float = 0.95
) -> NovelShare:
    r"""Count the target nodes with small p-values and subtract as many known ones as there may be among them.

    With n calibration nodes, $p \le u$ means a score above the j-th highest of theirs, $j = \lfloor u (n + 1) \rfloor$.
    The probability B of that is Beta(j, n + 1 - j) distributed for a known node of the source, whatever the scores, and
    at most $g B$ for one of the target, if no known category is more than g times as frequent as in the source. So of
    the m target nodes, at most a number with mean $m \min(1, g B)$ are known and have $p \le u$; taking them for
    independent given B, that number is Poisson distributed or less dispersed. The lower end subtracts its upper
    quantile at the upper quantile of the mean, with the error probability divided over the levels u that are tried.

    Args:
        p: p-values of the target nodes.
        calibration_nodes: n.
        max_growth: g ≥ 1; 1 is no shift of proportions.
        confidence: of the lower end, one-sided.

    >>> share = novel_share(np.repeat([0.001, 0.5], [200, 800]), 999)
    >>> round(share.low, 2), round(share.estimate, 2)
    (0.12, 0.16)
    """
    small = np.asarray(p, dtype=float)
    rng = np.random.default_rng(0)
    exceeds = [_exceeding(level, calibration_nodes, rng) for level in LEVELS]
    counts = np.array([(small <= level * (1 + ROUNDING)).sum() for level in LEVELS])

    def low(growth: float) -> float:
        return _lower_end(counts, [growth * each for each in exceeds], len(small), confidence)

    has_level = calibration_nodes >= 1 / HIGH_LEVEL - 1  # enough calibration nodes for a p-value of the high level
    high = float((small <= HIGH_LEVEL * (1 + ROUNDING)).mean()) if has_level else 1.0
    excess = (small <= ESTIMATE_LEVEL * (1 + ROUNDING)).mean() - ESTIMATE_LEVEL
    lower = low(max_growth)
    estimate = float(np.clip(excess / (1 - ESTIMATE_LEVEL), lower, high))
    return NovelShare(estimate, lower, high, float(max_growth), confidence, holds_up_to=_largest_positive(low))


def most_by_chance(level: float, target_nodes: int, calibration_nodes: int, confidence: float = 0.95) -> int:
    """Return how many target nodes may have p-values up to `level` where nothing is novel and nothing grew.

    Args:
        level: of the p-values.
        target_nodes: how many there are.
        calibration_nodes: how many they are compared with.
        confidence: the number is exceeded with probability 1 - confidence.

    >>> most_by_chance(0.01, 1000, 100_000)
    16
    >>> most_by_chance(0.01, 1000, 99)
    32
    """
    from scipy.stats import poisson

    rng = np.random.default_rng(0)
    expected = _exceeding(level, calibration_nodes, rng) * target_nodes
    return int(np.quantile(poisson.ppf(rng.random(DRAWS), expected), confidence))


def _exceeding(level: float, calibration_nodes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the probability that a known node has a p-value up to `level`, (draws,).

    It is 0 where there are too few calibration nodes for such a p-value.
    """
    rank = int(level * (calibration_nodes + 1) + ROUNDING)
    drawn = rng.beta(max(rank, 1), max(calibration_nodes + 1 - rank, 1), DRAWS)
    return np.where(rank > 0, drawn, 0.0)


def _lower_end(
    counts: NDArray[np.int64],
    exceeds: list[NDArray[np.float64]],
    target_nodes: int,
    confidence: float,
) -> float:
    """Return the lower end of the novel share, given how many target nodes have small p-values at each level."""
    from scipy.stats import poisson

    error = (1 - confidence) / (2 * len(counts))  # half for the B's, half for the count, at each level
    means = [np.quantile(np.minimum(1, each) * target_nodes, 1 - error) for each in exceeds]
    return float(max(0, np.max(counts - poisson.ppf(1 - error, means))) / max(1, target_nodes))


def _largest_positive(low: Callable[[float], float]) -> float:
    """Return, by geometric bisection, the largest growth whose lower end is above 0; 1 if there is none.

    The lower end falls as the growth rises.
    """
    positive, zero = 1.0, MAX_BREAK
    for _ in range(12):
        middle = (positive * zero) ** 0.5
        positive, zero = (middle, zero) if low(middle) > 0 else (positive, middle)
    return positive
