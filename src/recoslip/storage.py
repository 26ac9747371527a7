"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recoslip.errors import RecoslipError


def check_free(path: str | os.PathLike[str], *, replace: bool) -> None:
    """Raise unless a folder may be written at `path`: nothing is there, or it is empty, or `replace` allows it."""
    final = Path(path).expanduser()
    if final.exists() and not final.is_dir():
        raise RecoslipError(f"{path} is a file, expected a folder or nothing; choose another name")
    if final.exists() and any(final.iterdir()) and not replace:
        raise RecoslipError(f"{path} is not empty; choose another folder, or replace it with --force")


@contextmanager
def whole_folder(path: str | os.PathLike[str], *, replace: bool) -> Iterator[Path]:
    """Yield an empty folder beside `path` to write into; it becomes `path` when the block ends without error.

    Args:
        path: the folder to make.
        replace: whether an existing folder may be replaced; else it is refused before anything is written.
    """
    check_free(path, replace=replace)
    final = Path(path).expanduser().absolute()
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    except OSError as problem:
        raise RecoslipError(f"cannot write to {final.parent}: {problem.strerror}") from problem
    try:
        draft.chmod(0o777 & ~_umask())
        yield draft
        if final.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
            final.rename(old / "old")
            draft.rename(final)
            shutil.rmtree(old)
        else:
            draft.rename(final)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
