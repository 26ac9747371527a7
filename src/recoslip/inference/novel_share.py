"""p-values of the target nodes -> the fraction of them that is novel, with an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recoslip.learning.p_values import ROUNDING

LEVELS = (0.01, 0.05, 0.2)  # of p-values at which nodes are counted for the lower end
ESTIMATE_LEVEL = 0.05  # at which nodes are counted for the estimate
HIGH_LEVEL = 0.3  # the upper end counts every node with a p-value up to this
DRAWS = 2000  # of what calibration nodes may have missed
MAX_BREAK = 2.0**10  # largest growth that is tried for `holds_up_to`


@dataclass(frozen=True)
class NovelShare:
    """The novel share of the target nodes."""

    estimate: float  # as if known categories had kept their proportions within every region
    low: float  # lower end, with `confidence`, if none grew more than `max_growth` times within its region
    high: float  # upper end, if no more novel nodes have p-values above 0.3 than known ones have below
    max_growth: float
    confidence: float
    holds_up_to: float  # the growth of known categories within a region up to which `low` is above 0


def novel_share(
    p: ArrayLike,
    region: ArrayLike,
    calibration_region: ArrayLike,
    *,
    max_growth: float,
    confidence: float = 0.95,
) -> NovelShare:
    r"""Count the target nodes with small p-values and subtract as many known ones as there may be among them.

    In a region with n calibration nodes, $p \le u$ means a score above the j-th highest of theirs, $j = \lfloor u (n +
    1) \rfloor$. The probability B of that is Beta(j, n + 1 - j) distributed for a known node of the source, whatever
    the scores, and at most $g B$ for one of the target, if no known category is more than g times as frequent among
    the region's target nodes as among its source nodes. So of the $m_r$ target nodes of each region, at most a number
    with mean $\sum_r m_r \min(1, g B_r)$ are known and have $p \le u$; taking them for independent given the B's, that
    number is Poisson distributed or less dispersed. The lower end subtracts its upper quantile at the upper quantile
    of the mean, with the error probability divided over the levels u that are tried.

    Proportions of regions may shift in any way: each region is compared with its own source nodes.

    Args:
        p: p-values of the target nodes.
        region: of each target node.
        calibration_region: the region of each calibration node.
        max_growth: g ≥ 1; 1 is no shift of proportions within a region.
        confidence: of the lower end, one-sided.
    """
    small = np.asarray(p, dtype=float)
    regions, target_nodes, calibration_nodes = _counts(region, calibration_region)
    rng = np.random.default_rng(0)
    exceeds = [_exceeding(level, calibration_nodes, rng) for level in LEVELS]
    counts = np.array([(small <= level * (1 + ROUNDING)).sum() for level in LEVELS])

    def low(growth: float) -> float:
        return _lower_end(counts, [growth * each for each in exceeds], target_nodes, confidence)

    few = regions[calibration_nodes < 1 / HIGH_LEVEL - 1]  # calibration nodes for a p-value up to that
    high = float(((small <= HIGH_LEVEL * (1 + ROUNDING)) | np.isin(region, few)).mean())
    excess = (small <= ESTIMATE_LEVEL * (1 + ROUNDING)).mean() - ESTIMATE_LEVEL
    lower = low(max_growth)
    estimate = float(np.clip(excess / (1 - ESTIMATE_LEVEL), lower, high))
    return NovelShare(estimate, lower, high, float(max_growth), confidence, holds_up_to=_largest_positive(low))


def most_by_chance(level: float, region: ArrayLike, calibration_region: ArrayLike, confidence: float = 0.95) -> int:
    """Return how many target nodes may have p-values up to `level` where nothing is novel and nothing grew.

    Args:
        level: of the p-values.
        region: of each target node.
        calibration_region: the region of each calibration node.
        confidence: the number is exceeded with probability 1 - confidence.

    >>> most_by_chance(0.01, np.zeros(1000), np.zeros(100_000))
    16
    >>> most_by_chance(0.01, np.zeros(1000), np.zeros(99))
    32
    """
    from scipy.stats import poisson

    _, target_nodes, calibration_nodes = _counts(region, calibration_region)
    rng = np.random.default_rng(0)
    expected = _exceeding(level, calibration_nodes, rng) @ target_nodes
    return int(np.quantile(poisson.ppf(rng.random(DRAWS), expected), confidence))


def _counts(region: ArrayLike, calibration_region: ArrayLike) -> tuple[NDArray[np.int64], ...]:
    """Return the regions that have target nodes, and how many target and calibration nodes each has."""
    regions, target_nodes = np.unique(np.asarray(region), return_counts=True)
    return regions, target_nodes, (np.asarray(calibration_region)[:, None] == regions).sum(axis=0)


def _exceeding(level: float, calibration_nodes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw, for each region, the probability that a known node has a p-value up to `level`: (draws, regions).

    It is 0 where a region has too few calibration nodes for such a p-value.
    """
    rank = np.floor(level * (calibration_nodes + 1) + ROUNDING).astype(int)
    drawn = rng.beta(np.maximum(rank, 1), np.maximum(calibration_nodes + 1 - rank, 1), (DRAWS, len(rank)))
    return np.where(rank > 0, drawn, 0.0)


def _lower_end(
    counts: NDArray[np.int64],
    exceeds: list[NDArray[np.float64]],
    target_nodes: NDArray[np.int64],
    confidence: float,
) -> float:
    """Return the lower end of the novel share, given how many target nodes have small p-values at each level."""
    from scipy.stats import poisson

    error = (1 - confidence) / (2 * len(counts))  # half for the B's, half for the count, at each level
    means = [np.quantile(np.minimum(1, each) @ target_nodes, 1 - error) for each in exceeds]
    return float(max(0, np.max(counts - poisson.ppf(1 - error, means))) / max(1, target_nodes.sum()))


def _largest_positive(low: Callable[[float], float]) -> float:
    """Return, by geometric bisection, the largest growth whose lower end is above 0; 1 if there is none.

    The lower end falls as the growth rises.
    """
    positive, zero = 1.0, MAX_BREAK
    for _ in range(12):
        middle = (positive * zero) ** 0.5
        positive, zero = (middle, zero) if low(middle) > 0 else (positive, middle)
    return positive
