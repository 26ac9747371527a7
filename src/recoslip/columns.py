"""Columns of a table -> a feature matrix: numbers scaled, categories one-hot, text as tf-idf, vectors as they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from recoslip.errors import TableError, nearest

Kind: TypeAlias = Literal["number", "category", "text", "vector", "unused"]

MAX_CATEGORIES = 50  # one-hot columns made of one table column; the rarest values share the last
RARE = 5  # a value seen less often is rare
MAX_WORDS = 5000  # words kept of a text column
LARGEST = 1e100  # of a number column; beyond, squares overflow
DENSE_FROM = 0.3  # share of non-zeros from which the whole matrix is kept dense


@dataclass(frozen=True)
class Column:
    """A column of the nodes table and what it is used as."""

    name: str
    kind: Kind
    why: str = ""  # for the unused: the reason


class Frame(Protocol):
    """A table that gives one column at a time: a data frame, or a file."""

    @property
    def columns(self) -> list[str]:
        """The columns' names."""

    @property
    def schema(self) -> pl.Schema:
        """Their types."""

    def __getitem__(self, name: str) -> pl.Series:
        """Return a column."""


def plan_columns(
    frame: Frame,
    reserved: Collection[str | None],
    features: Sequence[str] | None,
    ignore: Sequence[str],
    text: Sequence[str],
) -> list[Column]:
    """Decide what each column is used as.

    Numbers, true/false and vectors are used; text is a category if its values repeat, and otherwise left out
    unless named in `text`. `features` limits the choice to the columns it names, `ignore` takes columns out.
    """
    for name in (*(features or ()), *ignore, *text):
        if name not in frame.columns:
            raise TableError(
                f"the nodes table has no column {name!r}{nearest(name, frame.columns)}; "
                f"it has {', '.join(frame.columns)}"
            )
        if name in reserved and name not in ignore:
            raise TableError(f"column {name!r} already is the id, domain, time or category; it cannot be a feature")
    columns = []
    for name in frame.columns:
        if name in reserved:
            continue
        if name in ignore:
            columns.append(Column(name, "unused", "ignored as asked"))
        elif name in text:
            columns.append(Column(name, "text"))
        elif features is not None and name not in features:
            columns.append(Column(name, "unused", "not among the chosen features"))
        else:
            column = _guess(name, frame)
            if column.kind == "unused" and features is not None:
                raise TableError(f"column {name!r} cannot be a feature: {column.why}")
            columns.append(column)
    if all(column.kind == "unused" for column in columns):
        reasons = "; ".join(f"{c.name}: {c.why}" for c in columns) or "there are no further columns"
        raise TableError(f"the nodes table has no column to use as a feature ({reasons})")
    return columns


def describe(columns: Sequence[Column]) -> str:
    """Say in one line what each column is used as."""
    used = ", ".join(f"{column.name} ({column.kind})" for column in columns if column.kind != "unused")
    unused = ", ".join(f"{column.name} ({column.why})" for column in columns if column.kind == "unused")
    return f"{used}; unused: {unused}" if unused else used


