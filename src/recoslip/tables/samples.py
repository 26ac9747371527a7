"""A table file -> the number of its rows, the types of its columns and some of its texts, without reading it all."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from recoslip.tables.formats import csv_header, table_format
from recoslip.tables.paths import polars_path
from recoslip.tables.text_files import is_compressed, open_text

SAMPLE_ROWS = 2000  # of each text column, from each of three places of a Parquet file, or the start of an Arrow file
SAMPLE_BYTES = 2**22  # of a CSV file, from its start
_NEWLINE, _QUOTE = b'\n"'


@dataclass(frozen=True)
class TableSample:
    """What is known of a table before it is read.

    Args:
        rows: the number of rows, at least.
        schema: the type of each column.
        texts: some values of each column of text.
        list_lengths: the mean number of values in a row of each column of lists.
        stored_bytes: size of the columns before compression, as far as the file says.
        csv_bytes: size of a text file before compression; 0 for other formats.
        compressed: whether a text file is compressed.
    """

    rows: int
    schema: Mapping[str, pl.DataType]
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    list_lengths: Mapping[str, float] = field(default_factory=dict)
    stored_bytes: int = 0
    csv_bytes: int = 0
    compressed: bool = False


def sample_table(path: Path, most_bytes: int, encoding: str | None = None) -> TableSample:
    """Sample a table file; what is decompressed on the way is not read further than `most_bytes`.

    Args:
        path: the file: text, Parquet or Arrow.
        most_bytes: of a compressed file, how many bytes to decompress.
        encoding: of a text file.
    """
    if table_format(path) == "text":
        return _sample_csv(path, most_bytes, encoding)
    return {"parquet": _sample_parquet, "arrow": _sample_arrow}[str(table_format(path))](path)


def text_header(path: Path, encoding: str | None = None) -> tuple[str, list[str]]:
    """Return the separator and the columns of a text file."""
    return csv_header(io.BytesIO(_head(path, encoding)), path)


def text_rows(path: Path, rows: int, encoding: str | None = None) -> pl.DataFrame:
    """Return the first rows of a text file, all of them as text; as many as its first mebibytes hold."""
    head = _head(path, encoding)
    separator, header = csv_header(io.BytesIO(head), path)
    try:
        return pl.read_csv(
            head, separator=separator, infer_schema=False, n_rows=rows, truncate_ragged_lines=True, ignore_errors=True
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # the reader of the whole file will say why
        return pl.DataFrame(schema=dict.fromkeys(header, pl.String()))


def _head(path: Path, encoding: str | None) -> bytes:
    """Return the first whole lines of a text file."""
    with open_text(path, encoding) as file:
        head = file.read(SAMPLE_BYTES)
    return head if len(head) < SAMPLE_BYTES else head[: head.rfind(b"\n") + 1]


def count_rows(path: Path) -> int | None:
    """Count the rows of a table whose file says how many it has, by reading one column; None for other formats."""
    count = {"parquet": _count_parquet_rows, "arrow": _count_arrow_rows}.get(str(table_format(path)))
    return None if count is None else count(path)


# Text files.


def _sample_csv(path: Path, most_bytes: int, encoding: str | None) -> TableSample:
    compressed = is_compressed(path)
    with open_text(path, encoding) as file:
        head = file.read(SAMPLE_BYTES)
        rows, size = _count_lines(head, file, most_bytes if compressed else None)
    complete = head[: head.rfind(b"\n") + 1] if size > len(head) else head
    frame = _parse_head(complete, path)
    texts = {column.name: column.drop_nulls().to_list() for column in frame if column.dtype == pl.String}
    return TableSample(rows, frame.schema, texts, csv_bytes=size, compressed=compressed)


def _count_lines(head: bytes, file: IO[bytes], most_bytes: int | None) -> tuple[int, int]:
    """Count the lines and bytes of a text; a line break between quotes ends no line, unless the quotes do not match."""
    inside = outside = size = 0
    quoted = False
    block = head
    while block:
        size += len(block)
        breaks = block.count(b"\n")
        within = breaks if quoted else 0
        if b'"' in block:
            within = _breaks_between_quotes(block, quoted)
            quoted ^= bool(block.count(b'"') % 2)
        inside, outside = inside + within, outside + breaks - within
        if most_bytes is not None and size > most_bytes:
            break
        block = file.read(SAMPLE_BYTES)
    return outside + (inside if quoted else 0) + 1, size


def _breaks_between_quotes(block: bytes, quoted: bool) -> int:
    characters = np.frombuffer(block, dtype=np.uint8)
    is_quoted = (np.cumsum(characters == _QUOTE) + quoted) % 2 == 1
    return int((is_quoted & (characters == _NEWLINE)).sum())


def _parse_head(head: bytes, path: Path) -> pl.DataFrame:
    """Parse the first lines of a text file; lines that are no rows are left to the reader of the whole file."""
    separator, header = csv_header(io.BytesIO(head), path)
    try:
        return pl.read_csv(
            head, separator=separator, infer_schema_length=None, ignore_errors=True, truncate_ragged_lines=True
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return pl.DataFrame(schema=dict.fromkeys(header, pl.String()))


# Parquet files.


def _sample_parquet(path: Path) -> TableSample:
    from pyarrow.lib import ArrowNotImplementedError

    with open_parquet(path) as file:
        metadata = file.metadata
        schema = pl.scan_parquet(polars_path(path)).collect_schema()
        stored = sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))
        try:
            leaves = _leaves_of_columns(file.schema_arrow)
        except ArrowNotImplementedError:  # a type that polars can read and Arrow cannot
            return TableSample(metadata.num_rows, schema, stored_bytes=stored)
        texts, lengths = {}, {}
        for name, dtype in schema.items():
            if dtype in (pl.List, pl.Array) and metadata.num_rows:
                lengths[name] = _values_of_leaf(metadata, leaves[name]) / metadata.num_rows
            elif dtype in (pl.String, pl.Categorical, pl.Enum):
                texts[name] = _texts_of_leaf(file, leaves[name])
    return TableSample(metadata.num_rows, schema, texts, lengths, stored_bytes=stored)


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file with Arrow: one page at a time, no threads, and memory that is given back at once."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    # Threads hang instead of raising an error when memory is short.
    with ParquetFile(polars_path(path), pre_buffer=False, buffer_size=2**16) as file:
        yield file
    pa.default_memory_pool().release_unused()


def parquet_batches(file: Any, leaf: int, rows: int, row_groups: Sequence[int] | None = None) -> Iterator[Any]:
    """Yield the values of one leaf column of a Parquet file, `rows` at a time."""
    path = file.schema.column(leaf).path
    batches: Iterator[Any] = file.iter_batches(
        batch_size=rows, row_groups=row_groups, columns=[path], use_threads=False
    )
    return batches


def _count_parquet_rows(path: Path) -> int:
    with open_parquet(path) as file:
        metadata = file.metadata
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        sizes = [sum(group.column(k).total_compressed_size for group in groups) for k in range(metadata.num_columns)]
        if not sizes:
            return 0
        return sum(batch.num_rows for batch in parquet_batches(file, sizes.index(min(sizes)), SAMPLE_ROWS))


def _leaves_of_columns(schema: Any) -> dict[str, int]:
    """Return the number of the first leaf column of each column, by the schema that Arrow reads."""
    leaves, leaf = {}, 0
    for column in schema:
        leaves[column.name] = leaf
        leaf += _count_leaves(column.type)
    return leaves


def _count_leaves(dtype: Any) -> int:
    import pyarrow as pa

    if pa.types.is_dictionary(dtype):
        return 1
    return sum(_count_leaves(dtype.field(k).type) for k in range(dtype.num_fields)) if dtype.num_fields else 1


def _values_of_leaf(metadata: Any, leaf: int) -> int:
    return sum(metadata.row_group(k).column(leaf).num_values for k in range(metadata.num_row_groups))


def _texts_of_leaf(file: Any, leaf: int) -> list[str]:
    """Return the first texts of the first, the middle and the last row group."""
    groups = file.metadata.num_row_groups
    texts: list[str] = []
    for group in sorted({0, groups // 2, groups - 1}) if groups else []:
        batch = next(parquet_batches(file, leaf, SAMPLE_ROWS, [group]), None)
        if batch is not None and batch.num_columns:
            texts += [text for text in batch.column(0).to_pylist() if isinstance(text, str)]
    return texts


# Arrow files.


def _sample_arrow(path: Path) -> TableSample:
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = polars_path(path)
    lazy = pl.scan_ipc(plain)
    schema = lazy.collect_schema()
    texts, lengths = {}, {}
    with pa.memory_map(str(plain)) as source:
        for index, (name, dtype) in enumerate(schema.items()):
            if dtype in (pl.List, pl.Array):
                lengths[name] = pc.mean(pc.list_value_length(_first_values(source, index))).as_py() or 0.0
            elif dtype in (pl.String, pl.Categorical, pl.Enum):
                texts[name] = [text for text in _first_values(source, index).to_pylist() if isinstance(text, str)]
    rows = int(lazy.select(pl.len()).collect().item())
    return TableSample(rows, schema, texts, lengths, stored_bytes=path.stat().st_size)


def _count_arrow_rows(path: Path) -> int:
    import pyarrow as pa

    with pa.memory_map(str(polars_path(path))) as source:
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=[0], use_threads=False))
        rows = 0
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            batch.validate()
            rows += batch.num_rows
    return rows


def _first_values(source: Any, column: int) -> Any:
    """Return the first values of a column of an Arrow file."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=[column], use_threads=False)
    reader = pa.ipc.open_file(source, options=options)
    if not reader.num_record_batches:
        return pa.array([], pa.list_(pa.null()))
    values = reader.get_batch(0).column(0).slice(0, SAMPLE_ROWS)
    values.validate(full=True)  # offsets that lead outside would end the process
    return values
