"""Findings -> the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from recoslip.console.option_values import split_names

if TYPE_CHECKING:
    from recoslip.findings.analysis import Findings
    from recoslip.graph import NodeGraph
    from recoslip.page.report import Report


def check_shown(graph: NodeGraph, show: str) -> None:
    """Raise, before anything is trained, if --show names a column that the graph does not have."""
    from recoslip.errors import SettingError, nearest

    for name in split_names(show):
        if name not in graph.columns:
            kept = ", ".join(graph.columns) or "none"
            raise SettingError(
                f"--show {name}: the graph was packed without this column{nearest(name, list(graph.columns))}; it has "
                f"{kept}; pack again with --show"
            )


def make_page(findings: Findings, title: str, console: Console, **options: Any) -> Report:
    """Build the page of findings."""
    from recoslip.page.report import report

    console.print("making the page", style="dim")
    return report(findings.detector, findings.graph, findings=findings, title=title, **options)
