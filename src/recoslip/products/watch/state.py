"""What a watch remembers <-> a folder, whose files are replaced together.

`watch.json` holds the settings, the encoder, one entry per batch and the groups. `nodes.parquet` and
`nodes.safetensors` hold the nodes that are kept, their features and the edges among them; `seen-N.safetensors` the
hashes of the ids of batch N.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from recoslip.base.errors import WatchError
from recoslip.base.files import Manifest, ManifestError, check_manifest, printable, put_right
from recoslip.base.json_files import JsonFileError, read_json
from recoslip.data.ids import id_hashes
from recoslip.data.tables.files import file_errors
from recoslip.data.tables.table_encoder import EncoderState, TableEncoder, stack_rows

FORMAT, VERSION = "recoslip watch", 2
DOCUMENT, PAGE, TABLE, TENSORS = "watch.json", "report.html", "nodes.parquet", "nodes.safetensors"

Verdict: TypeAlias = Literal["nothing", "grown", "new", "apart"]
Status: TypeAlias = Literal["open", "accepted", "rejected"]

GROUP = 1000  # kinds from this number on are groups: group g is kind GROUP + g

NODE_COLUMNS = {"id": pl.String, "node": pl.Int64, "batch": pl.Int64, "kind": pl.Int64}


@dataclass(frozen=True)
class Settings:
    """What a watch was begun with."""

    id: str
    time: str | None
    alpha: float  # probability of any false alarm, ever
    max_growth: float  # how many times as frequent as before a known category may become without an alarm
    window: int  # batches that are recent
    keep: int  # earlier nodes that are kept at most
    impute: bool


@dataclass(frozen=True)
class Batch:
    """What became of a batch; number 0 is the known world."""

    number: int
    nodes: int
    fingerprint: int  # of its ids
    counts: dict[str, int]  # of its nodes by kind
    last_time: int | float | str | None = None
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
    alarm: int  # the batch with which it rang
    since: int  # the first batch with a considerable part of it
    size: int  # nodes at the alarm
    growth: float  # known nodes would have had to become more than so many times as frequent
    name: str | None  # what it has more of than earlier nodes
    members: list[str]  # ids of its nodes at the alarm, some of them where they are many
    status: Status = "open"
    label: str | None = None  # the name that it was accepted under


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes that are kept: the known world, or a part of it, and recent batches."""

    table: pl.DataFrame  # id, hash of the id, batch, kind
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


@dataclass(frozen=True, eq=False)
class State:
    """Everything that a watch remembers."""

    settings: Settings
    encoding: EncoderState
    kinds: dict[str, str | None]  # number of each kind of the known world -> what it has more of than the others
    nodes: Nodes = field(repr=False)
    batches: tuple[Batch, ...] = ()
    groups: tuple[Group, ...] = ()
    seen: tuple[NDArray[np.int64], ...] = field(default=(), repr=False)  # hashes of the ids of each batch

    def group(self, number: int) -> Group:
        """Return a group by its number."""
        for group in self.groups:
            if group.number == number:
                return group
        known = ", ".join(str(group.number) for group in self.groups) or "none yet"
        raise WatchError(f"there is no group {number}; there are: {known}")

    def with_group(self, changed: Group) -> State:
        """Return the state with one group changed."""
        return replace(self, groups=tuple(changed if g.number == changed.number else g for g in self.groups))


