"""Features made of table columns -> what they say in the table's own units: means of numbers, shares of categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recoslip.graph import NodeGraph
from recoslip.tables.column_encoders import CategoryEncoder, ColumnEncoder, NumberEncoder, TextEncoder
from recoslip.tables.table_encoder import TableEncoder
from recoslip.wording import percent

MIN_DIGITS, MAX_DIGITS = 3, 9  # significant digits of a number that is shown


@dataclass(frozen=True)
class Unit:
    """How to read a feature."""

    is_share: bool = False  # a category or a word, which a node has or has not: the share of nodes that have it
    factor: float = 1.0  # from the feature to the column's own unit
    offset: float = 0.0


def feature_units(graph: NodeGraph) -> list[Unit]:
    """Return how to read each feature; as it is, where it was not made of a table's column."""
    if graph.encoding is None:
        return [Unit()] * graph.num_features
    encoder = TableEncoder.from_json(graph.encoding)
    return [
        unit
        for column, weight in zip(encoder.columns, encoder.weights, strict=True)
        for unit in _column_units(column, weight)
    ]


def _column_units(column: ColumnEncoder, weight: float) -> list[Unit]:
    if isinstance(column, NumberEncoder):
        return [Unit(factor=column.scale / weight, offset=column.mean + column.median)]
    if isinstance(column, CategoryEncoder):
        return [Unit(is_share=True)] * len(column.feature_names)
    unweighted = Unit(factor=1 / weight)
    if isinstance(column, TextEncoder):  # a spare feature belongs to several words, so that its share says little
        return [Unit(is_share=True)] * len(column.words) + [unweighted] * column.spare
    return [unweighted] * len(column.feature_names)


def shares_in_words(shares: Sequence[float], *, of_one: bool = False) -> list[str]:
    """Write shares of nodes; the first as yes or no if it is that of one node.

    >>> shares_in_words([0.48, 0.031]), shares_in_words([1.0, 0.031], of_one=True)
    (['48 %', '3.1 %'], ['yes', '3.1 %'])
    """
    words = [percent(share) for share in shares]
    return ["yes" if shares[0] else "no", *words[1:]] if of_one else words


def numbers_in_words(values: Sequence[float]) -> list[str]:
    """Write numbers with as many digits as it takes to tell the first from the second, if they differ at all.

    >>> numbers_in_words([12.3456, 45.0]), numbers_in_words([2007.31, 2007.28]), numbers_in_words([1234567.0, 0.001])
    (['12.3', '45'], ['2007.31', '2007.28'], ['1,234,567', '0.001'])
    """
    for digits in range(MIN_DIGITS, MAX_DIGITS + 1):
        words = [_with_digits(value, digits) for value in values]
        if words[0] != words[1]:
            break
    return words


def _with_digits(value: float, digits: int) -> str:
    """Write a number with so many significant digits, and never fewer than its whole part has."""
    if 1e15 > abs(value) >= 10**digits:
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"
    return f"{value:.{digits}g}"
