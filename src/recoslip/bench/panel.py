"""Summaries of the panel's cases -> a table of means, wins and worst cases, and one of every case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recoslip.bench.document import Document
from recoslip.bench.paper import title
from recoslip.bench.tables import NOT_RANKED, Grid, Summary
from recoslip.datasets.panel import CASES
from recoslip.detectors.base import Scores
from recoslip.graph.split import Mask

LEGEND = (
    "AU-ROC over all target nodes, the mean of the cases of a kind. *Best* counts the cases in which no other method "
    "is better; *worst* is the largest distance to the best of the others in one case. The oracle is given the truth "
    "and not counted. Cases of one graph share most of their nodes, so they are not independent."
)


def add_panel(
    document: Document, auroc: Mapping[tuple[str, str], Summary], methods: Sequence[str], datasets: Sequence[str]
) -> None:
    """Add both tables, of the cases that every method has a record of."""
    complete = [name for name in datasets if all((method, name) in auroc for method in methods)]
    if not complete:
        document.add_text("No case has a record of every method yet.")
        return
    values = np.array([[auroc[method, name].mean for name in complete] for method in methods])
    document.add_table("## Means, wins and worst cases", _summary(values, methods, complete), "-summary", LEGEND)
    listed = "\n".join(f"- **{case}**: {about}." for case, about in CASES.items())
    document.add_text(f"The kinds of cases (mixed: mixed0, mixed1, mixed2):\n\n{listed}")
    rows = [(name, [f"{value:.3f}" for value in values[:, k]]) for k, name in enumerate(complete)]
    best = {(name, method) for method, name in _best(values, _ranked(methods))}
    grid = Grid("", [title(method) for method in methods], rows, best, set())
    document.add_table("## Every case", grid, "-cases")
    left_out = len(datasets) - len(complete)
    if left_out:
        document.add_text(f"Cases left out for want of a record of every method: {left_out}.")


def _summary(values: Scores, methods: Sequence[str], datasets: Sequence[str]) -> Grid:
    kinds = np.array([name.rpartition("-")[2].rstrip("012") for name in datasets])
    columns = list(dict.fromkeys(kinds.tolist()))
    means = np.stack([values.mean(axis=1), *(values[:, kinds == kind].mean(axis=1) for kind in columns)], axis=1)
    ranked = _ranked(methods)
    rows = []
    for m, method in enumerate(methods):
        others = values[ranked & (np.arange(len(methods)) != m)]
        texts = [f"{value:.3f}" for value in means[m]]
        if ranked[m] and len(others):
            behind = values[m] - others.max(axis=0)
            texts += [str(int((behind >= 0).sum())), f"{behind.min():+.3f}".replace("-", "−")]
        else:
            texts += ["", ""]
        rows.append((title(method), texts))
    return Grid("", [f"all {len(datasets)}", *columns, "best", "worst"], rows, _best(means, ranked), set())


def _ranked(methods: Sequence[str]) -> Mask:
    return np.array([method not in NOT_RANKED for method in methods])


def _best(values: Scores, ranked: Mask) -> set[tuple[int, int]]:
    """Return (row, column) of the highest value in each column, of the rows that are ranked."""
    candidates = np.where(ranked[:, None], values, -np.inf)
    rows, columns = np.nonzero((candidates == candidates.max(axis=0)) & ranked[:, None])
    return set(zip(rows.tolist(), columns.tolist(), strict=True))
