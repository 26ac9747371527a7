"""Records of the paper's experiments -> their documents, with the paper's numbers beside ours, and the figures.

python benchmarks/paper/render.py                         # docs/results again, from the records there
python benchmarks/paper/render.py --out recoslip-bench    # the records of experiments.py, or of `recoslip bench main`
python benchmarks/paper/render.py --distributions         # the proportions of categories; needs the paper's graphs

It trains nothing. Datasets and methods without any record are left out. Arxiv may be in a folder of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import figures
import numpy as np
from experiments import DATASETS, HEADINGS, METHODS, SHIFTS, title
from printed import AUROC, RANKS, PaperMean
from proportions import proportions
from ranks import critical_difference, ranks

from recoslip.data.datasets.catalogue import GRAPHS
from recoslip.data.datasets.load import Dataset
from recoslip.products.bench.datasets import DEFAULT_SPLIT, Sources
from recoslip.products.bench.records import Records, Summary, is_ranked, plan, recorded
from recoslip.products.bench.run import parse_seeds, parse_splits, write_files
from recoslip.products.bench.tables import Document, Files, Grid, Page
from recoslip.products.cli.console import make_console

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
RUNS = (("own", "10"), ("10", "1"))  # splits and seeds of the documents: the authors' split, and ten splits
ADDED = {("shift", "10"): ("reco-slip-plus",)}  # methods beside those of the experiment, by its splits
EXPLANATION = (
    "The paper's mean ± standard error over its 10 seeds, our mean minus the paper's, and ✓ if that is at most "
    "two standard errors of the difference, ✗ if it is more."
)
ARXIV = (
    "The paper's arxiv column is for the node features that OGB distributes. With other features in the same files the "
    "two figures are not of one dataset."
)


class PaperDocument(Document):
    """A document with the paper's names of methods and datasets, and with images."""

    def add_table(self, heading: str, grid: Grid, suffix: str, text: str | None = None) -> None:
        """Add a table, with the paper's names in it."""
        rows = [(title(name), texts) for name, texts in grid.rows]
        named = replace(grid, corner=_titled(grid.corner), columns=[title(name) for name in grid.columns], rows=rows)
        super().add_table(_titled(heading), named, suffix, text)

    def add_image(self, suffix: str, description: str, by_ending: Mapping[str, bytes]) -> None:
        """Add an image, given as the content of a file for each file ending."""
        self.attachments |= {f"{self.stem}{suffix}.{ending}": content for ending, content in by_ending.items()}
        self.add_text(f"![{description}]({self.stem}{suffix}.svg)")


def _titled(text: str) -> str:
    """A text that ends in the name of a method or dataset, with the paper's name."""
    before, space, name = text.rpartition(" ")
    return f"{before}{space}{title(name)}"


class PaperPage(PaperDocument, Page):
    """The document of an experiment, with the paper's numbers and figures."""

    headings: ClassVar[Mapping[str, str]] = HEADINGS

    def add_auroc(self) -> None:
        """Add our AU-ROC and, for the paper's split and settings, the paper's; of shifts, ranks by intensity too."""
        super().add_auroc()
        grid = compare_with_paper(self.auroc, self.methods, self.datasets)
        if self.has_default_split and grid is not None:
            self.add_table("## Beside the paper", grid, "-paper", EXPLANATION)
            if "arxiv" in self.datasets:
                self.add_text(ARXIV)
        if self.name == "shift":
            self._add_shift_intensity()

    def _add_shift_intensity(self) -> None:
        """Add average ranks by intensity with the paper's, and the figure with a panel for each graph."""
        by_shift = [ranks(self.auroc, self.ranked, [f"{graph}-{s}" for graph in GRAPHS]) for s in SHIFTS]
        found = [each for each in by_shift if each is not None]
        if len(found) == len(SHIFTS):
            columns = (*SHIFTS, "overall")
            rows = []
            for method in self.ranked:
                lists = [each[method] for each in found]
                means = dict(zip(columns, map(np.mean, (*lists, np.concatenate(lists))), strict=True))
                theirs = RANKS.get(method, {}) if set(self.ranked) == set(METHODS["shift"]) else {}
                notes = {s: f" (paper {rank:.2f})" for s, rank in theirs.items()}
                rows.append((method, [f"{mean:.2f}{notes.get(s, '')}" for s, mean in means.items()]))
            grid = Grid("", [*(s.upper() for s in SHIFTS), "overall"], rows)
            self.add_table("## Average rank by intensity", grid, "-average-ranks")
        else:
            self.add_text("Average ranks need every method on every version of the four graphs.")
        figure = figures.shift_intensity(self.auroc, self.methods)
        if figure is not None:
            self.add_image("-intensity", "AU-ROC against shift intensity", figures.save(figure))

    def add_tests(self) -> None:
        """Add paired tests; mean ranks, their critical difference and its diagram."""
        super().add_tests()
        by_method = ranks(self.auroc, self.ranked, self.datasets)
        cd = None if by_method is None else critical_difference(by_method)
        if cd is None:
            return
        rows = [(m, [f"{rank:.2f}"]) for m, rank in sorted(cd.ranks.items(), key=lambda pair: pair[1])]
        text = (
            f"Mean rank over {cd.blocks} datasets. Friedman: p = {cd.p:.3g}. Two methods differ at 5 % (Nemenyi) if "
            f"their mean ranks are {cd.difference:.2f} apart."
        )
        if self.name == "shift":
            text += " Versions of one graph are not independent datasets, so the test is too sure of itself."
        elif cd.blocks < 10:
            text += " With so few datasets it finds large differences only."
        self.add_table("## Ranks and the critical difference", Grid("", ["mean rank"], rows), "-ranks", text)
        diagram = figures.save(figures.critical_difference(cd))
        self.add_image("-ranks", "critical-difference diagram", diagram)

    @property
    def ranked(self) -> list[str]:
        """The methods that compete."""
        return [method for method in self.methods if is_ranked(method)]


