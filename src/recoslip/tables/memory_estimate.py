"""The sample of a table -> how many bytes of memory it takes at most to read the table and make the graph of it.

The figures are bytes at the moment of the highest need, measured in processes that read tables of every shape; they are
meant to be upper bounds, at most two and a half times too high.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from recoslip.encoders.columns import MAX_CATEGORIES
from recoslip.encoders.numbers import decimal_marks
from recoslip.encoders.table_encoder import DENSE_FRACTION
from recoslip.read_options import ReadOptions
from recoslip.tables.kept_columns import may_be_label
from recoslip.tables.options import end_columns
from recoslip.tables.samples import TableSample

# Reading a text file: bytes per byte of it.
PLAIN_TEXT, COMPRESSED_TEXT = 1.5, 2.5

# Encoding the nodes table: bytes per row, word or value.
NODE = 250  # the ids of a node, in several forms, and its domain
PYTHON_TEXT = 60  # a text as a Python object, without its characters
ENCODED = 4  # a feature in single precision
CATEGORY_STEP = 100  # a category while its column is encoded
NUMBER_STEP = 80  # a number while it is read from text
VECTOR_STEP = 32  # a value of a vector while its column is encoded
SPARSE_ENTRY = 12  # a non-zero feature in a sparse matrix
SPARSE_JOIN = 44  # a feature while the columns are joined to a sparse matrix
WORD = 24  # a word of a text while its column is encoded
DISTINCT_WORD = 260  # a distinct word

_BYTES: dict[Any, float] = {
    **dict.fromkeys((pl.Boolean, pl.Int8, pl.UInt8), 1.0),
    **dict.fromkeys((pl.Int16, pl.UInt16), 2.0),
    **dict.fromkeys((pl.Int32, pl.UInt32, pl.Float32, pl.Date, pl.Categorical, pl.Enum), 4.0),
    **dict.fromkeys((pl.Int128, pl.Decimal), 16.0),
}  # of a value of a column

# Making the edges: bytes per edge.
EDGE = 190
WEIGHT = 80


def estimate_nodes(sample: TableSample, options: ReadOptions) -> int:
    """Return the bytes that it takes to read a nodes table and make its features."""
    numbers = categories = words_kept = 0.0
    columns = 0.0  # bytes per row of encoded columns
    step = 0.0  # bytes per row of the column that takes most while it is encoded
    distinct_words = 0.0
    sparse = False
    for name, dtype in sample.schema.items():
        if not _is_feature(name, options):
            continue
        if name in options.text:
            length, words, distinct = _text_statistics(name, sample)
            sparse, words_kept = True, words_kept + words
            step = max(step, PYTHON_TEXT + length + WORD * words)
            distinct_words = max(distinct_words, DISTINCT_WORD * distinct)
        elif dtype == pl.String and decimal_marks(pl.Series(sample.texts.get(name, ()), dtype=pl.String)):
            numbers += 1
            step = max(step, NUMBER_STEP + 2 * _text_length(name, sample))
        elif dtype in (pl.String, pl.Categorical, pl.Enum):
            if _may_be_category(name, sample):
                sparse, categories = True, categories + 1
                step = max(step, PYTHON_TEXT + _text_length(name, sample) + CATEGORY_STEP)
        elif dtype in (pl.List, pl.Array):
            values = sample.list_lengths.get(name, 1.0)
            numbers += values
            step = max(step, VECTOR_STEP * values)
        else:
            numbers += 1
    entries = numbers + categories + words_kept
    columns = ENCODED * numbers + SPARSE_ENTRY * (categories + words_kept)
    if sparse:
        dense = ENCODED * entries / DENSE_FRACTION if words_kept == 0 else 0.0
        join = SPARSE_JOIN * entries + dense
    else:
        join = 2 * ENCODED * numbers
    per_row = NODE + _kept_bytes(sample, options) + columns + max(step, join)
    frame = _frame_bytes(sample)
    return round(max(_reading_bytes(sample, frame), frame + sample.rows * per_row + distinct_words))


def estimate_edges(sample: TableSample, options: ReadOptions) -> int:
    """Return the bytes that it takes to read an edges table and make the edges of the graph."""
    ends = [name for name in end_columns(options, list(sample.schema)) if name is not None]
    texts = sum(16 + _beyond_view(_text_length(name, sample)) for name in ends)
    per_row = EDGE + texts + (WEIGHT if options.weight else 0)
    frame = _frame_bytes(sample)
    return round(max(_reading_bytes(sample, frame), frame + sample.rows * per_row))


def _is_feature(name: str, options: ReadOptions) -> bool:
    if name in (options.id, options.category, options.time, options.domain) or name in options.ignore:
        return False
    return options.features is None or name in options.features or name in options.text


def _reading_bytes(sample: TableSample, frame: float) -> float:
    text = sample.csv_bytes * (COMPRESSED_TEXT if sample.compressed else PLAIN_TEXT)
    return text + 2 * frame


def _frame_bytes(sample: TableSample) -> float:
    """Return the bytes of all columns of the table as polars holds them."""
    per_row = sum(_value_bytes(name, dtype, sample) for name, dtype in sample.schema.items())
    return max(sample.rows * per_row, sample.stored_bytes)


def _value_bytes(name: str, dtype: Any, sample: TableSample) -> float:
    if isinstance(dtype, pl.String):
        return 16 + _beyond_view(_text_length(name, sample))
    if isinstance(dtype, pl.List | pl.Array):
        return 8 + sample.list_lengths.get(name, 1.0) * _value_bytes("", dtype.inner, sample)
    if isinstance(dtype, pl.Struct):
        return sum((_value_bytes("", inner, sample) for inner in dtype.to_schema().values()), 0.0)
    return _BYTES.get(type(dtype), 8.0 if dtype.is_numeric() or dtype.is_temporal() else 16.0)


def _beyond_view(length: float) -> float:
    """Return the bytes of a text that its view of 16 bytes does not hold itself."""
    return length if length > 12 else 0.0


def _kept_bytes(sample: TableSample, options: ReadOptions) -> float:
    """Return the bytes per row of columns that are kept as they are: ids, categories, times, and what is shown."""
    kept = [options.id, *([options.category] if options.category else []), *([options.time] if options.time else [])]
    kept += [*options.keep, *([options.label] if options.label else filter(may_be_label, sample.schema))]
    return sum(PYTHON_TEXT + 2 * _text_length(name, sample) for name in kept if name in sample.texts)


def _text_length(name: str, sample: TableSample) -> float:
    """Return the mean number of bytes of a text."""
    if texts := sample.texts.get(name):
        return float(np.mean([len(text.encode()) for text in texts]))
    return sample.csv_bytes / max(1, sample.rows) / max(1, len(sample.schema)) if name in sample.schema else 0.0


def _text_statistics(name: str, sample: TableSample) -> tuple[float, float, float]:
    """Return the mean bytes and words of a text, and the number of distinct words of the column."""
    texts: Sequence[str] = sample.texts.get(name, ())
    length = _text_length(name, sample)
    if not texts:
        return length, length / 3, sample.rows * length / 3
    words = [re.findall(r"\b\w\w+\b", text.lower()) for text in texts]
    count = sum(map(len, words))
    distinct = len({word for text in words for word in text})
    per_text = sum(len(set(text)) for text in words) / len(texts)
    return length, max(per_text, count / len(texts)), sample.rows * (count / len(texts)) * distinct / max(1, count)


def _may_be_category(name: str, sample: TableSample) -> bool:
    """Return whether a column of text may be encoded as categories: unless so few texts repeat that it is free text."""
    texts = sample.texts.get(name, ())
    distinct = len(set(texts))
    most_values = max(MAX_CATEGORIES, sample.rows // 20)
    least_repetitions = len(texts) ** 2 / (2 * most_values)  # expected of so many values in a sample of this size
    return distinct <= MAX_CATEGORIES or least_repetitions < 20 or len(texts) - distinct > least_repetitions / 2
