"""An experiment's cells and those of their records that exist -> files: Markdown, and its tables as LaTeX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from recoslip.bench.datasets import DEFAULT_SPLIT
from recoslip.bench.plan import Cell
from recoslip.bench.records import Key
from recoslip.bench.statistics import (
    CriticalDifference,
    Summary,
    compare,
    critical_difference,
    is_ranked,
    ranks,
    summarise,
)
from recoslip.bench.tables import (
    METRICS,
    Document,
    Files,
    Grid,
    comparison_grid,
    format_mean,
    format_seconds,
    method_grid,
    title,
)
from recoslip.datasets.panel import CASES
from recoslip.detectors.base import Scores
from recoslip.graph.split import Mask

HEADINGS = {
    "main": "Methods compared",
    "ablation": "Link prediction: what each variant brings",
    "panel": "The panel: every graph in several cases",
    "shift": "Shift intensity: none (NS), minor (MS), strong (S)",
}
TIMES = (
    "The time of a fleet divided by its seeds, so it depends on how many train together and on how many processes "
    "share the machine."
)
OWN_SPLIT = "the split that comes with the dataset (of the paper's graphs, the authors')"
PANEL_SPLIT = "the domains that belong to each case; a fifth of the source was presented as target"
PAIRED = (
    "A pair is one split of one dataset, its value the mean over seeds. Splits of a dataset share most of their "
    "nodes, so they are not independent and the p-values are too small by an unknown factor."
)
PANEL_LEGEND = (
    "AU-ROC over all target nodes, the mean of the cases of a kind. *Best* counts the cases in which no other method "
    "is better; *worst* is the largest distance to the best of the others in one case. The oracle is given the truth "
    "and not counted. Cases of one graph share most of their nodes, so they are not independent."
)


class Page:
    """The document of an experiment.

    Args:
        name: main, ablation, shift or panel.
        cells: what was planned; its order is that of rows and columns.
        found: records, of which those of planned runs are used.
        reference: the method that others are tested against.
        changed: settings that differ from the paper's, which the document states.
    """

    def __init__(
        self,
        name: str,
        cells: Sequence[Cell],
        found: Mapping[Key, dict[str, Any]],
        *,
        reference: str = "reco-slip",
        changed: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.cells, self.found, self.reference, self.changed = name, cells, found, reference, changed or {}
        self.methods, self.datasets = _distinct(c.method for c in cells), _distinct(c.dataset for c in cells)
        self.ranked = [method for method in self.methods if is_ranked(method)]
        self.has_default_split = _distinct(c.split for c in cells) == [DEFAULT_SPLIT]
        self.auroc = summarise(cells, found, "auroc")
        self.document = Document(HEADINGS[name], name if self.has_default_split else f"{name}-splits")

    def files(self) -> Files:
        """Render the document; return all files."""
        self.document.add_text(self._provenance())
        if self.name == "panel":
            add_panel(self.document, self.auroc, self.methods, self.datasets)
            return self.document.files()
        self.add_auroc()
        if not self.has_default_split:
            self._add_paired_tests()
        by_method = ranks(self.auroc, self.ranked, self.datasets)
        if by_method and (difference := critical_difference(by_method)):
            self.add_ranks(difference)
        self._add_other_metrics()
        return self.document.files()

    def add_auroc(self) -> None:
        """Add the table of AU-ROC."""
        grid = method_grid(self.auroc, self.methods, self.datasets, format_mean)
        self.document.add_table("## Test AU-ROC", grid, "")

    def _add_paired_tests(self) -> None:
        """Add paired tests over splits: for all datasets together, and for each."""
        heading = f"## Paired over splits, against {title(self.reference)}"
        self._add_comparisons(self.datasets, heading, "-paired", PAIRED)
        for dataset in self.datasets if len(self.datasets) > 1 else []:
            self._add_comparisons([dataset], f"### {title(dataset)}", f"-paired-{dataset}")

    def _add_comparisons(self, datasets: Sequence[str], heading: str, suffix: str, text: str | None = None) -> None:
        if comparisons := compare(self.auroc, self.methods, datasets, self.reference):
            self.document.add_table(heading, comparison_grid(comparisons, self.reference), suffix, text)

    def add_ranks(self, cd: CriticalDifference) -> None:
        """Add mean ranks and their critical difference."""
        rows = [(title(m), [f"{rank:.2f}"]) for m, rank in sorted(cd.ranks.items(), key=lambda pair: pair[1])]
        text = (
            f"Mean rank over {cd.blocks} datasets. Friedman: p = {cd.p:.3g}. Two methods differ at 5 % (Nemenyi) if "
            f"their mean ranks are {cd.difference:.2f} apart."
        )
        if self.name == "shift":
            text += " Versions of one graph are not independent datasets, so the test is too sure of itself."
        elif cd.blocks < 10:
            text += " With so few datasets it finds large differences only."
        self.document.add_table("## Ranks and the critical difference", Grid("", ["mean rank"], rows), "-ranks", text)

    def _add_other_metrics(self) -> None:
        """Add a table for every metric but AU-ROC; times do not compete."""
        self.document.add_text("## Other measures")
        for metric, (heading, higher_is_better) in list(METRICS.items())[1:]:
            is_time = metric == "seconds"
            summaries, write = summarise(self.cells, self.found, metric), format_seconds if is_time else format_mean
            grid = method_grid(summaries, self.methods, self.datasets, write, higher_is_better=higher_is_better)
            if is_time:
                grid = Grid(grid.corner, grid.columns, grid.rows)
            text = TIMES if is_time else None
            self.document.add_table(f"### {heading[0].upper()}{heading[1:]}", grid, f"-{metric}", text)

    def _provenance(self) -> str:
        """Say what the numbers are means of, how many of the planned runs have a record, and what they ran on."""
        planned = [key for cell in self.cells for key in cell.runs()]
        used = [self.found[key] for key in planned if key in self.found]
        if not used:
            return "None of the planned runs has a record yet."
        facts = []
        for name, key in (("device", "device"), ("torch", "torch"), ("code", "code"), ("processes at a time", "jobs")):
            counts = Counter(r.get(key, "not recorded") for r in used).most_common()
            facts.append(f"{name}: " + ", ".join(f"{value} ({count:,})" for value, count in counts))
        changed = ", ".join(f"{k} = {v}" for k, v in self.changed.items())
        settings = f" With {changed}, not the paper's." if changed else ""
        runs = f"{len(used):,} of {len(planned):,} planned runs"
        return f"{self._sample(used)}.{settings} {runs}. {'; '.join(facts)}."

    def _sample(self, records: Sequence[dict[str, Any]]) -> str:
        """Say which splits and how many seeds records are of."""
        splits = sorted({record["split"] for record in records})
        count = max(Counter((r["dataset"], r["split"], r["method"]) for r in records).values())
        seeds = f"{count} seed{'s' if count > 1 else ''}"
        if len(splits) > 1:
            return f"Mean ± standard error over {len(splits)} splits, {seeds} in each"
        own = PANEL_SPLIT if self.name == "panel" else OWN_SPLIT
        split = own if splits == [DEFAULT_SPLIT] else f"split {splits[0]}"
        return f"{'Mean ± standard error over ' if count > 1 else ''}{seeds} on {split}"


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def add_panel(
    document: Document, auroc: Mapping[tuple[str, str], Summary], methods: Sequence[str], datasets: Sequence[str]
) -> None:
    """Add both tables, of the cases that every method has a record of."""
    complete = [name for name in datasets if all((method, name) in auroc for method in methods)]
    if not complete:
        document.add_text("No case has a record of every method yet.")
        return
    values = np.array([[auroc[method, name].mean for name in complete] for method in methods])
    document.add_table("## Means, wins and worst cases", _summary(values, methods, complete), "-summary", PANEL_LEGEND)
    listed = "\n".join(f"- **{case}**: {about}." for case, about in CASES.items())
    document.add_text(f"The kinds of cases (mixed: mixed0, mixed1, mixed2):\n\n{listed}")
    rows = [(name, [f"{value:.3f}" for value in values[:, k]]) for k, name in enumerate(complete)]
    best = {(name, method) for method, name in _best(values, _ranked(methods))}
    grid = Grid("", [title(method) for method in methods], rows, best)
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
    return Grid("", [f"all {len(datasets)}", *columns, "best", "worst"], rows, _best(means, ranked))


def _ranked(methods: Sequence[str]) -> Mask:
    return np.array([is_ranked(method) for method in methods])


def _best(values: Scores, ranked: Mask) -> set[tuple[int, int]]:
    """Return (row, column) of the highest value in each column, of the rows that are ranked."""
    candidates = np.where(ranked[:, None], values, -np.inf)
    rows, columns = np.nonzero((candidates == candidates.max(axis=0)) & ranked[:, None])
    return set(zip(rows.tolist(), columns.tolist(), strict=True))
