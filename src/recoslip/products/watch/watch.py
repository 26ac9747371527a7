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
from recoslip.base.text import counted, named
from recoslip.data.alignment import k_means
from recoslip.data.ids import id_hashes
from recoslip.data.options import ReadOptions, reads
from recoslip.data.tables.column_encoders import TextEncoder
from recoslip.data.tables.columns import is_missing, plan_columns, require_column
from recoslip.data.tables.node_columns import choose_label, own_ids
from recoslip.data.tables.read import NO_EDGES, GivenTable, encode_nodes, open_edges, open_nodes
from recoslip.data.tables.table import Table, table_errors
from recoslip.data.tables.table_encoder import TableEncoder, fit_encoder
from recoslip.data.tables.times import TEXTS, read_times, slash_order
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
    Time,
    each_once,
    files_of,
    node_table,
    read_state,
)

MIN_KNOWN = 100  # known nodes
NODES_PER_KIND, MAX_KINDS = 100, 12  # of the known nodes, which kinds divide
SPARE_WORDS = 1024  # features of a text column for words that the known nodes do not have
WAIT = 5.0  # seconds that a process that only reads waits for one that writes


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
            if any(contents(final)):
                raise WatchError(f"{printable(folder)} is not empty; begin a watch in a new folder")
            check_output(final, "watch")
            settings = Settings(options.id, time, None, alpha, max_growth, window, keep, options.impute)
            state = _first_state(nodes, edges, options, settings)
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
            table, ids, features = encode_nodes(nodes, options, encoder)
            refused = features.missing.items() if not settings.impute else ()
            lacking = [
                f"{name!r} in {counted(count, 'row')}"
                for name, count in refused
                if settings.impute is False or name not in table.columns
            ]
            if lacking:
                raise WatchError(
                    f"the batch lacks {named(lacking)}; add these values to the table, or begin another watch with "
                    "impute=True; nothing was changed"
                )
            label = settings.label if settings.label in table.columns else None
            own = node_table(table, ids, number, label)
            node = own["node"].to_numpy()
            fingerprint = _fingerprint(node, features.matrix)
            if fingerprint == last.fingerprint and last.number:
                if not (self.folder / PAGE).exists():
                    update(self.folder, {PAGE: page.render(state)}, "watch")
                group = next((g for g in state.groups if g.alarm == last.number), None)
                return Outcome(last, group, state.open_groups, again=True)
            self._refuse_seen(own)
            last_time = _last_time(table, settings.time, last.last_time)
            state = state.with_seen(node, number)
            known = pl.concat([state.nodes.table["id"], own["id"]])
            edge_index, lost = _read_edges(edges, known, state.seen[0], options)
            pool = state.nodes.joined(Nodes(own, features.matrix, edge_index))
            came = last.came + own.height
            batch = Batch(number, own.height, fingerprint, {}, came, last_time=last_time, lost_edges=lost)
            state, group = judge(state, pool, encoder, batch, _unseen_words(encoder, table.frame))
            self._keep(state.thinned())
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
            groups = (*state.groups[: number - 1], changed, *state.groups[number:])
            self._keep(replace(state, groups=groups))
            return changed

    def _keep(self, state: State) -> None:
        update(self.folder, files_of(state, page.render(state)), "watch")
        self.state = state

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
            f"{len(again):,} of {own.height:,} ids came with {which} already (first: {named([*map(repr, again)])}); a "
            "batch holds new nodes alone, and one that was taken in cannot be corrected; nothing was changed"
        )


def _unseen_words(encoder: TableEncoder, frame: pl.DataFrame) -> dict[str, str]:
    """Return which words of a batch stand behind features that several words share."""
    texts = [column for column in encoder.columns if isinstance(column, TextEncoder)]
    return {name: word for column in texts for name, word in column.unseen_words(frame[column.name]).items()}


