"""Tables -> a folder that is looked at without being read: a graph larger than memory, converted once, resumably."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from polars.selectors import by_name  # names such as * and ^x$ mean themselves

from recoslip.columns import DENSE_FROM, Column, encode_column, is_missing, refuse_missing
from recoslip.errors import GraphError, RecoslipError, TableError
from recoslip.graph import EdgeRepairs, NodeGraph, check_weights, csr_tensor
from recoslip.storage import check_free, put_in_place, write_file
from recoslip.tables import UNREADABLE, AboutNodes, EdgeReader, Reading, check_pages, say_dropped, scan, table_errors

FORMAT, VERSION = "recoslip packed graph", 1
INDEX = "graph.json"
DENSE, SPARSE = ("x.npy",), ("x.start.npy", "x.column.npy", "x.value.npy")
FILES = (INDEX, *DENSE, *SPARSE, "edge_index.npy", "edge_weight.npy", "is_target.npy", "nodes.parquet")
AT_ONCE = 2**20  # rows of a table in memory

Progress = Callable[[int, int], None]


def pack(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    replace: bool = False,
    progress: Progress | None = None,
    at_once: int = AT_ONCE,
    **how: Any,
) -> None:
    """Write the graph of two tables as a folder of arrays, which `open_packed` looks at without reading them.

    Features are encoded a column at a time and edges sorted a part at a time. In memory are the nodes' names and
    domains, one column (of vectors: some rows), and some rows of edges. Interrupted, the same call goes on where it
    was; what is done so far waits beside the folder, which itself appears when it is whole.

    Args:
        nodes: file of nodes, as for `read_graph`.
        edges: file of edges.
        folder: to write.
        replace: whether an earlier packed graph there may be replaced.
        progress: called with steps done and steps in all.
        at_once: rows of a table to hold in memory.
        **how: which columns to read: the other arguments of `read_graph`.
    """
    reading = Reading(**how)
    check_free(folder, ours=FILES, replace=replace)
    final = Path(folder).expanduser().absolute()
    place = final.parent / f".{final.name}.packing"
    try:
        with table_errors():
            _settle(place, _inputs(Path(nodes), Path(edges), how, at_once))
            table = OnDisk(Path(nodes), "nodes", place, reading)
            links = OnDisk(Path(edges), "edges", place, reading)
            about = reading.nodes(table)
            used = [column for column in about.columns if column.kind != "unused"]
            count = Counter(progress, table.height * len(used) + 2 * links.height)
            reader = EdgeReader(links.columns, str(edges), about.ids, reading)
            reader.refuse_headless()
            parts = [_encode(table, column, reading.impute, place, at_once, count) for column in used]
            repairs = _sort_edges(links, reader, place, len(about.ids), at_once, count)
            _assemble(table, about, reading, parts, repairs, place, at_once)
        if final.exists():
            check_free(folder, ours=FILES, replace=replace)
        put_in_place(place / "whole", final)
        shutil.rmtree(place)
    except OSError as problem:
        raise RecoslipError(
            f"cannot write {folder}: {problem.strerror or problem}; the same command goes on where this one ended"
        ) from problem


class Counter:
    """Steps done, told to whoever wants to know."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, max(1, total), 0

    def add(self, steps: int) -> None:
        """Count some more."""
        self.done += steps
        if self.progress is not None:
            self.progress(self.done, self.total)


class OnDisk:
    """A table in a file, of which one column or some rows are read at a time.

    Args:
        path: the file. One that is not Parquet is turned into it first, for its rows cannot be found quickly.
        what: "nodes" or "edges".
        place: folder for the Parquet file.
        how: which columns to read.
    """

    def __init__(self, path: Path, what: str, place: Path, how: Reading) -> None:
        lazy = scan(path, what, how)
        if path.suffix.lower() not in (".parquet", ".pq"):
            copy = place / f"{what}.parquet"
            if not copy.exists():
                with _whole(copy) as draft:
                    lazy.sink_parquet(draft)
            lazy = pl.scan_parquet(copy)
        self.lazy, self.schema = lazy, lazy.collect_schema()
        self.height = int(lazy.select(pl.len()).collect().item())
        if self.height == 0 and what == "nodes":
            raise TableError(f"{path} has no rows")

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return self.schema.names()

    def __getitem__(self, name: str) -> pl.Series:
        return self.lazy.select(by_name(name)).collect()[name]

    def rows(self, begin: int, count: int, names: Sequence[str]) -> pl.DataFrame:
        """Read some rows of some columns."""
        return self.lazy.select(by_name(*names)).slice(begin, count).collect()


