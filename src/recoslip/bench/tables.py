"""Summaries of records -> tables and documents, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from recoslip.bench.plan import TITLES
from recoslip.bench.statistics import Comparison, Summary, holm, is_ranked
from recoslip.datasets.catalogue import GRAPHS

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
