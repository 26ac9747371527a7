"""Findings -> the page, where what it needs is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from recoslip.findings.analysis import Findings
    from recoslip.page.report import Report


def has_report_extra() -> bool:
    """Say whether recoslip[report] is installed, which groups and pages need."""
    return all(find_spec(name) for name in ("igraph", "leidenalg"))


def make_page(findings: Findings, title: str, console: Console, **options: Any) -> Report | None:
    """Build the page of findings; None where recoslip[report] is not installed."""
    from recoslip.page.report import report

    if not has_report_extra():
        console.print(escape("no page and no groups: pip install 'recoslip[report]' adds both"), style="dim")
        return None
    console.print("making the page", style="dim")
    return report(findings.detector, findings.graph, findings=findings, title=title, **options)
