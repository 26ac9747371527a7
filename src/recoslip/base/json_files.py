"""A JSON file of ours, which may be damaged -> its value, or an error with the reason; the manifest of a folder."""

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias

MANIFEST, FORMAT, VERSION = "recoslip.json", "recoslip folder", 1
Entry: TypeAlias = tuple[int, str]  # size and SHA-256 of a file


class JsonFileError(ValueError):
    """A file that is no JSON file of ours; the message is the reason, without the file's name."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a regular file; links are not followed, and devices and pipes are not opened.

    FileNotFoundError is raised as it is.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise JsonFileError("it is a link, a folder, a pipe or a device, not a file")
        return parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, MemoryError) as problem:
        raise JsonFileError(f"it cannot be read ({problem})") from problem


def parse_json(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(text)
    except RecursionError as problem:
        raise JsonFileError("it is nested too deeply") from problem
    except ValueError as problem:
        raise JsonFileError(f"it is not JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise JsonFileError(f"it must hold an object, and holds {type(value).__name__}")
    return value


class ManifestError(ValueError):
    """A folder is not what was written; the message is the reason, without the folder's name."""


class Manifest(NamedTuple):
    """What a folder is, and the files that recoslip wrote into it."""

    kind: str
    files: Mapping[str, Entry]

    def content(self) -> bytes:
        """Return the content of `recoslip.json`."""
        document = {"format": FORMAT, "version": VERSION, "kind": self.kind, "files": dict(sorted(self.files.items()))}
        return json.dumps(document, indent=1).encode() + b"\n"


def entry_of(content: bytes) -> Entry:
    """Return what a manifest says of a file with this content."""
    return len(content), hashlib.sha256(content).hexdigest()


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, None where there is none of this version."""
    try:
        found = read_json(folder / MANIFEST)
        files = {name: (int(size), str(digest)) for name, (size, digest) in found["files"].items()}
        is_ours = (found["format"], found["version"]) == (FORMAT, VERSION) and all(map(is_below, files))
        return Manifest(str(found["kind"]), files) if is_ours else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_below(name: str) -> bool:
    """Return whether a name in a manifest or a journal is that of a file below the folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and not set(name) & set("\\:\0") and name != MANIFEST


def is_as_written(folder: Path, name: str, manifest: Manifest | None) -> bool:
    """Return whether a file is the one that the manifest names, and not reached through a link."""
    path, entry = folder / name, manifest.files.get(name) if manifest else None
    try:
        status = path.lstat()
        is_plain = stat.S_ISREG(status.st_mode) and path.parent.resolve() == (folder.resolve() / name).parent
        if name == MANIFEST:
            return manifest is not None and is_plain
        if entry is None or not is_plain or status.st_size != entry[0]:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == entry[1]
    except OSError:
        return False
