"""Known nodes, then batches of nodes -> after each batch: nothing new, a known kind grows, or a new category."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import WatchError
from recoslip.base.files import check_output, contents, output_lock, printable, put_right, resolve, update, writing
from recoslip.base.settings import Integer, Number
from recoslip.base.text import NAMED
from recoslip.data.alignment import k_means
from recoslip.data.ids import id_hashes
from recoslip.data.options import ReadOptions, reads
from recoslip.data.tables.column_encoders import TextEncoder
from recoslip.data.tables.columns import is_missing, plan_columns, require_column
from recoslip.data.tables.node_columns import choose_label, own_ids, shown_values
from recoslip.data.tables.read import EncodedNodes, GivenTable, encode_nodes, open_edges, open_nodes
from recoslip.data.tables.table import Origin, Table, table_errors
from recoslip.data.tables.table_encoder import TableEncoder, fit_encoder
from recoslip.data.tables.times import read_times, slash_order
from recoslip.data.vectors import Vectors
from recoslip.inference.traits import FeatureStatistics
from recoslip.products.watch import page
from recoslip.products.watch.alarm import counts_of, graph_of, judge
from recoslip.products.watch.state import (
    PAGE,
    Batch,
    Group,
    Nodes,
    Settings,
    State,
    each_once,
    files_of,
    node_table,
    read_state,
)

MIN_KNOWN = 100  # known nodes
NODES_PER_KIND, MAX_KINDS = 100, 12  # of the known nodes, which kinds divide
SPARE_WORDS = 1024  # features of a text column for words that the known nodes do not have
WAIT = 5.0  # seconds that a process that only reads waits for one that writes
MAX_TIME = 2.0**64  # of a time that is a number


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a batch came to."""

    batch: Batch
    group: Group | None  # the new category, if the batch raised an alarm
    open_groups: tuple[Group, ...] = ()  # of this batch and earlier ones, neither accepted nor rejected yet
    again: bool = False  # whether the batch had been given before, and nothing was changed

    @property
    def alarm(self) -> bool:
        """Whether an alarm of this batch or of an earlier one is open."""
        return bool(self.open_groups)

    @property
    def exit_code(self) -> int:
        """11 where the batch differs from all earlier nodes and cannot be judged, or else 10 for an alarm, 0 for none.

        An alarm stays until its group is accepted or rejected.
        """
        return 11 if self.batch.verdict == "apart" else 10 if self.alarm else 0

    @property
    def sentence(self) -> str:
        """What the batch came to, and which groups of earlier batches are open."""
        return page.said(self.batch, self.open_groups)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {
            **asdict(self.batch),
            "alarm": self.alarm,
            "exit_code": self.exit_code,
            "given_before": self.again,
            "group": None if self.group is None else asdict(self.group),
            "open_groups": [group.number for group in self.open_groups],
        }


