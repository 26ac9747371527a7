"""Content -> files and folders that appear whole or not at all, and that replace nothing but what recoslip wrote.

A folder that recoslip writes holds `recoslip.json`, its manifest: the kind of the folder, and size and SHA-256 of each
file. A file that a manifest names and that is unchanged may be replaced or removed. Any other file is the user's.

New files are made in a hidden folder. Its journal names each file before it is made: so the next command knows what a
killed process left. The manifest is written when all files are on the disk. Then a new folder is renamed to its place.
In a folder that exists, the files are renamed one by one, what the new manifest does not name is removed, and the
manifest is renamed last; if a process is killed over that, the next command completes it.
"""

import hashlib
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from recoslip.base.errors import RecoslipError
from recoslip.base.json_files import MANIFEST as MANIFEST
from recoslip.base.json_files import Entry, is_as_written, is_below, read_manifest
from recoslip.base.json_files import Manifest as Manifest
from recoslip.base.json_files import ManifestError as ManifestError
from recoslip.base.json_files import entry_of as entry_of

log = logging.getLogger("recoslip")

JOURNAL, HEADER = "journal", "files of a recoslip folder that is being written"
NEW, WORK = "new/", "work/"  # in a hidden folder: files of the folder, and intermediate ones
HIDDEN = ".recoslip-"  # how its name begins, within the folder that is written

Kind: TypeAlias = Literal["result", "scores", "model", "packed graph", "watch", "bench"]
PathLike: TypeAlias = "str | os.PathLike[str]"
Content: TypeAlias = "str | bytes | Callable[[BinaryIO], object]"  # of a file, or what writes it

_placed: dict[Path, tuple[int, ...]] = {}  # what this process puts in place -> what tells whether it is there still


class HeldError(RecoslipError):
    """Another process writes the same output."""


def check_manifest(folder: Path, kind: Kind, but: str = "") -> Manifest:
    """Return the manifest of a folder; raise ManifestError unless every file but one is there as it was written."""
    put_right(folder)
    manifest = read_manifest(folder)
    if manifest is None or manifest.kind != kind:
        raise ManifestError(f"its {MANIFEST} is missing, damaged, or not that of a {kind}")
    for name in manifest.files:
        if name != but and not is_as_written(folder, name, manifest):
            raise ManifestError(f"{name} is missing, or not what was written: it is truncated, damaged or changed")
    return manifest


def resolve(path: PathLike) -> Path:
    """Return the absolute path of an output, links followed: what is written goes where a link leads."""
    try:
        resolved = Path(path).expanduser().resolve()
        if resolved.is_symlink():  # from Python 3.13 on, links in a circle are left as they are
            resolved.stat()
        return resolved
    except (OSError, RuntimeError) as problem:  # links in a circle, or no home folder
        raise RecoslipError(f"cannot write {printable(path)}: {problem}; choose another folder") from problem


def printable(path: PathLike) -> str:
    """Return a path as text that can be printed and encoded, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@contextmanager
def output_lock(path: PathLike, *, wait: float = 0.0) -> Iterator[None]:
    """Hold an output for this process while the block runs; raise if another process holds it after `wait` seconds.

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
            held.enter_context(FileLock(folder / name, is_singleton=True).acquire(timeout=wait))
        except Timeout as problem:
            raise HeldError(
                f"another process is writing {printable(final)}; wait until it ends, or choose another folder"
            ) from problem
        except OSError as problem:
            raise RecoslipError(
                f"cannot write to {printable(folder)}: {problem.strerror}; set TMPDIR to a folder of your own"
            ) from problem
        yield


def check_output(
    path: PathLike, kind: Kind, *, replace: bool = False, inputs: Iterable[PathLike] = (), size: int = 0
) -> None:
    """Raise unless a folder of so many bytes can be written at `path`; the other arguments are those of `writing`."""
    final, shown = resolve(path), printable(path)
    for given in inputs:
        if final in ((own := resolve(given)), *own.parents):
            raise RecoslipError(f"{shown} is or holds an input ({printable(given)}); choose another folder")
    put_right(final)
    with _explained(path):
        if final.exists() and not final.is_dir():
            raise RecoslipError(f"{shown} is a file, expected a folder or nothing; choose another name")
        present, manifest = list(contents(final)), read_manifest(final)
        check_update(final, present)
        if manifest and manifest.kind != kind:
            raise RecoslipError(
                f"{shown} holds another kind of output ({manifest.kind}, the new one: {kind}); choose another folder"
            )
        if present and not replace:
            raise RecoslipError(
                f"{shown} is not empty: it holds an earlier {kind}; choose another folder, or replace it: replace=True"
            )
        check_writable(final)
        free = shutil.disk_usage(final.parent).free
    if free < size:
        raise RecoslipError(
            f"cannot write {shown}: it takes about {size / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are free "
            "there; make room or choose another folder"
        )


