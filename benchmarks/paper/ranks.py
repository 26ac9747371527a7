"""Summaries -> mean ranks of methods over datasets, and whether they differ: Friedman's test, Nemenyi's difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from recoslip.products.bench.records import Summary, is_ranked


class CriticalDifference(NamedTuple):
    """Mean ranks, and the difference from which two of them are significant (Nemenyi, 5 %)."""

    ranks: dict[str, float]
    difference: float
    blocks: int  # number of datasets
    p: float  # p-value of Friedman's test that all methods are alike


def critical_difference(ranks: Mapping[str, Sequence[float]]) -> CriticalDifference | None:
    """Compute Friedman's test and Nemenyi's critical difference of ranks; None for too few methods or datasets.

    >>> cd = critical_difference({"a": [1, 1, 1, 1], "b": [2, 2, 2, 2], "c": [3, 3, 3, 3]})
    >>> round(cd.difference, 3), round(cd.p, 4)
    (1.657, 0.0183)
    """
    ranked = {method: list(values) for method, values in ranks.items() if is_ranked(method)}
    methods, blocks = len(ranked), len(next(iter(ranked.values()), []))
    if methods < 3 or blocks < 2:
        return None
    critical = studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2)
    difference = float(critical * np.sqrt(methods * (methods + 1) / (6 * blocks)))
    means = {method: float(np.mean(values)) for method, values in ranked.items()}
    tied = len({tuple(values) for values in ranked.values()}) == 1
    p = 1.0 if tied else float(friedmanchisquare(*ranked.values()).pvalue)
    return CriticalDifference(means, difference, blocks, p)


def ranks(
    summaries: Mapping[tuple[str, str], Summary], methods: Sequence[str], datasets: Sequence[str]
) -> dict[str, list[float]] | None:
    """Rank the methods on each dataset by mean, 1 is the best, ties share a rank; None unless all have all runs."""
    found = [summaries.get((m, d)) for m in methods for d in datasets]
    if not found or not all(summary and summary.complete for summary in found):
        return None
    by_dataset = np.stack([rankdata([-summaries[m, d].mean for m in methods]) for d in datasets])
    return {method: by_dataset[:, k].tolist() for k, method in enumerate(methods)}
