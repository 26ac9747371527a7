"""An experiment's cells and whatever records exist -> files: Markdown, LaTeX, SVG and PNG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recoslip.bench import figures, paper, significance, tables
from recoslip.bench.paper import GRAPHS, title
from recoslip.bench.plan import REPRESENTATIVE, SHIFTS, Cell
from recoslip.bench.records import Key
from recoslip.bench.sources import OWN
from recoslip.bench.tables import Grid
from recoslip.datasets import Dataset
from recoslip.datasets.load import ARXIV_NAMES

Files = dict[str, str | bytes]

HEADINGS = {
    "main": "Methods compared",
    "ablation": "Link prediction: what each variant brings",
    "shift": "Shift intensity: none (NS), minor (MS), strong (S)",
}
TIMES = (
    "The time of a fleet divided by its seeds, so it depends on how many train together and on how many processes "
    "share the machine."
)
ARXIV_NOTE = (
    "The paper's arxiv column is for the node features that OGB distributes. With other features in the same files the "
    "two figures are not of one dataset."
)


def render(
    name: str,
    cells: Sequence[Cell],
    found: Mapping[Key, dict[str, Any]],
    *,
    reference: str = "reco-slip",
    changed: Mapping[str, Any] | None = None,
) -> Files:
    """Render an experiment.

    Args:
        name: main, ablation or shift.
        cells: what was planned; its order is that of rows and columns.
        found: records, of which those of planned runs are used.
        reference: the method that others are tested against.
        changed: settings that are not the paper's, to say so.
    """
    methods, datasets = _distinct(c.method for c in cells), _distinct(c.dataset for c in cells)
    splits = _distinct(c.split for c in cells)
    own = splits == [OWN]
    page = Page(f"# {HEADINGS[name]}\n", name if own else f"{name}-splits")
    auroc = tables.summarise(cells, found, "auroc")
    page.text.append(_provenance(cells, found, changed))
    page.add("## Test AU-ROC", tables.grid(auroc, methods, datasets, tables.figure), "")
    beside = tables.beside_paper(auroc, methods, datasets) if own and not changed else None
    if beside is not None:
        words = (
            "The paper's mean ± standard error over its 10 seeds, our mean minus the paper's, and ✓ if that is at most "
            "two standard errors of the difference, ✗ if it is more."
        )
        page.add("## Beside the paper", beside, "-paper", words)
        if "arxiv" in datasets:
            page.text.append(ARXIV_NOTE + "\n")
    if name == "shift":
        _shift(page, auroc, methods)
    if not own:
        _tests(page, auroc, methods, datasets, reference)
    by_dataset = tables.ranks(auroc, _ranked(methods), datasets)
    cd = significance.critical_difference(by_dataset) if by_dataset else None
    if cd is not None:
        _critical(page, cd, versions=name == "shift")
    page.text.append("## Other measures\n")
    for metric, (heading, higher) in tables.METRICS.items():
        if metric != "auroc":
            write = tables.seconds if metric == "seconds" else tables.figure
            values = tables.summarise(cells, found, metric)
            drawn = tables.grid(values, methods, datasets, write, higher_is_better=higher)
            if metric == "seconds":
                drawn.best.clear()
                drawn.second.clear()
            note = TIMES if metric == "seconds" else None
            page.add(f"### {heading[0].upper()}{heading[1:]}", drawn, f"-{metric}", note)
    return page.files()


class Page:
    """A Markdown file in the making, and the LaTeX tables and pictures that go with it."""

    def __init__(self, heading: str, stem: str) -> None:
        self.text = [heading]
        self.stem = stem
        self.beside: Files = {}

    def add(self, heading: str, grid: Grid, suffix: str, words: str | None = None) -> None:
        """Add a table, here and as a LaTeX file of its own."""
        self.text += [heading + "\n", *([words + "\n"] if words else []), grid.markdown()]
        self.beside[f"{self.stem}{suffix}.tex"] = grid.latex()

    def picture(self, suffix: str, about: str, made: Mapping[str, bytes]) -> None:
        """Add a picture, which is in files of its own."""
        self.beside |= {f"{self.stem}{suffix}.{ending}": content for ending, content in made.items()}
        self.text.append(f"![{about}]({self.stem}{suffix}.svg)\n")

    def files(self) -> Files:
        """Return all files: name -> content."""
        return self.beside | {f"{self.stem}.md": "\n".join(self.text)}


def _shift(page: Page, auroc: Mapping[tuple[str, str], tables.Summary], methods: Sequence[str]) -> None:
    """Average ranks by intensity, the paper's beside ours, and the figure of four panels."""
    by_shift = {s: tables.ranks(auroc, _ranked(methods), [f"{graph}-{s}" for graph in GRAPHS]) for s in SHIFTS}
    if all(by_shift.values()):
        rows = []
        for method in _ranked(methods):
            lists = [ranks[method] for ranks in by_shift.values() if ranks is not None]
            means = [float(np.mean(values)) for values in (*lists, [rank for ranks in lists for rank in ranks])]
            theirs = paper.RANKS.get(method, {}) if set(_ranked(methods)) == set(REPRESENTATIVE) else {}
            printed = [f" (paper {theirs[s]:.2f})" if s in theirs else "" for s in (*SHIFTS, "overall")]
            rows.append((title(method), [f"{m:.2f}{p}" for m, p in zip(means, printed, strict=True)]))
        drawn = Grid("", [*(s.upper() for s in SHIFTS), "overall"], rows, set(), set())
        page.add("## Average rank by intensity", drawn, "-average-ranks")
    else:
        page.text.append("Average ranks need every method on every version of the four graphs.\n")
    drawn_figure = figures.shift_intensity(auroc, methods) if figures.available() else None
    if drawn_figure is not None:
        page.picture("-intensity", "AU-ROC against shift intensity", figures.save(drawn_figure))