def check_update(folder: Path, names: Iterable[str]) -> None:
    """Raise if a folder holds a file of one of these names that recoslip did not write, or that was changed since."""
    manifest = read_manifest(folder)
    for name in (*names, MANIFEST):
        if os.path.lexists(folder / name) and not is_as_written(folder, name, manifest):
            what = "was changed since" if manifest and name in manifest.files else "was not written by this version"
            raise RecoslipError(
                f"{printable(folder)} holds {printable(name)!r}, which {what}; move it away, or choose another folder"
            )


def check_writable(path: PathLike) -> None:
    """Raise unless files can be made in a folder, or the folder itself."""
    _hidden_folder(resolve(path)).rmdir()


def contents(folder: Path, below: str = "") -> Iterator[str]:
    """Yield the names of the files, links and empty folders below a folder, without what is hidden as being written."""
    for entry in sorted((folder / below).iterdir()) if folder.is_dir() else ():
        if entry.name.startswith(HIDDEN) and not below:
            continue
        if entry.is_symlink() or not entry.is_dir() or not any(entry.iterdir()):
            yield f"{below}{entry.name}"
        else:
            yield from contents(folder, f"{below}{entry.name}/")


class Folder:
    """A folder that is being written, in a hidden place until its files are complete."""

    def __init__(self, root: Path, names: Iterable[str] = ()) -> None:
        self.root, self.names = root, list(names)

    def path(self, name: str, part: str = NEW) -> Path:
        """Return where to write a file of the folder; `part` WORK: an intermediate file, which does not stay."""
        with (self.root / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(part + name) + "\n")
        self.names.append(part + name)
        path = self.root / part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, content: Content, part: str = NEW) -> Path:
        """Write a file of the folder, whose content may be a function that writes it; return its path."""
        path = self.path(name, part)
        with path.open("x+b") as file:
            content(file) if callable(content) else file.write(_encoded(content))
        return path

    def place(self, final: Path, kind: str, kept: Mapping[str, Entry]) -> None:
        """Flush all files to the disk, write the manifest, which also names what is kept, and put all in its place."""
        written = [name.removeprefix(NEW) for name in self.names if name.startswith(NEW)]
        files = {**kept, **{name: _flush(self.root / NEW / name) for name in written}}
        _flush(self.write(MANIFEST, Manifest(kind, files).content()))
        for folder in {(self.root / name).parent for name in self.names}:
            _flush_folder(folder)
        within = self.root.parent == final
        _placed[final] = _identity(final if within else self.root / NEW)  # before: an interrupt may come right after
        if within:
            self.settle(final)
        else:
            (self.root / NEW).rename(final)
            _flush_folder(final.parent)

    def settle(self, final: Path) -> None:
        """Put the files of a folder that exists in their places if all are complete; remove what else is here."""
        manifest, before = read_manifest(self.root / NEW), read_manifest(final)
        if manifest and self.root.parent == final:
            names = [name for name in manifest.files if (self.root / NEW / name).exists()]
            gone = [name for name in (before.files if before else ()) if name not in manifest.files]
            check_update(final, [*names, *gone])
            for name in (*names, MANIFEST):
                if name == MANIFEST:
                    _remove(final, gone)
                (final / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / NEW / name).replace(final / name)
                _flush_folder((final / name).parent)
        _remove(self.root, [*self.names, JOURNAL])


def _encoded(content: str | bytes) -> bytes:
    return content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content


def _flush(path: Path) -> Entry:
    """Flush a file to the disk; return what a manifest says of it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        with suppress(OSError):  # some file systems flush no folders
            os.fsync(handle)
        os.close(handle)


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Remove files below a folder, not through links, and then the folders that are empty."""
    paths = [folder / name for name in names if (folder / name).parent.resolve() == (folder.resolve() / name).parent]
    below = {parent for path in paths for parent in path.parents if parent.is_relative_to(folder)}
    for path in (*paths, *sorted(below, key=lambda each: -len(each.parts))):
        with suppress(OSError):
            path.rmdir() if path in below else path.unlink()


@contextmanager
def writing(path: PathLike, kind: Kind, *, replace: bool = False, inputs: Iterable[PathLike] = ()) -> Iterator[Folder]:
    """Yield a folder to write into; it becomes `path` when the block ends without error.

    Args:
        path: the folder to make.
        kind: what the folder is. A folder of another kind is never replaced.
        replace: whether an earlier folder of this kind may be replaced, if it holds nothing else.
        inputs: files and folders that are read. None may be the folder or lie in it.
    """
    final = resolve(path)
    with output_lock(final):
        check_output(path, kind, replace=replace, inputs=inputs)
        with _explained(path), _hidden(final) as folder:
            yield folder
            check_update(final, contents(final))  # once more: something may have come meanwhile
            folder.place(final, kind, {})


