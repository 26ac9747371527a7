"""Rows of a nodes table -> one feature matrix, by encoders that were fitted once.

A number has variance 1 and is one direction; a text has norm 1 and many. Side by side, the number alone would decide
which nodes are alike. Each block of columns with one encoding is therefore scaled until inner products of its rows vary
as much as the others' do.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import TableError, nearest
from recoslip.data.tables import column_encoders
from recoslip.data.tables.column_encoders import ColumnEncoder, NumberEncoder, TextEncoder, fit_column
from recoslip.data.tables.columns import Column, Encoding, is_missing, refuse_missing
from recoslip.data.tables.drift import Drift
from recoslip.data.tables.table import FRAME, Origin

PROBES = 64  # random directions that the spread of inner products is estimated by
DENSE_FRACTION = 0.3  # fraction of non-zeros from which the feature matrix is dense

Chunks: TypeAlias = "Callable[[], Iterable[Any]]"  # the rows of a block, some at a time, dense or sparse
EncoderState: TypeAlias = dict[str, dict[str, Any]]  # of each column, JSON values: its encoder's, and its weight


class TableFeatures(NamedTuple):
    """The features of all used columns."""

    matrix: NDArray[np.float32] | sp.csr_array  # (rows, features)
    missing: dict[str, int]  # how many values were missing, of the columns where some were
    drift: dict[str, Drift]  # of each column; empty for the table that the encoder was fitted on


@dataclass(frozen=True)
class TableEncoder:
    """Fitted encoders of the used columns, in the order of their features, and the weight of each."""

    columns: tuple[ColumnEncoder, ...]
    weights: tuple[float, ...]

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        return [name for column in self.columns for name in column.feature_names]

    def text_columns(self, rename: Mapping[str, str] | None = None) -> list[str]:
        """Return the columns that must be read as text from a file, for 1.234 has a thousands separator in them."""
        of_comma = [each.name for each in self.columns if isinstance(each, NumberEncoder) and each.decimal == ","]
        return [*of_comma, *(new for new, old in (rename or {}).items() if old in of_comma)]

    def transform(
        self,
        table: pl.DataFrame,
        *,
        impute: bool | None = None,
        rename: Mapping[str, str] | None = None,
        origin: Origin = FRAME,
    ) -> TableFeatures:
        """Encode the rows of another table; a row's features depend on no other row.

        Columns that were not used are passed over. An unknown category counts as a rare one, and as none where there
        were no rare ones; unknown words are left out.

        Args:
            table: the table.
            impute: whether missing values are filled by what was learned, which is the default; True also fills columns
                that are missing altogether.
            rename: names of the table's columns -> the names that they had in the table it was fitted on.
            origin: where the table comes from.
        """
        renamed = _renamed(table, rename or {}, [column.name for column in self.columns])
        given = []
        for column in self.columns:
            if column.name in renamed.columns:
                given.append(renamed[column.name])
            elif impute:
                given.append(pl.Series(column.name, [None] * table.height, dtype=pl.Null))
            else:
                raise TableError(
                    f"the nodes table has no column {column.name!r}{nearest(column.name, renamed.columns)}, which the "
                    f"model was fitted with; add it, name the one that it is now (rename={{'new': {column.name!r}}}), "
                    "or fill it: impute=True"
                )
        series = [column.read(values, origin.decimal) for column, values in zip(self.columns, given, strict=True)]
        if impute is False:
            refuse_missing(series, origin, given)
        blocks = [column.transform(values) for column, values in zip(self.columns, series, strict=True)]
        parts = zip(self.columns, series, blocks, strict=True)
        drift = {column.name: column.drift(values, block) for column, values, block in parts}
        return TableFeatures(_side_by_side(blocks, self.weights), _count_missing(series), drift)

    def to_json(self) -> EncoderState:
        """Return what was learned as JSON values."""
        return {
            column.name: {**column.to_json(), "weight": weight}
            for column, weight in zip(self.columns, self.weights, strict=True)
        }

    @classmethod
    def from_json(cls, state: EncoderState) -> Self:
        """Rebuild an encoder; raise ValueError where the state is not that of one."""
        try:
            columns = tuple(column_encoders.encoder_from_json(name, values) for name, values in state.items())
            return cls(columns, tuple(values["weight"] for values in state.values()))
        except (AttributeError, KeyError, TypeError) as problem:
            raise ValueError(f"the encoding lacks fields or has others than an encoder: {problem!r}") from problem


def fit_encoder(
    table: pl.DataFrame,
    columns: Sequence[Column],
    *,
    impute: bool | None,
    weights: Mapping[str, float],
    spare_words: int = 0,
    origin: Origin = FRAME,
) -> tuple[TableEncoder, TableFeatures]:
    """Fit an encoder to a table, and encode it.

    Args:
        table: the nodes table.
        columns: what becomes of each of its columns.
        impute: False to refuse missing values, which are filled otherwise.
        weights: of the blocks, see `block_weights`.
        spare_words: features of each text column that words share which this table does not have.
        origin: where the table comes from.
    """
    used = [column for column in columns if column.encoding != "unused"]
    series = {column.name: column.read(table[column.name]) for column in used}
    if impute is False:
        refuse_missing(list(series.values()), origin, [table[column.name] for column in used])
    encoders: list[ColumnEncoder] = []
    blocks: list[Any] = []
    for column in used:
        fitted, block = fit_column(column, series[column.name])
        if isinstance(fitted, TextEncoder) and spare_words:
            fitted = replace(fitted, spare=spare_words)
            block = fitted.transform(series[column.name])
        encoders.append(fitted)
        # Single precision at once, for double precision takes twice the memory.
        blocks.append(block.astype(np.float32, copy=False))
    whole: list[Chunks] = [lambda block=block: [block] for block in blocks]  # type: ignore[misc]
    own = column_weights([each.encoding for each in encoders], whole, weights)
    encoder = TableEncoder(tuple(encoders), own)
    return encoder, TableFeatures(_side_by_side(blocks, own), _count_missing(list(series.values())), {})


def column_weights(
    encodings: Sequence[Encoding], columns: Sequence[Chunks], asked: Mapping[str, float]
) -> tuple[float, ...]:
    r"""Return what the features of each column are multiplied by: the weight of its block.

    Of several blocks each is divided by $\sqrt{\|C\|_F}$, where C is its covariance matrix: then inner products of two
    rows have variance 1 in every block. A single number has weight 1. One block alone stays as it is.

    Args:
        encodings: of each column; those of one are a block.
        columns: the rows of each, some at a time, and as many at a time in each of them.
        asked: weights of blocks that the user wants on top of that; 1 where there is none.
    """
    weights: dict[Encoding, float] = {}
    for name in dict.fromkeys(encodings):
        own = [rows for encoding, rows in zip(encodings, columns, strict=True) if encoding == name]
        balanced = 1.0 if len(set(encodings)) == 1 else 1 / _spread_of_products(_joined(own))
        # Rounded, so that rows in another order, whose sums are rounded in another way, have the same weights.
        weights[name] = float(f"{balanced * asked.get(name, 1.0):.3g}")
    return tuple(weights[encoding] for encoding in encodings)


def _joined(columns: Sequence[Chunks]) -> Iterator[Any]:
    """Return the rows of several columns side by side."""
    return map(_hstack, zip(*(rows() for rows in columns), strict=True))


def _spread_of_products(chunks: Iterable[Any]) -> float:
    r"""Return $\sqrt{\|C\|_F}$ of the rows' covariance matrix C, by $\|C\|_F^2 = E \|C z\|^2$ for random signs z.

    It is 1 where nothing varies.

    >>> rows = np.random.default_rng(0).standard_normal((1000, 16)) * 3
    >>> round(_spread_of_products([rows[:500], rows[500:]]) / 3, 1)  # the fourth root of 16
    2.0
    """
    count, total, products, signs = 0, np.zeros(0), np.zeros(0), np.zeros(0)
    for rows in chunks:
        if not count:
            signs = np.random.default_rng(0).choice([-1.0, 1.0], (rows.shape[1], PROBES))
            total, products = np.zeros(rows.shape[1]), np.zeros(signs.shape)
        rows = rows.astype(np.float64)
        total += np.asarray(rows.sum(axis=0)).ravel()
        products += rows.T @ (rows @ signs)
        count += rows.shape[0]
    mean = total / count
    of_covariance = products / count - np.outer(mean, mean @ signs)
    spread = float((of_covariance**2).sum(axis=0).mean() ** 0.25)
    return spread if spread > 1e-9 and np.isfinite(spread) else 1.0


def same_encoding(one: Any, other: Any) -> bool:
    """Return whether two states of an encoder are equal, up to rounding, which depends on the order of the rows."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_encoding(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_encoding, one, other))
    return bool(one == other)


