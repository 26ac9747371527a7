"""A template of this package + values -> one self-contained HTML file that runs no code but ours."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

POLICY = "default-src 'none'; connect-src {}; script-src {}; style-src {}; base-uri 'none'; form-action 'none'"
POLICY_ELEMENT = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


def fill(
    template: str, *, styles: Sequence[str] = (), scripts: Sequence[str] = (), connects: bool = False, **values: Any
) -> str:
    """Fill in a template that extends pipeline/report/base.html. Every value is escaped.

    Args:
        template: its path below the package.
        styles: style sheets of this package, which are embedded as they are.
        scripts: JavaScript of this package, which is embedded as it is.
        connects: whether the scripts may send requests to the server that the file came from.
        **values: what the template names.
    """
    policy = POLICY.format("'self'" if connects else "'none'", _allowed(scripts), _allowed(styles))
    return _environment().get_template(template).render(policy=policy, styles=styles, scripts=scripts, **values)


def policy_of(page: str) -> str:
    """Return the content-security policy of a page that was rendered."""
    found = POLICY_ELEMENT.search(page)
    assert found is not None
    return found[1]


@cache
def asset(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("recoslip") / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("recoslip", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def _allowed(sources: Iterable[str]) -> str:
    """Return the source expressions that allow these scripts or style sheets alone."""
    return " ".join(map(_policy_hash, sources)) or "'none'"


@cache
def _policy_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
