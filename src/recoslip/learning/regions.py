"""Features and scores of source nodes -> regions, within which target nodes are compared with source nodes.

A known category that grew is compared with the source's own nodes of its kind, so that its growth does no harm. Where
regions score alike, nothing is lost by taking them for one, and their nodes compare with more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recoslip.data.alignment import k_means
from recoslip.data.split import Mask

NODES_PER_REGION = 100  # source nodes that there is a region for
MAX_REGIONS = 20
MAX_FIT = 20_000  # source nodes that regions are fitted on at most
GROWTH_OF_ALL = 20.0  # growth within a region that is allowed for, times the number of regions
GROWTH_RANGE = (2.0, 10.0)  # that is allowed for, whatever their number
ALIKE = 0.05  # p-value of a Kolmogorov-Smirnov test from which on two regions score alike


def region_count(source_nodes: int) -> int:
    """Return how many regions so many source nodes are divided into, before those that score alike are merged."""
    return max(1, min(MAX_REGIONS, source_nodes // NODES_PER_REGION))


def growth_within(regions: int) -> float:
    """Return how many times as frequent a known category may have become among the nodes of its region, by default.

    The fewer regions there are, before those that score alike are merged, the more categories share one, and the more
    growth may hide in it.

    >>> [growth_within(regions) for regions in (1, 5, 10, 20)]
    [10.0, 4.0, 2.0, 2.0]
    """
    least, most = GROWTH_RANGE
    return min(most, max(least, round(GROWTH_OF_ALL / regions, 1)))


def source_regions(x: NDArray[np.floating], is_source: Mask, seed: int = 0) -> NDArray[np.int64]:
    """Divide all nodes by the k-means clusters of the source nodes' features.

    Args:
        x: (nodes, width) features.
        is_source: (nodes,) those that clusters are fitted on.
        seed: of k-means.

    >>> x = np.repeat([[0.0], [1.0]], 150, axis=0)
    >>> np.unique(source_regions(x, np.ones(300, dtype=bool)), return_counts=True)[1].tolist()
    [150, 150]
    """
    source = np.flatnonzero(is_source)
    return k_means(x, region_count(len(source)), seed, n_init=2, fitted_on=source[:: -(-len(source) // MAX_FIT) or 1])


def merge_alike(region: NDArray[np.int64], scores: NDArray[np.float64], calibration: Mask) -> NDArray[np.int64]:
    """Merge regions whose calibration nodes score alike, the most alike first (clustered conformal prediction).

    Whatever the proportions of two regions with the same distribution of scores, a known node of either scores like
    that. Regions are numbered anew, from 0.

    Args:
        region: (nodes,).
        scores: (nodes,) of calibration nodes; those of different fits must be comparable.
        calibration: (nodes,) whose scores count.

    >>> region, scores = np.repeat([0, 1, 2], 30), np.tile(np.arange(30.0), 3)
    >>> scores[60:] += 25
    >>> np.unique(merge_alike(region, scores, np.ones(90, dtype=bool)), return_counts=True)[1].tolist()
    [60, 30]
    """
    merged = np.unique(region, return_inverse=True)[1].astype(np.int64)
    samples = {int(k): np.sort(scores[calibration & (merged == k)]) for k in np.unique(merged)}
    alike = {(a, b): _p_alike(samples[a], samples[b]) for a in samples for b in samples if a < b}
    while alike and max(alike.values()) >= ALIKE:
        a, b = max(alike, key=alike.__getitem__)
        merged[merged == b] = a
        samples[a] = np.sort(np.concatenate([samples[a], samples.pop(b)]))
        alike = {pair: p for pair, p in alike.items() if b not in pair}
        alike |= {(min(a, c), max(a, c)): _p_alike(samples[a], samples[c]) for c in samples if c != a}
    return np.unique(merged, return_inverse=True)[1].astype(np.int64)


def _p_alike(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the p-value of the test that two samples have one distribution; 1 where one has nobody."""
    from scipy.stats import ks_2samp

    if not len(first) or not len(second):
        return 1.0
    return float(ks_2samp(first, second, method="asymp").pvalue)
