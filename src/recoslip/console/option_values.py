"""Texts of options and configuration files -> lists, values and dictionaries."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from recoslip.errors import SettingError
from recoslip.storage import printable


def split_names(text: str) -> list[str]:
    """Read names that are separated by commas.

    >>> split_names("a, b,")
    ['a', 'b']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_value(text: str, default: object) -> Any:
    """Read a setting's text as the type of its default. A text that cannot be read so is returned as it is.

    >>> parse_value("0.1,0.2", (0.5,)), parse_value("7", None), parse_value("many", 1000)
    ((0.1, 0.2), 7, 'many')
    """
    if isinstance(default, tuple):
        return tuple(parse_value(item, 0.0) for item in split_names(text.strip("[]()")))
    if default is None:  # such a setting is a whole number or None
        return None if text.lower() == "none" else parse_value(text, 0)
    default_type = type(default)
    try:
        return default_type(text) if default_type in (int, float) else text
    except ValueError:
        return text


def read_toml(path: Path) -> dict[str, Any]:
    """Read the file of a --config option."""
    if path.exists() and not path.is_file():
        raise SettingError(f"--config: {printable(path)} is a folder, a pipe or a device; give a file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise SettingError(f"--config: cannot read {printable(path)}: {problem.strerror}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingError(f"--config: {printable(path)} is not TOML: {problem}") from problem
