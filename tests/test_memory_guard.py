"""A table that would not fit into memory is refused before it is read, in every format."""

import gzip
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from recoslip.tables.samples import sample_table

from recoslip import pack, read_graph
from recoslip.errors import OutOfMemory, RecoslipError, TableError
from recoslip.memory import Memory

MIB = 2**20


def write(frame: pl.DataFrame, path):
    """Write a table in the format that the name says; .zst.arrow is compressed."""
    if path.name.endswith(".parquet"):
        frame.write_parquet(path)
    elif path.name.endswith(".arrow"):
        frame.write_ipc(path, compression="zstd" if ".zst" in path.name else "uncompressed")
    else:
        separator = "\t" if ".tsv" in path.name else ","
        text = frame.write_csv(separator=separator).encode()
        path.write_bytes(gzip.compress(text, 1) if path.name.endswith(".gz") else text)
    return path


def free(monkeypatch, size):
    monkeypatch.setattr("recoslip.tables.files.memory", lambda device: Memory(size, size))


FORMATS = ["csv", "tsv", "csv.gz", "parquet", "arrow", "zst.arrow"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_small_file_of_a_large_table_is_refused(suffix, tmp_path, monkeypatch):
    zeros = {f"x{k}": np.zeros(20_000) for k in range(50)}
    nodes = write(
        pl.DataFrame({"id": range(20_000), "domain": np.arange(20_000) % 2, **zeros}), tmp_path / f"n.{suffix}"
    )
    free(monkeypatch, 15 * MIB)  # the features take 1,000,000 * (8 + 4 + 4) bytes
    with pytest.raises(OutOfMemory, match=r"nodes: .* may take .* GiB in memory, and .* GiB are free; .*recoslip pack"):
        read_graph(nodes, None)
    free(monkeypatch, 100 * MIB)
    assert read_graph(nodes, None).num_features == 50
    free(monkeypatch, 15 * MIB)
    edges = write(pl.DataFrame({"a": [0], "b": [1]}), tmp_path / f"e.{suffix}")
    pack(nodes, edges, tmp_path / "graph")  # takes one column at a time


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_small_file_of_many_edges_is_refused(suffix, tmp_path, monkeypatch):
    nodes = write(pl.DataFrame({"id": [1, 2, 3], "domain": [0, 0, 1], "v": [1, 2, 3]}), tmp_path / f"n.{suffix}")
    edges = write(pl.DataFrame({"a": np.ones(500_000, int), "b": np.full(500_000, 2)}), tmp_path / f"e.{suffix}")
    free(monkeypatch, 40 * MIB)
    with pytest.raises(OutOfMemory, match="edges: "):
        read_graph(nodes, edges)
    free(monkeypatch, 400 * MIB)
    assert read_graph(nodes, edges).num_edges == 1


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "arrow", "zst.arrow"])
def test_texts_count_by_their_length_and_words(suffix, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    words = [" ".join(f"w{word}" for word in row) for row in rng.integers(0, 10**6, (2000, 100))]
    nodes = pl.DataFrame({"id": range(2000), "domain": np.arange(2000) % 2, "v": range(2000), "t": words})
    path = write(nodes, tmp_path / f"n.{suffix}")
    free(monkeypatch, 20 * MIB)
    assert read_graph(path, None).num_features == 1  # the text is not used
    with pytest.raises(OutOfMemory):
        read_graph(path, None, text=["t"])
    free(monkeypatch, 200 * MIB)
    assert read_graph(path, None, text=["t"]).num_features > 1000


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "zst.arrow"])
@pytest.mark.parametrize("dtype", [pl.List(pl.Float32), pl.Array(pl.Float32, 200)])
def test_vectors_count_by_their_length(suffix, dtype, tmp_path, monkeypatch):
    vectors = pl.Series(np.zeros((5000, 200), dtype=np.float32).tolist(), dtype=pl.List(pl.Float32)).cast(dtype)
    nodes = pl.DataFrame({"id": range(5000), "domain": np.arange(5000) % 2, "v": vectors})
    path = write(nodes, tmp_path / f"n.{suffix}")
    free(monkeypatch, 15 * MIB)
    with pytest.raises(OutOfMemory):
        read_graph(path, None)
    free(monkeypatch, 120 * MIB)
    assert read_graph(path, None).num_features == 200


