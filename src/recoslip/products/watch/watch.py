"""A known world, then batches of nodes -> after each batch: nothing new, a known kind grows, or a new category."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import TableError, WatchError
from recoslip.base.files import check_output, contents, output_lock, printable, put_right, resolve, update, writing
from recoslip.base.settings import Integer, Number
from recoslip.base.text import NAMED, at_least, counted, percent, times
from recoslip.data.alignment import k_means
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import id_hashes
from recoslip.data.options import ReadOptions, reads
from recoslip.data.split import Mask
from recoslip.data.tables.column_encoders import TextEncoder
from recoslip.data.tables.columns import is_missing, plan_columns, require_column
from recoslip.data.tables.node_columns import own_ids
from recoslip.data.tables.read import EncodedNodes, GivenTable, encode_nodes, open_edges, open_nodes
from recoslip.data.tables.table import Origin, table_errors
from recoslip.data.tables.table_encoder import TableEncoder, fit_encoder
from recoslip.data.tables.times import read_times, slash_order
from recoslip.inference.diagnosis import least_growth
from recoslip.inference.separability import measure_mixing
from recoslip.inference.traits import FeatureStatistics
from recoslip.products.watch.appearance import Appearance, appearance, blind_cells, level, views
from recoslip.products.watch.page import open_groups, open_sentence, render
from recoslip.products.watch.state import (
    GROUP,
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

MIN_KNOWN = 100  # nodes of the known world
NODES_PER_KIND, MAX_KINDS = 100, 12  # of the known world, which kinds divide
VOTERS = 10  # nearest nodes that say of which kind a new node is
MAX_VOTERS = 20_000  # nodes that new ones are compared with
BLOCK = 2048  # new nodes compared at a time
MIN_GROWTH = 2.0  # lower confidence bound from which on a kind is said to grow
CONFIDENCE = 0.95  # that none of the kinds that are said to grow is said so by chance
SINCE = 0.25  # of the highest share in a batch: the first batch with so much of a group is its beginning
FARTHEST = 0.02  # of a group's members: a node that is farther from all of them is none of it
SPARE_WORDS = 1024  # features of a text column for words that the known world does not have
MAX_MEMBERS = 1000  # ids of a group that are remembered
WAIT = 5.0  # seconds that a process that only reads waits for one that writes
MAX_TIME = 2.0**64  # of a time that is a number
NAMED_MEMBERS = 10  # that a sentence names


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
        return " ".join(filter(None, (self.batch.sentence, open_sentence(self.open_groups, self.batch))))

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
    @reads("id", "features", "ignore", "text", "block_weights", "impute", "drop_unknown", "encoding")
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
            columns = plan_columns(table, {options.id, time} - {None}, options)
            ids = _ids(own_ids(table, options.id))
            if len(ids) < MIN_KNOWN:
                raise WatchError(f"a watch needs {MIN_KNOWN} known nodes at least; got {len(ids)}; give more of them")
            last_time = _last_time(frame, time, None, origin)
            encoder, encoded = fit_encoder(
                frame,
                columns,
                impute=options.impute,
                weights=options.block_weights,
                spare_words=SPARE_WORDS,
                origin=origin,
            )
            settings = Settings(options.id, time, alpha, max_growth, window, keep, options.impute)
            pool = Nodes(node_table(ids, 0), encoded.matrix, np.empty((2, 0), dtype=np.int64))
            edge_index, _ = _read_edges(edges, ids, (), options.drop_unknown, options.encoding)
            pool = replace(pool, edge_index=edge_index)
            graph = _graph(pool, encoder, np.zeros(len(pool), dtype=bool))
            kind = k_means(views(graph)[1], min(MAX_KINDS, max(1, len(pool) // NODES_PER_KIND)), n_init=2)
            pool = replace(pool, table=pool.table.with_columns(kind=pl.Series(kind)))
            statistics = FeatureStatistics(graph)
            names = {str(k): statistics.name(np.flatnonzero(kind == k)) for k in np.unique(kind)}
            node = pool.table["node"].to_numpy()
            first = Batch(0, len(ids), _fingerprint(node, pool.x), _counts(kind), last_time)
            state = State(settings, encoder.to_json(), names, _thinned(pool, 0, settings), (first,), (), (node,))
            with writing(final, "watch") as written:
                for name, content in files_of(state, render(state)).items():
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
            settings, number = state.settings, len(state.batches)
            encoder = TableEncoder.from_json(state.encoding)
            options = ReadOptions(id=settings.id, encoding=encoding, impute=True)
            read = encode_nodes(nodes, options, encoder)
            frame, ids = read.table.frame, _ids(read.ids)
            own = node_table(ids, number)
            node = own["node"].to_numpy()
            features = _features(read, settings)
            fingerprint = _fingerprint(node, features)
            if fingerprint == state.batches[-1].fingerprint and number > 1:
                last = state.batches[-1]
                if not (self.folder / PAGE).exists():
                    update(self.folder, {PAGE: render(state)}, "watch")
                group = next((g for g in state.groups if g.alarm == last.number), None)
                return Outcome(last, group, open_groups(state), again=True)
            self._refuse_seen(ids, node)
            last_time = _last_time(frame, settings.time, state.batches[-1].last_time, read.table.origin)
            known_ids = pl.concat([state.nodes.table["id"], ids])
            edge_index, lost = _read_edges(edges, known_ids, (*state.seen, node), drop_unknown, encoding)
            pool = state.nodes.joined(Nodes(own, features, edge_index))
            batch = Batch(number, len(ids), fingerprint, {}, last_time, lost_edges=lost)
            unseen = _unseen_words(encoder, frame)
            state, outcome = _judge(replace(state, seen=(*state.seen, node)), pool, encoder, batch, unseen)
            update(self.folder, files_of(state, render(state)), "watch")
            self.state = state
            return outcome

    def accept(self, group: int, name: str) -> Group:
        """Accept a group as a category, which belongs to the known world from then on."""
        return self._decide(group, status="accepted", label=str(name))

    def reject(self, group: int) -> Group:
        """Reject a group: its nodes are of no new category, and such nodes raise no further alarm."""
        return self._decide(group, status="rejected", label=None)

    def _decide(self, number: int, **changes: Any) -> Group:
        with output_lock(self.folder):
            state = read_state(self.folder)
            changed = replace(state.group(number), **changes)
            state = state.with_group(changed)
            update(self.folder, files_of(state, render(state)), "watch")
            self.state = state
            return changed

    def _refuse_seen(self, ids: pl.Series, node: NDArray[np.int64]) -> None:
        """Raise if nodes of a batch came before."""
        for batch, seen in zip(self.state.batches, self.state.seen, strict=True):
            again = np.isin(node, seen)
            if again.any():
                which = "the known world" if batch.number == 0 else f"batch {batch.number}"
                first = ", ".join(map(repr, ids.filter(again)[:3].to_list()))
                raise WatchError(
                    f"{int(again.sum()):,} of {len(ids):,} ids came with {which} already (first: {first}); "
                    "a batch holds new nodes alone, and one that was taken in cannot be corrected; nothing was changed"
                )


def _unseen_words(encoder: TableEncoder, frame: pl.DataFrame) -> dict[str, str]:
    """Return which words of a batch stand behind features that several words share."""
    texts = [column for column in encoder.columns if isinstance(column, TextEncoder)]
    return {name: word for column in texts for name, word in column.unseen_words(frame[column.name]).items()}


def _judge(
    state: State, pool: Nodes, encoder: TableEncoder, batch: Batch, unseen: Mapping[str, str]
) -> tuple[State, Outcome]:
    """Decide what a batch comes to, and return the state with it.

    Args:
        state: before the batch.
        pool: the nodes that are kept and those of the batch.
        encoder: of the known world.
        batch: what is known of it so far.
        unseen: words of the batch, by the features that words share which the known world does not have.
    """
    settings, own = state.settings, pool.table["batch"].to_numpy() == batch.number
    blind = _graph(pool, encoder, own)
    vectors = views(blind)
    kind = pool.table["kind"].to_numpy().copy()
    kind[own] = _voted(vectors[1], kind, own)
    batches = pool.table["batch"].to_numpy()
    is_recent = (batches > max(0, batch.number - settings.window)) & (kind < GROUP)
    cells = [cell for view in vectors for cell in blind_cells(view)]
    at_level = level(batch.number, settings.alpha)
    found = appearance(cells, is_recent, max_growth=settings.max_growth, at_level=at_level)
    batch = replace(batch, p_value=found.p_value, level=at_level, least_members=found.least_members)
    group = None
    groups = state.groups
    if found.p_value <= at_level:
        graph = blind.with_target(is_recent)
        if _is_apart(graph, batches, is_recent, found.members):
            batch = replace(batch, verdict="apart", sentence=_apart_sentence(min(batch.number, settings.window)))
        else:
            group = _new_group(state, batch, pool, graph, found)
            names = [unseen.get(each, each) for each in (group.name or "").split(", ")]
            group = replace(group, name=", ".join(names) or None)
            groups = (*groups, group)
            kind[found.members] = GROUP + group.number
            batch = replace(batch, verdict="new", sentence=_new_sentence(group, settings, batch))
    pool = replace(pool, table=pool.table.with_columns(kind=pl.Series(kind)))
    batch = replace(batch, counts=_counts(kind[own]))
    history = tuple(_recounted(each, batches, kind) for each in state.batches) if group else state.batches
    state = replace(state, batches=(*history, batch), groups=groups)
    if batch.verdict == "nothing":
        grown, quiet = _grown_sentence(state), _quiet_sentence(settings, batch, int(is_recent.sum()))
        batch = replace(batch, verdict="grown" if grown else "nothing", sentence=f"{grown} {quiet}".lstrip())
        state = replace(state, batches=(*history, batch))
    return replace(state, nodes=_thinned(pool, batch.number, settings)), Outcome(batch, group, open_groups(state))


def _is_apart(graph: NodeGraph, batches: NDArray[np.int64], is_recent: Mask, members: NDArray[np.int64]) -> bool:
    """Return whether the batches that a new category seems to be in are separable from all earlier nodes."""
    compared = ~is_recent | np.isin(batches, np.unique(batches[members]))
    return measure_mixing(graph.subgraph(np.flatnonzero(compared))).situation == "apart"


def _voted(x: NDArray[np.float32], kind: NDArray[np.int64], own: Mask) -> NDArray[np.int64]:
    """Return the kind that most of the nearest earlier nodes are of, for each new node."""
    voters = np.flatnonzero(~own)
    voters = voters[:: -(-len(voters) // MAX_VOTERS)]
    kinds, code = np.unique(kind[voters], return_inverse=True)
    rows, votes = np.flatnonzero(own), min(VOTERS, len(voters))
    result = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), BLOCK):
        chosen = rows[start : start + BLOCK]
        nearest = np.argpartition(-(x[chosen] @ x[voters].T), votes - 1, axis=1)[:, :votes]
        counts = np.apply_along_axis(np.bincount, 1, code[nearest], minlength=len(kinds))
        result[start : start + BLOCK] = kinds[counts.argmax(axis=1)]
    for group in np.unique(result[result >= GROUP]):
        members, joins = np.flatnonzero(kind == group), np.flatnonzero(result == group)
        far = joins[~_near(x, rows[joins], members[:MAX_MEMBERS])]
        if len(far):  # like no member, whatever else is near
            known = (kind < GROUP) & ~own
            chosen = np.zeros_like(own)
            chosen[rows[far]] = True
            result[far] = _voted(x[known | chosen], kind[known | chosen], chosen[known | chosen])
    return result


def _near(x: NDArray[np.float32], nodes: NDArray[np.int64], members: NDArray[np.int64]) -> Mask:
    """Return which nodes are as near to a member of a group as nearly all of its members are to another."""
    among = x[members] @ x[members].T
    np.fill_diagonal(among, -np.inf)
    least = np.quantile(among.max(axis=1), FARTHEST) if len(members) > 1 else -np.inf
    return np.asarray((x[nodes] @ x[members].T).max(axis=1) >= least)


def _new_group(state: State, batch: Batch, pool: Nodes, graph: NodeGraph, found: Appearance) -> Group:
    members = pool.table[found.members]
    per_batch = Counter(members["batch"].to_list())
    sizes = {each.number: each.nodes for each in (*state.batches, batch)}
    share = {number: count / sizes[number] for number, count in per_batch.items()}
    since = min(number for number, value in share.items() if value >= SINCE * max(share.values()))
    return Group(
        number=len(state.groups) + 1,
        alarm=batch.number,
        since=since,
        size=len(found.members),
        growth=found.growth,
        name=FeatureStatistics(graph).name(found.members),
        members=members["id"][:MAX_MEMBERS].to_list(),
    )


def _recounted(batch: Batch, batches: NDArray[np.int64], kind: NDArray[np.int64]) -> Batch:
    """Return a recent batch with its nodes counted by kind anew; one that is not kept whole stays as it is."""
    inside = batches == batch.number
    return replace(batch, counts=_counts(kind[inside])) if int(inside.sum()) == batch.nodes else batch


def _recent(state: State) -> tuple[Batch, ...]:
    return state.batches[1:][-state.settings.window :]


def _grown_sentence(state: State) -> str:
    """Say which kinds of the known world became more frequent, if any did."""
    first, recent = state.batches[0], _recent(state)
    counts = sum((Counter(batch.counts) for batch in recent), Counter())
    nodes = sum(batch.nodes for batch in recent)
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(state.kinds))
    found = []
    for kind, name in state.kinds.items():
        bound = least_growth(first.counts.get(kind, 0), counts.get(kind, 0), first.nodes, nodes, confidence)
        if bound >= MIN_GROWTH:
            like = f"like {name!r}" if name else f"like those of kind {kind}"
            found.append((bound, f"nodes {like} are at least {at_least(bound)} times as frequent"))
    if not found:
        return ""
    listed = "; ".join(sentence for _, sentence in sorted(found, reverse=True)[:3])
    return f"What is known grows: in {_batches(len(recent))} {listed} as in the known world."


def _quiet_sentence(settings: Settings, batch: Batch, recent: int) -> str:
    quiet = (
        "Nothing new: known categories that became up to "
        f"{times(settings.max_growth)} times as frequent explain where the nodes of the last batches lie."
    )
    if batch.least_members is None or batch.least_members > recent:
        return f"{quiet} With so few earlier and recent nodes, no new category can raise an alarm yet, however large."
    return (
        f"{quiet} To raise an alarm, a new category must hold at least {batch.least_members:,} of the {recent:,} "
        f"recent nodes ({percent(batch.least_members / recent)})."
    )


def _new_sentence(group: Group, settings: Settings, batch: Batch) -> str:
    name = f", {group.name!r}" if group.name else ""
    members = ", ".join(group.members[:NAMED_MEMBERS])
    return (
        f"A new category has appeared: group {group.number}, {counted(group.size, 'node')} of "
        f"{_batches(min(batch.number, settings.window))}{name}, since batch {group.since}. If they were known, such "
        f"nodes would have become more than {at_least(group.growth)} times as frequent; the alarm allows for "
        f"{times(settings.max_growth)}. Look at these first: {members}."
    )


def _apart_sentence(batches: int) -> str:
    return (
        f"Inconclusive: nodes of {_batches(batches)} differ from earlier ones in almost every feature, so known nodes "
        "look new; they may have been measured in another way. Compare the columns of the batch with those of the "
        "known nodes, correct what differs, or begin a new watch."
    )


def _batches(count: int) -> str:
    return "the last batch" if count == 1 else f"the last {count} batches"


def _graph(pool: Nodes, encoder: TableEncoder, is_target: Mask) -> NodeGraph:
    both_ways = np.hstack([pool.edge_index, pool.edge_index[::-1]])
    names, encoding = encoder.feature_names, encoder.to_json()
    return NodeGraph(pool.x, both_ways, is_target, feature_names=names, encoding=encoding, one_domain=True)


def _thinned(pool: Nodes, number: int, settings: Settings) -> Nodes:
    """Keep all nodes that are recent for the next batch, and of the earlier ones so many as the settings allow.

    Those with the lowest hashes are kept, which are a random part, and the same part every time.
    """
    batch = pool.table["batch"].to_numpy()
    earlier = np.flatnonzero((batch == 0) | (batch <= number + 1 - settings.window))
    if len(earlier) <= settings.keep:
        return pool
    order = np.argsort(pool.table["node"].to_numpy()[earlier].view(np.uint64), kind="stable")
    kept = np.ones(len(pool), dtype=bool)
    kept[earlier[order[settings.keep :]]] = False
    return pool.chosen(kept)


def _ids(names: pl.Series) -> pl.Series:
    ids = names.cast(pl.String).alias("id")
    if ids.is_duplicated().any():
        repeated = ids.filter(ids.is_duplicated()).unique(maintain_order=True)
        first = ", ".join(map(repr, repeated[:3].to_list()))
        raise WatchError(f"ids must be unique; {len(repeated):,} are repeated (first: {first})")
    return ids


def _read_edges(
    table: GivenTable | None,
    ids: pl.Series,
    seen: Sequence[NDArray[np.int64]],
    drop_unknown: bool,
    encoding: str | None,
) -> tuple[NDArray[np.int64], int]:
    """Return edges as positions among the nodes that are kept, and how many lead to nodes that are not kept any more.

    Args:
        table: the table of edges.
        ids: of the nodes that are kept, those of the batch last.
        seen: hashes of the ids of all nodes that came.
        drop_unknown: whether edges to nodes that never came are dropped instead of refused.
        encoding: of a text file that is not UTF-8.
    """
    if table is None:
        return np.empty((2, 0), dtype=np.int64), 0
    opened, reader = open_edges(table, ids, ReadOptions(drop_unknown=True, encoding=encoding))
    frame = opened.frame
    if not frame.height:
        return np.empty((2, 0), dtype=np.int64), 0
    edge_index, _ = reader.read(frame)
    if not reader.dropped:
        return _each_once(edge_index), 0
    columns = {"0": reader.left, "1": reader.right}
    ends = pl.DataFrame({side: own_ids(opened, column).cast(pl.String) for side, column in columns.items()})
    gone = pl.concat([ends["0"], ends["1"]]).unique().sort()
    gone = gone.filter(~gone.is_in(ids.implode()))
    never = gone.filter(~np.isin(id_hashes(gone.to_list()), np.concatenate([np.empty(0, dtype=np.int64), *seen])))
    if len(never) and not drop_unknown:
        first = ", ".join(map(repr, never[:3].to_list()))
        raise WatchError(
            f"the edges name {len(never):,} ids that never came (first: {first}); add those nodes or pass "
            "drop_unknown=True"
        )
    unknown = ends.filter(pl.col("0").is_in(never.implode()) | pl.col("1").is_in(never.implode())).height
    if unknown == frame.height and not seen:  # of the known world; a batch may have few edges
        reader.refuse_no_edge(frame)
    return _each_once(edge_index), reader.dropped - unknown


def _each_once(edge_index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return edges without directions, repetitions and self-loops."""
    ends = np.sort(edge_index[:, edge_index[0] != edge_index[1]], axis=0)
    return each_once(ends)


def _counts(kind: NDArray[np.int64]) -> dict[str, int]:
    values, counts = np.unique(kind, return_counts=True)
    return {str(value): int(count) for value, count in zip(values, counts, strict=True)}


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
    try:
        own, earlier = (read_times(pl.Series(name, [text])) for text in (first, last))
    except TableError as problem:  # an earlier version stored any text
        raise WatchError(
            f"the times {first!r} of this batch and {last!r} of the batch before cannot be compared: {problem}; give "
            "dates of the years 1 to 9999, or begin a new watch"
        ) from problem
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
