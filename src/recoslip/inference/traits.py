"""Listed nodes -> why: the features that set them apart, in the units of the table that they were made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.text import percent
from recoslip.data.graph import NodeGraph
from recoslip.data.tables.column_encoders import CategoryEncoder, ColumnEncoder, NumberEncoder, TextEncoder
from recoslip.data.tables.table_encoder import TableEncoder

UNCLEAR = ("true", "false", "yes", "no", "(rare)")  # values that say nothing without the name of their column
MIN_DIGITS, MAX_DIGITS = 3, 9  # significant digits of a number that is shown


def plain_names(graph: NodeGraph) -> list[str | None]:
    """Return what a person calls having much of each feature, without the column's name where the value is enough.

    None for a part of a vector and for a feature that several words share.
    """
    names, encoding = feature_names(graph), graph.encoding
    if encoding is None:
        return list(names)
    columns = [each for each in TableEncoder.from_json(encoding).columns for _ in each.feature_names]
    return [_plain_name(column, name) for column, name in zip(columns, names, strict=True)]


def _plain_name(column: ColumnEncoder, feature: str) -> str | None:
    value = feature[len(column.name) + 1 :]
    match column:
        case NumberEncoder():
            return f"high {column.name}"
        case CategoryEncoder():
            says_enough = any(map(str.isalpha, value)) and value.lower() not in UNCLEAR
            return value if says_enough else f"{column.name} {value}"
        case TextEncoder():
            return None if value.startswith("(unseen") else value
    return None


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
        indicator = [] if column.missing is None else [Unit(is_share=True)]
        return [Unit(factor=column.scale / weight, offset=column.mean + column.median), *indicator]
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


MAX_MEASURED = 50_000  # source nodes at most that means and variances are taken from
REFERENCES = 20  # source nodes that a node is compared with
NAME_LENGTH = 3  # features that a set of nodes is named by
MIN_NAME_STRENGTH = 0.3  # standard deviations by which such a feature exceeds the source's mean


@dataclass(frozen=True)
class Trait:
    """A feature in which nodes differ from reference nodes."""

    feature: str
    mean: float  # of the feature, as detectors see it
    reference: float  # mean of the reference nodes
    strength: float  # the difference in standard deviations of the source
    here: str  # in the units of the user's table: the mean of a number, the share of nodes with a category or a word
    there: str  # the same of the reference nodes
    in_source: str  # the same of the source


class FeatureStatistics:
    """The feature matrix with the mean and the deviation of each feature over the source nodes."""

    def __init__(self, graph: NodeGraph) -> None:
        self.graph = graph
        self.x: Any = graph.x
        self.names = feature_names(graph)
        self.has_names = graph.feature_names is not None
        source = np.flatnonzero(~graph.is_target)
        source = self.source = source[:: -(-len(source) // MAX_MEASURED)]
        self.source_mean = self._mean(source)
        variance = self._mean(source, power=2) - self.source_mean**2
        # Without the second term, a feature that the source hardly has would make any difference infinitely strong.
        self.scale = np.sqrt(np.maximum(variance, 0) + max(1e-12, float(variance.mean())) / 10)

    def traits(self, nodes: Sequence[int], references: Sequence[int] | None = None, count: int = 8) -> list[Trait]:
        """Return the features in which nodes differ most from reference nodes, by default the whole source."""
        mean = self._mean(nodes)
        reference = self.source_mean if references is None else self._mean(references)
        strength = (mean - reference) / self.scale
        strongest = np.argsort(-np.abs(strength), kind="stable")[:count]
        shares = [self._share(nodes), self.source_share if references is None else self._share(references)]
        means, shares = [mean, reference, self.source_mean], [*shares, self.source_share]
        return [
            Trait(
                self.names[k],
                float(mean[k]),
                float(reference[k]),
                float(strength[k]),
                *self._in_words(k, means, shares, of_one=len(nodes) == 1),
            )
            for k in strongest.tolist()
            if strength[k] != 0
        ]

    @cached_property
    def plain_names(self) -> list[str | None]:
        """What a person calls having much of each feature."""
        return plain_names(self.graph)

    @cached_property
    def units(self) -> list[Unit]:
        """How to read each feature."""
        return feature_units(self.graph)

    @cached_property
    def source_share(self) -> NDArray[np.float64]:
        """Share of the source nodes in which each feature is not zero."""
        return self._share(self.source)

    def _in_words(
        self, k: int, means: Sequence[NDArray[np.float64]], shares: Sequence[NDArray[np.float64]], *, of_one: bool
    ) -> list[str]:
        """Write what several sets of nodes have of a feature, in the user's units."""
        unit = self.units[k]
        if unit.is_share:
            return shares_in_words([float(share[k]) for share in shares], of_one=of_one)
        return numbers_in_words([unit.factor * float(mean[k]) + unit.offset for mean in means])

    def name(self, nodes: NDArray[np.int64]) -> str | None:
        """Name nodes by what they have most more of than the source; None where features have no names."""
        if not self.has_names or not len(nodes):
            return None
        nodes = nodes[:: -(-len(nodes) // MAX_MEASURED)]
        strength = (self._mean(nodes) - self.source_mean) / self.scale
        order = np.argsort(-strength, kind="stable")[: NAME_LENGTH * NAME_LENGTH]
        names: dict[str, str] = {}
        for k in order:
            if strength[k] >= MIN_NAME_STRENGTH and (name := self.plain_names[k]):
                names.setdefault(name.casefold(), name)  # a word of a text may be a category, too
        return ", ".join([*names.values()][:NAME_LENGTH]) or None

    def _mean(self, nodes: Sequence[int] | NDArray[np.int64], power: int = 1) -> NDArray[np.float64]:
        rows = self.x[list(nodes)].astype(np.float64)
        rows = rows.power(power) if sp.issparse(rows) else rows**power
        return np.asarray(rows.mean(axis=0)).ravel()

    def _share(self, nodes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray((self.x[list(nodes)] != 0).mean(axis=0)).ravel()


def feature_names(graph: NodeGraph) -> tuple[str, ...]:
    """Return the features' names, or numbers where they have none."""
    return graph.feature_names or tuple(f"feature {k}" for k in range(graph.num_features))


def nearest_source(
    graph: NodeGraph, similarity: NDArray[np.floating], nodes: Sequence[int], count: int = REFERENCES
) -> NDArray[np.int64]:
    """Return the source nodes most like some nodes: (nodes, count)."""
    from sklearn.neighbors import NearestNeighbors

    source = np.flatnonzero(~graph.is_target)
    index = NearestNeighbors(n_neighbors=min(count, len(source))).fit(similarity[source])
    return np.asarray(source[index.kneighbors(similarity[list(nodes)], return_distance=False)])
