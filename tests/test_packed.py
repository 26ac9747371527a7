"""A packed graph equals the graph of its tables, for all sorts of tables, and appears whole or not at all."""

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from arrays import dense_x
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fuzz import TIMES, edge_tables, node_tables, read_options

import recoslip
from recoslip.base.errors import GraphError, OutOfMemory, RecoslipError, TableError
from recoslip.base.memory import Memory
from recoslip.data.graph import NodeGraph
from recoslip.data.packed.reader import open_packed
from recoslip.data.packed.writer import pack

NODES = 240


def tables(seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Nodes with every type of column, and edges with loops, repetitions and both directions."""
    rng = np.random.default_rng(seed)
    nodes = pl.DataFrame(
        {
            "id": [f"n{k:03d}" for k in rng.permutation(NODES)],
            "domain": np.where(np.arange(NODES) % 3 == 0, "target", "source"),
            "size": rng.normal(size=NODES),
            "brand": rng.choice(["a", "b", "c", "d"], NODES),
            "words": [" ".join(rng.choice(["red", "green", "blue", "cat", "dog"], 3)) for _ in range(NODES)],
            "vector": rng.normal(size=(NODES, 3)).tolist(),
            "when": rng.integers(1990, 2020, NODES),
            "truth": rng.choice(["x", "y"], NODES),
        }
    )
    ends = nodes["id"].to_numpy()[rng.integers(0, NODES, (900, 2))]
    edges = pl.DataFrame({"from": ends[:, 0], "to": ends[:, 1], "w": rng.integers(1, 9, 900).astype(float)})
    back = edges[100:150].select(pl.col("to").alias("from"), pl.col("from").alias("to"), "w")
    return nodes, pl.concat([edges, edges[:50], back])


def written(folder: Path, suffix: str = "parquet", **changes: pl.Series) -> tuple[Path, Path]:
    paths = folder / f"nodes.{suffix}", folder / f"edges.{suffix}"
    for path, frame in zip(paths, tables(), strict=True):
        if path.stem.startswith("nodes"):
            frame = frame.with_columns(**changes)
        if suffix == "csv":
            frame.drop("vector", strict=False).write_csv(path)
        else:
            frame.write_parquet(path)
    return paths


def assert_same(one: NodeGraph, other: NodeGraph) -> None:
    assert sp.issparse(one.x) == sp.issparse(other.x)
    np.testing.assert_allclose(dense_x(one), dense_x(other), rtol=1e-6, atol=1e-7)
    assert np.array_equal(one.edge_index, other.edge_index)
    assert (one.edge_weight is None) == (other.edge_weight is None)
    if one.edge_weight is not None:
        np.testing.assert_allclose(one.edge_weight, other.edge_weight, rtol=1e-6)
    assert np.array_equal(one.is_target, other.is_target)
    for name in ("ids", "categories", "times"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None and second is None) or repr(first.tolist()) == repr(second.tolist())  # nan is nan
    assert one.feature_names == other.feature_names
    assert one.repairs == other.repairs


@pytest.mark.parametrize("chunk_rows", [7, 64, 10_000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": "w", "category": "truth"},
        {"text": ["words"], "ignore": ["vector", "size"]},
        {"time": "when", "since": 2010, "features": ["vector"]},
        {"features": ["brand", "size"], "edge_from": "to", "edge_to": "from"},
    ],
    ids=["plain", "weighted", "text", "by time", "chosen"],
)
def test_a_packed_graph_equals_the_graph_of_its_tables(options, chunk_rows, tmp_path):
    nodes, edges = written(tmp_path)
    pack(nodes, edges, tmp_path / "graph", chunk_rows=chunk_rows, **options)
    assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges, **options))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.parquet", "graph", "nodes.parquet"]


@pytest.mark.parametrize("chunk_rows", [7, 10_000])
def test_sparse_features_stay_sparse(chunk_rows, tmp_path):
    rng = np.random.default_rng(1)
    words = pl.Series([" ".join(f"word{k}" for k in rng.integers(0, 400, 3)) for _ in range(NODES)])
    nodes, edges = written(tmp_path, words=words)
    pack(nodes, edges, tmp_path / "graph", chunk_rows=chunk_rows, text=["words"], ignore=["vector"])
    graph = open_packed(tmp_path / "graph")
    assert sp.issparse(graph.x)
    assert_same(graph, recoslip.read_graph(nodes, edges, text=["words"], ignore=["vector"]))


def test_text_files_are_packed_too(tmp_path):
    nodes, edges = written(tmp_path, "csv")
    pack(nodes, edges, tmp_path / "graph", chunk_rows=100)
    assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges))


def test_missing_values_are_filled_as_in_memory(tmp_path):
    vector = tables()[0]["vector"].to_list()
    vector[3] = vector[200] = None
    size = tables()[0]["size"].to_list()
    size[5] = None
    nodes, edges = written(tmp_path, vector=pl.Series(vector), size=pl.Series(size))
    pack(nodes, edges, tmp_path / "graph", chunk_rows=50, impute=True)
    assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges, impute=True))
    with pytest.raises(TableError, match="'size' in 1 rows"):
        pack(nodes, edges, tmp_path / "other", impute=False)
    with pytest.raises(TableError, match=r"'vector' in 1 rows \(first: row 3\)"):
        pack(nodes, edges, tmp_path / "other", features=["vector"], chunk_rows=50, impute=False)
    assert not (tmp_path / "other").exists()


def test_vectors_of_several_lengths_are_refused(tmp_path):
    nodes, edges = written(tmp_path, vector=pl.Series([[1.0, 2.0]] * 50 + [[1.0, 2.0, 3.0]] * (NODES - 50)))
    with pytest.raises(TableError, match=r"must have one length; got lengths \[2, 3\]"):
        pack(nodes, edges, tmp_path / "graph", features=["vector"], chunk_rows=50)


def test_a_column_may_have_any_name(tmp_path):
    nodes, edges = written(tmp_path)
    pl.read_parquet(nodes).rename({"size": "*", "brand": "^.*$"}).write_parquet(nodes)
    pack(nodes, edges, tmp_path / "graph")
    assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges))


def test_a_graph_without_edges(tmp_path):
    nodes, edges = written(tmp_path)
    pl.read_parquet(edges)[:0].write_parquet(edges)
    pack(nodes, edges, tmp_path / "graph")
    assert open_packed(tmp_path / "graph").num_edges == 0


def test_packing_that_is_stopped_or_fails_leaves_nothing(tmp_path, monkeypatch):
    nodes, edges = written(tmp_path)
    steps = []

    def stop(done, total):
        steps.append(done)
        if done == total or len(steps) == 3:
            raise KeyboardInterrupt

    for chunk_rows in (40, 10_000):
        steps.clear()
        with pytest.raises(KeyboardInterrupt):
            pack(nodes, edges, tmp_path / "graph", chunk_rows=chunk_rows, progress=stop)
        assert {path.name for path in tmp_path.iterdir()} == {"nodes.parquet", "edges.parquet"}
    with monkeypatch.context() as patch:
        patch.setattr("recoslip.base.files.os.fsync", refuse(errno.EIO))
        with pytest.raises(RecoslipError, match="cannot write"):
            pack(nodes, edges, tmp_path / "graph")
    assert {path.name for path in tmp_path.iterdir()} == {"nodes.parquet", "edges.parquet"}
    pack(nodes, edges, tmp_path / "graph")
    assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges))


def refuse(number: int):
    def refusing(*_):
        raise OSError(number, os.strerror(number))

    return refusing


def test_an_earlier_graph_is_replaced_only_on_demand(tmp_path):
    nodes, edges = written(tmp_path)
    pack(nodes, edges, tmp_path / "graph")
    with pytest.raises(RecoslipError, match="replace=True"):
        pack(nodes, edges, tmp_path / "graph")
    pack(nodes, edges, tmp_path / "graph", replace=True, features=["size"])
    assert open_packed(tmp_path / "graph").num_features == 1


@pytest.mark.parametrize("chunk_rows", [9, 10_000])
def test_unknown_ids_are_refused_or_dropped(chunk_rows, tmp_path, caplog):
    nodes, edges = written(tmp_path)
    frame = pl.read_parquet(edges)
    pl.concat([frame, pl.DataFrame({"from": ["n001"], "to": ["nobody"], "w": [1.0]})]).write_parquet(edges)
    with pytest.raises(TableError, match="'nobody'"):
        pack(nodes, edges, tmp_path / "graph", chunk_rows=chunk_rows)
    assert not (tmp_path / "graph").exists()
    with caplog.at_level("INFO", logger="recoslip"):
        pack(nodes, edges, tmp_path / "graph", chunk_rows=chunk_rows, drop_unknown=True)
    assert "edges: 1 dropped that name unknown nodes" in caplog.messages
    assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges, drop_unknown=True))


def damages(folder: Path):
    """Yield the names of ways to damage a packed graph, and functions that do so."""
    index = json.loads((folder / "graph.json").read_text())

    def change_index(**changes):
        (folder / "graph.json").write_text(json.dumps(index | changes))

    def flip_bit(name: str, position: float):
        data = bytearray((folder / name).read_bytes())
        data[int(position * (len(data) - 1))] ^= 1
        (folder / name).write_bytes(data)

    yield "no index", lambda: (folder / "graph.json").unlink()
    for content in (b"{", b"[]", b'{"format": "\xff"}', b"[" * 100_000, b'{"format": ' + b"[" * 100_000):
        yield f"{content[:20]!r}", lambda content=content: (folder / "graph.json").write_bytes(content)
    yield "future version", lambda: change_index(version=99)
    yield "foreign", lambda: change_index(format="else")
    manifest = json.loads((folder / "recoslip.json").read_text())

    def change_manifest(**changes):
        (folder / "recoslip.json").write_text(json.dumps(manifest | changes))

    yield "no manifest", lambda: (folder / "recoslip.json").unlink()
    yield "another kind", lambda: change_manifest(kind="result")
    for files in ([1], None, {"../x.npy": [1, 1]}, {"/etc/passwd": [1, 1]}):
        yield f"files {files}", lambda files=files: change_manifest(files=files)
    for name in manifest["files"]:
        others = {other: value for other, value in manifest["files"].items() if other != name}
        for value in ([1], [1, 2, 3], "1", None, [1.5, 2.0], [-1, 1], [None, None]):
            changed = others | {name: value}
            yield f"{name} {value}", lambda changed=changed: change_manifest(files=changed)
    if hasattr(os, "mkfifo"):
        for name in ("graph.json", "x.npy", "edge_index.npy", "nodes.parquet"):
            yield f"{name} a pipe", lambda name=name: (remove(folder / name), os.mkfifo(folder / name))
            yield (
                f"{name} a link",
                lambda name=name: (
                    (folder / name).rename(folder.parent / f"real-{name}"),
                    (folder / name).symlink_to(folder.parent / f"real-{name}"),
                ),
            )
            yield f"{name} a folder", lambda name=name: (remove(folder / name), (folder / name).mkdir())
    for name in ("x.npy", "edge_index.npy", "is_target.npy", "nodes.parquet"):
        yield f"no {name}", lambda name=name: (folder / name).unlink()
        for position in (0.0, 0.1, 0.5, 1.0):
            yield f"{name} flipped at {position}", lambda name=name, position=position: flip_bit(name, position)
        yield f"{name} cut", lambda name=name: (folder / name).write_bytes((folder / name).read_bytes()[:-8])


def remove(path: Path) -> None:
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def test_a_damaged_graph_is_refused(tmp_path):
    nodes, edges = written(tmp_path)
    pack(nodes, edges, tmp_path / "graph", features=["size", "vector"])
    original = {path.name: path.read_bytes() for path in (tmp_path / "graph").iterdir()}
    count = 0
    for name, damage in damages(tmp_path / "graph"):
        damage()
        try:
            open_packed(tmp_path / "graph")
        except GraphError as problem:
            advised = "pack the tables again" in str(problem)
        else:
            pytest.fail(f"{name} was accepted")
        assert advised, name
        count += 1
        for file, data in original.items():
            remove(tmp_path / "graph" / file)
            (tmp_path / "graph" / file).write_bytes(data)
    assert count > 60
    open_packed(tmp_path / "graph")


def test_features_that_single_precision_cannot_hold_are_refused(tmp_path, monkeypatch):
    nodes, edges = written(tmp_path, vector=pl.Series([[1.0, 3e38]] * NODES))
    monkeypatch.setattr("recoslip.data.packed.writer.column_weights", lambda *_: (2.0,))
    with pytest.raises(GraphError, match="infinite or extreme values"):
        pack(nodes, edges, tmp_path / "graph", features=["vector"])
    assert not (tmp_path / "graph").exists()


def test_a_table_that_will_not_fit_is_refused_with_advice(tmp_path, monkeypatch):
    nodes, edges = written(tmp_path)
    with monkeypatch.context() as little:
        little.setattr("recoslip.data.tables.files.memory", lambda *_: Memory(1000, 1000))
        with pytest.raises(OutOfMemory, match="recoslip pack"):
            recoslip.read_graph(nodes, edges)
        pack(nodes, edges, tmp_path / "graph")
        with pytest.raises(OutOfMemory, match=r"nodes\.parquet .*free some memory$"):  # the ids are kept in memory
            open_packed(tmp_path / "graph")
    assert open_packed(tmp_path / "graph").num_nodes == NODES


def test_two_packs_into_one_folder_are_told_apart(tmp_path):
    """The second one is refused at once and by name, and the first one's graph is what is there afterwards."""
    nodes, edges = written(tmp_path)
    refused = []

    def second(done, total):
        if not refused:
            other = subprocess.run([sys.executable, "-c", SECOND, nodes, edges, tmp_path / "graph"],
                                   capture_output=True, text=True, check=False)  # fmt: skip
            refused.append(other.stderr)

    pack(nodes, edges, tmp_path / "graph", features=["size", "vector"], progress=second)
    assert "another process" in refused[0]
    assert open_packed(tmp_path / "graph").num_nodes > 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


SECOND = "import sys; from recoslip import pack; pack(*sys.argv[1:4], features=['size'], replace=True)"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 1e-60], r"must be between 1e-45 and 3e38; got 1e-60 to 1, scale the weights"),
        ([1.0, 2e38, 2e38, 2e38], r"got 1 to 6e\+38, scale"),  # repetitions add up
        ([1.0, 1e308, 1e308, 1e308], r"got 1 to inf, scale"),
        ([1e39, 1.0], r"got 1 to 1e\+39"),
        ([1.0, 2.0, -3.0, 1.0, -4.0], r"positive and finite; row 2 has -3.0"),
        ([1.0, 2.0, 3.0, 0.0], r"positive and finite; row 3 has 0.0"),
        ([1.0, float("inf")], r"positive and finite; row 1 has inf"),
        ([float("nan"), 1.0], r"positive and finite; row 0 has nan"),
        ([1.0, 3.4e38, 1e-45], None),
        ([1e-60, 1.0, 1e-45, 1e-60, 1e-45], r"1e-60"),
    ],
)
@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_weights_are_refused_in_the_same_words_as_from_tables(weights, message, chunk_rows, tmp_path):
    nodes, edges = tmp_path / "n.csv", tmp_path / "e.parquet"
    nodes.write_text("id,domain,v\na,0,1\nb,0,2\nc,1,3\n")
    ends = [("a", "c"), ("a", "b"), ("a", "b"), ("a", "b"), ("b", "b")][: len(weights)]
    pl.DataFrame({"from": [a for a, _ in ends], "to": [b for _, b in ends], "w": weights}).write_parquet(edges)
    if message is None:
        pack(nodes, edges, tmp_path / "graph", chunk_rows=chunk_rows, weight="w")
        assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges, weight="w"))
        return
    with pytest.raises(GraphError, match=message) as of_table:
        recoslip.read_graph(nodes, edges, weight="w")
    with pytest.raises(GraphError) as of_pack:
        pack(nodes, edges, tmp_path / "graph", chunk_rows=chunk_rows, weight="w")
    assert str(of_pack.value) == str(of_table.value)
    assert not (tmp_path / "graph").exists()