def update(path: PathLike, files: Mapping[str, Content], kind: Kind) -> None:
    """Write some files into a folder, all or none. What `check_update` raises for is refused."""
    final = resolve(path)
    with output_lock(final, wait=5), _explained(path):
        final.mkdir(parents=True, exist_ok=True)
        put_right(final)
        check_update(final, files)
        before = read_manifest(final) or Manifest(kind, {})
        with _hidden(final) as folder:
            for name, content in files.items():
                folder.write(name, content)
            kept = {name: entry for name, entry in before.files.items() if name not in files}
            folder.place(final, before.kind, kept)


@contextmanager
def _hidden(final: Path) -> Iterator[Folder]:
    """Yield a hidden folder to write into, of which nothing is left in the end."""
    folder = Folder(_hidden_folder(final))
    try:
        (folder.root / JOURNAL).write_text(HEADER + "\n", encoding="utf-8")
        yield folder
    finally:
        folder.settle(final)


def _hidden_folder(final: Path) -> Path:
    """Make an empty folder within a folder that exists, or beside one that does not."""
    place, prefix = (final, HIDDEN) if final.exists() else (final.parent, f".{final.name}-")
    try:
        place.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    except OSError as problem:
        raise RecoslipError(
            f"cannot write to {printable(place)}: {problem.strerror}; choose another folder"
        ) from problem


def put_right(path: PathLike) -> None:
    """Complete or undo what a process was killed over while it wrote an output, unless one is writing there."""
    final = resolve(path)
    if any(_left(final)):
        with suppress(HeldError), output_lock(final):
            for folder in _left(final):
                folder.settle(final)
                log.info("%s was put right: a process was killed while it wrote there", printable(final))


def _left(final: Path) -> Iterator[Folder]:
    """Yield the hidden folders of an output, with the files that their journals name."""
    for place, prefix in ((final.parent, f".{final.name}-"), (final, HIDDEN)):
        with suppress(OSError):
            for root in [each for each in place.iterdir() if each.name.startswith(prefix) and not each.is_symlink()]:
                is_own = (
                    "-" not in root.name.removeprefix(prefix) and (root / JOURNAL).is_file()
                )  # .out-2-... is of out-2
                with suppress(OSError, ValueError, TypeError):
                    header, *lines = (root / JOURNAL).read_text(encoding="utf-8").split("\n") if is_own else [""]
                    names = [json.loads(line) for line in lines[:-1]]  # a last line without an end is of no file
                    if header == HEADER:
                        yield Folder(root, [name for name in names if is_below(name)])


@contextmanager
def _explained(path: PathLike) -> Iterator[None]:
    """Raise what a full or failing disk raises as an error with a remedy."""
    try:
        yield
    except RecoslipError:
        raise
    except Exception as problem:
        polars, safetensors = (sys.modules.get(name) for name in ("polars.exceptions", "safetensors"))  # once imported
        kinds = OSError, getattr(polars, "PolarsError", OSError), getattr(safetensors, "SafetensorError", OSError)
        if not isinstance(problem, kinds):
            raise
        reason = getattr(problem, "strerror", None) or problem
        raise RecoslipError(
            f"cannot write {printable(path)}: {reason}; make room or choose another folder"
        ) from problem


def check_new(path: PathLike) -> None:
    """Raise if there is something at `path`, other than a file that this process wrote and nobody changed."""
    final = resolve(path)
    if final.is_dir():
        raise RecoslipError(f"{printable(path)} is a folder, expected the name of a file; choose another name")
    if os.path.lexists(final) and _placed.get(final) != _identity(final):
        raise RecoslipError(f"{printable(path)} is there already; choose another name, or move it away")


def write_new(path: PathLike, content: str | bytes) -> None:
    """Write a single file, whole or not at all. What `check_new` raises for is refused."""
    final = resolve(path)
    with _explained(path), ExitStack() as left:
        check_new(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(f".{final.name[:100]}-{secrets.token_hex(8)}")
        with temporary.open("xb") as file:
            left.callback(temporary.unlink, missing_ok=True)
            file.write(_encoded(content))
        _flush(temporary)
        check_new(path)
        is_own = os.path.lexists(final)
        _placed[final] = _identity(temporary)  # before: an interrupt may come right after
        try:
            temporary.replace(final) if is_own else os.link(temporary, final)
        except OSError:  # a file has come there, or the file system has no links
            check_new(path)
            temporary.rename(final)
        _flush_folder(final.parent)


def placed_outputs() -> list[Path]:
    """Return the files and folders that this process put in place, as far as they are there still."""
    return [path for path, identity in _placed.items() if _identity(path) == identity]


def forget_outputs() -> None:
    """Let `placed_outputs` begin anew; files of before are no longer this process's own."""
    _placed.clear()


def _identity(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino,) if path.is_dir() else (status.st_ino, status.st_size, status.st_mtime_ns)