class Watch:
    """A watch that was begun, in its folder.

    >>> Watch("nowhere")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    recoslip.base.errors.WatchError: nowhere holds no watch; begin one with the nodes that are known

    Args:
        folder: what was given to `begin`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = resolve(folder)
        with output_lock(self.folder, wait=WAIT):
            self.state = read_state(self.folder)

    @classmethod
    @reads("id", "features", "ignore", "text", "block_weights", "impute", "label", "drop_unknown", "encoding")
    def begin(
        cls,
        folder: str | os.PathLike[str],
        nodes: GivenTable,
        edges: GivenTable | None = None,
        *,
        alpha: float = 0.05,
        max_growth: float = 10.0,
        window: int = 5,
        keep: int = 50_000,
        time: str | None = None,
        **read: Any,
    ) -> Self:
        """Begin a watch with the nodes that are known.

        Args:
            folder: where the watch keeps its state; it must not hold one yet.
            nodes: table of the known nodes.
            edges: table of the edges among them.
            alpha: the probability of any false alarm, ever.
            max_growth: how many times as frequent as before a known category may become without an alarm.
            window: how many batches, the last ones, are looked at together.
            keep: how many earlier nodes are kept at most; of more, a random part is.
            time: column with times, numbers or dates; batches must then come in their order.
        """
        Number(0, 1, open_ends=True)("alpha", alpha)
        Number(1, 1e6)("max_growth", max_growth)
        Integer(1, 1000)("window", window)
        Integer(MIN_KNOWN, 10_000_000)("keep", keep)
        options = ReadOptions(**read)
        final = resolve(folder)
        with output_lock(final), table_errors():
            put_right(final)
            if final.is_dir() and any(contents(final)):
                raise WatchError(f"{printable(folder)} is not empty; begin a watch in a new folder")
            check_output(final, "watch")
            table = open_nodes(nodes, options)
            frame, origin = table.frame, table.origin
            reserved = {options.id, time} - {None}
            columns = plan_columns(table, reserved, options)
            label = choose_label(table, reserved, options.label)
            own = _own_nodes(table, own_ids(table, options.id), 0, label)
            if own.height < MIN_KNOWN:
                raise WatchError(f"a watch needs {MIN_KNOWN} known nodes at least; got {own.height}; give more of them")
            last_time = _last_time(frame, time, None, origin)
            weights = options.block_weights
            encoder, encoded = fit_encoder(
                frame, columns, impute=options.impute, weights=weights, spare_words=SPARE_WORDS, origin=origin
            )
            settings = Settings(options.id, time, label, alpha, max_growth, window, keep, options.impute)
            edge_index, _ = _read_edges(edges, own["id"], None, options)
            pool = Nodes(own, encoded.matrix, edge_index)
            graph = graph_of(pool, encoder, np.zeros(len(pool), dtype=bool))
            count = min(MAX_KINDS, max(1, len(pool) // NODES_PER_KIND))
            kind = k_means(Vectors.of(graph).summary(), count, n_init=2)
            pool = replace(pool, table=own.with_columns(kind=pl.Series(kind)))
            statistics, node = FeatureStatistics(graph), own["node"].to_numpy()
            names = {str(k): statistics.name(np.flatnonzero(kind == k)) for k in np.unique(kind)}
            first = Batch(0, len(pool), _fingerprint(node, pool.x), counts_of(kind), last_time=last_time)
            seen = np.stack([node, np.zeros_like(node)])
            state = State(settings, encoder.to_json(), names, pool, (first,), (), seen).thinned()
            with writing(final, "watch") as written:
                for name, content in files_of(state, page.render(state)).items():
                    written.write(name, content)
        return cls(final)

    def add(
        self,
        nodes: GivenTable,
        edges: GivenTable | None = None,
        *,
        drop_unknown: bool = False,
        encoding: str | None = None,
    ) -> Outcome:
        """Take in a batch and say what it comes to; the state on disk has grown by it when this returns.

        The same batch as the last one changes nothing, and has the outcome that it had.

        Args:
            nodes: table of the batch's nodes, with the columns of the known nodes.
            edges: table of their edges, to each other and to nodes of earlier batches.
            drop_unknown: drop edges to nodes that never came.
            encoding: of text files that are not UTF-8, as for `read_graph`.
        """
        with output_lock(self.folder), table_errors():
            state = self.state = read_state(self.folder)
            settings, last = state.settings, state.batches[-1]
            number = last.number + 1
            encoder = TableEncoder.from_json(state.encoding)
            options = ReadOptions(id=settings.id, drop_unknown=drop_unknown, encoding=encoding, impute=True)
            read = encode_nodes(nodes, options, encoder)
            frame = read.table.frame
            label = settings.label if settings.label in frame.columns else None
            own = _own_nodes(read.table, read.ids, number, label)
            node, features = own["node"].to_numpy(), _features(read, settings)
            fingerprint = _fingerprint(node, features)
            if fingerprint == last.fingerprint and last.number:
                if not (self.folder / PAGE).exists():
                    update(self.folder, {PAGE: page.render(state)}, "watch")
                group = next((g for g in state.groups if g.alarm == last.number), None)
                return Outcome(last, group, state.open_groups, again=True)
            self._refuse_seen(own)
            last_time = _last_time(frame, settings.time, last.last_time, read.table.origin)
            state = state.with_seen(node, number)
            known = pl.concat([state.nodes.table["id"], own["id"]])
            edge_index, lost = _read_edges(edges, known, state.seen[0], options)
            pool = state.nodes.joined(Nodes(own, features, edge_index))
            came = last.came + own.height
            batch = Batch(number, own.height, fingerprint, {}, came, last_time=last_time, lost_edges=lost)
            state, group = judge(state, pool, encoder, batch, _unseen_words(encoder, frame))
            state = state.thinned()
            update(self.folder, files_of(state, page.render(state)), "watch")
            self.state = state
            return Outcome(state.batches[-1], group, state.open_groups)

    def accept(self, group: int, name: str) -> Group:
        """Accept a group as a category, which is known from then on."""
        return self._decide(group, status="accepted", label=str(name))

    def reject(self, group: int) -> Group:
        """Reject a group: its nodes are of no new category, and such nodes raise no further alarm."""
        return self._decide(group, status="rejected", label=None)

    def _decide(self, number: int, **changes: Any) -> Group:
        with output_lock(self.folder):
            state = read_state(self.folder)
            changed = replace(state.group(number), **changes)
            state = state.with_group(changed)
            update(self.folder, files_of(state, page.render(state)), "watch")
            self.state = state
            return changed

    def _refuse_seen(self, own: pl.DataFrame) -> None:
        """Raise if nodes of a batch came before."""
        came, batches = self.state.seen
        found = np.isin(came, own["node"].to_numpy())
        if not found.any():
            return
        first = int(batches[found].min())
        again = own.filter(np.isin(own["node"].to_numpy(), came[found & (batches == first)]))["id"]
        which = f"batch {first}" if first else "the known nodes"
        raise WatchError(
            f"{len(again):,} of {own.height:,} ids came with {which} already "
            f"(first: {', '.join(map(repr, again[:3].to_list()))}); a batch holds new nodes alone, and one that was "
            "taken in cannot be corrected; nothing was changed"
        )


def _unseen_words(encoder: TableEncoder, frame: pl.DataFrame) -> dict[str, str]:
    """Return which words of a batch stand behind features that several words share."""
    texts = [column for column in encoder.columns if isinstance(column, TextEncoder)]
    return {name: word for column in texts for name, word in column.unseen_words(frame[column.name]).items()}


def _own_nodes(table: Table, names: pl.Series, batch: int, label: str | None) -> pl.DataFrame:
    """Return the table of a batch's nodes; raise if an id is there twice."""
    ids = names.cast(pl.String).alias("id")
    if ids.is_duplicated().any():
        repeated = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
        first = ", ".join(map(repr, repeated[:3].to_list()))
        raise WatchError(f"ids must be unique; {len(repeated):,} are repeated (first: {first})")
    return node_table(ids, batch, None if label is None else shown_values(table[label]))


