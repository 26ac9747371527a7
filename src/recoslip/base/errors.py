"""The exceptions and the warning. Every message says what was expected, what came, and what to do.

RecoslipError (a ValueError)
├── GraphError       a NodeGraph cannot be built or used
│   └── TableError   a nodes or edges table cannot be read as a graph; NoDomainError if it has no domain
├── SettingError     a detector, split or simulator was given a setting that is not allowed
│   └── Diverged     the training loss became non-finite with every seed that was tried
├── OutOfMemory      a computation does not, or would not, fit into memory
├── MissingExtra     a library that not every installation has is needed
├── DatasetError     a named dataset is unknown or its files are not there
├── ModelFileError   a saved detector is truncated, foreign, or from another format version
└── WatchError       a watch cannot be begun, read, or given a batch
"""

import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class RecoslipError(ValueError):
    """Base class of every error that recoslip raises on purpose."""


class GraphError(RecoslipError):
    """A NodeGraph cannot be built or used."""


class TableError(GraphError):
    """A nodes or edges table cannot be read as a graph."""


class NoDomainError(TableError):
    """A nodes table has no column that is known to separate source from target; some that may are proposed."""

    def __init__(self, message: str, proposals: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.proposals = tuple(proposals)  # options of reading, of each column


class SettingError(RecoslipError):
    """A detector, split or simulator was given a setting that is not allowed."""


class Diverged(SettingError):  # noqa: N818
    """The training loss became non-finite (NaN or infinite)."""


class OutOfMemory(RecoslipError):  # noqa: N818
    """A computation does not, or would not, fit into memory."""


class MissingExtra(RecoslipError):  # noqa: N818
    """A library that not every installation has is needed."""


class DatasetError(RecoslipError):
    """A named dataset is unknown or its files are not there."""


class ModelFileError(RecoslipError):
    """A saved detector is truncated, foreign, or from another format version."""


class WatchError(RecoslipError):
    """A watch cannot be begun, read, or given a batch."""


EXTRAS = {"torch": "networks", "torch_geometric": "networks"}  # library -> the extra that installs it


def need(library: str, purpose: str) -> Any:
    """Import a library that not every installation has, or say what needs it and how to install it."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as problem:
        package = library.partition(".")[0]
        if problem.name is None or problem.name.partition(".")[0] != package:
            raise
        raise MissingExtra(
            f"{purpose} needs {package}, which is not installed: pip install 'recoslip[{EXTRAS[package]}]'"
        ) from problem


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ' (did you mean ...?)' for the known name closest to `name`, or ''."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class RecoslipWarning(UserWarning):
    """The result can be used, with the reservation that the message states."""
