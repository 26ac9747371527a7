"""A path of any name -> a path that polars takes; and files that are removed after use."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

_numbers = count()


def polars_path(path: Path) -> Path:
    """Return a path to the same file that polars takes literally.

    polars takes UTF-8 only, and *, ? and [ as patterns: other files get a symbolic link with a plain name, which is
    removed when the process ends. The file need not exist: what is written to the link is written to the path.
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return _link(path.absolute())
    return _link(path.absolute()) if re.search(r"[*?\[]", str(path)) else path


@contextmanager
def temporary_file() -> Iterator[Path]:
    """Yield the path of a file to write, which is removed when the block ends, or at the latest with the process."""
    path = Path(_folder().name) / f"{next(_numbers)}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@functools.cache
def _link(path: Path) -> Path:
    link = Path(_folder().name) / f"{next(_numbers)}"
    link.symlink_to(path)
    return link


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="recoslip-", ignore_cleanup_errors=True)
