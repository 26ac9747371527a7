"""Runs -> one JSON line each, in files that appear whole or not at all."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import recoslip
from recoslip.detectors.base import Detector
from recoslip.errors import RecoslipError
from recoslip.storage import write_file


class Key(NamedTuple):
    """What a record is the record of."""

    dataset: str
    split: str  # "own" or a seed
    method: str
    settings: str  # fingerprint of the method's settings and, of a user's own dataset, the data
    seed: int


class Records:
    """A folder of records. Every fleet that has been trained is one file of JSON lines in it, one per seed.

    A file is written beside its place, flushed to the disk and renamed, so a process that is killed leaves nothing
    half written, and any number of processes may write at once. Any tool reads them: `polars.read_ndjson("*.jsonl")`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        """Store the records of one fleet."""
        key = records[0]
        name = "{dataset}.{split}.{method}".format(**key)
        mark = fingerprint([key["settings_hash"], key["code"], [record["seed"] for record in records]])
        text = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
        write_file(self.folder / f"{name}.{mark}.jsonl", text)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield every record, in the order of the files' names."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RecoslipError(
                f"{self.folder} is a file, expected a folder of records or nothing; choose another --out"
            )
        for path in sorted(path for path in self.folder.glob("[!.]*.jsonl") if path.is_file()):
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
                yield from (_checked(json.loads(line)) for line in lines)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                raise RecoslipError(
                    f"{path} cannot be read, it is damaged or not ours ({problem}); "
                    "move it away, and its runs will be done again"
                ) from problem


_TEXTS = ("dataset", "split", "method", "settings_hash", "code", "time", "device", "torch")
MEASURES = ("auroc", "ap", "f1", "fpr95", "seconds")


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """Raise unless a record has what is asked of it later."""
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
    """Return what a record is the record of."""
    return Key(record["dataset"], record["split"], record["method"], record["settings_hash"], record["seed"])


def fingerprint(value: Any) -> str:
    """Hash a JSON value to 12 digits.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@cache
def code_version(kind: type[Detector]) -> str:
    """Version of the code that a detector's results depend on: ours, and the package of a detector from elsewhere.

    Comments, docstrings and layout do not count, nor does anything outside the rooms that results pass through.
    """
    package = Path(recoslip.__file__).parent
    names = ("columns.py", "graph.py", "insight/metrics.py", "memory.py", "shift.py", "tables.py")
    files = [package / name for name in names]
    files += [package / "bench" / name for name in ("run.py", "sources.py")]
    for room in ("datasets", "detectors", "fleet", "objectives"):
        files += sorted((package / room).glob("*.py"))
    foreign = Path(inspect.getsourcefile(kind) or package / "graph.py").resolve()
    if package.resolve() not in foreign.parents:
        top = kind.__module__.partition(".")[0]
        home = next((folder for folder in foreign.parents if folder.name == top), None)
        files += [foreign] if home is None else sorted(home.rglob("*.py"))
    content = hashlib.sha256()
    for path in files:
        content.update(f"{path.name}:{_meaning(path.read_text(encoding='utf-8'))};".encode())
    return f"{recoslip.__version__}+{content.hexdigest()[:8]}"


def _meaning(source: str) -> str:
    """Return a module's syntax tree without docstrings, as text that is the same for every version of Python.

    >>> _meaning("x = 1  # one") == _meaning("'''Doc.'''\\nx = 1")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:]  # type: ignore[attr-defined]
    return _written(tree)


def _written(part: Any) -> str:
    """Write a part of a syntax tree. What is empty is left out: which fields exist differs between Pythons."""
    if isinstance(part, ast.AST):
        fields = [f"{name}={_written(value)}" for name, value in ast.iter_fields(part) if value not in (None, [])]
        return f"{type(part).__name__}({','.join(fields)})"
    return f"[{','.join(map(_written, part))}]" if isinstance(part, list) else repr(part)
