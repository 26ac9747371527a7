"""One column of a table -> its features: numbers scaled, categories one-hot, text as tf-idf, vectors as they are.

An encoder is fitted once. What it has learned is its fields, plain values that a model's JSON file holds.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.data.tables.columns import MAX_CATEGORIES, Column, Encoding, members
from recoslip.data.tables.drift import Drift, deviations_beyond_chance, moved_beyond_chance
from recoslip.data.tables.numbers import DecimalMark, are_numbers, decimal_marks, to_numbers, two_readings

MIN_FREQUENCY = 5  # values of a category column that occur in fewer rows are pooled
MAX_WORDS = 5000  # tf-idf features per text column
MAX_NUMBER = 1e100  # larger numbers are refused: their squares may overflow
MISSING = "(missing)"  # the category of missing values

Matrix: TypeAlias = "NDArray[np.float64] | sp.csr_array"


@dataclass(frozen=True)
class ColumnEncoder:
    """What was learned of a column."""

    encoding: ClassVar[Encoding]

    name: str

    @classmethod
    def fit(cls, series: pl.Series) -> Self:
        """Learn from a column; a kind of encoder defines this or `fit_transform`."""
        return cls.fit_transform(series)[0]

    @classmethod
    def fit_transform(cls, series: pl.Series) -> tuple[Self, Matrix]:
        """Learn from a column, and return its features, too."""
        encoder = cls.fit(series)
        return encoder, encoder.transform(series)

    def read(self, series: pl.Series, hint: DecimalMark | None = None) -> pl.Series:
        """Return a column as the type that is encoded, with null for what is missing.

        Args:
            series: the column.
            hint: the decimal mark of the file that it comes from, if the file implies one.
        """
        return series

    def transform(self, series: pl.Series) -> Matrix:
        """Return the features of a column's rows, (rows, features); a row's depend on no other row."""
        raise NotImplementedError

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        raise NotImplementedError

    def drift(self, series: pl.Series, features: Matrix) -> Drift:
        """Compare other rows, and their features, with those it was fitted on."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return what was learned as JSON values, without the name and what is not known."""
        learned = {key: value for key, value in asdict(self).items() if key != "name" and value is not None}
        return {"encoding": self.encoding, **learned}


@dataclass(frozen=True)
class NumberEncoder(ColumnEncoder):
    """A number, shifted and scaled to mean 0 and variance 1; the median stands for missing ones.

    Where some were missing when it was fitted, a second feature is 1 where one is.
    """

    encoding: ClassVar[Encoding] = "number"

    median: float
    mean: float  # of the values less the median
    scale: float
    decimal: DecimalMark | None = None  # of numbers that came as text with commas
    missing: float | None = None  # fraction of the rows, where there are some

    @classmethod
    def fit(cls, series: pl.Series) -> Self:
        """Learn from a column."""
        from sklearn.preprocessing import StandardScaler

        values = _numbers(series)
        median = values.median()
        # The median is subtracted first because that is exact, while the mean of equal large numbers is rounded.
        median = median if isinstance(median, float) else 0.0
        # Fitted to the sorted values, for sums in another order are rounded in another way.
        scaler = StandardScaler().fit((values - median).fill_null(0.0).sort().to_numpy()[:, None])
        missing = values.null_count() / len(values) if values.null_count() else None
        return cls(series.name, median, float(scaler.mean_[0]), float(scaler.scale_[0]), missing=missing)

    def read(self, series: pl.Series, hint: DecimalMark | None = None) -> pl.Series:
        """Return numbers, also where they came as text; with the decimal mark that they had when it was fitted."""
        return _numbers(series, self.decimal, hint)

    def transform(self, series: pl.Series) -> Matrix:
        """Return the features of rows."""
        values = _numbers(series)
        centred = (values - self.median).fill_null(0.0).to_numpy()
        scaled = np.asarray((centred - self.mean) / self.scale)[:, None]
        return scaled if self.missing is None else np.column_stack([scaled, values.is_null().to_numpy()])

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        return [self.name] if self.missing is None else [self.name, f"{self.name}={MISSING}"]

    def drift(self, series: pl.Series, features: Matrix) -> Drift:
        """Compare other rows with those it was fitted on."""
        return Drift(deviations=deviations_beyond_chance(np.asarray(features.mean(axis=0))[:1], features.shape[0]))


