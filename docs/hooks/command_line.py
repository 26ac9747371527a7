"""The command line's own declarations -> its reference, on a page of the site. Nothing that computes is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from recoslip.products.cli.commands import app

PAGE = "api/command-line.md"
MARK = re.compile("<!-- commands.*?-->")
SETTINGS = """
Settings of the default method: [Scan](methods.md#recoslip.Scan); of the others: [detectors](detectors.md) and
[all methods](methods.md).
"""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write the reference where the page has its mark."""
    return MARK.sub(lambda _: reference(), markdown) if page.file.src_uri == PAGE else markdown


def reference() -> str:
    """Write the reference of all commands, in Markdown."""
    group = typer.main.get_command(app)
    return "\n".join(_described(group, "recoslip"))


def _described(command: Any, name: str) -> Iterator[str]:
    """Yield a command's section, then those of the commands below it."""
    context = command.make_context(name, [], resilient_parsing=True)
    yield f"## {name}\n"
    yield f"```console\n$ {' '.join([name, *command.collect_usage_pieces(context)])}\n```\n"
    yield f"{_text(command.help or '')}\n"
    if name == "recoslip detect":
        yield SETTINGS
    below = getattr(command, "commands", {})
    if below:
        yield "| command | what it does |\n|---|---|"
        for each in below.values():
            first = _text(each.help or "").split("\n")[0]
            yield f"| [{each.name}](#{f'{name} {each.name}'.replace(' ', '-')}) | {first} |"
        yield ""
    shown = [each for each in command.params if each.name != "help" and not getattr(each, "hidden", False)]
    rows = [_row(parameter) for parameter in shown]
    if rows:
        yield "| | default | |\n|---|---|---|"
        yield from rows
        yield ""
    for each in below.values():
        yield from _described(each, f"{name} {each.name}")


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{(parameter.metavar or parameter.name.upper()).replace('|', 'or')}`"
    default = parameter.default if not callable(parameter.default) else None
    is_plain = default is None or default is False or default == "" or "UNSET" in repr(default)
    shown = "required" if parameter.required else "" if is_plain else f"`{default}`"
    return f"| {names} | {shown} | {_text(parameter.help or '').replace('|', '&#124;')} |"


def _text(help_text: str) -> str:
    """Return a help text without what is meant for the terminal: escaped brackets, indented lines."""
    lines = [line.strip() for line in help_text.replace("\\[", "[").split("\n")]
    return "\n".join(lines).replace("[", "\\[").strip()
