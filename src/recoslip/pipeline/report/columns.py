"""Columns of the user's table -> JSON values for the report: in the user's own units, long texts cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recoslip.errors import RecoslipError, nearest
from recoslip.graph import NodeGraph

TEXT_LENGTHS = (400, 200, 100, 50, 25)  # characters of a cell; the first with which all columns fit
MAX_CHARACTERS = 8_000_000  # of all columns together


def shown_columns(
    graph: NodeGraph, nodes: NDArray[np.int64], show: Sequence[str] | None
) -> tuple[dict[str, list[Any]], int | None]:
    """Return the values of some nodes, by column, and after how many characters texts are cut; None if none is.

    Args:
        graph: the graph, with the columns that were kept of its table.
        nodes: positions of the nodes.
        show: names of the columns; by default all that were kept.
    """
    names = list(graph.columns) if show is None else list(show)
    for name in names:
        if name not in graph.columns:
            kept = ", ".join(graph.columns) or "none"
            raise RecoslipError(
                f"show must name columns that were kept of the table ({kept}); got {name!r}"
                f"{nearest(name, graph.columns)}"
            )
    columns = {name: [_json_value(value) for value in graph.columns[name][nodes].tolist()] for name in names}
    texts = [value for values in columns.values() for value in values if isinstance(value, str)]
    longest = max(map(len, texts), default=0)
    limit = next(
        (each for each in TEXT_LENGTHS if sum(min(len(text), each) for text in texts) <= MAX_CHARACTERS),
        TEXT_LENGTHS[-1],
    )
    if longest <= limit:
        return columns, None
    return {name: [shortened(value, limit) for value in values] for name, values in columns.items()}, limit


def node_labels(graph: NodeGraph, nodes: NDArray[np.int64]) -> list[str | None] | None:
    """Return what a person calls each of some nodes; None where the table has no such column."""
    if graph.label is None:
        return None
    values = [_json_value(value) for value in graph.columns[graph.label][nodes].tolist()]
    return [None if value is None else shortened(str(value), TEXT_LENGTHS[0]) for value in values]


def shortened(value: Any, length: int) -> Any:
    """Cut a text.

    >>> shortened("a long title", 7), shortened("short", 7), shortened(12.5, 7)
    ('a long…', 'short', 12.5)
    """
    return f"{value[: length - 1]}…" if isinstance(value, str) and len(value) > length else value


def _json_value(value: Any) -> Any:
    """Return a value of a table as JSON holds it: missing and infinite numbers as null, what is no number as text."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)
