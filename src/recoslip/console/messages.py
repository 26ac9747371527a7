"""Messages -> standard output or standard error."""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from recoslip.console.process import exit_code
from recoslip.read_options import declared
from recoslip.storage import placed_outputs, printable

# An argument in a message, as Python writes it; the command line shows its option instead.
ARGUMENT = re.compile(r"\b(?P<name>[a-z_]+)=(?P<value>\.\.\.|True|'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|[-\w.]*\w)")
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in (*declared(), "allow_leak", "align", "fdr", "max_fpr")}
OPTIONS |= {"method": "--method", "rotations": "--rotations", "rename": "--rename", "old": "--with", "seed": "--seed"}
TEXTS = re.compile(r"'([^']*)'|\"([^\"]*)\"")

stdout = Console()
stderr = Console(stderr=True)


def with_flags(message: str) -> str:
    """Write the arguments that a message names as options.

    >>> with_flags("leave it out (ignore=['size', 'date']), or fill it: impute=True")
    'leave it out (--ignore size,date), or fill it: --impute'
    >>> with_flags("rename={'price_eur': 'price'}, target='North Sea', old=...")
    "--rename price_eur=price, --target 'North Sea', --with"
    """

    def flag(match: re.Match[str]) -> str:
        option, value = OPTIONS.get(match["name"]), match["value"]
        if option is None or value in ("True", "..."):
            return option or match[0]
        texts = [a or b for a, b in TEXTS.findall(value)]
        joined = ("=" if value.startswith("{") else ",").join(texts) if texts else value
        return f"{option} {shlex.quote(joined)}"

    return ARGUMENT.sub(flag, message)


def make_console(quiet: bool) -> Console:
    """Return a console for the messages of a command; what the package logs is printed there too."""
    console = Console(quiet=quiet)
    handler = logging.Handler()
    handler.emit = lambda record: console.print(escape(with_flags(record.getMessage())), style="dim", soft_wrap=True)  # type: ignore[method-assign]
    log = logging.getLogger("recoslip")
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    return console


def print_problem(label: str, message: str, style: str = "bold red") -> None:
    """Print `label: message` to standard error, the label in a style and the message as it is."""
    stderr.print(f"[{style}]{escape(label)}:[/] {escape(with_flags(message))}", highlight=False, soft_wrap=True)


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """End an interrupted block with a message: `kept` says what of its work is kept."""
    try:
        yield
    except KeyboardInterrupt as problem:
        exit_if_done([path for path in placed_outputs() if path.is_dir()])
        stderr.print(f"interrupted; {kept}, run the same command to go on")
        sys.exit(exit_code(problem))


def exit_if_done(outputs: list[Path]) -> None:
    """End with code 0 where an interrupt came after the output was in its place: the code tells of the output."""
    if outputs:
        stderr.print(f"interrupted, after {printable(outputs[-1])} was written", markup=False, soft_wrap=True)
        sys.exit(0)
