"""Payload -> one self-contained HTML file that needs no network and runs no code but ours and plotly's."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from recoslip.detectors.base import Detector
from recoslip.errors import RecoslipError
from recoslip.findings.analysis import Findings, analyse
from recoslip.graph import NodeGraph
from recoslip.page.payload import FORMAT, payload
from recoslip.storage import atomic_write


@dataclass(frozen=True, eq=False)
class Report:
    """A page. In a notebook it shows itself."""

    data: dict[str, Any]

    def html(self) -> str:
        """Return the page as HTML."""
        if self.data["format"] != FORMAT:
            raise RecoslipError("this page was written by another version of recoslip; run detect again")
        inserts = {
            "title": html.escape(self.data["title"]),
            "style": _asset("page.css"),
            "plotly": _plotly(),
            "script": _asset("page.js"),
            "data": embedded(self.data),
        }
        inserts["hashes"] = " ".join(map(_policy_hash, (inserts["plotly"], inserts["script"])))
        return re.sub(r"/\*(\w+)\*/", lambda match: inserts[match[1]], _asset("page.html"))

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        atomic_write(Path(path), self.html())

    def _repr_html_(self) -> str:
        source = html.escape(self.html(), quote=True)
        rights = "allow-scripts allow-downloads"
        return f'<iframe srcdoc="{source}" style="width:100%;height:48rem;border:0" sandbox="{rights}"></iframe>'


def report(
    detector: Detector,
    graph: NodeGraph,
    *,
    findings: Findings | None = None,
    title: str = "What is new in this graph",
    image_shape: tuple[int, int] | None = None,
    explained: int = 10,
    **options: Any,
) -> Report:
    """Build the page of a fitted detector.

    Args:
        detector: fitted on `graph`.
        graph: the graph.
        findings: what `recoslip.analyse` returned; without them, it is called.
        title: of the page.
        image_shape: rows and columns, if a node's features are the pixels of an image.
        explained: how many listed nodes, the highest scores first, get an explanation by GNNExplainer.
        **options: of `recoslip.analyse`, such as `fdr`.
    """
    findings = analyse(detector, graph, **options) if findings is None else findings
    return Report(payload(findings, title=title, image_shape=image_shape, explained=explained))


def embedded(data: Any) -> str:
    """Write JSON that can be embedded in a script element whatever strings it holds.

    >>> embedded({"id": "</script><b>"})
    '{"id":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _asset(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("recoslip.page") / name).read_text(encoding="utf-8")


@cache
def _policy_hash(script: str) -> str:
    """Return the source expression that allows a script in a content-security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _plotly() -> str:
    """Return the JavaScript of plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as problem:
        raise RecoslipError("the page needs plotly: pip install 'recoslip[report]'") from problem
    return str(get_plotlyjs())
