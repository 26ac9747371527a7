"""Messages -> standard output or standard error."""

from __future__ import annotations

import ast
import logging
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from recoslip.base.files import placed_outputs, printable
from recoslip.data.options import declared
from recoslip.products.cli.signals import exit_code

# An argument in a message, as Python writes it; the command line shows its option instead.
ARGUMENT = re.compile(
    r"\b(?P<name>[a-z_]+)=(?P<value>\.\.\.|True|'(?:[^'\\]|\\.)*'|\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|[-\w.]*\w)"
)
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in (*declared(), "allow_leak", "align", "fdr", "max_fpr")}
OPTIONS |= {
    "method": "--method",
    "effort": "--effort",
    "rotations": "--rotations",
    "rename": "--rename",
    "old": "--with",
    "seed": "--seed",
    "graph": "--write-graph",
    "replace": "--force",
}

stdout = Console(emoji=False)  # an id such as :heart: stays as it is
stderr = Console(stderr=True, emoji=False)


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
        text = _option_text(value)
        return f"{option}{'=' if text.startswith('-') else ' '}{_shell_word(text)}"

    return ARGUMENT.sub(flag, message)


def _option_text(value: str) -> str:
    """Return a text, a list or a dictionary of Python's as the command line takes it, and anything else as it is."""
    if value[0] not in "'\"[{" or "..." in value:
        return value
    try:
        read = ast.literal_eval(value)
    except (SyntaxError, ValueError):  # a message's own words
        return value
    if isinstance(read, dict):
        return ",".join(f"{left}={right}" for left, right in read.items())
    return ",".join(map(str, read)) if isinstance(read, list) else str(read)


def _shell_word(text: str) -> str:
    """Quote a text for a shell; what cannot be seen, such as a tab, by its number, so that it can be copied.

    >>> print(_shell_word("North Sea"), _shell_word("source\\t"))
    'North Sea' $'source\\U00000009'
    """
    if text.isprintable():
        return shlex.quote(text)
    seen = (c if c.isprintable() and c not in "\\'" else f"\\U{ord(c):08x}" for c in text)
    return f"$'{''.join(seen)}'"


def make_console(quiet: bool) -> Console:
    """Return a console for the messages of a command; what the package logs is printed there too."""
    console = Console(quiet=quiet, emoji=False)
    handler = logging.Handler()
    handler.emit = lambda record: console.print(escape(with_flags(record.getMessage())), style="dim", soft_wrap=True)  # type: ignore[method-assign]
    log = logging.getLogger("recoslip")
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    return console


def print_problem(label: str, message: str, style: str = "bold red") -> None:
    """Print `label: message` to standard error, the label in a style and the message as it is."""
    text = with_flags(message)
    try:
        stderr.print(f"[{style}]{escape(label)}:[/] {escape(text)}", highlight=False, soft_wrap=True)
    except MemoryError:  # which may be what the message says
        print(f"{label}: {text}", file=sys.stderr)


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