def compare_with_paper(
    summaries: Mapping[tuple[str, str], Summary], methods: Sequence[str], datasets: Sequence[str]
) -> Grid | None:
    """Show the paper's AU-ROC, ours minus it, and whether that is within two standard errors; None without either."""
    shared = [d for d in datasets if any((m, d) in AUROC for m in methods)]
    rows = [
        (m, [_difference(summaries.get((m, d)), AUROC.get((m, d))) for d in shared])
        for m in methods
        if any((m, d) in AUROC for d in shared)
    ]
    return Grid("paper, ours − paper", list(shared), rows) if rows else None


def _difference(ours: Summary | None, theirs: PaperMean | None) -> str:
    if theirs is None:
        return ""
    text = f"{theirs.mean:.3f} ± {theirs.error:.3f}"
    if ours is None:
        return text
    difference = ours.mean - theirs.mean
    sign = "−" if round(difference, 3) < 0 else "+"
    verdict = {True: " ✓", False: " ✗", None: ""}[agrees(ours, theirs)]
    return f"{text}, {sign}{abs(difference):.3f}{verdict}"


def agrees(ours: Summary, theirs: PaperMean) -> bool | None:
    """Say whether a difference is at most two standard errors of it, or rounding; None for a single run.

    Where the paper's error is 0 the method is deterministic, and a single run is compared too.
    """
    if ours.error is None and theirs.error > 0:
        return None
    error = np.hypot(ours.error or 0.0, theirs.error)
    return bool(abs(ours.mean - theirs.mean) <= max(2 * error, 0.0005))


def documents(records: Records, sources: Sources) -> Iterator[Files]:
    """Yield the files of each document that there are records for."""
    for experiment in ("main", "ablation", "shift"):
        for splits, seeds in RUNS:
            methods = (*METHODS[experiment], *ADDED.get((experiment, splits), ()))
            cells = plan(DATASETS[experiment], methods, parse_splits(splits), parse_seeds(seeds), sources)
            found: Mapping[Any, dict[str, Any]] = recorded(cells, records)
            used = {(key.dataset, key.method) for key in found}
            datasets, known = ({pair[k] for pair in used} for k in (0, 1))
            shown = [cell for cell in cells if cell.dataset in datasets and cell.method in known]
            if shown:
                yield PaperPage(experiment, shown, found).files()


def render_distributions(datasets: Iterable[Dataset]) -> Files:
    """Render the proportions of categories in source and target: a table and a figure for each graph."""
    document = PaperDocument("Proportions of categories in source and target", "distributions")
    by_graph: dict[str, list[Dataset]] = {}
    for data in datasets:
        graph, _, version = data.name.rpartition("-")
        by_graph.setdefault(graph if graph in GRAPHS and version in SHIFTS else data.name, []).append(data)
    for graph, versions in by_graph.items():
        by_version = {title(data.name): proportions(data) for data in versions}
        rows = [
            (f"{version} {domain}", [f"{fraction:.3f}" for fraction in fractions])
            for version, found in by_version.items()
            for domain, fractions in (("source", found.source), ("target", found.target))
        ]
        first = next(iter(by_version.values()))
        columns = [f"{c} (novel)" if n else c for c, n in zip(first.categories, first.novel, strict=True)]
        document.add_table(f"## {title(graph)}", Grid("", columns, rows), f"-{graph}")
        document.add_image(f"-{graph}", "proportions", figures.save(figures.distributions(by_version)))
    return document.files()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder with records, where documents are written")
    parser.add_argument("--root", type=Path, help="folder of the paper's graphs; default: RECOSLIP_DATA")
    parser.add_argument("--distributions", action="store_true", help="the proportions of categories alone")
    arguments = parser.parse_args()
    console, sources = make_console(False), Sources(arguments.root)
    if arguments.distributions:
        versions = [f"{graph}-{shift}" for graph in GRAPHS for shift in reversed(SHIFTS)]
        loaded = [sources.load(name, DEFAULT_SPLIT) for name in (*versions, "arxiv")]
        write_files(arguments.out, render_distributions(loaded), console)
        return
    for folder in (arguments.out, arguments.out / "arxiv"):
        for files in documents(Records(folder / "records"), sources):
            write_files(folder, files, console)


if __name__ == "__main__":
    main()
