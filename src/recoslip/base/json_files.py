"""A JSON file of ours, which may be damaged -> its value, or an error with the reason."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any


class JsonFileError(ValueError):
    """A file that is no JSON file of ours; the message is the reason, without the file's name."""


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON value from a regular file; links are not followed, and devices and pipes are not opened.

    FileNotFoundError is raised as it is.

    Args:
        path: the file.
        kind: the type that the value must have, dict or list.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise JsonFileError("it is a link, a folder, a pipe or a device, not a file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, MemoryError) as problem:
        raise JsonFileError(f"it cannot be read ({problem})") from problem
    return parse_json(text, kind)


def parse_json(text: str, kind: type = dict) -> Any:
    """Parse a JSON value, which must be of the type `kind`."""
    try:
        value = json.loads(text)
    except RecursionError as problem:
        raise JsonFileError("it is nested too deeply") from problem
    except (ValueError, MemoryError) as problem:
        raise JsonFileError(f"it is not JSON: {problem}") from problem
    if type(value) is not kind:
        expected = "an object" if kind is dict else "a list"
        raise JsonFileError(f"it must hold {expected}, and holds {type(value).__name__}")
    return value
