"""What the commands have in common: where they talk, how they end, and how they read lists and values."""

from __future__ import annotations

import logging
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from recoslip.errors import SettingError

screen = Console()  # results
notes = Console(stderr=True)  # warnings and errors


def talk_to(quiet: bool) -> Console:
    """Return where to say things, and let the library's own remarks go there too."""
    console = Console(quiet=quiet)
    handler = logging.Handler()
    handler.emit = lambda record: console.print(escape(record.getMessage()), style="dim", soft_wrap=True)  # type: ignore[method-assign]
    log = logging.getLogger("recoslip")
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    return console


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """Say, where work that can be gone on with is interrupted, what is kept of it, and end with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        notes.print(f"interrupted; {kept}, run the same command to go on")
        sys.exit(130)


def names(listed: str) -> list[str]:
    """Read names joined by commas.

    >>> names("a, b,")
    ['a', 'b']
    """
    return [name.strip() for name in listed.split(",") if name.strip()]


def value_of(text: str, default: object) -> Any:
    """Read an option's text as the kind of thing the setting's default is; what cannot be read is refused later."""
    if isinstance(default, tuple):
        return tuple(value_of(part, 0.0) for part in names(text.strip("[]()")))
    if default is None:  # a whole number, or nothing
        return None if text.lower() == "none" else value_of(text, 0)
    kind = type(default)
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def read_toml(path: Path) -> dict[str, Any]:
    """Read the file of a --config option."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise SettingError(f"--config: cannot read {path}: {problem.strerror}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingError(f"--config: {path} is not TOML: {problem}") from problem
