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
ARXIV_NOTE = (
    "The paper's arxiv column is for the node features that OGB distributes. With other features in the same files the "
    "two figures are not of one dataset."
)


def render(
    name: str, cells: Sequence[Cell], found: Mapping[Key, dict[str, Any]], reference: str = "reco-slip"
) -> Files:
    """Render an experiment.

    Args:
        name: main, ablation or shift.
        cells: what was planned; its order is that of rows and columns.
        found: records, of which those of planned runs are used.
        reference: the method that others are tested against.
    """
    methods, datasets = _distinct(c.method for c in cells), _distinct(c.dataset for c in cells)
    splits = _distinct(c.split for c in cells)
    own = splits == [OWN]
    stem = name if own else f"{name}-splits"
    files: Files = {}
    auroc = tables.summarise(cells, found, "auroc")
    main = tables.grid(auroc, methods, datasets, tables.figure)
    text = [f"# {HEADINGS[name]}\n", _provenance(cells, found, splits), "## Test AU-ROC\n", main.markdown()]
    files[f"{stem}.tex"] = main.latex()
    beside = tables.beside_paper(auroc, methods, datasets) if own else None
    if beside is not None:
        text += [
            "## Beside the paper\n",
            "The paper's mean ± standard error over its 10 seeds, our mean minus the paper's, and ✓ if that is at most "
            "two standard errors of the difference, ✗ if it is more.\n",
            beside.markdown(),
        ]
        if "arxiv" in datasets:
            text.append(ARXIV_NOTE + "\n")
    if name == "shift":
        text += _shift(stem, auroc, methods, files)
    if not own:
        text += _tests(auroc, methods, datasets, reference)
    by_dataset = tables.ranks(auroc, _ranked(methods), datasets)
    cd = significance.critical_difference(by_dataset) if by_dataset else None
    if cd is not None:
        text += _critical(stem, cd, files)
    text.append("## Other measures\n")
    for metric, (heading, higher) in tables.METRICS.items():
        if metric != "auroc":
            write = tables.seconds if metric == "seconds" else tables.figure
            values = tables.summarise(cells, found, metric)
            drawn = tables.grid(values, methods, datasets, write, higher_is_better=higher)
            text += [f"### {heading[0].upper()}{heading[1:]}\n", drawn.markdown()]
            files[f"{stem}-{metric}.tex"] = drawn.latex()
    files[f"{stem}.md"] = "\n".join(text)
    return files


def _shift(
    stem: str, auroc: Mapping[tuple[str, str], tables.Summary], methods: Sequence[str], files: Files
) -> list[str]:
    """Average ranks by intensity, the paper's beside ours, and the figure of four panels."""
    text = ["## Average rank by intensity\n"]
    rows = []
    by_shift = {s: tables.ranks(auroc, _ranked(methods), [f"{graph}-{s}" for graph in GRAPHS]) for s in SHIFTS}
    if all(by_shift.values()):
        for method in _ranked(methods):
            lists = [ranks[method] for ranks in by_shift.values() if ranks is not None]
            means = [float(np.mean(values)) for values in (*lists, [rank for ranks in lists for rank in ranks])]
            theirs = paper.RANKS.get(method, {}) if set(_ranked(methods)) == set(REPRESENTATIVE) else {}
            printed = [f" (paper {theirs[s]:.2f})" if s in theirs else "" for s in (*SHIFTS, "overall")]
            rows.append((title(method), [f"{m:.2f}{p}" for m, p in zip(means, printed, strict=True)]))
        drawn = Grid("", [*(s.upper() for s in SHIFTS), "overall"], rows, set(), set())
        text.append(drawn.markdown())
        files[f"{stem}-ranks.tex"] = drawn.latex()
    else:
        text.append("Not every method has every version of the four graphs yet.\n")
    if figures.available():
        drawn_figure = figures.shift_intensity(auroc, methods)
        if drawn_figure is not None:
            files |= _pictures(f"{stem}-intensity", figures.save(drawn_figure))
            text.append(f"![AU-ROC against shift intensity]({stem}-intensity.svg)\n")
    return text