@st.composite
def drawn_tables(draw):
    """Tables that are nearly right, with weights at the limits of single precision, and how to read them."""
    nodes = draw(node_tables())
    nodes = nodes.select(column for column in nodes if column.dtype != pl.Object)
    edges = draw(edge_tables(nodes).filter(lambda table: table is not None and pl.Object not in table.dtypes))
    if "w" in edges.columns and draw(st.booleans()):
        weights = st.lists(st.sampled_from(WEIGHTS), min_size=edges.height, max_size=edges.height)
        edges = edges.with_columns(w=pl.Series(draw(weights), dtype=pl.Float64))
    return nodes, edges, draw(read_options(nodes)), draw(st.sampled_from([2, 3, 7, 1000]))


WEIGHTS = [1.0, 2.5, 1e-30, 1e30, 1e-60, 1e-45, 7e-46, 1.7e38, 3.4e38, 1e39, 1e300, 1.7e308, 5e-324]


def test_pack_accepts_what_read_graph_accepts_and_opens_what_it_wrote(tmp_path):
    both = []

    @settings(max_examples=60 * TIMES, suppress_health_check=list(HealthCheck))
    @given(drawn_tables())
    def check_case(case):
        nodes, edges, options, chunk_rows = case
        paths = tmp_path / "n.parquet", tmp_path / "e.parquet"
        nodes.write_parquet(paths[0])
        edges.write_parquet(paths[1])
        graph = packed = None
        with suppress(RecoslipError):
            graph = recoslip.read_graph(*paths, **options)
        with suppress(RecoslipError):
            pack(*paths, tmp_path / "graph", replace=True, chunk_rows=chunk_rows, **options)
            packed = True
        assert (graph is not None) == (packed is not None)
        both.append(graph is not None)
        if graph is not None:
            assert_same(open_packed(tmp_path / "graph"), graph)

    check_case()
    assert sum(both) > len(both) / 12