def test_lines_are_counted_as_rows_unless_they_break_between_quotes(tmp_path):
    texts = ["plain", 'with "quotes"', "two\nlines", "three\n\nlines\n", 'and "both\n"', ""] * 200_000
    frame = pl.DataFrame({"id": range(len(texts)), "t": texts})
    for suffix in ("csv", "csv.gz"):
        sample = sample_table(write(frame, tmp_path / f"n.{suffix}"), 2**40)
        assert len(texts) <= sample.rows <= len(texts) + 2
        assert sample.schema == {"id": pl.Int64, "t": pl.String}
    (tmp_path / "n.csv").write_text('id,t\n1,"no end\n' + "2,x\n" * 1000)
    assert sample_table(tmp_path / "n.csv", 2**40).rows > 1000


def test_a_text_file_compressed_otherwise_is_sampled_too(tmp_path):
    text = write(pl.DataFrame({"id": range(9999)}), tmp_path / "n.csv").read_bytes()
    with pa.CompressedOutputStream(pa.OSFile(str(tmp_path / "z.csv"), "wb"), "zstd") as stream:
        stream.write(text)
    sample = sample_table(tmp_path / "z.csv", 2**40)
    assert sample.csv_bytes == len(text)
    assert 9999 <= sample.rows <= 10_001


def test_no_more_is_decompressed_than_memory_holds(tmp_path):
    with gzip.open(tmp_path / "bomb.csv.gz", "wb", 1) as file:
        file.write(b"id,domain,v\n")
        for _ in range(64):
            file.write(b"0,0,0\n" * 200_000)
    assert (tmp_path / "bomb.csv.gz").stat().st_size < MIB
    assert sample_table(tmp_path / "bomb.csv.gz", 8 * MIB).csv_bytes < 16 * MIB


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("value", [0x7F, 0x00])
def test_forged_sizes_are_errors_of_the_table_and_not_of_memory(suffix, value, tmp_path, monkeypatch):
    frame = pl.DataFrame({"id": ["a", "b", "c", "d"], "domain": [0, 0, 1, 1], "v": [[1.0], [2.0], [3.0], [4.0]]})
    path = write(frame, tmp_path / f"n.{suffix}")
    content = path.read_bytes()
    free(monkeypatch, 64 * MIB)
    refused = 0
    positions = range(0, len(content), 3)
    for position in positions:
        path.write_bytes(content[:position] + bytes([value]) + content[position + 1 :])
        try:
            read_graph(path, None)
        except OutOfMemory as problem:
            pytest.fail(f"byte {position}: {problem}")
        except RecoslipError:
            refused += 1
    assert refused > len(positions) / 20


@pytest.mark.parametrize("cut", [1, 10, 1000])
def test_a_compressed_file_that_ends_too_soon_is_refused(cut, tmp_path):
    path = write(pl.DataFrame({"id": range(5000), "domain": 0, "v": 1.5}), tmp_path / "n.csv.gz")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(TableError, match="cannot be read as csv"):
        read_graph(path, None)


