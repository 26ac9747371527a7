"""Planned jobs and those of their records that exist -> a document: Markdown, and its tables as LaTeX."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from recoslip.base.text import counted
from recoslip.data.datasets.panel import CASES
from recoslip.data.split import Mask
from recoslip.learning.base import Scores
from recoslip.products.bench.datasets import DEFAULT_SPLIT
from recoslip.products.bench.records import (
    Comparison,
    Job,
    Key,
    Summaries,
    Summary,
    compare,
    holm,
    is_ranked,
    summarise,
)

Files: TypeAlias = dict[str, str | bytes]  # content by name


METRICS: Mapping[str, tuple[str, bool | None]] = {  # besides AU-ROC: heading, whether higher is better; None: neither
    "ap": ("Average precision", True),
    "f1": ("F1 at the threshold", True),
    "fpr95": ("FPR at 95 % recall", False),
    "seconds": ("Seconds per seed", None),
}


@dataclass
class Grid:
    """A table of texts. The best of a column may be bold and the second best underlined."""

    corner: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]
    best: set[tuple[int, int]] = field(default_factory=set)
    second: set[tuple[int, int]] = field(default_factory=set)

    def markdown(self) -> str:
        """Write it in Markdown."""
        head, *lines = (f"| {' | '.join(row)} |" for row in self._written(_markdown, str, "**{}**", "<u>{}</u>"))
        return "\n".join([head, "|---" * (len(self.columns) + 1) + "|", *lines]) + "\n"

    def latex(self) -> str:
        """Write it in LaTeX with booktabs."""
        rows = self._written(_latex, _latex, r"\textbf{{{}}}", r"\underline{{{}}}")
        rows[0] = [rf"\textbf{{{name or 'Method'}}}" for name in rows[0]]
        head, *lines = (" & ".join(row) + r" \\" for row in rows)
        begin = [r"\begin{tabular}{l" + "c" * len(self.columns) + "}", r"\toprule", head, r"\midrule"]
        return "\n".join([*begin, *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def _written(
        self, name: Callable[[str], str], text: Callable[[str], str], best: str, second: str
    ) -> list[list[str]]:
        """Return the head and the rows, with what writes a name, a text, the best and the second best."""
        forms = dict.fromkeys(self.second, second) | dict.fromkeys(self.best, best)
        rows = [
            [name(row), *(forms.get((r, c), "{}").format(text(each)) for c, each in enumerate(texts))]
            for r, (row, texts) in enumerate(self.rows)
        ]
        return [[name(each) for each in (self.corner, *self.columns)], *rows]


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


_LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "✓": r"$\checkmark$", "✗": r"$\times$"}
)


def _latex(text: str) -> str:
    return text.translate(_LATEX)


class Document:
    """A Markdown file that is being written, with its LaTeX tables and images.

    Args:
        heading: the first heading.
        stem: what the names of all its files begin with.
    """

    def __init__(self, heading: str, stem: str) -> None:
        self.stem = stem
        self.paragraphs = [f"# {heading}\n"]
        self.attachments: Files = {}

    def add_text(self, text: str) -> None:
        """Add a paragraph or a heading."""
        self.paragraphs.append(text + "\n")

    def add_table(self, heading: str, grid: Grid, suffix: str, text: str | None = None) -> None:
        """Add a heading, an explanation and a table, and the table as a LaTeX file too."""
        self.paragraphs += [f"{part}\n" for part in (heading, text) if part] + [grid.markdown()]
        self.attachments[f"{self.stem}{suffix}.tex"] = grid.latex()

    def files(self) -> Files:
        """Return all files."""
        return self.attachments | {f"{self.stem}.md": "\n".join(self.paragraphs)}


def method_grid(
    summaries: Summaries,
    methods: Sequence[str],
    datasets: Sequence[str],
    write: Callable[[Summary], str],
    *,
    higher_is_better: bool | None = True,
) -> Grid:
    """Arrange methods by datasets, the best of each dataset bold and the second best underlined.

    A mean over fewer runs than planned says so and is neither.
    """
    rows: list[tuple[str, list[str]]] = [(method, []) for method in methods]
    best: set[tuple[int, int]] = set()
    second: set[tuple[int, int]] = set()
    for column, dataset in enumerate(datasets):
        ranked = {}
        for row, method in enumerate(methods):
            found = summaries.get((method, dataset))
            rows[row][1].append("–" if found is None else write(found) + found.note)
            if found is not None and found.complete and is_ranked(method) and higher_is_better is not None:
                ranked[row] = found.mean
        values = sorted(set(ranked.values()), reverse=bool(higher_is_better)) if len(ranked) > 1 else []
        for value, chosen in zip(values, (best, second), strict=False):
            chosen |= {(row, column) for row, mean in ranked.items() if mean == value}
    return Grid("", list(datasets), rows, best, second)


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


def comparison_grid(comparisons: Sequence[Comparison], reference: str) -> Grid:
    """Tabulate comparisons with one reference, with Holm's adjusted p-values."""
    rows = [
        (c.method, [_signed(c.difference), f"{c.wins} : {c.losses}", str(c.pairs), _format_p(c.p), _format_p(adjusted)])
        for c, adjusted in zip(comparisons, holm([c.p for c in comparisons]), strict=True)
    ]
    columns = ["mean difference", "better : worse", "pairs", "p (Wilcoxon)", "p (Holm)"]
    return Grid(f"against {reference}", columns, rows)


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _format_p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