def _first_state(nodes: GivenTable, edges: GivenTable | None, options: ReadOptions, settings: Settings) -> State:
    """Return the state of a watch that begins; the label is chosen here."""
    table = open_nodes(nodes, options)
    reserved = {options.id, settings.time} - {None}
    columns = plan_columns(table, reserved, options)
    label = choose_label(table, reserved, options.label)
    own = node_table(table, own_ids(table, options.id), 0, label)
    if own.height < MIN_KNOWN:
        raise WatchError(f"a watch needs {MIN_KNOWN} known nodes at least; got {own.height}; give more of them")
    last_time = _last_time(table, settings.time, None)
    encoder, encoded = fit_encoder(
        table.frame,
        columns,
        impute=options.impute,
        weights=options.block_weights,
        spare_words=SPARE_WORDS,
        origin=table.origin,
    )
    edge_index, _ = _read_edges(edges, own["id"], None, options)
    pool = Nodes(own, encoded.matrix, each_once(edge_index))
    graph = graph_of(pool, encoder, np.zeros(len(pool), dtype=bool))
    count = min(MAX_KINDS, max(1, len(pool) // NODES_PER_KIND))
    kind = k_means(Vectors.of(graph).summary(), count, n_init=2)
    pool = replace(pool, table=own.with_columns(kind=pl.Series(kind)))
    statistics, node = FeatureStatistics(graph), own["node"].to_numpy()
    names = {str(k): statistics.name(np.flatnonzero(kind == k)) for k in np.unique(kind)}
    first = Batch(0, len(pool), _fingerprint(node, pool.x), counts_of(kind), last_time=last_time)
    seen = np.stack([node, np.zeros_like(node)])
    return State(replace(settings, label=label), encoder.to_json(), names, (first,), (), pool, seen).thinned()


def _read_edges(
    given: GivenTable | None, ids: pl.Series, seen: NDArray[np.int64] | None, options: ReadOptions
) -> tuple[NDArray[np.int64], int]:
    """Return edges as positions among the nodes that are kept, and how many lead to nodes that are not kept any more.

    Args:
        given: the table of edges.
        ids: of the nodes that are kept, those of the batch last.
        seen: hashes of the ids of all nodes that came; None where a watch begins.
        options: whether edges to nodes that never came are dropped instead of refused, and the encoding.
    """
    if given is None:
        return NO_EDGES, 0
    table, reader = open_edges(given, ids, ReadOptions(drop_unknown=True, encoding=options.encoding))
    edge_index, _ = reader.read(table.frame)
    if not reader.dropped:
        return edge_index, 0
    left, right = (own_ids(table, column).cast(pl.String) for column in (reader.left, reader.right))
    never = pl.concat([left, right]).unique().sort()
    never = never.filter(~never.is_in(ids.implode()))
    if seen is not None:
        never = never.filter(~np.isin(id_hashes(never.to_list()), seen))
    if len(never) and not options.drop_unknown:
        raise WatchError(
            f"the edges name {len(never):,} ids that never came (first: {named([*map(repr, never)])}); add those nodes "
            "or pass drop_unknown=True"
        )
    unknown = int((left.is_in(never.implode()) | right.is_in(never.implode())).sum())
    if unknown == table.height and seen is None:  # of the known nodes; a batch may have few edges
        reader.refuse_no_edge(table.frame)
    return edge_index, reader.dropped - unknown


def _fingerprint(node: NDArray[np.int64], x: Any) -> int:
    """Return a number that tells nodes and their features apart, whatever their order is."""
    digest = hashlib.blake2b(np.sort(node).tobytes(), digest_size=8)
    rows = x[np.argsort(node)]
    for part in (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data) if sp.issparse(x) else (rows,):
        digest.update(part.tobytes())
    return int.from_bytes(digest.digest(), "little")


def _last_time(table: Table, name: str | None, before: Time | None) -> Time | None:
    """Return the last time of a batch; raise if its first is before the last of the batch before."""
    if name is None:
        return None
    require_column(table.columns, name, "nodes")
    column, is_number = table[name], table[name].dtype.is_numeric()
    if is_number and not column.dtype.is_integer():
        column = column.cast(pl.Float64)
    wrong = ~column.is_finite().fill_null(False) if is_number else is_missing(column)
    if wrong.any():
        raise WatchError(
            f"the time column {name!r} must hold a date or a finite number for every node; got "
            f"{column.filter(wrong)[0]} ({table.origin.first(wrong)}) in {counted(int(wrong.sum()), 'row')}; correct "
            "these times, nothing was changed"
        )
    if before is not None and isinstance(before, str) is is_number:
        raise WatchError(
            f"the time column {name!r} holds {column.dtype}; earlier batches held "
            f"{'dates' if is_number else 'numbers'}, and so must this one"
        )
    is_text = column.dtype in TEXTS
    order = slash_order(column.cast(pl.String).alias(""), f"the time column {name!r}") if is_text else None
    ends: list[Any] = [column.min(), column.max()] if is_number else read_times(column, order).ends()
    compared = ends if before is None else [before, *ends]
    ticks = compared if is_number else read_times(pl.Series(name, compared)).ticks  # as the next batch's will be
    if ticks[0] > ticks[1]:
        raise WatchError(
            f"the batch begins at {ends[0]}, before the last node of the batch before ({before}); "
            "give batches in their order, nothing was changed"
        )
    last: Time = ends[1]
    return last
