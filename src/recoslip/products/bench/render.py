"""An experiment's cells and those of their records that exist -> files: Markdown, and its tables as LaTeX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from recoslip.data.datasets.catalogue import GRAPHS
from recoslip.data.datasets.panel import CASES
from recoslip.data.split import Mask
from recoslip.learning.base import Scores
from recoslip.products.bench.datasets import DEFAULT_SPLIT
from recoslip.products.bench.plan import TITLES, Cell
from recoslip.products.bench.records import Key
from recoslip.products.bench.statistics import Comparison, Summary, compare, holm, is_ranked, summarise

Files: TypeAlias = dict[str, str | bytes]  # content by name

METRICS = {  # name in the records: title, whether higher is better
    "auroc": ("AU-ROC", True),
    "ap": ("average precision", True),
    "f1": ("F1 at the threshold", True),
    "fpr95": ("FPR at 95 % recall", False),
    "seconds": ("seconds per seed", False),
}


def title(name: str) -> str:
    """Return the name of a method or dataset as the paper prints it, or as it is where the paper has none.

    >>> title("nnpu"), title("cora-ms"), title("photo"), title("shop")
    ('nnPU', 'Cora-MS', 'Photo', 'shop')
    """
    graph, dash, version = name.partition("-")
    if graph in GRAPHS:
        return f"{GRAPHS[graph]}{dash}{version.upper()}"
    return TITLES.get(name, name)


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


class Document:
    """A Markdown file that is being written, with its LaTeX tables and images.

    Args:
        heading: the first heading.
        stem: what the names of all its files begin with.
    """

    def __init__(self, heading: str, stem: str) -> None:
        self.stem = stem
        self._paragraphs = [f"# {heading}\n"]
        self._attachments: Files = {}

    def add_text(self, text: str) -> None:
        """Add a paragraph or a heading."""
        self._paragraphs.append(text + "\n")

    def add_table(self, heading: str, grid: Grid, suffix: str, text: str | None = None) -> None:
        """Add a heading, an explanation and a table, and the table as a LaTeX file too."""
        self._paragraphs += [f"{part}\n" for part in (heading, text) if part] + [grid.markdown()]
        self._attachments[f"{self.stem}{suffix}.tex"] = grid.latex()

    def add_image(self, suffix: str, description: str, by_ending: Mapping[str, bytes]) -> None:
        """Add an image, given as the content of a file for each file ending."""
        self._attachments |= {f"{self.stem}{suffix}.{ending}": content for ending, content in by_ending.items()}
        self.add_text(f"![{description}]({self.stem}{suffix}.svg)")

    def files(self) -> Files:
        """Return all files."""
        return self._attachments | {f"{self.stem}.md": "\n".join(self._paragraphs)}


def method_grid(
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
        means = {row: s.mean for row, s in found.items() if s and s.complete and is_ranked(methods[row])}
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
    return Grid(f"against {title(reference)}", columns, rows)


def _format_p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


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
        self.add_tests()
        self._add_other_metrics()
        return self.document.files()

    def add_auroc(self) -> None:
        """Add the table of AU-ROC."""
        grid = method_grid(self.auroc, self.methods, self.datasets, format_mean)
        self.document.add_table("## Test AU-ROC", grid, "")

    def add_tests(self) -> None:
        """Add paired tests over splits, where there are several: for all datasets together, and for each."""
        if self.has_default_split:
            return
        heading = f"## Paired over splits, against {title(self.reference)}"
        self._add_comparisons(self.datasets, heading, "-paired", PAIRED)
        for dataset in self.datasets if len(self.datasets) > 1 else []:
            self._add_comparisons([dataset], f"### {title(dataset)}", f"-paired-{dataset}")

    def _add_comparisons(self, datasets: Sequence[str], heading: str, suffix: str, text: str | None = None) -> None:
        if comparisons := compare(self.auroc, self.methods, datasets, self.reference):
            self.document.add_table(heading, comparison_grid(comparisons, self.reference), suffix, text)

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