def test_brackets_in_the_names_of_columns_are_no_depth(tmp_path):
    nodes, edges = written(tmp_path, **{f"{k}[[[{{": pl.Series(np.arange(NODES) % 7) for k in range(40)})
    pack(nodes, edges, tmp_path / "graph")
    assert_same(open_packed(tmp_path / "graph"), recoslip.read_graph(nodes, edges))


def test_categories_that_are_lists_are_refused_everywhere(tmp_path):
    nodes, edges = written(tmp_path, pair=pl.Series([[1.0, 2.0]] * NODES, dtype=pl.Array(pl.Float64, 2)))
    for category in ("vector", "pair"):
        for read in (recoslip.read_graph, lambda *paths, **options: pack(*paths, tmp_path / "graph", **options)):
            with pytest.raises(TableError, match="must hold one value per row"):
                read(nodes, edges, category=category)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("name", [b"not UTF-8 \xff\xfe", b"[a-z]*?", b"two\nlines"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_and_folders_of_any_name_are_read_and_packed(name, suffix, tmp_path):
    nodes, edges = written(tmp_path, suffix)
    expected = recoslip.read_graph(nodes, edges)
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    odd_nodes, odd_edges = (path.rename(folder / os.fsdecode(name + path.name.encode())) for path in (nodes, edges))
    assert_same(recoslip.read_graph(odd_nodes, odd_edges), expected)
    pack(odd_nodes, odd_edges, folder / os.fsdecode(name), chunk_rows=100)
    assert_same(open_packed(folder / os.fsdecode(name)), expected)
    shown = name.decode("utf-8", "backslashreplace")
    for build in (
        lambda: open_packed(folder / os.fsdecode(b"no" + name)),
        lambda: recoslip.read_graph(folder / os.fsdecode(b"no" + name + b".csv"), None),
        lambda: pack(folder / os.fsdecode(b"no" + name + b".csv"), odd_edges, tmp_path / "other"),
    ):
        with pytest.raises(RecoslipError) as problem:
            build()
        assert shown in str(problem.value)
        str(problem.value).encode("utf-8")


def test_arrays_that_cannot_be_addressed_are_want_of_memory(tmp_path, monkeypatch):
    nodes, edges = written(tmp_path)
    monkeypatch.setattr("recoslip.data.packed.writer.create_array", refuse(errno.ENOMEM))
    with pytest.raises(OutOfMemory, match=r"^out of memory: "):
        pack(nodes, edges, tmp_path / "graph")
    assert {path.name for path in tmp_path.iterdir()} == {"nodes.parquet", "edges.parquet"}
