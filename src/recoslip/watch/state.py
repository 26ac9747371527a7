"""What a watch remembers <-> a folder, whose files are replaced together.

`watch.json` holds the settings, the encoder, one entry per batch and the groups. `nodes.parquet` and
`nodes.safetensors` hold the nodes that are kept, their features and the edges among them; `seen-N.safetensors` the
hashes of the ids of batch N.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from recoslip.errors import WatchError
from recoslip.graph.ids import id_hashes
from recoslip.json_files import JsonFileError, read_json
from recoslip.storage import Manifest, ManifestError, check_manifest, printable, put_right
from recoslip.tables.table import file_errors
from recoslip.tables.table_encoder import EncoderState, TableEncoder, stack_rows

FORMAT, VERSION = "recoslip watch", 2
DOCUMENT, PAGE, TABLE, TENSORS = "watch.json", "report.html", "nodes.parquet", "nodes.safetensors"

Verdict: TypeAlias = Literal["nothing", "grown", "new", "apart"]
Status: TypeAlias = Literal["open", "accepted", "rejected"]

GROUP = 1000  # kinds from this number on are groups: group g is kind GROUP + g
Check: TypeAlias = Callable[[Any], bool]
T = TypeVar("T")

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
    except WatchError:
        raise
    except _content_errors() as problem:
        raise WatchError(
            f"{printable(folder)} is damaged: its files do not fit together ({type(problem).__name__}: {problem}); "
            "restore it from a copy"
        ) from problem


def _content_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that forged files can cause although their checksums are right."""
    return (LookupError, TypeError, ValueError, AttributeError, OverflowError, SafetensorError, *file_errors())


def _state(folder: Path, manifest: Manifest, document: dict[str, Any]) -> State:
    encoder = TableEncoder.from_json(document["encoding"])
    of_batches = [_seen(k) for k in range(len(document["batches"]))]
    if {*manifest.files} != {DOCUMENT, PAGE, TABLE, TENSORS, *of_batches}:
        raise ValueError("it has other files than those of its batches")
    table = pl.read_parquet((folder / TABLE).read_bytes())
    tensors = load((folder / TENSORS).read_bytes())
    seen = [load((folder / name).read_bytes()) for name in of_batches]
    nodes = _nodes(table, tensors, len(encoder.feature_names))
    state = State(
        settings=_read(Settings, document["settings"]),
        encoding=document["encoding"],
        kinds=document["kinds"],
        nodes=nodes,
        batches=tuple(_read(Batch, batch) for batch in document["batches"]),
        groups=tuple(_read(Group, group) for group in document["groups"]),
        seen=tuple(each["node"] for each in seen),
    )
    _check_together(state)
    return state


def _is_number(low: float, high: float) -> Check:
    return lambda value: type(value) in (int, float) and low <= value <= high


def _is_whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_counts(value: Any) -> bool:
    numbers = type(value) is dict and all(key.isdecimal() and len(key) < 10 for key in value)
    return numbers and all(_is_whole(0, MAX)(count) for count in value.values())


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _one_of(choices: Any) -> Check:
    return lambda value: type(value) is str and value in get_args(choices)


MAX = 2**53  # whole numbers that JSON readers agree on
_time: Check = _or_none(lambda value: _is_text(value) or _is_number(-(2.0**64), 2.0**64)(value))
CHECKS: dict[type, dict[str, Check]] = {
    Settings: {
        "id": _is_text,
        "time": _or_none(_is_text),
        "alpha": _is_number(1e-300, 1),
        "max_growth": _is_number(1, 1e6),
        "window": _is_whole(1, 1000),
        "keep": _is_whole(1, 10_000_000),
        "impute": lambda value: type(value) is bool,
    },
    Batch: {
        "number": _is_whole(0, MAX),
        "nodes": _is_whole(1, MAX),
        "fingerprint": _is_whole(-(2**64), 2**64),
        "counts": _is_counts,
        "last_time": _time,
        "verdict": _one_of(Verdict),
        "sentence": _is_text,
        "p_value": _is_number(0, 1),
        "level": _is_number(1e-300, 1),
        "least_members": _or_none(_is_whole(0, MAX)),
        "lost_edges": _is_whole(0, MAX),
    },
    Group: {
        "number": _is_whole(1, MAX),
        "alarm": _is_whole(1, MAX),
        "since": _is_whole(1, MAX),
        "size": _is_whole(1, MAX),
        "growth": _is_number(0, 1e9),
        "name": _or_none(_is_text),
        "members": lambda value: type(value) is list and all(map(_is_text, value)),
        "status": _one_of(Status),
        "label": _or_none(_is_text),
    },
}