def _tests(
    auroc: Mapping[tuple[str, str], tables.Summary], methods: Sequence[str], datasets: Sequence[str], reference: str
) -> list[str]:
    """Paired tests over splits: all datasets together, and each by itself."""
    if reference not in methods:
        return []
    together = significance.compare(auroc, methods, datasets, reference)
    if not together:
        return []
    text = [
        f"## Paired over splits, against {title(reference)}\n",
        "A pair is one split of one dataset, its value the mean over seeds. Splits of a dataset share most of their "
        "nodes, so they are not independent and the p-values are too small by an unknown factor.\n",
        significance.comparison_grid(together, reference).markdown(),
    ]
    for dataset in datasets if len(datasets) > 1 else []:
        alone = significance.compare(auroc, methods, [dataset], reference)
        if alone:
            text += [f"### {title(dataset)}\n", significance.comparison_grid(alone, reference).markdown()]
    return text


def _critical(stem: str, cd: significance.CriticalDifference, files: Files) -> list[str]:
    rows = [(title(m), [f"{rank:.2f}"]) for m, rank in sorted(cd.ranks.items(), key=lambda pair: pair[1])]
    text = [
        "## Ranks and the critical difference\n",
        f"Mean rank over {cd.blocks} datasets. Friedman: p = {cd.p:.3g}. Two methods differ at 5 % (Nemenyi) if their "
        f"mean ranks are {cd.difference:.2f} apart.\n",
        Grid("", ["mean rank"], rows, set(), set()).markdown(),
    ]
    if figures.available():
        files |= _pictures(f"{stem}-ranks", figures.save(figures.critical_difference(cd)))
        text.append(f"![critical-difference diagram]({stem}-ranks.svg)\n")
    return text


def _provenance(cells: Sequence[Cell], found: Mapping[Key, dict[str, Any]], splits: Sequence[str]) -> str:
    """Say how many of the planned runs there are, and what they ran on."""
    planned = [key for cell in cells for key in cell.runs()]
    used = [found[key] for key in planned if key in found]
    most = max((len(cell.seeds) for cell in cells), default=0)
    spread = (
        f"Mean ± standard error over {most} seeds on the split each dataset comes with (the authors')"
        if splits == [OWN]
        else f"Mean ± standard error over {len(splits)} splits ({splits[0]} to {splits[-1]}), {most} seeds in each"
    )
    facts = [
        f"{name}: " + ", ".join(f"{value} ({count:,})" for value, count in Counter(r[key] for r in used).most_common())
        for name, key in (("device", "device"), ("torch", "torch"), ("code", "code"))
    ]
    return (
        f"{spread}. {len(used):,} of {len(planned):,} planned runs. {'; '.join(facts)}.\n" if used else f"{spread}.\n"
    )


def render_distributions(datasets: Mapping[str, Dataset]) -> Files:
    """Render the proportions of categories in source and target: a table of all, a figure for each graph."""
    files: Files = {}
    text = ["# Proportions of categories in source and target\n"]
    groups: dict[str, list[str]] = {}
    for name in datasets:
        graph, _, version = name.rpartition("-")
        groups.setdefault(graph if version in SHIFTS else name, []).append(name)
    for graph, names in groups.items():
        shares = [(title(name), *proportions(datasets[name])) for name in names]
        categories = shares[0][1]
        rows = [
            (f"{shown} {domain}", [f"{value:.3f}" for value in values])
            for shown, _, source, target, _ in shares
            for domain, values in (("source", source), ("target", target))
        ]
        novel = [f"{c} (novel)" if n else str(c) for c, n in zip(categories, shares[0][4], strict=True)]
        text += [f"## {title(graph)}\n", Grid("", novel, rows, set(), set()).markdown()]
        if figures.available():
            files |= _pictures(f"distributions-{graph}", figures.save(figures.distributions(shares)))
            text.append(f"![proportions]({f'distributions-{graph}.svg'})\n")
    files["distributions.md"] = "\n".join(text)
    return files


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


def _pictures(stem: str, made: Mapping[str, bytes]) -> Files:
    return {f"{stem}.{ending}": content for ending, content in made.items()}


def _ranked(methods: Sequence[str]) -> list[str]:
    return [method for method in methods if method not in tables.NOT_RANKED]


def _distinct(names: Any) -> list[str]:
    return list(dict.fromkeys(names))
