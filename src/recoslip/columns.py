"""Columns of a table -> a feature matrix: numbers scaled, categories one-hot, text as tf-idf, vectors as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.errors import TableError, nearest

Encoding: TypeAlias = Literal["number", "category", "text", "vector", "unused"]

MOST_NAMES = 20  # of columns, in a line
MAX_CATEGORIES = 50  # one-hot features per column; the rarest values are pooled into the last
MIN_FREQUENCY = 5  # values of a category column that occur in fewer rows are pooled
MAX_WORDS = 5000  # tf-idf features per text column
MAX_NUMBER = 1e100  # larger numbers are refused: their squares may overflow
DENSE_FRACTION = 0.3  # fraction of non-zeros from which the feature matrix is dense


@dataclass(frozen=True)
class Column:
    """A column of the nodes table and how it is encoded."""

    name: str
    encoding: Encoding
    reason: str = ""  # why the column is unused


class ColumnReader(Protocol):
    """A table whose columns can be read one at a time: a data frame or a file."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""

    @property
    def schema(self) -> pl.Schema:
        """The data types of the columns."""

    def __getitem__(self, name: str) -> pl.Series:
        """Return a column."""


def plan_columns(
    table: ColumnReader,
    reserved: Collection[str | None],
    features: Sequence[str] | None,
    ignore: Sequence[str],
    text: Sequence[str],
) -> list[Column]:
    """Decide how each column is encoded.

    Numbers, true/false and vectors become features. Text is a category if its values repeat; otherwise it is unused,
    unless `text` names it.

    Args:
        table: the nodes table.
        reserved: columns that are the id, domain, time or category; they cannot be features.
        features: the only columns to use; None: all.
        ignore: columns not to use.
        text: columns of free text.
    """
    for name in (*(features or ()), *ignore, *text):
        require_column(table.columns, name, "nodes")
        if name in reserved and name not in ignore:
            raise TableError(f"column {name!r} already is the id, domain, time or category; it cannot be a feature")
    columns = []
    for name in table.columns:
        if name in reserved:
            continue
        if name in ignore:
            columns.append(Column(name, "unused", "ignored as asked"))
        elif name in text:
            columns.append(Column(name, "text"))
        elif features is not None and name not in features:
            columns.append(Column(name, "unused", "not among the chosen features"))
        else:
            column = _guess_encoding(name, table)
            if column.encoding == "unused" and features is not None:
                raise TableError(f"column {name!r} cannot be a feature: {column.reason}")
            columns.append(column)
    if all(column.encoding == "unused" for column in columns):
        reasons = "; ".join(f"{c.name}: {c.reason}" for c in columns) or "there are no further columns"
        raise TableError(f"the nodes table has no column to use as a feature ({reasons})")
    return columns


def require_column(columns: Sequence[str], name: str, table: str) -> None:
    """Raise unless the "nodes" or "edges" table has the column `name`."""
    if name not in columns:
        raise TableError(
            f"the {table} table has no column {name!r}{nearest(name, columns)}; it has {', '.join(columns)}"
        )


def describe(columns: Sequence[Column]) -> str:
    """Describe in one line how the columns are encoded; of many, the first."""
    used = _list_some([f"{column.name} ({column.encoding})" for column in columns if column.encoding != "unused"])
    unused = _list_some([f"{column.name} ({column.reason})" for column in columns if column.encoding == "unused"])
    return f"{used}; unused: {unused}" if unused else used


def _list_some(names: list[str]) -> str:
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + rest


