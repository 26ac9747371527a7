"""Planned cells and those of their records that exist -> summaries, and whether methods differ significantly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import wilcoxon

from recoslip.products.bench.plan import Cell
from recoslip.products.bench.records import Key


def is_ranked(method: str) -> bool:
    """Whether a method competes with the others: the oracle does not, because it is given the truth."""
    return method != "oracle"


@dataclass(frozen=True)
class Summary:
    """The result of a method on a dataset: the mean over the seeds of one split, or over the means of splits."""

    mean: float
    error: float | None  # standard error; None for a single value
    by_split: dict[str, float]  # mean over seeds
    runs: int
    planned: int

    @property
    def complete(self) -> bool:
        """Whether every planned run has a record."""
        return self.runs == self.planned


def summarise(
    cells: Sequence[Cell], found: Mapping[Key, dict[str, Any]], metric: str
) -> dict[tuple[str, str], Summary]:
    """Summarise the records of planned cells by method and dataset; those without any are left out."""
    by_split: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    planned: Counter[tuple[str, str]] = Counter()
    for cell in cells:
        planned[cell.method, cell.dataset] += len(cell.seeds)
        values = [found[key][metric] for key in cell.runs() if key in found]
        if values:
            by_split[cell.method, cell.dataset][cell.split] = values
    result = {}
    for key, splits in by_split.items():
        means = {split: float(np.mean(values)) for split, values in splits.items()}
        sample = list(means.values()) if len(means) > 1 else next(iter(splits.values()))
        error = float(np.std(sample, ddof=1) / np.sqrt(len(sample))) if len(sample) > 1 else None
        runs = sum(map(len, splits.values()))
        result[key] = Summary(float(np.mean(sample)), error, means, runs, planned[key])
    return result


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
        if method == reference or not is_ranked(method):
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
