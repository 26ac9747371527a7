"""Functions of rows: the same arrays whatever the blocks, in memory or in files, here or through handles."""

import errno
import os
import pickle
import tempfile

import numpy as np
import pytest
import scipy.sparse as sp

from recoslip.base.errors import OutOfMemory
from recoslip.data import blocks
from recoslip.data.blocks import Blocks, File, call, current, cut, handle, mapped, using


def doubled(rows, x):
    return 2 * x[rows]


class Counting(Blocks):
    """Sends every argument as a handle would be sent to another process."""

    def __init__(self):
        self.calls = 0

    def each(self, task, jobs):
        self.calls += len(jobs)
        return [call(task, *pickle.loads(pickle.dumps(tuple(map(handle, job))))) for job in jobs]


def test_blocks_cover_all_rows_once():
    assert cut(0, 4) == []
    assert cut(9, 4) == [slice(0, 4), slice(4, 8), slice(8, 9)]
    assert cut(blocks.ROWS) == [slice(0, blocks.ROWS)]


@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("large", [0, 1])
def test_blocks_change_nothing_in_memory_and_in_files(monkeypatch, rows, large):
    monkeypatch.setattr(blocks, "ROWS", rows)
    monkeypatch.setattr(blocks, "LARGE", large)
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    made = Blocks().fill(x.shape, np.float32, doubled, x)
    assert isinstance(made, np.memmap) == (large == 0)
    assert (made == 2 * x).all()
    assert Blocks().fill((0, 3), np.float32, doubled, x[:0]).shape == (0, 3)


def test_a_mapped_array_is_sent_as_the_place_where_it_lies(tmp_path):
    x = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "x.npy", x)
    array = np.load(tmp_path / "x.npy", mmap_mode="c")
    sent = handle(array)
    assert isinstance(sent, File)
    assert sent.mode == "r"
    assert (mapped(pickle.loads(pickle.dumps(sent))) == x).all()
    with pytest.raises(ValueError, match="read-only"):
        mapped(sent)[0] = 1
    for other in (x, array[1:], np.asarray(array)):
        assert handle(other) is other


def test_a_mapped_sparse_matrix_is_sent_as_the_places_of_its_parts(tmp_path):
    matrix = sp.random_array((30, 20), density=0.2, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    stored = sp.csr_array((30, 20), dtype=np.float32)
    for name, part in parts.items():
        np.save(tmp_path / name, part)
        setattr(stored, name, np.load(tmp_path / f"{name}.npy", mmap_mode="c"))
    again = mapped(pickle.loads(pickle.dumps(handle(stored))))
    assert (again.toarray() == matrix.toarray()).all()
    assert again.dtype == np.float32
    assert handle(matrix) is matrix


def test_others_may_call_the_functions_for_a_while(tmp_path):
    calling, x = Counting(), np.memmap(tmp_path / "x", np.float64, "w+", shape=(5, 2))
    x[:] = np.arange(10.0).reshape(5, 2)
    before = current()
    with using(calling):
        assert current() is calling
        assert current().each(doubled, [(slice(0, 2), x), (slice(2, 5), x)])[1].tolist() == (2 * x[2:]).tolist()
    assert current() is before
    assert calling.calls == 2


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve room in a file")
def test_a_full_disk_is_an_error_that_names_the_folder(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutOfMemory, match=f"{tempfile.gettempdir()}.*TMPDIR"):
        Blocks().create((2, 2), np.float32)