def _read_edges(
    table: GivenTable | None, ids: pl.Series, seen: NDArray[np.int64] | None, options: ReadOptions
) -> tuple[NDArray[np.int64], int]:
    """Return edges as positions among the nodes that are kept, and how many lead to nodes that are not kept any more.

    Args:
        table: the table of edges.
        ids: of the nodes that are kept, those of the batch last.
        seen: hashes of the ids of all nodes that came; None where a watch begins.
        options: whether edges to nodes that never came are dropped instead of refused, and the encoding.
    """
    nothing = np.empty((2, 0), dtype=np.int64)
    if table is None:
        return nothing, 0
    opened, reader = open_edges(table, ids, ReadOptions(drop_unknown=True, encoding=options.encoding))
    frame = opened.frame
    if not frame.height:
        return nothing, 0
    edge_index, _ = reader.read(frame)
    if not reader.dropped:
        return each_once(edge_index), 0
    columns = {"0": reader.left, "1": reader.right}
    ends = pl.DataFrame({side: own_ids(opened, column).cast(pl.String) for side, column in columns.items()})
    gone = pl.concat([ends["0"], ends["1"]]).unique().sort()
    gone = gone.filter(~gone.is_in(ids.implode()))
    never = gone if seen is None else gone.filter(~np.isin(id_hashes(gone.to_list()), seen))
    if len(never) and not options.drop_unknown:
        first = ", ".join(map(repr, never[:3].to_list()))
        raise WatchError(
            f"the edges name {len(never):,} ids that never came (first: {first}); add those nodes or pass "
            "drop_unknown=True"
        )
    unknown = ends.filter(pl.col("0").is_in(never.implode()) | pl.col("1").is_in(never.implode())).height
    if unknown == frame.height and seen is None:  # of the known nodes; a batch may have few edges
        reader.refuse_no_edge(frame)
    return each_once(edge_index), reader.dropped - unknown


