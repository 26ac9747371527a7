"""An experiment's cells and those of their records that exist -> files: Markdown, LaTeX, SVG and PNG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from recoslip.bench import figures, paper, significance, tables
from recoslip.bench.document import Document, Files
from recoslip.bench.panel import add_panel
from recoslip.bench.paper import SHIFTS, title
from recoslip.bench.plan import REPRESENTATIVE, Cell
from recoslip.bench.records import Key
from recoslip.bench.sources import DEFAULT_SPLIT
from recoslip.bench.tables import Grid, Summary
from recoslip.datasets.catalogue import GRAPHS

Summaries: TypeAlias = Mapping[tuple[str, str], Summary]  # by method and dataset

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
PAPER = (
    "The paper's mean ± standard error over its 10 seeds, our mean minus the paper's, and ✓ if that is at most "
    "two standard errors of the difference, ✗ if it is more."
)
ARXIV = (
    "The paper's arxiv column is for the node features that OGB distributes. With other features in the same files the "
    "two figures are not of one dataset."
)
OWN_SPLIT = "the split that comes with the dataset (of the paper's graphs, the authors')"
PANEL_SPLIT = "the domains that belong to each case; a fifth of the source was presented as target"
PAIRED = (
    "A pair is one split of one dataset, its value the mean over seeds. Splits of a dataset share most of their "
    "nodes, so they are not independent and the p-values are too small by an unknown factor."
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
        name: main, ablation, shift or panel.
        cells: what was planned; its order is that of rows and columns.
        found: records, of which those of planned runs are used.
        reference: the method that others are tested against.
        changed: settings that differ from the paper's, which the document states.
    """
    methods, datasets = _distinct(c.method for c in cells), _distinct(c.dataset for c in cells)
    default_split = _distinct(c.split for c in cells) == [DEFAULT_SPLIT]
    document = Document(HEADINGS[name], name if default_split else f"{name}-splits")
    auroc = tables.summarise(cells, found, "auroc")
    document.add_text(_provenance(cells, found, changed, PANEL_SPLIT if name == "panel" else OWN_SPLIT))
    if name == "panel":
        add_panel(document, auroc, methods, datasets)
        return document.files()
    document.add_table("## Test AU-ROC", tables.grid(auroc, methods, datasets, tables.format_mean), "")
    if default_split and not changed:
        _add_paper(document, auroc, methods, datasets)
    if name == "shift":
        _add_shift_intensity(document, auroc, methods)
    if not default_split:
        _add_paired_tests(document, auroc, methods, datasets, reference)
    _add_critical_difference(document, auroc, methods, datasets, versions=name == "shift")
    _add_other_metrics(document, cells, found, methods, datasets)
    return document.files()


def _add_paper(document: Document, auroc: Summaries, methods: Sequence[str], datasets: Sequence[str]) -> None:
    """Add the paper's AU-ROC and how much ours differs."""
    grid = tables.compare_with_paper(auroc, methods, datasets)
    if grid is not None:
        document.add_table("## Beside the paper", grid, "-paper", PAPER)
        if "arxiv" in datasets:
            document.add_text(ARXIV)


def _add_shift_intensity(document: Document, auroc: Summaries, methods: Sequence[str]) -> None:
    """Add average ranks by intensity with the paper's, and the figure with a panel for each graph."""
    ranked = _ranked(methods)
    by_shift = {s: tables.ranks(auroc, ranked, [f"{graph}-{s}" for graph in GRAPHS]) for s in SHIFTS}
    if all(by_shift.values()):
        rows = []
        for method in ranked:
            lists = [ranks[method] for ranks in by_shift.values() if ranks is not None]
            means = [float(np.mean(values)) for values in (*lists, [rank for ranks in lists for rank in ranks])]
            theirs = paper.RANKS.get(method, {}) if set(ranked) == set(REPRESENTATIVE) else {}
            notes = [f" (paper {theirs[s]:.2f})" if s in theirs else "" for s in (*SHIFTS, "overall")]
            rows.append((title(method), [f"{mean:.2f}{note}" for mean, note in zip(means, notes, strict=True)]))
        grid = Grid("", [*(s.upper() for s in SHIFTS), "overall"], rows, set(), set())
        document.add_table("## Average rank by intensity", grid, "-average-ranks")
    else:
        document.add_text("Average ranks need every method on every version of the four graphs.")
    figure = figures.shift_intensity(auroc, methods) if figures.available() else None
    if figure is not None:
        document.add_image("-intensity", "AU-ROC against shift intensity", figures.save(figure))


