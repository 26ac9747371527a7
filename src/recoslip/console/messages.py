"""Messages -> standard output or standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from recoslip.console.signals import exit_code

stdout = Console()
stderr = Console(stderr=True)


def make_console(quiet: bool) -> Console:
    """Return a console for the messages of a command; what the package logs is printed there too."""
    console = Console(quiet=quiet)
    handler = logging.Handler()
    handler.emit = lambda record: console.print(escape(record.getMessage()), style="dim", soft_wrap=True)  # type: ignore[method-assign]
    log = logging.getLogger("recoslip")
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    return console


def print_problem(label: str, message: str, style: str = "bold red") -> None:
    """Print `label: message` to standard error, the label in a style and the message as it is."""
    stderr.print(f"[{style}]{escape(label)}:[/] {escape(message)}", highlight=False, soft_wrap=True)


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """End an interrupted block with a message: `kept` says what of its work is kept."""
    try:
        yield
    except KeyboardInterrupt as problem:
        stderr.print(f"interrupted; {kept}, run the same command to go on")
        sys.exit(exit_code(problem))
