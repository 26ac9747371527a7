"""A detector's class -> the version of the code that its results depend on."""

from __future__ import annotations

import ast
import hashlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

from recoslip._version import __version__
from recoslip.detectors.base import Detector

PACKAGE = Path(__file__).resolve().parent.parent
# The modules and packages that results depend on.
RESULT_CODE = (
    "memory", "graph", "encoders", "tables", "shift", "calibration", "datasets", "objectives", "fleet", "detectors",
    "metrics", "bench/run", "bench/sources", "bench/user_datasets",
)  # fmt: skip


@cache
def code_version(kind: type[Detector]) -> str:
    """Return the version of the code that a detector's results depend on.

    It covers `RESULT_CODE`, and the package of the detector if that is another. Comments, docstrings and layout do not
    change it.
    """
    content = hashlib.sha256()
    for path in [path for name in RESULT_CODE for path in _files(name)] + _foreign_files(kind):
        content.update(f"{path.name}:{syntax(path.read_text(encoding='utf-8'))};".encode())
    return f"{__version__}+{content.hexdigest()[:8]}"


def _files(name: str) -> list[Path]:
    """Return the files of one of our modules or packages."""
    module = PACKAGE / f"{name}.py"
    return [module] if module.exists() else sorted((PACKAGE / name).rglob("*.py"))


def _foreign_files(kind: type[Detector]) -> list[Path]:
    """Return the files of the package that a detector is from; none for ours."""
    file = Path(inspect.getsourcefile(kind) or __file__).resolve()
    if PACKAGE in file.parents:
        return []
    top_package = kind.__module__.partition(".")[0]
    folder = next((folder for folder in file.parents if folder.name == top_package), None)
    return [file] if folder is None else sorted(folder.rglob("*.py"))


def syntax(source: str) -> str:
    """Return a module's syntax tree without docstrings, as text that is the same for every version of Python.

    >>> syntax("x = 1  # one") == syntax("'''Doc.'''\\nx = 1")
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
    return _dump(tree)


def _dump(node: Any) -> str:
    """Write a node of a syntax tree without its empty fields, because versions of Python differ in those."""
    if isinstance(node, ast.AST):
        fields = [f"{name}={_dump(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])]
        return f"{type(node).__name__}({','.join(fields)})"
    return f"[{','.join(map(_dump, node))}]" if isinstance(node, list) else repr(node)
