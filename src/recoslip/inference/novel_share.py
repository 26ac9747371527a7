"""Counts in bins, and p-values of the target nodes -> the fraction of them that is novel, with an interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from recoslip.inference.evidence import ALLOWED_GROWTH, ERROR, BinCounts
from recoslip.inference.p_values import ROUNDING

ESTIMATE_LEVEL = 0.05  # of p-values at which nodes are counted for the estimate
HIGH_LEVEL = 0.3  # the upper end counts every node with a p-value up to this


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
    p: ArrayLike, calibration_nodes: int, bins: BinCounts, *, max_growth: float = ALLOWED_GROWTH
) -> NovelShare:
    """Bound the novel share by counts in bins; estimate it by p-values.

    Args:
        p: p-values of the target nodes.
        calibration_nodes: how many nodes they are compared with.
        bins: of the graph.
        max_growth: how many times as frequent a known category may have become; 1 is no shift of proportions.
    """
    small = np.asarray(p, dtype=float)
    has_level = calibration_nodes >= 1 / HIGH_LEVEL - 1  # enough calibration nodes for a p-value of the high level
    bound = bins.bound(bins.is_target, max_growth)
    low = bound.new / max(1, len(small))
    high = max(low, float((small <= HIGH_LEVEL * (1 + ROUNDING)).mean()) if has_level else 1.0)
    excess = (small <= ESTIMATE_LEVEL * (1 + ROUNDING)).mean() - ESTIMATE_LEVEL
    estimate = float(np.clip(excess / (1 - ESTIMATE_LEVEL), low, high))
    return NovelShare(estimate, low, high, float(max_growth), 1 - ERROR, bound.holds_up_to)