def _guess_encoding(name: str, table: ColumnReader) -> Column:
    dtype = table.schema[name]
    if dtype.is_numeric() or dtype == pl.Boolean:
        return Column(name, "number")
    if dtype in (pl.List, pl.Array):
        if dtype.inner is not None and dtype.inner.is_numeric():  # type: ignore[attr-defined]
            return Column(name, "vector")
        return Column(name, "unused", f"a list of {getattr(dtype, 'inner', 'values')}, not of numbers")
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        series = table[name]
        if dtype == pl.String and _looks_like_date(series).all():
            return Column(name, "unused", f"dates are no feature; for the domain use --time {name}")
        distinct = series.n_unique()
        if distinct <= max(MAX_CATEGORIES, len(series) // 20) and distinct < len(series):
            return Column(name, "category")
        return Column(name, "unused", f"{distinct:,} different texts; use it with --text {name}")
    if dtype == pl.Null:
        return Column(name, "unused", "empty")
    return Column(name, "unused", f"{dtype} is no feature; for the domain use --time {name}")


def _looks_like_date(series: pl.Series) -> pl.Series:
    """Return for each text whether it starts with a date such as 2007-01-31; false where it is missing."""
    return series.str.contains(r"^\d{4}-\d{2}-\d{2}([T ]|$)").fill_null(False)


class ColumnFeatures(NamedTuple):
    """The features of one column."""

    matrix: NDArray[np.float64] | sp.csr_array  # (rows, features)
    names: list[str]
    statistics: (
        str  # of the table that the values were encoded by: equal ones mean that equal values are equal features
    )


class TableFeatures(NamedTuple):
    """The features of all used columns."""

    matrix: NDArray[np.float32] | sp.csr_array  # (rows, features)
    names: list[str]
    encoding: dict[str, str]  # the statistics of each column
    missing: dict[str, int]  # how many values were missing, of the columns where some were


def encode(frame: pl.DataFrame, columns: Sequence[Column], impute: bool) -> TableFeatures:
    """Encode the used columns as one matrix."""
    used = [column for column in columns if column.encoding != "unused"]
    if not impute:
        refuse_missing([frame[column.name] for column in used])
    missing = {column.name: count for column in used if (count := int(is_missing(frame[column.name]).sum()))}
    blocks: list[Any] = []
    names: list[str] = []
    statistics: dict[str, str] = {}
    for column in used:
        block = encode_column(frame[column.name], column.encoding)
        blocks.append(block.matrix.astype(np.float32))  # at once, for double precision takes twice the memory
        names += block.names
        statistics[column.name] = block.statistics
    if not any(sp.issparse(block) for block in blocks):
        return TableFeatures(np.hstack(blocks), names, statistics, missing)
    matrix = sp.csr_array(sp.hstack(blocks, format="csr"))
    is_dense = matrix.nnz >= DENSE_FRACTION * np.prod(matrix.shape)
    return TableFeatures(matrix.toarray() if is_dense else matrix, names, statistics, missing)


def encode_column(series: pl.Series, encoding: Encoding) -> ColumnFeatures:
    """Encode one column."""
    encoded: ColumnFeatures = _ENCODERS[encoding](series)
    return encoded


def refuse_missing(columns: Sequence[pl.Series], first_row: int = 0) -> None:
    """Raise if a value is missing; the first value of each column is in row `first_row` of the table."""
    found = []
    for series in columns:
        missing = is_missing(series)
        if missing.any():
            first = first_row + int(missing.arg_max() or 0)
            found.append(f"{series.name!r} in {missing.sum()} rows (first: row {first})")
    if found:
        raise TableError(f"missing values: {'; '.join(found)}; fill them, ignore the columns, or pass --impute")


def is_missing(series: pl.Series) -> pl.Series:
    """Return for each value whether it is missing: null or NaN."""
    missing = series.is_null()
    return (missing | series.is_nan().fill_null(False)) if series.dtype.is_float() else missing


def _encode_numbers(series: pl.Series) -> ColumnFeatures:
    from sklearn.preprocessing import StandardScaler

    values = series.cast(pl.Float64).fill_nan(None)
    if (values.abs() > MAX_NUMBER).fill_null(False).any():
        raise TableError(f"column {series.name!r} holds infinite or extreme values; replace them or ignore the column")
    median = values.median()
    # The median is subtracted first because that is exact, while the mean of equal large numbers is rounded.
    median = median if isinstance(median, float) else 0.0
    centred = (values - median).fill_null(0.0)
    # Fitted to the sorted values, for sums in another order are rounded in another way.
    scaler = StandardScaler().fit(centred.sort().to_numpy()[:, None])
    statistics = f"number: median {median:.10g}, mean {median + scaler.mean_[0]:.10g}, scale {scaler.scale_[0]:.10g}"
    return ColumnFeatures(scaler.transform(centred.to_numpy()[:, None]), [series.name], statistics)


def _encode_categories(series: pl.Series) -> ColumnFeatures:
    from sklearn.preprocessing import OneHotEncoder

    values = series.cast(pl.String).fill_null("(missing)").to_numpy().astype(object)[:, None]
    min_frequency = min(MIN_FREQUENCY, max(1, len(series) // 20))
    encoder = OneHotEncoder(min_frequency=min_frequency, max_categories=MAX_CATEGORIES)
    matrix = encoder.fit_transform(values)
    # scikit-learn names the features "x0_value", and the one of pooled values "x0_infrequent_sklearn".
    encoded = [str(name).removeprefix("x0_") for name in encoder.get_feature_names_out()]
    names = [f"{series.name}={'(rare)' if v == 'infrequent_sklearn' else v}" for v in encoded]
    return ColumnFeatures(matrix, names, f"category: {len(names)} values {_digest(names)}")


def _encode_texts(series: pl.Series) -> ColumnFeatures:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = series.cast(pl.String).fill_null("").to_list()
    # A word that occurs in one or two texts does not characterise a category; small tables keep every word.
    encoder = TfidfVectorizer(min_df=min(3, 1 + len(texts) // 100), max_features=MAX_WORDS, dtype=np.float32)
    try:
        matrix = encoder.fit_transform(texts)
    except ValueError as problem:
        raise TableError(f"text column {series.name!r} holds no words to use: {problem}") from problem
    names = [f"{series.name}:{word}" for word in encoder.get_feature_names_out()]
    idf = [f"{value:.6g}" for value in encoder.idf_]
    return ColumnFeatures(matrix, names, f"text: {len(names)} words {_digest(names)}, idf {_digest(idf)}")


def _encode_vectors(series: pl.Series) -> ColumnFeatures:
    lists = series.cast(pl.List(pl.Float64)) if series.dtype != pl.List(pl.Float64) else series
    lengths = lists.list.len().drop_nulls().unique().sort()
    if len(lengths) != 1 or lengths[0] == 0:
        raise TableError(f"vectors in column {series.name!r} must have one length; got lengths {lengths.to_list()[:5]}")
    width = int(lengths[0])
    present = lists.is_not_null().to_numpy()
    values = lists.drop_nulls().explode().to_numpy().astype(np.float64).reshape(-1, width)
    usable = (np.abs(values) <= np.finfo(np.float32).max).all(axis=1)
    if not usable.all():
        raise TableError(
            f"vectors in column {series.name!r} hold empty, infinite or extreme values in {(~usable).sum()} rows; "
            "replace them or ignore the column"
        )
    matrix = np.empty((len(lists), width))
    matrix[present] = values
    matrix[~present] = values.mean(axis=0)
    return ColumnFeatures(matrix, [f"{series.name}[{k}]" for k in range(width)], f"vector: {width} numbers")


def _digest(values: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(values).encode("utf-8", "surrogatepass")).hexdigest()[:8]


_ENCODERS: dict[Encoding, Any] = {
    "number": _encode_numbers,
    "category": _encode_categories,
    "text": _encode_texts,
    "vector": _encode_vectors,
}
