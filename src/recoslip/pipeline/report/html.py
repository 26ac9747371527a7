"""What a page shows, or a template and its values -> one self-contained HTML file that runs no code but ours."""

import base64
import hashlib
import html
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

from recoslip.base.errors import RecoslipError
from recoslip.base.files import printable, write_new
from recoslip.base.json_files import read_json
from recoslip.pipeline.report.payload import FORMAT

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


# One script of small files, in this order: what a file declares, those after it use.
SCRIPTS = ("dom.js", "nodes.js", "map.js", "table.js", "detail.js", "page.js")

TITLE = "What is new in this graph"
SHOWN = 10  # rows of a table in a notebook
SAVE = "<code>result.report()</code> shows the report here; <code>result.save(&quot;out&quot;)</code> writes it."


@dataclass(frozen=True, eq=False)
class Report:
    """A report. A notebook displays it."""

    data: dict[str, Any]

    def html(
        self, *, scripts: Sequence[str] = (), styles: Sequence[str] = (), config: Mapping[str, Any] | None = None
    ) -> str:
        """Return the report as HTML.

        Args:
            scripts: JavaScript that is run before the report's own, for a report that a server of ours sends.
            styles: style sheets after the report's own.
            config: JSON values for those scripts, in an element with the id review-config. With it, the report may send
                requests to the server that it came from; without it, to nobody.
        """
        if self.data["format"] != FORMAT:
            raise RecoslipError("this report was written by another version of recoslip; run detect again")
        return fill(
            "pipeline/report/page.html",
            scripts=[*scripts, page_script()],
            styles=[asset("pipeline/report/page.css"), *styles],
            connects=config is not None,
            title=self.data["title"],
            data=self.data,
            config=config,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a new file."""
        write_new(path, self.html())

    def _repr_html_(self) -> str:
        source = html.escape(self.html(), quote=True)
        rights = "allow-scripts allow-downloads"
        return f'<iframe srcdoc="{source}" style="width:100%;height:48rem;border:0" sandbox="{rights}"></iframe>'


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
    except (OSError, ValueError, LookupError, TypeError, AttributeError, TemplateError) as problem:
        raise RecoslipError(
            f"{printable(folder)}/report.json cannot be read ({problem!r}); run detect again"
        ) from problem
    return report


def preview(said: Sequence[str], table: pl.DataFrame, folder: Path | None) -> str:
    """Return what a notebook shows of a result as HTML: sentences, the head of its table, where the report is."""
    first, *rest = map(html.escape, said)
    page = None if folder is None else (folder / "report.html").absolute()
    link = f'<a href="{html.escape(page.as_uri())}">report</a>' if page is not None and page.is_file() else SAVE
    return "".join(f"<p>{part}</p>" for part in (f"<b>{first}</b>", *rest, table.head(SHOWN)._repr_html_(), link))


@cache
def page_script() -> str:
    """Return the report's JavaScript; its files share one scope, which nothing outside sees."""
    return '"use strict";\n(() => {\n' + "\n".join(asset(f"pipeline/report/{name}") for name in SCRIPTS) + "})();\n"
