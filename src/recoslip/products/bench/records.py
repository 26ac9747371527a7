"""Runs -> one JSON line each, in files that appear complete or not at all."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from recoslip._version import __version__
from recoslip.base.errors import RecoslipError
from recoslip.base.files import write_new
from recoslip.base.json_files import parse_json
from recoslip.learning.base import Detector

PACKAGE = Path(__file__).resolve().parent.parent


class Key(NamedTuple):
    """What identifies a run."""

    dataset: str
    split: str  # "own" or a seed
    method: str
    settings: str  # fingerprint of the method's settings and of the data, where they are the user's
    seed: int


class Records:
    """A folder of records. Every fleet that has been trained is one file of JSON lines in it, one per seed.

    A temporary file is written, flushed to the disk and renamed, so a process that is killed leaves nothing half
    written, and any number of processes may write at once. Any tool reads them: `polars.read_ndjson("*.jsonl")`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        """Store the records of one fleet."""
        first = records[0]
        name = "{dataset}.{split}.{method}".format(**first)
        digest = fingerprint([first["settings_hash"], first["code"], [record["seed"] for record in records]])
        text = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
        path = self.folder / f"{name}.{digest}.jsonl"
        if not path.exists():  # another process was quicker
            write_new(path, text)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield every record, in the order of the files' names."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RecoslipError(
                f"{self.folder} is a file, expected a folder of records or nothing; choose another --out"
            )
        for path in sorted(path for path in self.folder.glob("[!.]*.jsonl") if path.is_file()):
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
                yield from (_checked(parse_json(line)) for line in lines)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                raise RecoslipError(
                    f"{path} cannot be read, it is damaged or not ours ({problem}); "
                    "move it away, and its runs will be done again"
                ) from problem


_TEXTS = ("dataset", "split", "method", "settings_hash", "code", "time", "device", "torch")
MEASURES = ("auroc", "ap", "f1", "fpr95", "seconds")


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record, or raise if a field that is read later is missing or of the wrong type."""
    for name in _TEXTS:
        if not isinstance(record[name], str):
            raise ValueError(f"{name} is {record[name]!r}, not a text")
    for name in MEASURES:
        if not math.isfinite(record[name]):
            raise ValueError(f"{name} is {record[name]!r}, not a number")
    if type(record["seed"]) is not int:
        raise ValueError(f"seed is {record['seed']!r}, not a whole number")
    return record


def key_of(record: dict[str, Any]) -> Key:
    """Return the key of the run that a record is about."""
    return Key(record["dataset"], record["split"], record["method"], record["settings_hash"], record["seed"])


def fingerprint(value: Any) -> str:
    """Hash a JSON value to 12 digits.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@cache
def code_version(kind: type[Detector]) -> str:
    """Return the version of the code that a detector's results depend on.

    It is the version of this package with `revision` and, for a detector of another package, a hash of its module.
    """
    ours = __version__ + revision(PACKAGE)
    module = inspect.getmodule(kind)
    if module is None or module.__name__.partition(".")[0] == PACKAGE.name:
        return ours
    return f"{ours}+{fingerprint(inspect.getsource(module))[:8]}"


def revision(folder: Path) -> str:
    """Return the last commit of a folder and a hash of what has changed since; nothing outside of a git checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments, "--", "."]
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True).stdout

    try:
        commit, changes = git("log", "-1", "--format=+g%h", "--abbrev=8").strip(), git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + (f".{fingerprint(changes)[:8]}" if changes else "")