CAPPED = """
import json, resource, sys
import psutil, pyarrow.parquet, sklearn.feature_extraction.text, sklearn.preprocessing
import recoslip.tables.files as files
from recoslip.errors import OutOfMemory
from recoslip.tables import read_graph

nodes, edges, text, cap = json.loads(sys.argv[1])
pyarrow.array([1])  # Arrow reserves address space at its first use

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

estimates = []
for name in ("estimate_nodes", "estimate_edges"):
    def record(*arguments, estimate=getattr(files, name)):
        estimates.append(estimate(*arguments) + status("VmRSS") - before)
        return estimates[-1]
    setattr(files, name, record)
if cap:
    limit = psutil.Process().memory_info().vms + cap
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the highest need is counted from here
before = status("VmRSS")
try:
    read_graph(nodes, edges, text=text)
except OutOfMemory as problem:
    print(json.dumps(str(problem)))
else:
    print(json.dumps([status("VmHWM") - before, max(estimates)]))
"""


def run_capped(nodes, edges=None, text=(), cap=None):
    """Read a graph in a process of its own: its highest need and the estimate, in bytes, or the refusal."""
    arguments = json.dumps([str(nodes), edges and str(edges), list(text), cap])
    # polars' allocator gives memory back after a time of its own, which on a busy machine may come too late.
    at_once = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
    environment = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "PATH": "", **at_once}
    result = subprocess.run(
        [sys.executable, "-c", CAPPED, arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, (result.returncode, result.stderr[-2000:])
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def zeros(tmp_path_factory):
    """A Parquet file of under a mebibyte, whose table takes 0.6 GiB and whose graph 1.2."""
    path = tmp_path_factory.mktemp("zeros") / "n.parquet"
    zeros = pl.Series(np.zeros(300_000))
    columns = {f"x{k}": zeros for k in range(300)}
    pl.DataFrame({"id": range(300_000), "domain": np.arange(300_000) % 2, **columns}).write_parquet(path)
    assert path.stat().st_size < 2 * MIB
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is enforced on Linux")
def test_a_table_of_zeros_is_refused_under_a_cap_and_read_without(zeros):
    assert "write the graph as a folder that stays on disk" in run_capped(zeros, cap=600 * MIB)
    assert "may take" in run_capped(zeros, cap=1000 * MIB)
    need, estimate = run_capped(zeros, cap=2500 * MIB)
    assert need <= estimate <= 2.5 * need


def shape_of(kind):
    """Return the columns of a nodes table, those of an edges table if there is one, and the columns of text."""
    rng = np.random.default_rng(0)
    rows = 60_000
    base = {"id": range(rows), "domain": np.arange(rows) % 2}
    values = [f"value {k}" for k in range(40)]
    if kind == "categories":
        return base | {f"c{k}": rng.choice(values, rows) for k in range(10)}, None, ()
    if kind == "numbers and a category":
        return base | {f"x{k}": rng.normal(size=rows) for k in range(40)} | {"c": rng.choice(values, rows)}, None, ()
    if kind == "text":
        words = np.array([f"word{k}" for k in range(20_000)])[np.minimum(rng.zipf(1.3, (rows, 15)), 19_999)]
        return base | {"t": [" ".join(row) for row in words]}, None, ("t",)
    if kind == "vectors":
        return base | {"v": list(rng.normal(size=(rows, 64)))}, None, ()
    ends = rng.integers(0, rows, (2, 600_000))
    return base | {"x": rng.normal(size=rows)}, {"a": ends[0], "b": ends[1]}, ()


@pytest.mark.skipif(sys.platform != "linux", reason="the highest need is read from Linux")
@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        *((kind, "parquet") for kind in ("categories", "numbers and a category", "text", "vectors", "edges")),
        ("numbers and a category", "csv.gz"),
        ("text", "csv.gz"),
    ],
)
def test_the_estimate_is_at_least_the_need_and_at_most_two_and_a_half_times(kind, suffix, tmp_path):
    nodes, edges, text = shape_of(kind)
    nodes = write(pl.DataFrame(nodes), tmp_path / f"n.{suffix}")
    edges = None if edges is None else write(pl.DataFrame(edges), tmp_path / f"e.{suffix}")
    need, estimate = run_capped(nodes, edges, text)
    overhead = 48 * MIB  # of the first use of the libraries
    assert need - overhead <= estimate <= 2.5 * need