def _inputs(nodes: Path, edges: Path, how: dict[str, Any], at_once: int) -> str:
    """Describe what is packed, so that what was begun goes on only if it is the same."""
    seen = []
    for path in (nodes, edges):
        if not path.is_file():
            raise TableError(f"there is no file {path}")
        seen.append([str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns])
    known = {key: value if isinstance(value, str | bool | None) else repr(value) for key, value in how.items()}
    return json.dumps([VERSION, seen, known, at_once], sort_keys=True)


def _settle(place: Path, inputs: str) -> None:
    """Make the folder that the work goes on in, empty unless the same work was begun there."""
    mark = place / "inputs.json"
    if not mark.is_file() or mark.read_text(encoding="utf-8") != inputs:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        write_file(mark, inputs)
    shutil.rmtree(place / "whole", ignore_errors=True)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a name to write to; what is there afterwards is renamed to `path`."""
    draft = path.with_name(f"~{path.name}")
    yield draft
    draft.replace(path)


def _save(path: Path, array: NDArray[Any]) -> None:
    with _whole(path) as draft, draft.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def _load(path: Path) -> NDArray[Any]:
    """Map an array of ours into memory; changes to it are not written."""
    array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return array


@dataclass(frozen=True, eq=False)
class Encoded:
    """The features made of one column, in files: a dense array, or a sparse one with where its rows start."""

    names: list[str]
    values: NDArray[np.float32]
    start: NDArray[np.int64] | None = None
    columns: NDArray[np.int64] | None = None

    @property
    def entries(self) -> int:
        """How many are not zero."""
        return int(np.count_nonzero(self.values)) if self.start is None else len(self.values)

    def rows(self, begin: int, end: int) -> Any:
        """Return some rows."""
        if self.start is None or self.columns is None:
            return self.values[begin:end]
        inside = slice(self.start[begin], self.start[end])
        parts = self.values[inside], self.columns[inside], self.start[begin : end + 1] - self.start[begin]
        return sp.csr_array(parts, shape=(end - begin, len(self.names)))


def _encode(table: OnDisk, column: Column, impute: bool, place: Path, at_once: int, count: Counter) -> Encoded:
    """Turn a column into features in files of their own, unless they are there."""
    stem = f"column-{table.columns.index(column.name):06d}"
    mark, values, start, columns = (place / f"{stem}{end}" for end in (".json", ".npy", ".start.npy", ".column.npy"))
    if not mark.exists():
        if column.kind == "vector":
            names = _encode_vectors(table, column.name, impute, values, at_once)
        else:
            series = table[column.name]
            if not impute:
                refuse_missing([series])
            part, names = encode_column(series, column.kind)
            if sp.issparse(part):
                part = sp.csr_array(part)
                _save(start, part.indptr.astype(np.int64))
                _save(columns, part.indices.astype(np.int64))
                part = part.data
            _save(values, np.asarray(part, dtype=np.float32))
        write_file(mark, json.dumps(names))
    count.add(table.height)
    names = json.loads(mark.read_text(encoding="utf-8"))
    return Encoded(names, _load(values), *((_load(start), _load(columns)) if start.exists() else ()))


def _encode_vectors(table: OnDisk, name: str, impute: bool, path: Path, at_once: int) -> list[str]:
    """Copy a column of vectors, some rows at a time; one that is missing gets the mean of the others."""
    begins = range(0, table.height, at_once)
    total, present, width = 0.0, 0, 0
    for begin in begins:
        series = table.rows(begin, at_once, [name])[name]
        if not impute:
            refuse_missing([series], begin)
        if series.null_count() < len(series):
            part, names = encode_column(series.drop_nulls(), "vector")
            total, present = total + np.asarray(part).sum(axis=0), present + len(series) - series.null_count()
            if width not in (0, len(names)):
                raise TableError(f"vectors in column {name!r} must have one length; got lengths {[width, len(names)]}")
            width = len(names)
    if not present:
        raise TableError(f"vectors in column {name!r} must have one length; all are missing")
    with _whole(path) as draft:
        matrix = np.lib.format.open_memmap(draft, mode="w+", dtype=np.float32, shape=(table.height, width))
        for begin in begins:
            series = table.rows(begin, at_once, [name])[name]
            missing = is_missing(series).to_numpy()
            block = np.empty((len(series), width))
            block[missing] = total / present
            if not missing.all():
                block[~missing] = encode_column(series.drop_nulls(), "vector")[0]
            matrix[begin : begin + len(series)] = block
        matrix.flush()
    return names


def _sort_edges(
    table: OnDisk, reader: EdgeReader, place: Path, nodes: int, at_once: int, count: Counter
) -> EdgeRepairs:
    """Sort the edges by their ends and make them a simple graph, without having them in memory.

    Some rows at a time are sorted into runs; then the runs' stretches of some nodes at a time are merged. An edge from
    u to v is in a run as (u, v, 0) and as (v, u, 1), each one number, so that it is found at both of its ends, and
    whether it was given one way or both.
    """
    given = loops = dropped = 0
    runs: list[tuple[Path, Path | None]] = []
    columns = [reader.left, reader.right, *([reader.weight] if reader.weight else [])]
    for begin in range(0, table.height, at_once):
        stem = f"run-{begin // at_once:06d}"
        mark, keys, weights = (place / f"{stem}.{kind}" for kind in ("json", "key.npy", "weight.npy"))
        if not mark.exists():
            before = reader.dropped
            (left, right), weight = reader.read(table.rows(begin, at_once, columns))
            stays = left != right
            key = np.concatenate([left[stays] * nodes + right[stays], right[stays] * nodes + left[stays]]) * 2
            key[len(key) // 2 :] += 1
            key, of = np.unique(key, return_inverse=True)
            if weight is not None:
                check_weights(weight)
                _save(weights, np.bincount(of, np.tile(weight[stays], 2), minlength=len(key)))
            _save(keys, key)
            write_file(mark, json.dumps([len(left), int((~stays).sum()), reader.dropped - before]))
        lines, looped, dropping = json.loads(mark.read_text(encoding="utf-8"))
        given, loops, dropped = given + lines, loops + looped, dropped + dropping
        runs.append((keys, weights if reader.weight else None))
        count.add(min(at_once, table.height - begin))
    say_dropped(dropped)
    mirrored, distinct = _merge_runs(runs, place, nodes, 4 * at_once, count)
    return EdgeRepairs(mirrored=mirrored, merged=given - loops - distinct, loops=loops)


def _merge_runs(
    runs: Sequence[tuple[Path, Path | None]], place: Path, nodes: int, entries: int, count: Counter
) -> tuple[int, int]:
    """Merge sorted runs into parts of the final edges; return how many were one-way, and how many are distinct."""
    mirrored = distinct = 0
    if not runs:
        return 0, 0
    keys = [_load(key) for key, _ in runs]
    step = max(1, sum(map(len, keys)) // 2**20)
    some = np.sort(np.concatenate([key[::step] for key in keys])) // (2 * nodes)
    cuts = np.unique(np.concatenate([[0], some[:: max(1, entries // step)][1:], [nodes]]))
    for part, (low, high) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
        mark, ends, weights = (place / f"part-{part:06d}.{kind}" for kind in ("json", "ends.npy", "weight.npy"))
        spans = [slice(*np.searchsorted(key, [low * 2 * nodes, high * 2 * nodes])) for key in keys]
        if not mark.exists():
            stretches = [key[span] for key, span in zip(keys, spans, strict=True)]
            key, of = np.unique(np.concatenate(stretches), return_inverse=True)
            pair, pair_of, ways = np.unique(key // 2, return_inverse=True, return_counts=True)
            left, right = pair // nodes, pair % nodes
            if runs[0][1] is not None:
                given = np.concatenate([_load(w)[s] for (_, w), s in zip(runs, spans, strict=True) if w is not None])
                total = np.bincount(pair_of, np.bincount(of, given, minlength=len(key)), minlength=len(pair))
                _save(weights, (total / ways).astype(np.float32))
            _save(ends, np.stack([left, right]))
            write_file(mark, json.dumps([int(((ways == 1) & (left < right)).sum()), int((key % 2 == 0).sum())]))
        one_way, directed = json.loads(mark.read_text(encoding="utf-8"))
        mirrored, distinct = mirrored + one_way, distinct + directed
        count.add(sum(span.stop - span.start for span in spans) // 2)
    return mirrored, distinct


def _assemble(
    table: OnDisk,
    about: AboutNodes,
    how: Reading,
    parts: Sequence[Encoded],
    repairs: EdgeRepairs,
    place: Path,
    at_once: int,
) -> None:
    """Put the final files together, in the folder that will be the packed graph."""
    whole = place / "whole"
    whole.mkdir()
    _write_features(parts, table.height, whole, at_once)
    names = [name for part in parts for name in part.names]
    _join(sorted(place.glob("part-*.ends.npy")), whole / "edge_index.npy", (2, 0), np.int64)
    if how.weight is not None:
        _join(sorted(place.glob("part-*.weight.npy")), whole / "edge_weight.npy", (0,), np.float32)
    np.save(whole / "is_target.npy", about.is_target)
    kept = {"id": how.id, "category": how.category, "time": how.time}
    columns = {name: table[column].alias(name) for name, column in kept.items() if column is not None}
    pl.DataFrame(columns).write_parquet(whole / "nodes.parquet")
    index = {
        "format": FORMAT,
        "version": VERSION,
        "nodes": table.height,
        "features": len(names),
        "feature_names": names,
        "repairs": [repairs.mirrored, repairs.merged, repairs.loops],
        "files": {path.name: [path.stat().st_size, _checksum(path)] for path in sorted(whole.iterdir())},
    }
    (whole / INDEX).write_text(json.dumps(index) + "\n", encoding="utf-8")


def _write_features(parts: Sequence[Encoded], nodes: int, whole: Path, at_once: int) -> None:
    """Put the columns' features side by side, dense or sparse as `read_graph` would."""
    width = sum(len(part.names) for part in parts)
    entries = sum(part.entries for part in parts)
    blocks = [(begin, min(begin + at_once, nodes)) for begin in range(0, nodes, at_once)]
    if all(part.start is None for part in parts) or entries >= DENSE_FROM * nodes * width:
        x = np.lib.format.open_memmap(whole / "x.npy", mode="w+", dtype=np.float32, shape=(nodes, width))
        for begin, end in blocks:
            rows = [part.rows(begin, end) for part in parts]
            x[begin:end] = np.hstack([own.toarray() if sp.issparse(own) else own for own in rows])
        x.flush()
        return
    start = np.zeros(nodes + 1, dtype=np.int64)
    columns, values = (
        np.lib.format.open_memmap(whole / name, mode="w+", dtype=dtype, shape=(entries,))
        for name, dtype in (("x.column.npy", np.int64), ("x.value.npy", np.float32))
    )
    for begin, end in blocks:
        block = sp.csr_array(sp.hstack([part.rows(begin, end) for part in parts], format="csr"))
        block.sum_duplicates()
        start[begin + 1 : end + 1] = start[begin] + block.indptr[1:]
        inside = slice(start[begin], start[end])
        columns[inside], values[inside] = block.indices, block.data
    columns.flush()
    values.flush()
    np.save(whole / "x.start.npy", start)


