"""What a watch remembers <-> a folder, whose files are replaced together.

`watch.json` holds the settings, the encoder, one entry per batch and the groups. `nodes.parquet` and
`nodes.safetensors` hold the nodes that are kept, their features and the edges among them; `seen.safetensors` the
hashes of the ids of all nodes that came. All of them have a size that is bounded, whatever the number of batches.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass as plain
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError
from safetensors.numpy import load, save

from recoslip.base.errors import WatchError
from recoslip.base.files import check_manifest, printable, put_right
from recoslip.base.json_files import read_json
from recoslip.data.ids import id_hashes
from recoslip.data.tables.files import file_errors
from recoslip.data.tables.node_columns import require_unique, shown_values
from recoslip.data.tables.table import Table
from recoslip.data.tables.table_encoder import EncoderState, TableEncoder, stack_rows

FORMAT, VERSION = "recoslip watch", 3
DOCUMENT, PAGE, TABLE, TENSORS, SEEN = (
    "watch.json", "report.html", "nodes.parquet", "nodes.safetensors", "seen.safetensors"
)  # fmt: skip
FILES = {DOCUMENT, PAGE, TABLE, TENSORS, SEEN}
MAX_BATCHES = 1000  # whose entries are remembered, the last ones
MAX_SEEN = 10_000_000  # nodes whose ids are remembered, the last ones

Verdict: TypeAlias = Literal["nothing", "grown", "new", "apart"]
Status: TypeAlias = Literal["open", "accepted", "rejected"]
Time: TypeAlias = int | float | str  # a date is text

GROUP = 1000  # kinds from this number on are groups: group g is kind GROUP + g


@dataclass(frozen=True)
class Settings:
    """What a watch was begun with."""

    id: str
    time: str | None
    label: str | None  # the column that names the nodes
    alpha: float  # probability of any false alarm, ever
    max_growth: float  # how many times as frequent as before a known category may become without an alarm
    window: int  # batches that are recent
    keep: int  # earlier nodes that are kept at most
    impute: bool | None  # whether missing values are filled, unless it is False; True: missing columns, too


@dataclass(frozen=True)
class Batch:
    """What became of a batch; number 0 are the known nodes."""

    number: int
    nodes: int
    fingerprint: int  # of its ids and features
    counts: dict[str, int]  # of its nodes by kind
    came: int = 0  # nodes of this batch and of those before it, without the known ones
    last_time: Time | None = None
    verdict: Verdict = "nothing"
    sentence: str = ""
    p_value: float = 1.0
    level: float = 1.0
    least_members: int | None = None
    lost_edges: int = 0  # edges to nodes that are no longer kept


@dataclass(frozen=True)
class Group:
    """A category that an alarm was raised for."""

    number: int
    alarm: int  # the batch that raised it
    since: int  # the first batch with a considerable part of it
    size: int  # nodes at the alarm
    growth: float  # known nodes would have had to become more than so many times as frequent
    name: str | None  # what it has more of than earlier nodes
    members: list[str]  # ids of its nodes at the alarm, some of them where they are many
    shown: list[str]  # what the first of them are called: their labels, or ids
    status: Status = "open"
    label: str | None = None  # the name that it was accepted under


@dataclass(frozen=True)
class Document:
    """What `watch.json` holds besides its format and version."""

    settings: Settings
    encoding: EncoderState
    kinds: dict[str, str | None]  # number of each kind of known nodes -> what it has more of than the others
    batches: tuple[Batch, ...]  # the known nodes, then the last batches
    groups: tuple[Group, ...]


@plain(frozen=True, eq=False)
class Nodes:
    """The nodes that are kept: the known ones, or a part of them, and recent batches."""

    table: pl.DataFrame  # as `node_table` makes it
    x: Any  # (nodes, features), dense or sparse
    edge_index: NDArray[np.int64]  # (2, edges), among them, each once

    def __len__(self) -> int:
        return self.table.height

    def joined(self, other: Nodes) -> Nodes:
        """Return these nodes and others, whose edges count positions among all of them."""
        table = pl.concat([self.table, other.table])
        edges = each_once(np.hstack([self.edge_index, other.edge_index]))
        return Nodes(table, stack_rows([self.x, other.x]), edges)

    def chosen(self, nodes: NDArray[np.bool_]) -> Nodes:
        """Return some of the nodes and the edges among them."""
        position = np.where(nodes, np.cumsum(nodes) - 1, -1)
        ends = position[self.edge_index]
        return Nodes(self.table.filter(nodes), self.x[np.flatnonzero(nodes)], ends[:, (ends >= 0).all(axis=0)])


@plain(frozen=True, eq=False)
class State(Document):
    """Everything that a watch remembers."""

    nodes: Nodes
    seen: NDArray[np.int64]  # (2, nodes) hashes of the ids of all nodes that came, their batches

    @property
    def open_groups(self) -> tuple[Group, ...]:
        """The groups that are neither accepted nor rejected yet."""
        return tuple(group for group in self.groups if group.status == "open")

    def group(self, number: int) -> Group:
        """Return a group by its number."""
        if 1 <= number <= len(self.groups):
            return self.groups[number - 1]
        known = ", ".join(str(group.number) for group in self.groups) or "none yet"
        raise WatchError(f"there is no group {number}; there are: {known}")

    def with_seen(self, node: NDArray[np.int64], batch: int) -> State:
        """Return the state with the ids of one more batch."""
        own = np.stack([node, np.full_like(node, batch)])
        return replace(self, seen=np.hstack([self.seen, own])[:, -MAX_SEEN:])

    def with_batches(self, batches: tuple[Batch, ...]) -> State:
        """Return the state with other entries of batches, the last of which are remembered."""
        return replace(self, batches=(batches[0], *batches[1:][-MAX_BATCHES:]))

    def thinned(self) -> State:
        """Keep all nodes that are recent for the next batch, and of the earlier ones so many as the settings allow.

        Those with the lowest hashes are kept, which are a random part, and the same part every time.
        """
        batch, nodes = self.nodes.table["batch"].to_numpy(), self.nodes.table["node"].to_numpy()
        last_earlier = self.batches[-1].number + 1 - self.settings.window
        earlier = np.flatnonzero((batch == 0) | (batch <= last_earlier))
        order = np.argsort(nodes[earlier].view(np.uint64), kind="stable")
        kept = np.ones(len(batch), dtype=bool)
        kept[earlier[order[self.settings.keep :]]] = False
        return self if kept.all() else replace(self, nodes=self.nodes.chosen(kept))


def files_of(state: State, page: str) -> dict[str, bytes | str]:
    """Return the files of a state by name."""
    text = TypeAdapter(Document).dump_json(state).decode()
    buffer = io.BytesIO()
    state.nodes.table.write_parquet(buffer)
    return {
        TABLE: buffer.getvalue(),
        TENSORS: save(_tensors(state.nodes)),
        SEEN: save({"seen": np.ascontiguousarray(state.seen)}),
        DOCUMENT: f'{{"format":"{FORMAT}","version":{VERSION},{text[1:]}\n',
        PAGE: page,
    }


def read_state(folder: Path) -> State:
    """Read a state; raise WatchError unless it is whole and of this version."""
    put_right(folder)
    if not os.path.lexists(folder / DOCUMENT):
        raise WatchError(
            f"{printable(folder)} holds no watch; begin one with the nodes that are known: "
            f"recoslip watch {printable(folder)} --begin --nodes known.csv --edges edges.csv"
        )
    try:
        document = read_json(folder / DOCUMENT)
        version = document.pop("version", None)
        if document.pop("format", None) == FORMAT and version == VERSION:
            return _state(folder, document)
    except (LookupError, TypeError, ValueError, OSError, SafetensorError, *file_errors()) as problem:  # type: ignore[misc]
        raise WatchError(f"{printable(folder)} is damaged: {problem}; restore it from a copy") from problem
    raise WatchError(
        f"{printable(folder)} has version {version!r} of a watch, this recoslip reads {VERSION}; "
        "use the recoslip that wrote it"
    )


def _state(folder: Path, document: dict[str, Any]) -> State:
    if {*check_manifest(folder, "watch", but=PAGE).files} != FILES:
        raise ValueError("it has other files than a watch")
    own = TypeAdapter(Document).validate_python(document)
    encoder = TableEncoder.from_json(own.encoding)
    table = pl.read_parquet((folder / TABLE).read_bytes())
    tensors = load((folder / TENSORS).read_bytes())
    x = tensors.get("x")
    if x is None:
        csr = tensors["x.value"], tensors["x.column"], tensors["x.start"]
        x = sp.csr_array(csr, shape=(table.height, len(encoder.feature_names)))
    nodes = Nodes(table, x, tensors["edge_index"])
    seen = load((folder / SEEN).read_bytes())["seen"]
    return State(**vars(own), nodes=nodes, seen=seen)


def _tensors(nodes: Nodes) -> dict[str, NDArray[Any]]:
    edges = {"edge_index": np.ascontiguousarray(nodes.edge_index)}
    if sp.issparse(nodes.x):
        csr = sp.csr_array(nodes.x)
        start, column = csr.indptr.astype(np.int64), csr.indices.astype(np.int64)
        return edges | {"x.value": csr.data.astype(np.float32), "x.column": column, "x.start": start}
    return edges | {"x": np.ascontiguousarray(nodes.x, dtype=np.float32)}


def each_once(edge_index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return edges without directions, repetitions and self-loops."""
    low, high = np.sort(edge_index[:, edge_index[0] != edge_index[1]], axis=0)
    nodes = int(high.max(initial=0)) + 1
    keys = np.unique(low * nodes + high)
    return np.stack([keys // nodes, keys % nodes])


def node_table(table: Table, ids: pl.Series, batch: int, label: str | None) -> pl.DataFrame:
    """Return the table of the nodes of a batch: what they are called, and hashes; their kinds are not known yet."""
    ids = ids.cast(pl.String).alias("id")
    require_unique(ids)
    shown = ids if label is None else shown_values(table[label]).cast(pl.String).fill_null(ids)
    whole = {"node": id_hashes(ids.to_list()), "batch": np.full(len(ids), batch), "kind": np.zeros(len(ids), int)}
    return pl.DataFrame({"id": ids, "shown": shown, **whole}, schema_overrides=dict.fromkeys(whole, pl.Int64))
