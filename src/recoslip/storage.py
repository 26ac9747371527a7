"""A folder or file that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from polars.exceptions import PolarsError
from safetensors import SafetensorError

from recoslip.errors import RecoslipError


def check_free(path: str | os.PathLike[str], *, ours: Collection[str], replace: bool) -> None:
    """Raise unless a folder may be written at `path`.

    Args:
        path: the folder to make.
        ours: names of the files such a folder holds. One that holds anything else is never replaced.
        replace: whether one that holds nothing else may be.
    """
    final = Path(path).expanduser()
    try:
        if final.exists() and not final.is_dir():
            raise RecoslipError(f"{path} is a file, expected a folder or nothing; choose another name")
        present = sorted(entry.name for entry in final.iterdir()) if final.exists() else []
    except OSError as problem:  # a name too long, a folder that may not be looked into
        raise RecoslipError(f"cannot write {path}: {problem.strerror}; choose another folder") from problem
    foreign = [name for name in present if name not in ours]
    if foreign:
        raise RecoslipError(f"{path} is not empty: it holds {foreign[0]!r}, which is not ours; choose another folder")
    if present and not replace:
        raise RecoslipError(f"{path} is not empty: it holds an earlier result; choose another folder, or use --force")
    _draft(final.absolute()).rmdir()


@contextmanager
def whole_folder(path: str | os.PathLike[str], *, ours: Collection[str], replace: bool) -> Iterator[Path]:
    """Yield an empty folder beside `path` to write into; it becomes `path` when the block ends without error.

    The arguments are those of `check_free`, which is asked first.
    """
    check_free(path, ours=ours, replace=replace)
    final = Path(path).expanduser().absolute()
    draft = _draft(final)
    try:
        yield draft
        put_in_place(draft, final)
    except (OSError, PolarsError, SafetensorError) as problem:  # whoever writes, the disk may be full
        reason = getattr(problem, "strerror", None) or problem
        raise RecoslipError(f"cannot write {path}: {reason}; make room or choose another folder") from problem
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file beside its place, flush it to the disk and rename it, so that it is never seen half written."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).chmod(0o666 & ~_umask())
            Path(draft).replace(path)
        finally:
            Path(draft).unlink(missing_ok=True)
    except OSError as problem:
        raise RecoslipError(
            f"cannot write {path}: {problem.strerror or problem}; make room or write elsewhere"
        ) from problem


def _draft(final: Path) -> Path:
    """Make an empty folder beside `final`, where renaming is one step."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    except OSError as problem:
        raise RecoslipError(f"cannot write to {final.parent}: {problem.strerror}; choose another folder") from problem
    draft.chmod(0o777 & ~_umask())
    return draft


def put_in_place(draft: Path, final: Path) -> None:
    """Rename a folder, or replace another by it."""
    if not final.exists():
        draft.rename(final)
    elif not any(final.iterdir()):
        try:
            draft.replace(final)
        except OSError:  # a mount point or a link cannot be replaced; what it holds then appears file by file
            try:
                for entry in sorted(draft.iterdir()):
                    shutil.move(entry, final / entry.name)
            except BaseException:
                for entry in final.iterdir():
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                raise
    else:
        aside = _draft(final)
        final.rename(aside / "old")
        try:
            draft.rename(final)
        except BaseException:
            (aside / "old").rename(final)
            aside.rmdir()
            raise
        shutil.rmtree(aside)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