def _add_paired_tests(
    document: Document, auroc: Summaries, methods: Sequence[str], datasets: Sequence[str], reference: str
) -> None:
    """Add paired tests over splits: for all datasets together, and for each."""
    on_all = significance.compare(auroc, methods, datasets, reference)
    if not on_all:
        return
    grid = significance.comparison_grid(on_all, reference)
    document.add_table(f"## Paired over splits, against {title(reference)}", grid, "-paired", PAIRED)
    for dataset in datasets if len(datasets) > 1 else []:
        on_one = significance.compare(auroc, methods, [dataset], reference)
        if on_one:
            grid = significance.comparison_grid(on_one, reference)
            document.add_table(f"### {title(dataset)}", grid, f"-paired-{dataset}")


def _add_critical_difference(
    document: Document, auroc: Summaries, methods: Sequence[str], datasets: Sequence[str], *, versions: bool
) -> None:
    """Add mean ranks and their critical difference; `versions` says that datasets are versions of the same graphs."""
    ranks = tables.ranks(auroc, _ranked(methods), datasets)
    cd = significance.critical_difference(ranks) if ranks else None
    if cd is None:
        return
    rows = [(title(m), [f"{rank:.2f}"]) for m, rank in sorted(cd.ranks.items(), key=lambda pair: pair[1])]
    text = (
        f"Mean rank over {cd.blocks} datasets. Friedman: p = {cd.p:.3g}. Two methods differ at 5 % (Nemenyi) if their "
        f"mean ranks are {cd.difference:.2f} apart."
    )
    if versions:
        text += " Versions of one graph are not independent datasets, so the test is too sure of itself."
    elif cd.blocks < 10:
        text += " With so few datasets it finds large differences only."
    grid = Grid("", ["mean rank"], rows, set(), set())
    document.add_table("## Ranks and the critical difference", grid, "-ranks", text)
    if figures.available():
        document.add_image("-ranks", "critical-difference diagram", figures.save(figures.critical_difference(cd)))


def _add_other_metrics(
    document: Document,
    cells: Sequence[Cell],
    found: Mapping[Key, dict[str, Any]],
    methods: Sequence[str],
    datasets: Sequence[str],
) -> None:
    """Add a table for every metric but AU-ROC."""
    document.add_text("## Other measures")
    for metric, (heading, higher_is_better) in tables.METRICS.items():
        if metric == "auroc":
            continue
        is_time = metric == "seconds"
        grid = tables.grid(
            tables.summarise(cells, found, metric),
            methods,
            datasets,
            tables.format_seconds if is_time else tables.format_mean,
            higher_is_better=higher_is_better,
        )
        if is_time:
            grid.best.clear()
            grid.second.clear()
        text = TIMES if is_time else None
        document.add_table(f"### {heading[0].upper()}{heading[1:]}", grid, f"-{metric}", text)


def _provenance(
    cells: Sequence[Cell], found: Mapping[Key, dict[str, Any]], changed: Mapping[str, Any] | None, own_split: str
) -> str:
    """Say what the numbers are means of, how many of the planned runs have a record, and what they ran on."""
    planned = [key for cell in cells for key in cell.runs()]
    used = [found[key] for key in planned if key in found]
    if not used:
        return "None of the planned runs has a record yet."
    facts = [
        f"{name}: "
        + ", ".join(
            f"{value} ({count:,})" for value, count in Counter(r.get(key, "not recorded") for r in used).most_common()
        )
        for name, key in (("device", "device"), ("torch", "torch"), ("code", "code"), ("processes at a time", "jobs"))
    ]
    settings = "" if not changed else f" With {', '.join(f'{k} = {v}' for k, v in changed.items())}, not the paper's."
    return f"{_sample(used, own_split)}.{settings} {len(used):,} of {len(planned):,} planned runs. {'; '.join(facts)}."


def _sample(records: Sequence[dict[str, Any]], own_split: str) -> str:
    """Say which splits and how many seeds records are of."""
    splits = sorted({record["split"] for record in records})
    count = max(Counter((r["dataset"], r["split"], r["method"]) for r in records).values())
    seeds = f"{count} seed{'s' if count > 1 else ''}"
    if len(splits) > 1:
        return f"Mean ± standard error over {len(splits)} splits, {seeds} in each"
    split = own_split if splits == [DEFAULT_SPLIT] else f"split {splits[0]}"
    return f"{'Mean ± standard error over ' if count > 1 else ''}{seeds} on {split}"


def _ranked(methods: Sequence[str]) -> list[str]:
    return [method for method in methods if method not in tables.NOT_RANKED]


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
