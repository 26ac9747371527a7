"""Planned cells and those of their records that exist -> tables, as Markdown and as LaTeX."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from recoslip.bench import paper
from recoslip.bench.paper import title
from recoslip.bench.plan import Cell
from recoslip.bench.records import Key

METRICS = {  # name in the records: title, whether higher is better
    "auroc": ("AU-ROC", True),
    "ap": ("average precision", True),
    "f1": ("F1 at the threshold", True),
    "fpr95": ("FPR at 95 % recall", False),
    "seconds": ("seconds per seed", False),
}
NOT_RANKED = ("oracle",)  # it is given the truth


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


@dataclass
class Grid:
    """A table of texts. The best of a column may be bold and the second best underlined."""

    corner: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]
    best: set[tuple[int, int]]
    second: set[tuple[int, int]]

    def markdown(self) -> str:
        """Write it in Markdown."""
        names = [_markdown(name) for name in (self.corner, *self.columns)]
        lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        for r, (name, texts) in enumerate(self.rows):
            cells = [self._styled(r, c, text, "**{}**", "<u>{}</u>") for c, text in enumerate(texts)]
            lines.append(f"| {' | '.join([_markdown(name), *cells])} |")
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """Write it in LaTeX with booktabs."""
        names = [self.corner or "Method", *self.columns]
        lines = [
            r"\begin{tabular}{l" + "c" * len(self.columns) + "}",
            r"\toprule",
            " & ".join(rf"\textbf{{{_latex(name)}}}" for name in names) + r" \\",
            r"\midrule",
        ]
        for r, (name, texts) in enumerate(self.rows):
            cells = [self._styled(r, c, _latex(t), r"\textbf{{{}}}", r"\underline{{{}}}") for c, t in enumerate(texts)]
            lines.append(" & ".join([_latex(name), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def _styled(self, row: int, column: int, text: str, best: str, second: str) -> str:
        if (row, column) in self.best:
            return best.format(text)
        return second.format(text) if (row, column) in self.second else text


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


_LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "✓": r"$\checkmark$", "✗": r"$\times$"}
)


def _latex(text: str) -> str:
    return text.translate(_LATEX)


def grid(
    summaries: Mapping[tuple[str, str], Summary],
    methods: Sequence[str],
    datasets: Sequence[str],
    write: Callable[[Summary], str],
    *,
    higher_is_better: bool = True,
) -> Grid:
    """Arrange methods by datasets, the best of each dataset bold and the second best underlined.

    A mean over fewer runs than planned says so and is neither.
    """
    best: set[tuple[int, int]] = set()
    second: set[tuple[int, int]] = set()
    for column, dataset in enumerate(datasets):
        found = {row: summaries.get((method, dataset)) for row, method in enumerate(methods)}
        means = {row: s.mean for row, s in found.items() if s and s.complete and methods[row] not in NOT_RANKED}
        values = sorted(set(means.values()), reverse=higher_is_better)
        for rank, cells in ((0, best), (1, second)):
            if len(means) > 1 and rank < len(values):
                cells |= {(row, column) for row, mean in means.items() if mean == values[rank]}
    rows = [
        (title(m), [_cell(summaries[m, dataset], write) if (m, dataset) in summaries else "–" for dataset in datasets])
        for m in methods
    ]
    return Grid("", [title(dataset) for dataset in datasets], rows, best, second)


def _cell(summary: Summary, write: Callable[[Summary], str]) -> str:
    return write(summary) + ("" if summary.complete else f" ({summary.runs} of {summary.planned} runs)")


def format_mean(summary: Summary) -> str:
    """Write mean ± standard error.

    >>> format_mean(Summary(0.7312, 0.0123, {}, 10, 10))
    '0.731 ± 0.012'
    """
    return f"{summary.mean:.3f}" + ("" if summary.error is None else f" ± {summary.error:.3f}")


def format_seconds(summary: Summary) -> str:
    """Write a duration.

    >>> format_seconds(Summary(0.123, None, {}, 1, 1)), format_seconds(Summary(12.34, None, {}, 1, 1))
    ('0.12', '12.3')
    """
    return f"{summary.mean:.2f}" if summary.mean < 10 else f"{summary.mean:.1f}"


def compare_with_paper(
    summaries: Mapping[tuple[str, str], Summary], methods: Sequence[str], datasets: Sequence[str]
) -> Grid | None:
    """Show the paper's AU-ROC, ours minus it, and whether that is within two standard errors; None without either."""
    shared = [d for d in datasets if any((m, d) in paper.AUROC for m in methods)]
    rows = [
        (title(m), [_difference(summaries.get((m, d)), paper.AUROC.get((m, d))) for d in shared])
        for m in methods
        if any((m, d) in paper.AUROC for d in shared)
    ]
    return Grid("paper, ours − paper", [title(d) for d in shared], rows, set(), set()) if rows else None


def _difference(ours: Summary | None, theirs: paper.PaperMean | None) -> str:
    if theirs is None:
        return ""
    text = f"{theirs.mean:.3f} ± {theirs.error:.3f}"
    if ours is None:
        return text
    difference = ours.mean - theirs.mean
    sign = "−" if round(difference, 3) < 0 else "+"
    verdict = {True: " ✓", False: " ✗", None: ""}[agrees(ours, theirs)]
    return f"{text}, {sign}{abs(difference):.3f}{verdict}"


def agrees(ours: Summary, theirs: paper.PaperMean) -> bool | None:
    """Say whether a difference is at most two standard errors of it, or rounding; None for a single run.

    Where the paper's error is 0 the method is deterministic, and a single run is compared too.

    >>> agrees(Summary(0.70, 0.01, {}, 10, 10), paper.PaperMean(0.73, 0.02))
    True
    """
    if ours.error is None and theirs.error > 0:
        return None
    error = np.hypot(ours.error or 0.0, theirs.error)
    return bool(abs(ours.mean - theirs.mean) <= max(2 * error, 0.0005))


def ranks(
    summaries: Mapping[tuple[str, str], Summary], methods: Sequence[str], datasets: Sequence[str]
) -> dict[str, list[float]] | None:
    """Rank the methods on each dataset by mean, 1 is the best, ties share a rank; None unless all have all runs."""
    found = [summaries.get((m, d)) for m in methods for d in datasets]
    if not found or not all(summary and summary.complete for summary in found):
        return None
    by_dataset = np.stack([rankdata([-summaries[m, d].mean for m in methods]) for d in datasets])
    return {method: by_dataset[:, k].tolist() for k, method in enumerate(methods)}