def describe_encoding(state: Mapping[str, Any] | None) -> str:
    """Describe a column's encoder in a few words."""
    if state is None:
        return "not used"
    shown = {key: state[key] for key in ("median", "mean", "scale", "values", "words") if key in state}
    parts = (f"{len(own)} {key}" if isinstance(own, list) else f"{key} {own:.6g}" for key, own in shown.items())
    return f"{state.get('encoding')}: {', '.join(parts)}"


def _hstack(blocks: Sequence[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    return sp.csr_array(sp.hstack(blocks, format="csr")) if any(map(sp.issparse, blocks)) else np.hstack(blocks)


def stack_rows(parts: Sequence[Any]) -> Any:
    """Return the rows of several feature matrices as one, dense if many are not zero."""
    if not any(map(sp.issparse, parts)):
        return np.vstack(parts)
    return _compact(sp.csr_array(sp.vstack(parts, format="csr")))


def _compact(matrix: Any) -> Any:
    is_dense = sp.issparse(matrix) and matrix.nnz >= DENSE_FRACTION * np.prod(matrix.shape)
    return matrix.toarray() if is_dense else matrix


def _side_by_side(blocks: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the features of all columns as one matrix, dense if many are not zero."""
    return _compact(_hstack([weighted(block, weight) for block, weight in zip(blocks, weights, strict=True)]))


def weighted(block: Any, weight: float) -> Any:
    """Multiply the features of a column by its weight, in single precision."""
    with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite, and is refused as such
        single = block.astype(np.float32, copy=False)
        return single if weight == 1 else single * np.float32(weight)


def _count_missing(columns: Sequence[pl.Series]) -> dict[str, int]:
    return {series.name: count for series in columns if (count := int(is_missing(series).sum()))}


def _renamed(table: pl.DataFrame, rename: Mapping[str, str], known: Sequence[str]) -> pl.DataFrame:
    """Return a table whose columns have the names that they had when the encoder was fitted."""
    if len(set(rename.values())) < len(rename):
        raise TableError("rename gives two columns one name; name one of them")
    for new, old in rename.items():
        pair = f"rename={{{new!r}: {old!r}}}"
        if new not in table.columns:
            raise TableError(f"{pair}: the table has no column {new!r}{nearest(new, table.columns)}")
        if old not in known:
            raise TableError(f"{pair}: the model was fitted with no column {old!r}{nearest(old, known)}")
        if old in table.columns:
            raise TableError(f"{pair}: the table has a column {old!r} already; leave it out or rename it")
    return table.rename(dict(rename))