def _join(parts: Sequence[Path], path: Path, empty: tuple[int, ...], dtype: type) -> None:
    """Write arrays one after the other, along their last axis, as one."""
    arrays = [_load(part) for part in parts]
    shape = (*empty[:-1], sum(array.shape[-1] for array in arrays))
    if not shape[-1]:  # nothing to map
        np.save(path, np.empty(shape, dtype=dtype))
        return
    result = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    begin = 0
    for array in arrays:
        result[..., begin : begin + array.shape[-1]] = array
        begin += array.shape[-1]
    result.flush()


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            value = zlib.crc32(block, value)
    return value


def open_packed(folder: str | os.PathLike[str]) -> NodeGraph:
    """Open a graph that `pack` wrote; features and edges stay on disk and are looked at where they are needed.

    Every file is read through once, to see that it is what was written and that no position points outside.
    """
    return _Opened(Path(folder).expanduser()).graph()


class _Opened:
    """The files of a packed graph, trusted as far as they were checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def refuse(self, reason: str) -> GraphError:
        return GraphError(f"{self.folder} cannot be used as a packed graph: {reason}; pack the tables again")

    @cached_property
    def index(self) -> dict[str, Any]:
        try:
            index = json.loads((self.folder / INDEX).read_text(encoding="utf-8"))
        except FileNotFoundError as problem:
            raise self.refuse(f"it holds no {INDEX}") from problem
        except (OSError, ValueError) as problem:
            raise self.refuse(f"{INDEX} cannot be read ({problem})") from problem
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            raise self.refuse(f'{INDEX} is not recoslip\'s (expected "format": "{FORMAT}")')
        if index.get("version") != VERSION:
            raise self.refuse(f"it has version {index.get('version')!r}, this recoslip reads {VERSION}")
        return index

    def check_files(self) -> None:
        files = self.index["files"]
        if unknown := set(files) - set(FILES):
            raise self.refuse(f"{INDEX} names {sorted(unknown)[0]!r}, which is not ours")
        for name, (size, checksum) in files.items():
            path = self.folder / name
            if path.is_symlink() or not path.is_file():
                raise self.refuse(f"{name} is missing or not a plain file")
            if path.stat().st_size != size or _checksum(path) != checksum:
                raise self.refuse(f"{name} is not what was written, it is truncated or damaged")

    def array(self, name: str, dtype: type, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Map a file into memory; None in a shape is any length."""
        array = _load(self.folder / name)
        fits = array.ndim == len(shape) and all(w in (None, h) for h, w in zip(array.shape, shape, strict=True))
        if array.dtype != dtype or not fits:
            raise self.refuse(f"{name} holds {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}")
        return np.asarray(array)

    def graph(self) -> NodeGraph:
        try:
            self.check_files()
            return self._graph()
        except GraphError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, *UNREADABLE) as problem:
            raise self.refuse(f"its parts do not fit together ({type(problem).__name__}: {problem})") from problem

    def _graph(self) -> NodeGraph:
        nodes, features, names = int(self.index["nodes"]), int(self.index["features"]), self.index["feature_names"]
        check_pages(self.folder / "nodes.parquet")
        frame = pl.read_parquet(self.folder / "nodes.parquet")
        is_target = self.array("is_target.npy", np.bool_, (nodes,))
        edges = self.array("edge_index.npy", np.int64, (2, None))
        weight = None
        if "edge_weight.npy" in self.index["files"]:
            weight = self.array("edge_weight.npy", np.float32, (edges.shape[1],))
        if frame.height != nodes or not nodes or not features or len(names) != features:
            raise self.refuse("its files tell of different numbers of nodes or features")
        if frame["id"].n_unique() != nodes:
            raise self.refuse("its ids are not unique")
        if is_target.all() or not is_target.any():
            raise self.refuse("it lacks source or target nodes")
        self._check_edges(edges, weight, nodes)
        return NodeGraph.of_parts(
            x=self._features(nodes, features),
            edge_index=torch.from_numpy(edges),
            edge_weight=None if weight is None else torch.from_numpy(weight),
            is_target=torch.from_numpy(is_target.copy()),
            ids=frame["id"].to_numpy(),
            categories=frame["category"].to_numpy() if "category" in frame.columns else None,
            times=frame["time"].to_numpy() if "time" in frame.columns else None,
            feature_names=tuple(map(str, names)),
            repairs=EdgeRepairs(*map(int, self.index["repairs"])),
        )

    def _features(self, nodes: int, features: int) -> torch.Tensor:
        if "x.npy" in self.index["files"]:
            x = self.array("x.npy", np.float32, (nodes, features))
            for begin in range(0, nodes, AT_ONCE):
                if not np.isfinite(x[begin : begin + AT_ONCE]).all():
                    raise self.refuse("x.npy holds values that are no numbers")
            return torch.from_numpy(x)
        start = self.array("x.start.npy", np.int64, (nodes + 1,))
        column = self.array("x.column.npy", np.int64, (None,))
        value = self.array("x.value.npy", np.float32, (len(column),))
        inside = len(column) == 0 or (column.min() >= 0 and column.max() < features)
        if start[0] != 0 or start[-1] != len(column) or (np.diff(start) < 0).any() or not inside:
            raise self.refuse("its features point outside")
        if not np.isfinite(value).all():
            raise self.refuse("x.value.npy holds values that are no numbers")
        crow, col, values = (torch.from_numpy(part) for part in (start, column, value))
        return csr_tensor(crow, col, values, (nodes, features))

    def _check_edges(self, edges: NDArray[np.int64], weight: NDArray[np.float32] | None, nodes: int) -> None:
        """See that ends are nodes, each edge after the one before, none from a node to itself."""
        last = -1
        for begin in range(0, edges.shape[1], AT_ONCE):
            left, right = edges[:, begin : begin + AT_ONCE]
            if min(left.min(), right.min()) < 0 or max(left.max(), right.max()) >= nodes or (left == right).any():
                raise self.refuse("its edges point outside or at themselves")
            key = left * nodes + right
            if key[0] <= last or (np.diff(key) <= 0).any():
                raise self.refuse("its edges are not in order")
            last = int(key[-1])
            if weight is not None:
                own = weight[begin : begin + AT_ONCE]
                if not (np.isfinite(own) & (own > 0)).all():
                    raise self.refuse("its edges' weights are not all positive numbers")
