"""A table that would not fit into memory is refused before it is read, in every format."""

import gzip
import zipfile

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from recoslip import pack, read_graph
from recoslip.base.errors import OutOfMemory, TableError
from recoslip.base.memory import Memory

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
    monkeypatch.setattr("recoslip.data.tables.files.memory", lambda *_: Memory(size, size))


FORMATS = ["csv", "tsv", "csv.gz", "parquet", "arrow", "zst.arrow"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_small_file_of_a_large_table_is_refused(suffix, tmp_path, monkeypatch):
    zeros = {f"x{k}": np.zeros(20_000) for k in range(50)}
    nodes = write(
        pl.DataFrame({"id": range(20_000), "domain": np.arange(20_000) % 2, **zeros}), tmp_path / f"n.{suffix}"
    )
    free(monkeypatch, 15 * MIB)
    with pytest.raises(OutOfMemory, match=r"nodes: .* may take .* GiB in memory or more, .*recoslip pack"):
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
    free(monkeypatch, 15 * MIB)
    with pytest.raises(OutOfMemory, match="edges: "):
        read_graph(nodes, edges)
    free(monkeypatch, 400 * MIB)
    assert read_graph(nodes, edges).num_edges == 1


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


GRAPH = {
    "graphml": b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">',
    "gexf": b"<gexf><graph>",
    "gml": b"graph [",
}


@pytest.mark.parametrize("suffix", ["csv.gz", "csv.zst", "zip", "edgelist.gz", "graphml.gz", "gexf.gz", "gml.gz"])
def test_no_more_is_decompressed_than_memory_holds(suffix, tmp_path, monkeypatch):
    """A file of four mebibytes would be four gibibytes of text."""
    path = tmp_path / f"n.{suffix.replace('.zst', '')}"
    start = GRAPH.get(suffix.removesuffix(".gz"), b"id,domain,v\n")
    if suffix == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("n.csv", "w") as file:
            fill(file, start)
    elif suffix == "csv.zst":
        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as file:
            fill(file, start)
    else:
        part = gzip.compress(b"0 0\n" * 2**21)  # members of a gzip file follow each other
        path.write_bytes(gzip.compress(start) + part * 512)
    assert path.stat().st_size < 9 * MIB
    free(monkeypatch, 200 * MIB)
    nodes = pl.DataFrame({"id": [0, 1], "domain": [0, 1], "v": [0, 1]})
    with pytest.raises(OutOfMemory, match=r"may take .* GiB in memory or more, .*recoslip pack"):
        read_graph(nodes, path) if "edge" in suffix else read_graph(path)


def fill(file, start):
    file.write(start)
    for _ in range(64):
        file.write(b"0,0,0\n" * 200_000)


def test_a_file_that_is_compressed_twice_is_not_decompressed_further(tmp_path):
    path = tmp_path / "n.csv.gz"
    path.write_bytes(gzip.compress(gzip.compress(b"id,domain,v\na,0,1\nb,1,2\n")))
    with pytest.raises(TableError, match="is compressed once more"):
        read_graph(path, None)


@pytest.mark.parametrize("cut", [1, 10, 1000])
def test_a_compressed_file_that_ends_too_soon_is_refused(cut, tmp_path):
    path = write(pl.DataFrame({"id": range(5000), "domain": 0, "v": 1.5}), tmp_path / "n.csv.gz")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(TableError, match="cannot be read as csv"):
        read_graph(path, None)