def _read(kind: type[T], values: Any) -> T:
    """Build settings, a batch or a group; raise ValueError where a field cannot be what it is."""
    checks = CHECKS[kind]
    if type(values) is not dict or set(values) != set(checks):
        raise ValueError(f"{kind.__name__} has other fields")
    for name, check in checks.items():
        if not check(values[name]):
            raise ValueError(f"{name} of {kind.__name__} cannot be {values[name]!r:.100}")
    return kind(**values)


def _check_together(state: State) -> None:
    """Raise ValueError unless the parts of a state belong together."""
    numbers = [batch.number for batch in state.batches]
    if not numbers or numbers != list(range(len(numbers))):
        raise ValueError("batches must be numbered from 0")
    if [group.number for group in state.groups] != list(range(1, len(state.groups) + 1)):
        raise ValueError("groups must be numbered from 1")
    if any(group.alarm >= len(numbers) or group.since > group.alarm for group in state.groups):
        raise ValueError("groups must belong to batches")
    for batch, seen in zip(state.batches, state.seen, strict=True):
        if seen.dtype != np.int64 or seen.shape != (batch.nodes,):
            raise ValueError(f"the ids of batch {batch.number} are not as many as its nodes")
    kinds = state.kinds
    if type(kinds) is not dict or not all(key.isdecimal() and len(key) < 4 for key in kinds):
        raise ValueError("kinds must be numbered")
    if not all(name is None or _is_text(name) for name in kinds.values()):
        raise ValueError("kinds must have names")
    known = {int(key) for key in kinds} | {GROUP + group.number for group in state.groups}
    table = state.nodes.table
    if table.height and (table["batch"].min() < 0 or table["batch"].max() >= len(numbers)):  # type: ignore[operator]
        raise ValueError("nodes must belong to batches")
    if not set(table["kind"].unique().to_list()) <= known:
        raise ValueError("nodes must be of kinds that there are")
    if table["id"].n_unique() != table.height:
        raise ValueError("ids must be unique")
    if not {int(key) for batch in state.batches for key in batch.counts} <= known:
        raise ValueError("counts must be of kinds that there are")


def _nodes(table: pl.DataFrame, tensors: dict[str, NDArray[Any]], features: int) -> Nodes:
    if dict(table.schema) != NODE_COLUMNS or table.null_count().sum_horizontal()[0]:
        raise ValueError("the table of nodes has other columns")
    if "x" in tensors:
        x: Any = tensors["x"]
    else:
        csr = tensors["x.value"], tensors["x.column"], tensors["x.start"]
        x = sp.csr_array(csr, shape=(table.height, features))
        x.check_format(full_check=True)
    edges = tensors["edge_index"]
    if x.shape != (table.height, features) or x.dtype != np.float32 or not np.isfinite(_values(x)).all():
        raise ValueError("features must be finite numbers of every node")
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype != np.int64:
        raise ValueError("edges must be pairs of nodes")
    if edges.size and (edges.min() < 0 or edges.max() >= table.height):
        raise ValueError("edges must join nodes that are kept")
    return Nodes(table, x, edges)


def _values(x: Any) -> NDArray[np.float32]:
    return np.asarray(x.data if sp.issparse(x) else x)


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
