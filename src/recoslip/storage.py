"""What is written to a folder or file -> one that appears complete or not at all."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from recoslip.errors import RecoslipError

log = logging.getLogger("recoslip")

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2
_placed: dict[Path, int | None] = {}  # what this process renames to its final name, and the inode that it has there


def resolve(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of an output, links followed: what is written goes where a link leads."""
    try:
        resolved = Path(path).expanduser().resolve()
        if resolved.is_symlink():  # from Python 3.13 on, links in a circle are left as they are
            resolved.stat()
        return resolved
    except (OSError, RuntimeError) as problem:  # links in a circle, or no home folder
        raise RecoslipError(f"cannot write {printable(path)}: {problem}; choose another folder") from problem


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be printed and encoded, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def check_output_folder(path: str | os.PathLike[str], *, ours: Collection[str], replace: bool, size: int = 0) -> None:
    """Raise unless a folder can be written at `path`.

    Args:
        path: the folder to make.
        ours: names of the files that such a folder holds. A folder that holds any other file is never replaced.
        replace: whether a folder that holds only such files may be replaced.
        size: bytes that it will take, about.
    """
    final = resolve(path)
    try:
        restore_replaced(final)
        if final.exists() and not final.is_dir():
            raise RecoslipError(f"{printable(path)} is a file, expected a folder or nothing; choose another name")
        present = sorted(entry.name for entry in final.iterdir()) if final.exists() else []
    except OSError as problem:  # the name is too long, or the folder may not be listed
        raise RecoslipError(f"cannot write {printable(path)}: {problem.strerror}; choose another folder") from problem
    foreign = [name for name in present if name not in ours]
    if foreign:
        raise RecoslipError(
            f"{printable(path)} is not empty: it holds {printable(foreign[0])!r}, which is not ours; "
            "choose another folder"
        )
    if present and not replace:
        raise RecoslipError(
            f"{printable(path)} is not empty: it holds an earlier result; choose another folder, or use --force"
        )
    _temporary_folder(final).rmdir()  # the parent folder is writable
    free = shutil.disk_usage(final.parent).free
    if free < size:
        raise RecoslipError(
            f"cannot write {printable(path)}: it takes about {size / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are "
            "free there; make room or choose another folder"
        )


@contextmanager
def output_lock(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold an output for this process while the block runs; raise at once if another process holds it.

    The operating system locks a file in the folder for temporary files, so that the lock ends with its process, however
    that ends. Blocks of one thread may be nested.
    """
    from filelock import FileLock, Timeout

    final = resolve(path)
    folder = Path(tempfile.gettempdir()) / f"recoslip-locks-{getattr(os, 'getuid', int)()}"
    name = hashlib.sha256(os.fsencode(final)).hexdigest()[:32]
    with ExitStack() as held:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            held.enter_context(FileLock(folder / name, timeout=0, is_singleton=True))
        except Timeout as problem:
            raise RecoslipError(
                f"another process is writing {printable(final)}; wait until it ends, or choose another folder"
            ) from problem
        except OSError as problem:
            raise RecoslipError(
                f"cannot write to {printable(folder)}: {problem.strerror}; set TMPDIR to a folder of your own"
            ) from problem
        yield


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, ours: Collection[str], replace: bool) -> Iterator[Path]:
    """Yield an empty folder beside `path` to write into; it becomes `path` when the block ends without error.

    The arguments are those of `check_output_folder`, which is called first.
    """
    final = resolve(path)
    with output_lock(final):
        check_output_folder(path, ours=ours, replace=replace)
        temporary = _temporary_folder(final)
        try:
            yield temporary
            replace_folder(temporary, final)
        except _write_errors() as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise RecoslipError(
                f"cannot write {printable(path)}: {reason}; make room or choose another folder"
            ) from problem
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if temporary.exists():  # too many files are open; at the end of the process they are not
                atexit.register(shutil.rmtree, temporary, ignore_errors=True)


def _write_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions for a full disk; those of libraries only once they are loaded, for that takes long."""
    polars, safetensors = (sys.modules.get(name) for name in ("polars.exceptions", "safetensors"))
    loaded = [polars.PolarsError] if polars else []
    return (OSError, *loaded, *([safetensors.SafetensorError] if safetensors else []))


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a temporary file beside `path`, flush it to the disk and rename it to `path`."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o666 & ~_umask())
            _placed[path] = _inode(Path(temporary))  # before: an interrupt may come right after
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as problem:
        raise RecoslipError(
            f"cannot write {printable(path)}: {problem.strerror or problem}; make room or write elsewhere"
        ) from problem


def placed_outputs() -> list[Path]:
    """Return the files and folders that this process put in place, as far as they are there still."""
    return [path for path, inode in _placed.items() if _inode(path) == inode]


def forget_outputs() -> None:
    """Let `placed_outputs` begin anew."""
    _placed.clear()


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def replace_folder(temporary: Path, final: Path) -> None:
    """Rename the folder `temporary` to `final`; a folder that is there is replaced, or stays if that fails.

    Where the system can exchange two folders, that is one step. Elsewhere there are two, and what `restore_replaced`
    finds after a kill between them is put back.
    """
    _placed[final] = _inode(temporary)
    if not final.exists():
        temporary.rename(final)
    elif not any(final.iterdir()):
        _fill_empty_folder(temporary, final)
    elif _exchange(temporary, final):
        shutil.rmtree(temporary)
    else:
        replaced = _replaced(final)
        final.rename(replaced)
        try:
            temporary.rename(final)
        except BaseException:
            replaced.rename(final)
            raise
        shutil.rmtree(replaced)


def restore_replaced(final: Path) -> None:
    """Put a folder back that a process was killed over while it replaced it."""
    replaced = _replaced(final)
    if not replaced.exists():
        return
    if final.exists():  # killed later, while the old one was being removed
        shutil.rmtree(replaced, ignore_errors=True)
    else:
        replaced.rename(final)
        log.info("%s was put back: a process was killed while it replaced it", printable(final))


def _replaced(final: Path) -> Path:
    return final.parent / f".{final.name}.replaced"


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return whether the system could."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if renameat2 is None:
        return False
    return bool(renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)


def _fill_empty_folder(temporary: Path, final: Path) -> None:
    try:
        temporary.replace(final)
    except OSError:  # `final` is a mount point or a link, which cannot be replaced: move the files one by one
        try:
            for entry in sorted(temporary.iterdir()):
                shutil.move(entry, final / entry.name)
            _placed[final] = _inode(final)
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
        raise RecoslipError(
            f"cannot write to {printable(final.parent)}: {problem.strerror}; choose another folder"
        ) from problem
    temporary.chmod(0o777 & ~_umask())
    return temporary


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