def _tests(
    page: Page,
    auroc: Mapping[tuple[str, str], tables.Summary],
    methods: Sequence[str],
    datasets: Sequence[str],
    reference: str,
) -> None:
    """Paired tests over splits: all datasets together, and each by itself."""
    together = significance.compare(auroc, methods, datasets, reference)
    if not together:
        return
    words = (
        "A pair is one split of one dataset, its value the mean over seeds. Splits of a dataset share most of their "
        "nodes, so they are not independent and the p-values are too small by an unknown factor."
    )
    grid = significance.comparison_grid(together, reference)
    page.add(f"## Paired over splits, against {title(reference)}", grid, "-paired", words)
    for dataset in datasets if len(datasets) > 1 else []:
        alone = significance.compare(auroc, methods, [dataset], reference)
        if alone:
            page.add(f"### {title(dataset)}", significance.comparison_grid(alone, reference), f"-paired-{dataset}")


def _critical(page: Page, cd: significance.CriticalDifference, *, versions: bool) -> None:
    rows = [(title(m), [f"{rank:.2f}"]) for m, rank in sorted(cd.ranks.items(), key=lambda pair: pair[1])]
    words = (
        f"Mean rank over {cd.blocks} datasets. Friedman: p = {cd.p:.3g}. Two methods differ at 5 % (Nemenyi) if their "
        f"mean ranks are {cd.difference:.2f} apart."
    )
    if versions:
        words += " Versions of one graph are not independent datasets, so the test is too sure of itself."
    elif cd.blocks < 10:
        words += " With so few datasets it finds large differences only."
    page.add("## Ranks and the critical difference", Grid("", ["mean rank"], rows, set(), set()), "-ranks", words)
    if figures.available():
        page.picture("-ranks", "critical-difference diagram", figures.save(figures.critical_difference(cd)))


def _provenance(cells: Sequence[Cell], found: Mapping[Key, dict[str, Any]], changed: Mapping[str, Any] | None) -> str:
    """Say what the figures are means of, how many of the planned runs there are, and what they ran on."""
    planned = [key for cell in cells for key in cell.runs()]
    used = [found[key] for key in planned if key in found]
    if not used:
        return "None of the planned runs has a record yet.\n"
    splits = sorted({record["split"] for record in used})
    seeds = max(Counter((r["dataset"], r["split"], r["method"]) for r in used).values())
    each = f"{seeds} seed{'s' if seeds > 1 else ''}"
    if len(splits) > 1:
        spread = f"Mean ± standard error over {len(splits)} splits, {each} in each"
    else:
        own = "the split that comes with the dataset (of the paper's graphs, the authors')"
        where = own if splits == [OWN] else f"split {splits[0]}"
        spread = f"{'Mean ± standard error over ' if seeds > 1 else ''}{each} on {where}"
    facts = [
        f"{name}: "
        + ", ".join(f"{value} ({count:,})" for value, count in Counter(_get(r, key) for r in used).most_common())
        for name, key in (("device", "device"), ("torch", "torch"), ("code", "code"), ("processes at a time", "jobs"))
    ]
    settings = "" if not changed else f" With {', '.join(f'{k} = {v}' for k, v in changed.items())}, not the paper's."
    return f"{spread}.{settings} {len(used):,} of {len(planned):,} planned runs. {'; '.join(facts)}.\n"


def _get(record: dict[str, Any], key: str) -> Any:
    return record.get(key, "not recorded")


def render_distributions(datasets: Mapping[str, Dataset]) -> Files:
    """Render the proportions of categories in source and target: a table of all, a figure for each graph."""
    page = Page("# Proportions of categories in source and target\n", "distributions")
    groups: dict[str, list[str]] = {}
    for name in datasets:
        graph, _, version = name.rpartition("-")
        groups.setdefault(graph if graph in GRAPHS and version in SHIFTS else name, []).append(name)
    for graph, names in groups.items():
        shares = [(title(name), *proportions(datasets[name])) for name in names]
        categories = shares[0][1]
        rows = [
            (f"{shown} {domain}", [f"{value:.3f}" for value in values])
            for shown, _, source, target, _ in shares
            for domain, values in (("source", source), ("target", target))
        ]
        novel = [f"{c} (novel)" if n else str(c) for c, n in zip(categories, shares[0][4], strict=True)]
        page.add(f"## {title(graph)}", Grid("", novel, rows, set(), set()), f"-{graph}")
        if figures.available():
            page.picture(f"-{graph}", "proportions", figures.save(figures.distributions(shares)))
    return page.files()


def proportions(data: Dataset) -> tuple[list[str], Any, Any, Any]:
    """Return the categories, their shares of the source and of the target, and which are novel."""
    categories, target = data.graph.categories, data.graph.is_target.numpy()
    assert categories is not None
    kinds, place = np.unique(categories, return_inverse=True)
    source_share, target_share = (
        np.bincount(place[part], minlength=len(kinds)) / part.sum() for part in (~target, target)
    )
    novel = [bool(data.novel[categories == kind].all()) for kind in kinds]
    if data.name == "arxiv":
        return list(ARXIV_NAMES), source_share, target_share, novel
    numbered = np.issubdtype(kinds.dtype, np.integer)
    return [str(k + 1 if numbered else k) for k in kinds.tolist()], source_share, target_share, novel


def _ranked(methods: Sequence[str]) -> list[str]:
    return [method for method in methods if method not in tables.NOT_RANKED]


def _distinct(names: Any) -> list[str]:
    return list(dict.fromkeys(names))
