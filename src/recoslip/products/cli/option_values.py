"""Texts of options and configuration files -> lists, values and dictionaries."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from recoslip.base.errors import SettingError
from recoslip.base.files import printable


def split_names(text: str) -> list[str]:
    """Read names that are separated by commas.

    >>> split_names("a, b,")
    ['a', 'b']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_pairs(option: str, text: str) -> dict[str, str]:
    """Read the value of an option that holds pairs of names, such as a=b,c=d.

    >>> parse_pairs("--rename", "a=b, c=d")
    {'a': 'b', 'c': 'd'}
    """
    pairs = [name.split("=") for name in split_names(text)]
    if wrong := [pair for pair in pairs if len(pair) != 2 or not all(part.strip() for part in pair)]:
        raise SettingError(f"{option} must be pairs such as a=b, separated by commas; got {'='.join(wrong[0])!r}")
    return {left.strip(): right.strip() for left, right in pairs}


def parse_numbers(option: str, text: str) -> dict[str, float]:
    """Read the value of an option that holds names and numbers, such as a=1,b=0.5."""
    pairs = parse_pairs(option, text)
    try:
        return {name: float(value) for name, value in pairs.items()}
    except ValueError as problem:
        raise SettingError(f"{option} must hold numbers, such as text=2; got {text!r}") from problem


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
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows' editors write a mark
    except OSError as problem:
        raise SettingError(f"--config: cannot read {printable(path)}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:  # of TOML, of UTF-8, of too many digits, of depth
        raise SettingError(
            f"--config: {printable(path)} is not TOML: {problem}; write lines such as epochs = 500, in UTF-8"
        ) from problem