def _fingerprint(node: NDArray[np.int64], x: Any) -> int:
    """Return a number that tells nodes and their features apart, whatever their order is."""
    digest = hashlib.blake2b(np.sort(node).tobytes(), digest_size=8)
    rows = x[np.argsort(node)]
    for part in (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data) if sp.issparse(x) else (rows,):
        digest.update(part.tobytes())
    return int.from_bytes(digest.digest(), "little")


def _last_time(
    frame: pl.DataFrame, name: str | None, before: int | float | str | None, origin: Origin
) -> int | float | str | None:
    """Return the last time of a batch; raise if its first is before the last of the batch before."""
    if name is None:
        return None
    require_column(frame.columns, name, "nodes")
    column = frame[name]
    if (missing := is_missing(column)).any():
        raise WatchError(
            f"the time column {name!r} is empty in {missing.sum()} rows (first: {origin.first(missing)}); "
            "give every node a time"
        )
    is_number = column.dtype.is_numeric()
    if before is not None and isinstance(before, str) is is_number:
        held = "dates" if isinstance(before, str) else "numbers"
        raise WatchError(
            f"the time column {name!r} holds {column.dtype}; earlier batches held {held}, and so must this one"
        )
    first, last = _numbers(column, origin) if is_number else _dates(column)
    if before is not None and _is_before(first, before, name):
        raise WatchError(
            f"the batch begins at {first}, before the last node of the batch before ({before}); "
            "give batches in their order, nothing was changed"
        )
    return last


def _numbers(column: pl.Series, origin: Origin) -> tuple[Any, Any]:
    """Return the lowest and the highest of the times, which are numbers; raise if one cannot be compared."""
    wrong = ~(column.cast(pl.Float64).abs() <= MAX_TIME)
    if wrong.any():
        raise WatchError(
            f"the time column {column.name!r} must hold finite numbers of at most 2^64; got {column.filter(wrong)[0]} "
            f"in {origin.first(wrong)}; correct these times, nothing was changed"
        )
    ends = column.min(), column.max()
    return tuple(end if isinstance(end, int | float) else float(end) for end in ends)  # type: ignore[arg-type, return-value]


def _dates(column: pl.Series) -> list[str]:
    """Return the first and the last of the times, which are dates, as text."""
    is_text = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    texts = column.cast(pl.String) if is_text else column
    order = slash_order(texts, f"the time column {column.name!r}") if is_text else None
    ends = read_times(texts, order).ends()
    read_times(pl.Series(column.name, ends))  # what is stored must be readable with the next batch
    return ends


def _is_before(first: Any, last: Any, name: str) -> bool:
    """Return whether a batch begins before the one before it ended; dates are compared as instants."""
    if not isinstance(first, str):
        return bool(first < last)
    own, earlier = (read_times(pl.Series(name, [text])) for text in (first, last))
    if own.has_offset != earlier.has_offset:
        has, had = ("an offset", "none") if own.has_offset else ("no offset", "one")
        raise WatchError(
            f"the times of {name!r} have {has} from UTC ({first}), and those of the batch before had {had} ({last}); "
            "write them as those before"
        )
    return bool(own.ticks[0] < earlier.ticks[0])


def _features(read: EncodedNodes, settings: Settings) -> Any:
    """Return the features of a batch, in the encoding that was fixed when the watch began."""
    found = read.features
    if found.missing and not settings.impute:
        lacking = [
            f"values of {name!r} in {count:,} rows" if name in read.table.columns else f"column {name!r}"
            for name, count in found.missing.items()
        ]
        raise WatchError(
            f"the batch lacks {', '.join(lacking[:NAMED])}; add them to the table, or begin another watch with "
            "impute=True; nothing was changed"
        )
    return found.matrix