def _guess(name: str, frame: Frame) -> Column:
    dtype = frame.schema[name]
    if dtype.is_numeric() or dtype == pl.Boolean:
        return Column(name, "number")
    if dtype in (pl.List, pl.Array):
        if dtype.inner is not None and dtype.inner.is_numeric():  # type: ignore[attr-defined]
            return Column(name, "vector")
        return Column(name, "unused", f"a list of {getattr(dtype, 'inner', 'values')}, not of numbers")
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        series = frame[name]
        if dtype == pl.String and looks_like_date(series).all():
            return Column(name, "unused", f"dates are no feature; for the domain use --time {name}")
        distinct = series.n_unique()
        if distinct <= max(MAX_CATEGORIES, len(series) // 20) and distinct < len(series):
            return Column(name, "category")
        return Column(name, "unused", f"{distinct:,} different texts; use it with --text {name}")
    if dtype == pl.Null:
        return Column(name, "unused", "empty")
    return Column(name, "unused", f"{dtype} is no feature; for the domain use --time {name}")


def looks_like_date(series: pl.Series) -> pl.Series:
    """Say which texts begin as 2007-01-31 does; missing ones do not."""
    return series.str.contains(r"^\d{4}-\d{2}-\d{2}([T ]|$)").fill_null(False)


def encode(
    frame: pl.DataFrame, columns: Sequence[Column], impute: bool
) -> tuple[NDArray[np.float32] | sp.csr_array, list[str]]:
    """Turn the used columns into one matrix, (rows, features), and name its columns."""
    used = [column for column in columns if column.kind != "unused"]
    if not impute:
        refuse_missing([frame[column.name] for column in used])
    parts: list[Any] = []
    names: list[str] = []
    for column in used:
        part, part_names = encode_column(frame[column.name], column.kind)
        parts.append(part)
        names += part_names
    if not any(sp.issparse(part) for part in parts):
        return np.hstack(parts, dtype=np.float32), names
    matrix = sp.csr_array(sp.hstack(parts, format="csr", dtype=np.float32))
    if matrix.nnz >= DENSE_FROM * np.prod(matrix.shape):
        return matrix.toarray(), names
    return matrix, names


def encode_column(series: pl.Series, kind: Kind) -> tuple[NDArray[np.float64] | sp.csr_array, list[str]]:
    """Turn one column into features, (rows, features), and name them."""
    part: tuple[NDArray[np.float64] | sp.csr_array, list[str]] = _ENCODERS[kind](series)
    return part


def refuse_missing(columns: Sequence[pl.Series], first_row: int = 0) -> None:
    """Raise if a value is missing; the columns begin at row `first_row` of their table."""
    found = []
    for series in columns:
        missing = is_missing(series)
        if missing.any():
            first = first_row + int(missing.arg_max() or 0)
            found.append(f"{series.name!r} in {missing.sum()} rows (first: row {first})")
    if found:
        raise TableError(f"missing values: {'; '.join(found)}; fill them, ignore the columns, or pass --impute")


def is_missing(series: pl.Series) -> pl.Series:
    """Say which values are missing: null, or not a number."""
    missing = series.is_null()
    return (missing | series.is_nan().fill_null(False)) if series.dtype.is_float() else missing


def _number(series: pl.Series) -> tuple[NDArray[np.float64], list[str]]:
    values = series.cast(pl.Float64).fill_nan(None)
    if (values.abs() > LARGEST).fill_null(False).any():
        raise TableError(f"column {series.name!r} holds infinite or extreme values; replace them or ignore the column")
    middle = values.median()
    # Around the median, where differences are exact: the mean of equal large numbers is not quite that number.
    around = (values - (middle if isinstance(middle, float) else 0.0)).fill_null(0.0)
    return StandardScaler().fit_transform(around.to_numpy()[:, None]), [series.name]


def _category(series: pl.Series) -> tuple[sp.csr_array, list[str]]:
    values = series.cast(pl.String).fill_null("(missing)").to_numpy().astype(object)[:, None]
    encoder = OneHotEncoder(min_frequency=min(RARE, max(1, len(series) // 20)), max_categories=MAX_CATEGORIES)
    matrix = encoder.fit_transform(values)
    # scikit-learn names columns "x0_value", and the pooled one "x0_infrequent_sklearn"
    values_of = [str(name).removeprefix("x0_") for name in encoder.get_feature_names_out()]
    return matrix, [f"{series.name}={'(rare)' if v == 'infrequent_sklearn' else v}" for v in values_of]


def _text(series: pl.Series) -> tuple[sp.csr_array, list[str]]:
    texts = series.cast(pl.String).fill_null("").to_list()
    # A word of one or two texts tells nothing about a category; in tiny tables every word counts.
    encoder = TfidfVectorizer(min_df=min(3, 1 + len(texts) // 100), max_features=MAX_WORDS, dtype=np.float32)
    try:
        matrix = encoder.fit_transform(texts)
    except ValueError as problem:
        raise TableError(f"text column {series.name!r} holds no words to use: {problem}") from problem
    return matrix, [f"{series.name}:{word}" for word in encoder.get_feature_names_out()]


def _vector(series: pl.Series) -> tuple[NDArray[np.float64], list[str]]:
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
    return matrix, [f"{series.name}[{k}]" for k in range(width)]


_ENCODERS: dict[Kind, Any] = {"number": _number, "category": _category, "text": _text, "vector": _vector}
