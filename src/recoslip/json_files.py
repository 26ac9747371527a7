"""A JSON file of ours, which anybody may have changed -> its value or an error, and never a hang or a crash."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np

MAX_BYTES = 2**30  # no file of ours is larger
MAX_DEPTH = 64  # nor nested more deeply

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = np.zeros(256, dtype=np.int64)  # of the depth at each byte
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_BLOCK = 2**20


class JsonFileError(ValueError):
    """A file that is no JSON file of ours; the message is the reason, without the file's name."""


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON value from a regular file.

    Links are not followed, devices and pipes are not opened, and what is too large or too deep is refused before it is
    parsed. FileNotFoundError is raised as it is.

    Args:
        path: the file.
        kind: the type that the value must have, dict or list.
    """
    return parse_json(_read_regular_file(path), kind)


def parse_json(text: str, kind: type = dict) -> Any:
    """Parse a JSON value, unless it is nested too deeply or of another type than `kind`."""
    if _depth(text) > MAX_DEPTH:
        raise JsonFileError(f"it is nested more than {MAX_DEPTH} deep")
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise JsonFileError(f"it is not JSON: {problem}") from problem
    except MemoryError as problem:
        raise JsonFileError("it does not fit into memory") from problem
    if type(value) is not kind:
        expected = "an object" if kind is dict else "a list"
        raise JsonFileError(f"it must hold {expected}, and holds {type(value).__name__}")
    return value


def _read_regular_file(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except OSError as problem:
        reason = "it is a link" if path.is_symlink() else problem.strerror
        raise JsonFileError(f"it cannot be opened ({reason})") from problem
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise JsonFileError("it is a folder, a pipe or a device, not a file")
        if status.st_size > MAX_BYTES:
            raise JsonFileError(f"it has {status.st_size:,} bytes, and {MAX_BYTES:,} are the most")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(status.st_size).decode("utf-8")  # no more, should the file grow meanwhile
    except (OSError, UnicodeDecodeError, MemoryError) as problem:
        raise JsonFileError(f"it cannot be read ({problem})") from problem
    finally:
        os.close(handle)


def _depth(text: str) -> int:
    """Return how deeply brackets are nested; those inside strings do not count."""
    depth = deepest = 0
    structure = _STRING.sub("", text).encode()
    for offset in range(0, len(structure), _BLOCK):
        depths = depth + np.cumsum(_STEPS[np.frombuffer(structure[offset : offset + _BLOCK], dtype=np.uint8)])
        depth, deepest = int(depths[-1]), max(deepest, int(depths.max()))
    return deepest
