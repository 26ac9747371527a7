"""Rows of an edges table, which name nodes by id -> positions of their ends, and weights."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.base.text import named
from recoslip.data.options import ReadOptions
from recoslip.data.tables.columns import MOST_NAMES, require_column
from recoslip.data.tables.node_columns import WHOLE, checked_ids, require_unique
from recoslip.data.tables.numbers import DecimalMark, decimal_marks, to_numbers, two_readings
from recoslip.data.tables.table import Origin, Table

log = logging.getLogger("recoslip")

SAMPLE_EDGES = 1000  # rows by which the columns of the ends are found
FIX_WEIGHTS = "correct it, leave such rows out, or leave weight out"
MOST = 0.5  # of the sampled values of such a column must be ids of nodes
WEIGHT = re.compile(
    r"(?:^|[ _.-])(w|weights?|n|counts?|times|values?|strength|score|freq|frequency|amount)$", re.IGNORECASE
)
EDGE_ID = re.compile(r"^(|id|edge|edge[ _.-]?id|index|row|no|nr|number|unnamed: 0)$", re.IGNORECASE)


def log_dropped_edges(edges: int) -> None:
    """Log how many edges were dropped, if any."""
    if edges:
        log.info("edges: %s dropped that name unknown nodes", f"{edges:,}")


def choose_ends(sample: pl.DataFrame, ids: pl.Series, options: ReadOptions) -> ReadOptions:
    """Return the options with the columns of both ends: those that are named, else the first that hold ids of nodes.

    Where more than two do, those that are called like a weight or the number of an edge come last. Where fewer do, it
    is the first columns that have no other use, or None where none is left.

    Args:
        sample: the first rows of the edges table.
        ids: the ids of the nodes, as text.
        options: which columns to read, as far as the user said.
    """
    named = [options.edge_from, options.edge_to]
    free = [column for column in sample.columns if column not in (*named, options.weight)]
    wanted = named.count(None)
    found = _columns_of_ids([sample[name] for name in free], ids) if wanted and len(free) >= wanted else []
    if len(found) > wanted:
        found.sort(key=lambda name: bool(WEIGHT.search(name) or EDGE_ID.search(name)))
        found = sorted(found[:wanted], key=free.index)
    chosen = iter(found if len(found) >= wanted else free)
    left, right = [next(chosen, None) if name is None else name for name in named]
    return replace(options, edge_from=left, edge_to=right)


def _columns_of_ids(columns: Sequence[pl.Series], ids: pl.Series) -> list[str]:
    """Return the columns most of whose values are ids of nodes, as they are or as whole numbers written like 1.0."""
    texts = [
        column.cast(pl.String).drop_nulls()
        for column in columns
        if column.dtype.is_numeric() or column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date)
    ]
    both = [(values, values.str.extract(WHOLE)) for values in texts]
    values = pl.Series([each.to_list() for pair in both for each in pair], dtype=pl.List(pl.String)).explode().unique()
    known = values.filter(values.is_in(ids.implode())).implode()
    shares = [(plain.is_in(known) | whole.is_in(known).fill_null(False)).mean() for plain, whole in both]
    return [
        column.name for column, share in zip(texts, shares, strict=True) if isinstance(share, float) and share > MOST
    ]


def _log_unused(columns: Sequence[pl.Series], reader: EdgeReader) -> None:
    """Log which columns hold the ends, where there are others, and which of these may hold weights."""
    names = []
    for column in columns:
        numbers = column.dtype.is_numeric() or (column.dtype == pl.String and len(decimal_marks(column)) > 0)
        may_weigh = reader.weight is None and numbers and WEIGHT.search(column.name)
        names.append(f"{column.name} (weight={column.name!r} uses it)" if may_weigh else column.name)
    if names:
        log.info("edges: from %s to %s; unused: %s", reader.left, reader.right, named(names, MOST_NAMES))


class EdgeReader:
    """Rows of an edges table -> node positions of their ends, and weights.

    Args:
        table: the edges table; rows are given to `read`.
        ids: the ids of the nodes, as text.
        options: which columns to read.
        given_ids: the ids of all rows of the nodes table, as text; edges of those that were left out are left out.
    """

    def __init__(self, table: Table, ids: pl.Series, options: ReadOptions, given_ids: pl.Series | None = None) -> None:
        columns, name, sample = table.columns, table.name, table.head(SAMPLE_EDGES)
        for column in (options.edge_from, options.edge_to, options.weight):
            if column is not None:
                require_column(columns, column, "edges")
        options = choose_ends(sample, ids, options)
        left, right = options.edge_from, options.edge_to
        if left is None or right is None:
            besides = f" besides the weights in {options.weight!r}" if options.weight is not None else ""
            raise TableError(f"{name} must have two columns of node ids{besides}; it has {list(columns)}")
        if left == right:
            raise TableError(f"both ends of an edge cannot be in one column, {left!r}; name two")
        self.left, self.right = left, right
        self.columns = [name for name in (left, right, options.weight) if name is not None]  # those that are read
        self.name, self.ids, self.weight, self.drop_unknown = name, ids, options.weight, options.drop_unknown
        self.origin = table.origin
        require_unique(ids)
        self.left_out = ids.clear() if given_ids is None else given_ids.filter(~given_ids.is_in(ids.implode()))
        self.dropped = 0  # edges with an unknown end that were dropped so far
        if table.path is not None and ids.is_in([left]).any() and ids.is_in([right]).any():
            raise TableError(f"{name}: the first line, {left!r} and {right!r}, is an edge; add a header")
        self.mark: DecimalMark = "."  # by which weights are read that come as text
        if self.weight is not None and sample.schema[self.weight] == pl.String:
            marks = decimal_marks(sample[self.weight], hint=self.origin.decimal)
            if len(marks) == 2:
                raise TableError(
                    f"the edges table's weight column {self.weight!r}: {two_readings(sample[self.weight])}"
                )
            self.mark = marks[0] if marks else "."
        _log_unused([sample[name] for name in columns if name not in self.columns], self)

    def read(self, frame: pl.DataFrame, offset: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Return the node positions of the ends of the given rows, (2, edges), and their weights.

        Args:
            frame: the rows.
            offset: how many rows of the table are before them.
        """
        origin = self.origin.from_row(offset)
        edge_index, known = self.ends(frame, origin)
        edge_weight = None
        if self.weight is not None:
            edge_weight = self._weights(frame[self.weight], known, origin).filter(known).to_numpy()
        return edge_index, edge_weight

    def ends(self, frame: pl.DataFrame, origin: Origin | None = None) -> tuple[NDArray[np.int64], pl.Series]:
        """Return the node positions of both ends of rows, (2, edges), and in which rows both are known: of these."""
        columns = [frame[name] for name in (self.left, self.right)]
        ends = [self._find(checked_ids(column, "edges", origin or self.origin)) for column in columns]
        known = ends[0].is_not_null() & ends[1].is_not_null()
        unknown = ~known
        for column in columns if len(self.left_out) else ():
            texts, own = column.cast(pl.String), self.left_out.implode()
            unknown &= ~(texts.is_in(own) | texts.str.extract(WHOLE).is_in(own).fill_null(False))
        if unknown.any() and not self.drop_unknown:
            self._refuse_unknown(columns, ends, unknown)
        self.dropped += int((~known).sum())
        return np.stack([position.filter(known).to_numpy().astype(np.int64) for position in ends]), known

    def refuse_no_edge(self, frame: pl.DataFrame) -> NoReturn:
        """Raise because not one edge joins two nodes of the nodes table.

        Args:
            frame: some rows of the edges table.
        """
        held = " and ".join(f"{name!r} such as {frame[name].cast(pl.String)[0]!r}" for name in (self.left, self.right))
        raise TableError(
            f"drop_unknown=True would drop every edge: no row of {self.name} names two ids of the nodes table. Its "
            f"columns hold {held}, and the nodes table has ids such as {self._example()}; name the columns of the ends "
            "(edge_from=..., edge_to=...) or of the ids (id=...), or correct them"
        )

    def _find(self, names: pl.Series) -> pl.Series:
        """Return the position of each id, null where it is unknown; 1.0 is 1 where there is no 1.0."""
        texts = names.cast(pl.String)
        found = self._exact(texts)
        if found.null_count() and names.dtype == pl.String:
            return found.zip_with(found.is_not_null(), self._exact(texts.str.extract(WHOLE)))
        return found

    def _exact(self, texts: pl.Series) -> pl.Series:
        """Return the position of each id, null where it is unknown."""
        seed, hashes, positions = self._hashed
        found = np.minimum(np.searchsorted(hashes, texts.hash(seed).to_numpy()), len(hashes) - 1)
        position = pl.Series(positions[found])
        return position.set(~(self.ids.gather(position) == texts).fill_null(False), None)

    @cached_property
    def _hashed(self) -> tuple[int, NDArray[np.uint64], NDArray[np.int64]]:
        """A seed by which no two ids have the same hash, the hashes in ascending order, and the position of each.

        A join would hash all ids again for every chunk of a table.
        """
        for seed in itertools.count():
            hashes = self.ids.hash(seed).to_numpy()
            positions = np.argsort(hashes, kind="stable")
            hashes = hashes[positions]
            if (hashes[1:] != hashes[:-1]).all():
                break
        return seed, hashes, positions

    def _refuse_unknown(self, columns: Sequence[pl.Series], ends: Sequence[pl.Series], rows: pl.Series) -> NoReturn:
        lost = [each.filter(rows & place.is_null()).cast(pl.String) for each, place in zip(columns, ends, strict=True)]
        unknown = pl.concat(lost).unique(maintain_order=True)
        first = ", ".join(map(repr, unknown.head(3)))
        numbered = self.ids.head(2).str.starts_with("row ").all()
        remedy = "name the column of the nodes table with the ids (id=...), " if numbered else ""
        raise TableError(
            f"{self.name} names {len(unknown)} ids that the nodes table does not have (first: {first}), in "
            f"{rows.sum()} edges. The ends are in its columns {self.left!r} and "
            f"{self.right!r}, and the nodes table has ids such as {self._example()}; {remedy}add those nodes or pass "
            "drop_unknown=True, or name other columns (edge_from=..., edge_to=...)"
        )

    def _example(self) -> str:
        return ", ".join(map(repr, self.ids.head(2).to_list()))

    def _weights(self, column: pl.Series, known: pl.Series, origin: Origin) -> pl.Series:
        """Return weights; raise if that of a known edge is no number, or not positive and finite."""
        values = to_numbers(column, self.mark) if column.dtype == pl.String else column
        absent = known & values.is_null()
        if not values.dtype.is_numeric() or absent.any():
            must = f"weight column {self.weight!r} must hold a number in every row"
            _refuse_weights(must, column, absent, origin)
        values = values.cast(pl.Float64)
        wrong = known & ~((values > 0) & values.is_finite())
        if wrong.any():
            _refuse_weights("weights must be positive and finite", values, wrong, origin)
        return values


def _refuse_weights(must: str, column: pl.Series, wrong: pl.Series, origin: Origin) -> NoReturn:
    where = f"; {origin.first(wrong)} has {column.filter(wrong)[0]!r} ({origin.counting})" if wrong.any() else ""
    raise TableError(f"the edges table's {must}{where}; {FIX_WEIGHTS}")
