"""Summaries -> whether methods differ significantly: paired tests over splits, and critical differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import friedmanchisquare, studentized_range, wilcoxon

from recoslip.bench.paper import title
from recoslip.bench.tables import NOT_RANKED, Grid, Summary


class Comparison(NamedTuple):
    """A method against the reference, on the pairs of dataset and split that both have."""

    method: str
    pairs: int
    difference: float  # mean of the method's value minus the reference's
    wins: int
    losses: int
    p: float  # two-sided Wilcoxon signed-rank


def compare(
    summaries: Mapping[tuple[str, str], Summary], methods: Sequence[str], datasets: Sequence[str], reference: str
) -> list[Comparison]:
    """Compare every method with the reference; those with fewer than five pairs are left out."""
    result = []
    for method in methods:
        if method == reference or method in NOT_RANKED:
            continue
        differences = np.array(
            [
                summary.by_split[split] - baseline.by_split[split]
                for dataset in datasets
                if (summary := summaries.get((method, dataset))) and (baseline := summaries.get((reference, dataset)))
                for split in summary.by_split
                if split in baseline.by_split
            ]
        )
        if len(differences) < 5:
            continue
        p = float(wilcoxon(differences).pvalue) if differences.any() else 1.0
        wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
        result.append(Comparison(method, len(differences), float(differences.mean()), wins, losses, p))
    return result


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons (Holm's step-down).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(np.array(p)[order] * np.arange(len(p), 0, -1)))
    return [float(value) for value in adjusted]


def comparison_grid(comparisons: Sequence[Comparison], reference: str) -> Grid:
    """Tabulate comparisons with one reference, with Holm's adjusted p-values."""
    rows = [
        (
            title(c.method),
            [
                f"{c.difference:+.3f}".replace("-", "−"),
                f"{c.wins} : {c.losses}",
                str(c.pairs),
                _format_p(c.p),
                _format_p(adjusted),
            ],
        )
        for c, adjusted in zip(comparisons, holm([c.p for c in comparisons]), strict=True)
    ]
    columns = ["mean difference", "better : worse", "pairs", "p (Wilcoxon)", "p (Holm)"]
    return Grid(f"against {title(reference)}", columns, rows, set(), set())


def _format_p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


class CriticalDifference(NamedTuple):
    """Mean ranks, and the difference from which two of them are significant (Nemenyi, 5 %)."""

    ranks: dict[str, float]
    difference: float
    blocks: int  # number of datasets
    p: float  # p-value of Friedman's test that all methods are alike

    def cliques(self) -> list[tuple[float, float]]:
        """Return the maximal intervals of ranks within which methods do not differ."""
        ordered = sorted(self.ranks.values())
        spans = [(low, max(r for r in ordered if r - low <= self.difference)) for low in ordered]
        return [s for s in spans if s[1] > s[0] and not any(o != s and o[0] <= s[0] and o[1] >= s[1] for o in spans)]


def critical_difference(ranks: Mapping[str, Sequence[float]]) -> CriticalDifference | None:
    """Compute Friedman's test and Nemenyi's critical difference of ranks; None for too few methods or datasets.

    >>> cd = critical_difference({"a": [1, 1, 1, 1], "b": [2, 2, 2, 2], "c": [3, 3, 3, 3]})
    >>> round(cd.difference, 3), round(cd.p, 4)
    (1.657, 0.0183)
    """
    ranked = {method: list(values) for method, values in ranks.items() if method not in NOT_RANKED}
    methods, blocks = len(ranked), len(next(iter(ranked.values()), []))
    if methods < 3 or blocks < 2:
        return None
    critical = studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2)
    difference = float(critical * np.sqrt(methods * (methods + 1) / (6 * blocks)))
    means = {method: float(np.mean(values)) for method, values in ranked.items()}
    tied = len({tuple(values) for values in ranked.values()}) == 1
    p = 1.0 if tied else float(friedmanchisquare(*ranked.values()).pvalue)
    return CriticalDifference(means, difference, blocks, p)
