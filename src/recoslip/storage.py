"""What is written to a folder or file -> one that appears complete or not at all."""

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


def check_output_folder(path: str | os.PathLike[str], *, ours: Collection[str], replace: bool) -> None:
    """Raise unless a folder may be written at `path`.

    Args:
        path: the folder to make.
        ours: names of the files that such a folder holds. A folder that holds any other file is never replaced.
        replace: whether a folder that holds only such files may be replaced.
    """
    final = Path(path).expanduser()
    try:
        if final.exists() and not final.is_dir():
            raise RecoslipError(f"{path} is a file, expected a folder or nothing; choose another name")
        present = sorted(entry.name for entry in final.iterdir()) if final.exists() else []
    except OSError as problem:  # the name is too long, or the folder may not be listed
        raise RecoslipError(f"cannot write {path}: {problem.strerror}; choose another folder") from problem
    foreign = [name for name in present if name not in ours]
    if foreign:
        raise RecoslipError(f"{path} is not empty: it holds {foreign[0]!r}, which is not ours; choose another folder")
    if present and not replace:
        raise RecoslipError(f"{path} is not empty: it holds an earlier result; choose another folder, or use --force")
    _temporary_folder(final.absolute()).rmdir()  # the parent folder is writable


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, ours: Collection[str], replace: bool) -> Iterator[Path]:
    """Yield an empty folder beside `path` to write into; it becomes `path` when the block ends without error.

    The arguments are those of `check_output_folder`, which is called first.
    """
    check_output_folder(path, ours=ours, replace=replace)
    final = Path(path).expanduser().absolute()
    temporary = _temporary_folder(final)
    try:
        yield temporary
        replace_folder(temporary, final)
    except (OSError, PolarsError, SafetensorError) as problem:  # a full disk, as each library reports it
        reason = getattr(problem, "strerror", None) or problem
        raise RecoslipError(f"cannot write {path}: {reason}; make room or choose another folder") from problem
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a temporary file beside `path`, flush it to the disk and rename it to `path`."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as problem:
        raise RecoslipError(
            f"cannot write {path}: {problem.strerror or problem}; make room or write elsewhere"
        ) from problem


def replace_folder(temporary: Path, final: Path) -> None:
    """Rename the folder `temporary` to `final`; a folder that is there is replaced, or stays if that fails."""
    if not final.exists():
        temporary.rename(final)
    elif not any(final.iterdir()):
        _fill_empty_folder(temporary, final)
    else:
        backup = _temporary_folder(final)
        final.rename(backup / "old")
        try:
            temporary.rename(final)
        except BaseException:
            (backup / "old").rename(final)
            backup.rmdir()
            raise
        shutil.rmtree(backup)


def _fill_empty_folder(temporary: Path, final: Path) -> None:
    try:
        temporary.replace(final)
    except OSError:  # `final` is a mount point or a link, which cannot be replaced: move the files one by one
        try:
            for entry in sorted(temporary.iterdir()):
                shutil.move(entry, final / entry.name)
        except BaseException:
            for entry in final.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            raise


def _temporary_folder(final: Path) -> Path:
    """Make an empty folder beside `final`, on the same file system, so that it can be renamed to `final`."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    except OSError as problem:
        raise RecoslipError(f"cannot write to {final.parent}: {problem.strerror}; choose another folder") from problem
    temporary.chmod(0o777 & ~_umask())
    return temporary


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