def files_of(state: State, page: str) -> dict[str, bytes | str]:
    """Return the files of a state by name; those of earlier batches, which stay as they are, are left out."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "settings": asdict(state.settings),
        "encoding": state.encoding,
        "kinds": state.kinds,
        "batches": [asdict(batch) for batch in state.batches],
        "groups": [asdict(group) for group in state.groups],
    }
    return {
        TABLE: _parquet(state.nodes.table),
        TENSORS: save(_tensors(state.nodes)),
        _seen(len(state.seen) - 1): save({"node": state.seen[-1]}),
        DOCUMENT: json.dumps(document) + "\n",
        PAGE: page,
    }


def _seen(batch: int) -> str:
    return f"seen-{batch:06d}.safetensors"


def read_state(folder: Path) -> State:
    """Read a state; raise WatchError unless it is whole and of this version."""
    put_right(folder)
    try:
        document = read_json(folder / DOCUMENT)
    except FileNotFoundError as problem:
        raise WatchError(
            f"{printable(folder)} holds no watch; begin one with the nodes that are known: "
            f"recoslip watch {printable(folder)} --begin --nodes known.csv --edges edges.csv"
        ) from problem
    except JsonFileError as problem:
        raise WatchError(f"{printable(folder)}/{DOCUMENT} is damaged: {problem}; restore it from a copy") from problem
    if document.get("format") != FORMAT:
        raise WatchError(f"{printable(folder)}/{DOCUMENT} is not a watch of recoslip's; give another folder")
    if document.get("version") != VERSION:
        raise WatchError(
            f"{printable(folder)} has version {document.get('version')!r} of a watch, this recoslip reads {VERSION}; "
            "use the recoslip that wrote it"
        )
    try:
        return _state(folder, check_manifest(folder, "watch", but=PAGE), document)
    except ManifestError as problem:
        raise WatchError(f"{printable(folder)} is damaged: {problem}; restore the folder from a copy") from problem
    except _content_errors() as problem:
        raise WatchError(
            f"{printable(folder)} is damaged: its files do not fit together ({type(problem).__name__}: {problem}); "
            "restore it from a copy"
        ) from problem


def _content_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of files that do not fit together although their checksums are right."""
    return (LookupError, TypeError, ValueError, AttributeError, SafetensorError, *file_errors())


def _state(folder: Path, manifest: Manifest, document: dict[str, Any]) -> State:
    encoder = TableEncoder.from_json(document["encoding"])
    of_batches = [_seen(k) for k in range(len(document["batches"]))]
    if {*manifest.files} != {DOCUMENT, PAGE, TABLE, TENSORS, *of_batches}:
        raise ValueError("it has other files than those of its batches")
    table = pl.read_parquet((folder / TABLE).read_bytes())
    tensors = load((folder / TENSORS).read_bytes())
    seen = [load((folder / name).read_bytes()) for name in of_batches]
    nodes = _nodes(table, tensors, len(encoder.feature_names))
    return State(
        settings=Settings(**document["settings"]),
        encoding=document["encoding"],
        kinds=document["kinds"],
        nodes=nodes,
        batches=tuple(Batch(**batch) for batch in document["batches"]),
        groups=tuple(Group(**group) for group in document["groups"]),
        seen=tuple(each["node"] for each in seen),
    )


def _nodes(table: pl.DataFrame, tensors: dict[str, NDArray[Any]], features: int) -> Nodes:
    if "x" in tensors:
        return Nodes(table, tensors["x"], tensors["edge_index"])
    csr = tensors["x.value"], tensors["x.column"], tensors["x.start"]
    return Nodes(table, sp.csr_array(csr, shape=(table.height, features)), tensors["edge_index"])


def _tensors(nodes: Nodes) -> dict[str, NDArray[Any]]:
    edges = {"edge_index": np.ascontiguousarray(nodes.edge_index)}
    if sp.issparse(nodes.x):
        csr = sp.csr_array(nodes.x)
        start, column = csr.indptr.astype(np.int64), csr.indices.astype(np.int64)
        return edges | {"x.value": csr.data.astype(np.float32), "x.column": column, "x.start": start}
    return edges | {"x": np.ascontiguousarray(nodes.x, dtype=np.float32)}


def _parquet(table: pl.DataFrame) -> bytes:
    import io

    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def each_once(edge_index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return edges without repetitions; both ends of each are in ascending order."""
    if not edge_index.size:
        return edge_index
    nodes = int(edge_index.max()) + 1
    keys = np.unique(edge_index[0] * nodes + edge_index[1])
    return np.stack([keys // nodes, keys % nodes])


def node_table(ids: pl.Series, batch: int) -> pl.DataFrame:
    """Return the table of the nodes of a batch, their kinds not known yet."""
    count = len(ids)
    columns = {"node": id_hashes(ids.to_list()), "batch": np.full(count, batch), "kind": np.zeros(count, dtype=int)}
    return pl.DataFrame({"id": ids.cast(pl.String), **columns}, schema=NODE_COLUMNS)