@dataclass(frozen=True)
class CategoryEncoder(ColumnEncoder):
    """A category as one feature per value; rare ones share one, which unknown ones join; without it these have none.

    A list has one feature per member, and norm 1.
    """

    encoding: ClassVar[Encoding] = "category"

    values: list[str]
    rare: list[str]
    shares: list[float]  # fraction of the rows with each feature
    separator: str | None = None  # of the members of a list

    @classmethod
    def fit(cls, series: pl.Series, separator: str | None = None) -> Self:
        """Learn from a column; of lists if there is a separator."""
        from sklearn.preprocessing import OneHotEncoder

        texts, _ = cls(series.name, [], [], [], separator)._values(series)
        min_frequency = min(MIN_FREQUENCY, max(1, len(series) // 20))
        encoder = OneHotEncoder(min_frequency=min_frequency, max_categories=MAX_CATEGORIES)
        encoder.fit(texts.to_numpy().astype(object)[:, None])
        rare = encoder.infrequent_categories_[0]
        pooled = [] if rare is None else rare.tolist()
        values = sorted(set(encoder.categories_[0].tolist()) - set(pooled))
        features = cls(series.name, values, pooled, [], separator).transform(series)
        counts = np.bincount(features.indices, minlength=features.shape[1])
        return cls(series.name, values, pooled, (counts / len(series)).tolist(), separator)

    def _values(self, series: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
        """Return the values of all rows, one after the other, and the row of each."""
        rows = np.arange(len(series))
        if self.separator is None:
            return _texts(series, MISSING), rows
        lists = members(series, self.separator)
        lists = lists.zip_with(lists.is_not_null(), pl.Series([[MISSING]]))
        return lists.explode(), np.repeat(rows, lists.list.len().to_numpy())

    def transform(self, series: pl.Series) -> sp.csr_array:
        """Return the features of rows."""
        position = {value: k for k, value in enumerate(self.values)}
        rest = len(self.values) if self.rare else -1
        texts, rows = self._values(series)
        code = texts.replace_strict(position, default=rest, return_dtype=pl.Int64).to_numpy()
        known = code >= 0
        shape = (len(series), len(self.values) + bool(self.rare))
        features = sp.csr_array((np.ones(known.sum()), (rows[known], code[known])), shape=shape)
        if self.separator is not None:  # several rare members count once
            count = np.diff(features.indptr)
            features.data = np.repeat(np.maximum(count, 1) ** -0.5, count)
        return features

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        return [f"{self.name}={value}" for value in (*self.values, *(["(rare)"] if self.rare else []))]

    def drift(self, series: pl.Series, features: Matrix) -> Drift:
        """Compare other rows with those it was fitted on."""
        texts, rows = self._values(series)
        seen = texts.is_in([*self.values, *self.rare]).to_numpy()
        unknown = len(np.unique(rows[~seen]))
        return Drift(moved=moved_beyond_chance(features, self.shares), unknown=unknown)


@dataclass(frozen=True)
class TextEncoder(ColumnEncoder):
    """A text as tf-idf weights of its words, with norm 1; words that were not seen are left out.

    With `spare` features, words that were not seen, or too seldom, share those, each always the same one.
    """

    encoding: ClassVar[Encoding] = "text"

    words: list[str]
    idf: list[float]
    shares: list[float]  # fraction of the texts with each word
    spare: int = 0

    @classmethod
    def fit_transform(cls, series: pl.Series) -> tuple[Self, Matrix]:
        """Learn from a column, and return its features, too."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = _texts(series, "").to_list()
        # A word that occurs in one or two texts does not characterise a category; small tables keep every word.
        encoder = TfidfVectorizer(min_df=min(3, 1 + len(texts) // 100), max_features=MAX_WORDS, dtype=np.float32)
        try:
            matrix = sp.csr_array(encoder.fit_transform(texts))
        except ValueError as problem:
            raise TableError(f"text column {series.name!r} holds no words to use: {problem}") from problem
        shares = np.bincount(matrix.indices, minlength=matrix.shape[1]) / len(texts)
        words = encoder.get_feature_names_out().tolist()
        return cls(series.name, words, encoder.idf_.tolist(), shares.tolist()), matrix

    def transform(self, series: pl.Series) -> Matrix:
        """Return the features of rows."""
        from sklearn.preprocessing import normalize

        position = {word: k for k, word in enumerate(self.words)}
        rows, columns = [], []
        for row, words in enumerate(_words(series)):
            found = [position.get(word, self._spare_feature(word)) for word in words]
            columns += (known := [column for column in found if column is not None])
            rows += [row] * len(known)
        shape = (len(series), len(self.words) + self.spare)
        counts = sp.csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
        weights = np.asarray(self.idf + [max(self.idf)] * self.spare, dtype=np.float32)
        return sp.csr_array(normalize(counts @ sp.diags_array(weights)))

    def _spare_feature(self, word: str) -> int | None:
        """Return the feature that a word shares which is not among those that were seen."""
        if not self.spare:
            return None
        return len(self.words) + zlib.crc32(word.encode("utf-8", "surrogatepass")) % self.spare

    def unseen_words(self, series: pl.Series) -> dict[str, str]:
        """Return the most frequent of the words that share each spare feature, by the feature's name."""
        known, names = set(self.words), self.feature_names
        counts = Counter(word for words in _words(series) for word in words if word not in known)
        shared = ((self._spare_feature(word), word) for word, _ in reversed(counts.most_common()))
        return {names[feature]: f"{self.name}:{word}" for feature, word in shared if feature is not None}

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        spare = [f"{self.name}:(unseen {k})" for k in range(self.spare)]
        return [f"{self.name}:{word}" for word in self.words] + spare

    def drift(self, series: pl.Series, features: Matrix) -> Drift:
        """Compare other rows with those it was fitted on."""
        known = sp.csr_array(features)[:, : len(self.words)]
        without_words = int((np.diff(known.indptr) == 0).sum())
        return Drift(moved=moved_beyond_chance(known, self.shares), unknown=without_words)


@dataclass(frozen=True)
class VectorEncoder(ColumnEncoder):
    """A vector as it is; the mean stands for missing ones."""

    encoding: ClassVar[Encoding] = "vector"

    mean: list[float]
    deviation: list[float]

    @classmethod
    def fit(cls, series: pl.Series) -> Self:
        """Learn from a column."""
        return cls.fit_chunks(series.name, [series])

    @classmethod
    def fit_chunks(cls, name: str, chunks: Iterable[pl.Series]) -> Self:
        """Learn from a column that is given in parts; those that hold missing vectors alone are passed over."""
        count, total, squares = 0, np.zeros(0), np.zeros(0)
        for series in chunks:
            _, vectors = _vectors(series, name, len(total) if count else None)
            if not len(vectors):
                continue
            with np.errstate(over="ignore"):
                sums = vectors.sum(axis=0), (vectors**2).sum(axis=0)
            total, squares = (sums[0] + total, sums[1] + squares) if count else sums
            count += len(vectors)
        if not count:
            raise TableError(f"vectors in column {name!r} must have one length; all are missing")
        mean = total / count
        deviation = np.sqrt(np.maximum(0, squares / count - mean**2))
        return cls(name, mean.tolist(), deviation.tolist())

    def transform(self, series: pl.Series) -> Matrix:
        """Return the features of rows."""
        present, vectors = _vectors(series, self.name, len(self.mean))
        matrix = np.tile(self.mean, (len(series), 1))
        matrix[present] = vectors
        return matrix

    @property
    def feature_names(self) -> list[str]:
        """One name per feature."""
        return [f"{self.name}[{k}]" for k in range(len(self.mean))]

    def drift(self, series: pl.Series, features: Matrix) -> Drift:
        """Compare other rows with those it was fitted on."""
        spread = np.asarray(self.deviation)
        varies = spread > 0
        moved = (np.asarray(features.mean(axis=0)) - self.mean)[varies] / spread[varies]
        return Drift(deviations=deviations_beyond_chance(moved, features.shape[0]) if varies.any() else 0.0)


ENCODERS: Mapping[Encoding, type[ColumnEncoder]] = {
    kind.encoding: kind for kind in (NumberEncoder, CategoryEncoder, TextEncoder, VectorEncoder)
}


def fit_column(column: Column, series: pl.Series) -> tuple[ColumnEncoder, Matrix]:
    """Fit the encoder of a column to its values, as `Column.read` returned them, and return their features, too."""
    if column.encoding == "category":
        lists = CategoryEncoder.fit(series, column.separator)
        return lists, lists.transform(series)
    encoder, matrix = ENCODERS[column.encoding].fit_transform(series)
    return (replace(encoder, decimal=column.decimal) if isinstance(encoder, NumberEncoder) else encoder), matrix


def encoder_from_json(name: str, values: Mapping[str, Any]) -> ColumnEncoder:
    """Rebuild an encoder from `to_json`; raise KeyError or TypeError where the fields are not those of one."""
    learned = {key: value for key, value in values.items() if key not in ("encoding", "weight")}
    return ENCODERS[values["encoding"]](name, **learned)


def _numbers(series: pl.Series, known: DecimalMark | None = None, hint: DecimalMark | None = None) -> pl.Series:
    """Return a column as numbers, missing ones null; text is read as numbers where all of it is."""
    must = f"column {series.name!r} must hold numbers, as when the model was fitted; "
    if series.dtype == pl.String:
        marks = decimal_marks(series, known=known, hint=hint)
        if len(marks) == 2:
            raise TableError(must + two_readings(series))
        mark = marks[0] if marks else known or "."
        wrong = series.filter(~are_numbers(series, mark))
        if len(wrong):
            raise TableError(f"{must}got {wrong[0]!r} and {len(wrong) - 1:,} more such rows; correct them")
        values = to_numbers(series, mark)
    elif series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null):
        values = series.cast(pl.Float64)
    else:
        raise TableError(f"{must}got {series.dtype}")
    values = values.fill_nan(None)
    if (values.abs() > MAX_NUMBER).fill_null(False).any():
        raise TableError(f"column {series.name!r} holds infinite or extreme values; replace them or ignore the column")
    return values


def _texts(series: pl.Series, missing: str) -> pl.Series:
    if series.dtype.is_nested() or series.dtype == pl.Binary:
        raise TableError(f"column {series.name!r} must hold one text per row; got {series.dtype}")
    if series.dtype.is_float() and bool((series == series.round()).all()):
        series = series.cast(pl.Int64)  # 1.0 is the same as 1
    return series.cast(pl.String).fill_null(missing)


def _words(series: pl.Series) -> Iterator[list[str]]:
    """Return the words of each text."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return map(TfidfVectorizer().build_analyzer(), _texts(series, "").to_list())


def _vectors(series: pl.Series, name: str, length: int | None = None) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which rows of a column hold a vector, and the vectors, all of one length."""
    if series.dtype == pl.Null or not series.count():
        return np.zeros(len(series), dtype=bool), np.empty((0, length or 0))
    if series.dtype not in (pl.List, pl.Array):
        raise TableError(
            f"column {name!r} must hold lists of numbers, as when the model was fitted; got {series.dtype}"
        )
    lists = series.cast(pl.List(pl.Float64)) if series.dtype != pl.List(pl.Float64) else series
    lengths = sorted({*lists.list.len().drop_nulls().unique(), *([] if length is None else [length])})
    if len(lengths) != 1 or lengths[0] == 0:
        raise TableError(f"vectors in column {name!r} must have one length; got lengths {lengths[:5]}")
    values = lists.drop_nulls().explode().to_numpy().astype(np.float64).reshape(-1, lengths[0])
    usable = (np.abs(values) <= np.finfo(np.float32).max).all(axis=1)
    if not usable.all():
        raise TableError(
            f"vectors in column {name!r} hold empty, infinite or extreme values in {(~usable).sum()} rows; "
            "replace them or ignore the column"
        )
    return lists.is_not_null().to_numpy(), values
