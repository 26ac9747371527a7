"""The folder of a run -> its report with the controls of a review."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from recoslip.pipeline.report.html import saved_report
from recoslip.pipeline.report.templates import asset

# One function of small files, in this order: what a file declares, those after it use. The report calls it when drawn.
SCRIPTS = ("outbox.js", "state.js", "queue.js", "news.js", "keys.js", "view.js", "review.js")


def review_page(folder: Path, config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the report's HTML with the review and its configuration, and the ids of its nodes in their order."""
    report = saved_report(folder)
    html = report.html(scripts=[_script()], styles=[asset("review/review.css")], config=config)
    return html, list(map(str, report.data["nodes"]["id"]))


@cache
def _script() -> str:
    """Return the review's JavaScript."""
    return (
        '"use strict";\nwindow.recoslipRoom = (api) => {\n'
        + "\n".join(asset(f"review/{name}") for name in SCRIPTS)
        + "};\n"
    )
