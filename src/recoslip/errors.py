"""What can go wrong, as one small tree. Every message says what was expected, what came, and what to do.

RecoslipError (a ValueError)
├── GraphError       a NodeGraph cannot be built or used
│   └── TableError   a nodes or edges table cannot be read as a graph
├── SettingError     a detector, split or simulator was given a setting it cannot have
│   └── Diverged     training left the numbers, from every seed that was tried
├── OutOfMemory      the work would not fit, and was not begun
├── DatasetError     a named dataset is unknown or its files are not there
└── ModelFileError   a saved detector is truncated, foreign, or from another format version
"""

import difflib
from collections.abc import Iterable


class RecoslipError(ValueError):
    """Base of every error recoslip raises on purpose."""


class GraphError(RecoslipError):
    """A NodeGraph cannot be built or used."""


class TableError(GraphError):
    """A nodes or edges table cannot be read as a graph."""


class SettingError(RecoslipError):
    """A detector, split or simulator was given a setting it cannot have."""


class Diverged(SettingError):  # noqa: N818
    """Training left the numbers."""


class OutOfMemory(RecoslipError):  # noqa: N818
    """The work would not fit into the memory that is free, and was not begun."""


class DatasetError(RecoslipError):
    """A named dataset is unknown or its files are not there."""


class ModelFileError(RecoslipError):
    """A saved detector is truncated, foreign, or from another format version."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ' (did you mean ...?)' for the known name closest to `name`, or ''."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class RecoslipWarning(UserWarning):
    """The result stands, but not on all the feet it should."""
