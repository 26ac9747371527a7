"""Summaries, ranks and proportions -> matplotlib figures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from experiments import SHIFTS, title
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from proportions import Proportions
from ranks import CriticalDifference

from recoslip.data.datasets.catalogue import GRAPHS
from recoslip.products.bench.records import Summary

COLOURS = ("#4C6EF5", "#F08C00", "#2F9E44", "#C2255C", "#868E96", "#0C8599", "#9C36B5", "#5C940D")
SOURCE, TARGET, NOVEL = "#4C6EF5", "#ADB5BD", "#C2255C"


def save(figure: Figure) -> dict[str, bytes]:
    """Return the content of a figure's SVG and PNG files by file ending; equal figures give equal bytes."""
    result = {}
    with matplotlib.rc_context({"svg.hashsalt": "recoslip", "svg.fonttype": "path"}):
        for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, dpi=150, metadata=metadata)
            result[ending] = buffer.getvalue()
    return result


def shift_intensity(summaries: Mapping[tuple[str, str], Summary], methods: Sequence[str]) -> Figure | None:
    """Draw AU-ROC against the intensity of the shift, a panel for each graph; None if no graph has two intensities."""
    panels = [
        graph
        for graph in GRAPHS
        if any(sum((m, f"{graph}-{shift}") in summaries for shift in SHIFTS) > 1 for m in methods)
    ]
    if not panels:
        return None
    columns = 2 if len(panels) > 1 else 1
    figure, axes = _figure(columns, -(-len(panels) // columns), (4.2, 3.0))
    for panel, graph in zip(axes, panels, strict=False):
        for k, method in enumerate(methods):
            offset = 0.06 * (k - (len(methods) - 1) / 2)  # so that equal points do not hide each other
            found = [(x + offset, summaries.get((method, f"{graph}-{shift}"))) for x, shift in enumerate(SHIFTS)]
            points = [(x, s.mean, s.error or 0.0) for x, s in found if s is not None]
            if points:
                x, y, error = zip(*points, strict=True)
                colour = COLOURS[k % len(COLOURS)]
                panel.errorbar(x, y, error, color=colour, marker="o", markersize=4, capsize=3, label=title(method))
        panel.set_title(title(graph))
        panel.set_xticks(range(3), [shift.upper() for shift in SHIFTS])
        panel.set_xlim(-0.3, 2.3)
        panel.set_ylabel("test AU-ROC")
    for panel in axes[len(panels) :]:
        panel.set_visible(False)
    handles, labels = max((panel.get_legend_handles_labels() for panel in axes[: len(panels)]), key=lambda h: len(h[0]))
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def distributions(by_version: Mapping[str, Proportions]) -> Figure:
    """Draw proportions of categories, a panel for each version of a graph; of a single one a panel for each domain.

    Args:
        by_version: the proportions of the versions, by title.
    """
    categories = next(iter(by_version.values())).categories
    x = np.arange(len(categories))
    size = (max(3.4, 0.42 * len(categories) + 1), 2.8)
    if len(by_version) == 1:
        ((name, found),) = by_version.items()
        figure, axes = _figure(2, 1, size)
        for panel, domain, heights in zip(axes, ("source", "target"), (found.source, found.target), strict=True):
            panel.bar(x, heights, 0.7, color=_colours(domain, found.novel))
            panel.set_title(f"{name}, {domain}")
    else:
        figure, axes = _figure(len(by_version), 1, size)
        for panel, (name, found) in zip(axes, by_version.items(), strict=True):
            panel.bar(x - 0.2, found.source, 0.4, color=_colours("source", found.novel))
            panel.bar(x + 0.2, found.target, 0.4, color=_colours("target", found.novel))
            panel.set_title(name)
    highest = max(max(*found.source, *found.target) for found in by_version.values())
    for panel in axes:
        panel.set_ylim(0, 1.05 * highest)
        panel.set_xticks(x, categories)
    axes[0].set_ylabel("fraction of the nodes")
    legend = ((SOURCE, "source"), (TARGET, "target"), (NOVEL, "target, novel"))
    handles = [_patch(colour, label) for colour, label in legend]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _colours(domain: str, novel: Sequence[bool]) -> list[str]:
    return [SOURCE if domain == "source" else NOVEL if is_novel else TARGET for is_novel in novel]


def cliques(cd: CriticalDifference) -> list[tuple[float, float]]:
    """Return the maximal intervals of ranks within which methods do not differ."""
    ordered = sorted(cd.ranks.values())
    spans = [(low, max(r for r in ordered if r - low <= cd.difference)) for low in ordered]
    return [s for s in spans if s[1] > s[0] and not any(o != s and o[0] <= s[0] and o[1] >= s[1] for o in spans)]


def critical_difference(cd: CriticalDifference) -> Figure:
    """Draw mean ranks on a line; a bar joins methods that do not differ."""
    methods = sorted(cd.ranks, key=cd.ranks.__getitem__)
    half = -(-len(methods) // 2)
    figure, (axis,) = _figure(1, 1, (7.0, 1.3 + 0.26 * half))
    low, high = 1, len(methods)
    axis.set_xlim(low - 1.6, high + 1.6)
    axis.set_ylim(-half - 1.0, 1.5)
    axis.axis("off")
    axis.plot([low, high], [0, 0], color="black", linewidth=1)
    for rank in range(low, high + 1):
        axis.plot([rank, rank], [0, 0.12], color="black", linewidth=1)
        axis.text(rank, 0.22, str(rank), ha="center", va="bottom", fontsize=9)
    for index, method in enumerate(methods):
        left = index < half
        y = -(index + 1 if left else len(methods) - index) - 0.3
        end = low - 0.3 if left else high + 0.3
        axis.plot([cd.ranks[method], cd.ranks[method], end], [0, y, y], color="#495057", linewidth=0.9)
        label = f"{title(method)} ({cd.ranks[method]:.2f})"
        axis.text(end + (-0.1 if left else 0.1), y, label, ha="right" if left else "left", va="center", fontsize=9)
    for index, (first, last) in enumerate(cliques(cd)):
        axis.plot([first - 0.05, last + 0.05], [-0.25 - 0.2 * index] * 2, color=NOVEL, linewidth=3)
    axis.plot([low, low + cd.difference], [1.0, 1.0], color="black", linewidth=1.5)
    axis.text(low + cd.difference + 0.1, 1.0, f"critical difference {cd.difference:.2f}", va="center", fontsize=9)
    return figure


def _figure(columns: int, rows: int, size: tuple[float, float]) -> tuple[Figure, list[Any]]:
    """Make a grid of panels without a display and without matplotlib's global state."""
    figure = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.25)
        axis.set_axisbelow(True)
    return figure, axes


def _patch(colour: str, label: str) -> Any:
    return Patch(color=colour, label=label)
