"""LaTeX formulas -> MathML, which browsers show without a script or a font from elsewhere."""

from __future__ import annotations

import html as entities
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Replace what pymdownx.arithmatex marked."""
    return FORMULA.sub(_mathml, html)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    return str(convert(entities.unescape(match[2]).strip(), display=display))