TIMES = (
    "The time of a fleet divided by its seeds, so it depends on how many train together and on how many processes "
    "share the machine."
)
PAIRED = (
    "A pair is one split of one dataset, its value the mean over seeds. Splits of a dataset share most of their "
    "nodes, so they are not independent and the p-values are too small by an unknown factor."
)
PANEL = (
    "AU-ROC over all target nodes, the mean of the cases of a kind; a fifth of the source was presented as target. "
    "*Best* counts the cases in which no other method is better; *worst* is the largest distance to the best of the "
    "others in one case. The oracle is given the truth and not counted. Cases of one graph share most of their nodes, "
    "so they are not independent."
)


class Page(Document):
    """The document of an experiment.

    Args:
        name: main or panel.
        jobs: what was planned; its order is that of rows and columns.
        found: records, of which those of planned runs are used.
        reference: the method that others are tested against.
        changed: settings that differ from the paper's, which the document states.
    """

    headings: ClassVar[Mapping[str, str]] = {"main": "Methods compared", "panel": "Every graph in several cases"}

    def __init__(
        self,
        name: str,
        jobs: Sequence[Job],
        found: Mapping[Key, dict[str, Any]],
        *,
        reference: str = "reco-slip",
        changed: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.jobs, self.found, self.reference, self.changed = name, jobs, found, reference, changed or {}
        self.methods = list(dict.fromkeys(job.method for job in jobs))
        self.datasets = list(dict.fromkeys(job.dataset for job in jobs))
        self.has_default_split = {job.split for job in jobs} == {DEFAULT_SPLIT}
        self.auroc = summarise(jobs, found, "auroc")
        super().__init__(self.headings[name], name if self.has_default_split else f"{name}-splits")

    def files(self) -> Files:
        """Render the document; return all files."""
        self.add_text(self._provenance())
        if self.name == "panel":
            add_panel(self, self.auroc, self.methods, self.datasets)
        else:
            self.add_auroc()
            self.add_tests()
            self._add_other_metrics()
        return super().files()

    def add_auroc(self) -> None:
        """Add the table of AU-ROC."""
        grid = method_grid(self.auroc, self.methods, self.datasets, format_mean)
        self.add_table("## Test AU-ROC", grid, "")

    def add_tests(self) -> None:
        """Add paired tests over splits, where there are several: for all datasets together, and for each."""
        if self.has_default_split:
            return
        heading = f"## Paired over splits, against {self.reference}"
        self._add_comparisons(self.datasets, heading, "-paired", PAIRED)
        for dataset in self.datasets if len(self.datasets) > 1 else []:
            self._add_comparisons([dataset], f"### {dataset}", f"-paired-{dataset}")

    def _add_comparisons(self, datasets: Sequence[str], heading: str, suffix: str, text: str | None = None) -> None:
        if comparisons := compare(self.auroc, self.methods, datasets, self.reference):
            self.add_table(heading, comparison_grid(comparisons, self.reference), suffix, text)

    def _add_other_metrics(self) -> None:
        """Add a table for every metric but AU-ROC; times do not compete."""
        self.add_text("## Other measures")
        for metric, (heading, higher_is_better) in METRICS.items():
            summaries = summarise(self.jobs, self.found, metric)
            write, text = (format_seconds, TIMES) if metric == "seconds" else (format_mean, None)
            grid = method_grid(summaries, self.methods, self.datasets, write, higher_is_better=higher_is_better)
            self.add_table(f"### {heading}", grid, f"-{metric}", text)

    def _provenance(self) -> str:
        """Say what the numbers are means of, how many of the planned runs have a record, and what they ran on."""
        planned = [key for job in self.jobs for key in job.runs()]
        used = [self.found[key] for key in planned if key in self.found]
        if not used:
            return "None of the planned runs has a record yet."
        facts = []
        for name, key in (("device", "device"), ("torch", "torch"), ("code", "code"), ("processes at a time", "jobs")):
            counts = Counter(r.get(key, "not recorded") for r in used).most_common()
            facts.append(f"{name}: " + ", ".join(f"{value} ({count:,})" for value, count in counts))
        splits, seeds = (len({record[name] for record in used}) for name in ("split", "seed"))
        over = f"{counted(splits, 'split')}, {counted(seeds, 'seed')} in each" if splits > 1 else counted(seeds, "seed")
        changed = ", ".join(f"{k} = {v}" for k, v in self.changed.items())
        settings = f" With {changed}, not the paper's." if changed else ""
        runs = f"{len(used):,} of {len(planned):,} planned runs"
        return f"Mean ± standard error over {over}.{settings} {runs}. {'; '.join(facts)}."


def add_panel(document: Document, auroc: Summaries, methods: Sequence[str], datasets: Sequence[str]) -> None:
    """Add both tables of the panel, of the cases that every method has a record of."""
    complete = [name for name in datasets if all((method, name) in auroc for method in methods)]
    if not complete:
        document.add_text("No case has a record of every method yet.")
        return
    values = np.array([[auroc[method, name].mean for name in complete] for method in methods])
    ranked = np.array([is_ranked(method) for method in methods])
    document.add_table("## Means, wins and worst cases", _panel(values, ranked, methods, complete), "-summary", PANEL)
    listed = "\n".join(f"- **{case}**: {about}." for case, about in CASES.items())
    document.add_text(f"The kinds of cases (mixed: mixed0, mixed1, mixed2):\n\n{listed}")
    rows = [(name, [f"{value:.3f}" for value in values[:, k]]) for k, name in enumerate(complete)]
    best = {(case, method) for method, case in _best(values, ranked)}
    document.add_table("## Every case", Grid("", list(methods), rows, best), "-cases")
    if left_out := len(datasets) - len(complete):
        document.add_text(f"Cases left out for want of a record of every method: {left_out}.")


def _panel(values: Scores, ranked: Mask, methods: Sequence[str], cases: Sequence[str]) -> Grid:
    """Tabulate the mean of each kind of case, in how many cases a method is the best, and its worst distance."""
    kinds = np.array([name.rpartition("-")[2].rstrip("012") for name in cases])
    columns = list(dict.fromkeys(kinds.tolist()))
    means = np.stack([values.mean(axis=1), *(values[:, kinds == kind].mean(axis=1) for kind in columns)], axis=1)
    rows = []
    for m, method in enumerate(methods):
        others, ends = values[ranked & (np.arange(len(methods)) != m)], ["", ""]
        if ranked[m] and len(others):
            ahead = values[m] - others.max(axis=0)
            ends = [str(int((ahead >= 0).sum())), _signed(ahead.min())]
        rows.append((method, [*(f"{value:.3f}" for value in means[m]), *ends]))
    return Grid("", [f"all {len(cases)}", *columns, "best", "worst"], rows, _best(means, ranked))


def _best(values: Scores, ranked: Mask) -> set[tuple[int, int]]:
    """Return (row, column) of the highest value in each column, of the rows that are ranked."""
    highest = values[ranked].max(axis=0, initial=-np.inf)
    return {(row, column) for row, column in np.argwhere(values == highest).tolist() if ranked[row]}
