"""Payload -> one self-contained HTML file that needs no network and runs no code but ours."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from recoslip.detectors.base import Detector
from recoslip.errors import RecoslipError
from recoslip.findings.analysis import Findings, analyse
from recoslip.graph import NodeGraph
from recoslip.json_files import read_json
from recoslip.page.payload import FORMAT, payload
from recoslip.storage import atomic_write, printable

# One script of small files, in this order: what a file declares, those after it use.
SCRIPTS = ("dom.js", "nodes.js", "level.js", "histogram.js", "map.js", "table.js", "groups.js", "detail.js", "page.js")

ROOM_CONFIG = '<script type="application/json" id="room-config">{}</script>'


@dataclass(frozen=True, eq=False)
class Report:
    """A page. In a notebook it shows itself."""

    data: dict[str, Any]

    def html(
        self, *, scripts: Sequence[str] = (), styles: Sequence[str] = (), room: Mapping[str, Any] | None = None
    ) -> str:
        """Return the page as HTML.

        Args:
            scripts: JavaScript that is run before the page's own, for a page that a server of ours sends.
            styles: style sheets after the page's own.
            room: JSON values for those scripts, in an element with the id room-config. With it, the page may talk to
                the server that it came from; without it, to nobody.
        """
        if self.data["format"] != FORMAT:
            raise RecoslipError("this page was written by another version of recoslip; run detect again")
        code, style = [*scripts, page_script()], [_asset("page.css"), *styles]
        inserts = {
            "title": html.escape(self.data["title"]),
            "data": embedded(self.data),
            "config": "" if room is None else ROOM_CONFIG.format(embedded(room)),
            "style": "\n".join(f"<style>{each}</style>" for each in style),
            "script": "\n".join(f"<script>{each}</script>" for each in code),
            "connect": "'none'" if room is None else "'self'",
            "scriptHashes": " ".join(map(_policy_hash, code)),
            "styleHashes": " ".join(map(_policy_hash, style)),
        }
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
    show: Sequence[str] | None = None,
    **options: Any,
) -> Report:
    """Build the page of a fitted detector.

    Args:
        detector: fitted on `graph`.
        graph: the graph.
        findings: what `recoslip.analyse` returned; without them, it is called.
        title: of the page.
        image_shape: rows and columns, if a node's features are the pixels of an image.
        show: names of the table's columns to show, of those that the graph kept; by default all of them.
        **options: of `recoslip.analyse`, such as `fdr`.
    """
    findings = analyse(detector, graph, **options) if findings is None else findings
    return Report(payload(findings, title=title, image_shape=image_shape, show=show))


def saved_report(folder: Path | None) -> Report:
    """Return the report of a folder, from the data that the run wrote."""
    if folder is None:
        raise RecoslipError("new nodes without the old ones have no report; give the old nodes (old), too")
    try:
        report = Report(read_json(folder / "report.json"))
        report.html()
    except FileNotFoundError as problem:
        raise RecoslipError(f"{printable(folder)} holds no report.json; recoslip detect and demo write it") from problem
    except RecoslipError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RecoslipError(
            f"{printable(folder)}/report.json cannot be read ({problem!r}); run detect again"
        ) from problem
    return report


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
def page_script() -> str:
    """Return the page's JavaScript; its files share one scope, which nothing outside sees."""
    return '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"


@cache
def _policy_hash(text: str) -> str:
    """Return the source expression that allows a script or a style sheet in a content-security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
