"""Functions of some rows -> arrays of one row per node, made a block at a time: in this process, or in several.

What is made of a large graph is made by functions of a block of its rows. One process calls them one after the other;
on a cluster they are tasks (`recoslip.products.cluster`). Arrays that are large lie in files, which tasks map
themselves.
"""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from recoslip.base.errors import OutOfMemory
from recoslip.base.files import printable
from recoslip.base.memory import memory

ROWS = 2**17  # of a block
LARGE = 1 / 32  # of the memory: larger arrays lie in files


class File(NamedTuple):
    """An array in a file, for another process to map."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    mode: Literal["r", "r+"]  # whether what is written to the array changes the file

    def mapped(self) -> NDArray[Any]:
        """Map it."""
        return np.memmap(self.path, self.dtype, self.mode, self.offset, self.shape)


class SparseFile(NamedTuple):
    """A CSR matrix in files."""

    data: File
    indices: File
    indptr: File
    shape: tuple[int, int]

    def mapped(self) -> sp.csr_array:
        """Map it, without the copies that the constructor would make."""
        matrix = sp.csr_array(self.shape, dtype=self.data.dtype)
        matrix.data, matrix.indices, matrix.indptr = (each.mapped() for each in self[:3])
        return matrix


def handle(value: Any) -> Any:
    """Return what another process maps the same array by, if it is mapped from a file; else the value itself."""
    if isinstance(value, np.memmap) and isinstance(value.base, mmap.mmap) and value.filename is not None:
        mode: Literal["r", "r+"] = "r+" if value.mode in ("r+", "w+") else "r"
        return File(os.fspath(value.filename), value.dtype.str, value.shape, value.offset, mode)
    if sp.issparse(value):
        data, indices, indptr = (handle(each) for each in (value.data, value.indices, value.indptr))
        return SparseFile(data, indices, indptr, value.shape) if isinstance(data, File) else value
    return value


def mapped(value: Any) -> Any:
    """Return the array that a handle stands for, or the value itself."""
    return value.mapped() if isinstance(value, File | SparseFile) else value


def one_thread() -> Any:
    """Let products of matrices use one core: with several, they round otherwise, and processes must agree."""
    return _libraries().limit(limits=1, user_api="blas")


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def call(task: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with the arrays that handles stand for."""
    with one_thread():
        return task(*map(mapped, arguments))


def cut(nodes: int, rows: int = 0) -> list[slice]:
    """Cut the nodes into ranges of so many; by default, into blocks."""
    rows = rows or ROWS
    return [slice(begin, min(begin + rows, nodes)) for begin in range(0, nodes, rows)]


class Blocks:
    """Calls functions one after the other; arrays lie in memory, or in files without a name if they are large."""

    def each(self, task: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return what a function returns for the arguments of each job."""
        with one_thread():
            return [task(*arguments) for arguments in jobs]

    def create(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an array to be filled."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size <= LARGE * memory().total:
            return np.empty(shape, dtype)
        with tempfile.TemporaryFile() as file:  # which ends with the array
            reserve(file.fileno(), size, tempfile.gettempdir())
            return np.memmap(file, dtype, "r+", shape=shape)

    def fill(self, shape: tuple[int, ...], dtype: DTypeLike, task: Callable[..., Any], *arguments: Any) -> NDArray[Any]:
        """Return an array, of which each block of rows is what a function of these rows and the arguments returns."""
        result = self.create(shape, dtype)
        self.each(_fill, [(result, rows, task, *arguments) for rows in cut(shape[0])])
        return result


def _fill(result: NDArray[Any], rows: slice, task: Callable[..., Any], *arguments: Any) -> None:
    result[rows] = task(rows, *arguments)
    if isinstance(result, np.memmap) and result.filename is not None:
        result.flush()  # other machines read it


def reserve(file: int, size: int, folder: str) -> None:
    """Make a file so large, where the system can; a full disk is an error here, and would end the process later."""
    try:
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
    except OSError as problem:
        raise OutOfMemory(
            f"an array of {size / 2**30:.1f} GiB does not fit into {printable(folder)} ({problem.strerror}); set "
            "TMPDIR, or storage for a cluster, to a folder of another disk"
        ) from problem


_current: ContextVar[Blocks] = ContextVar("blocks", default=Blocks())  # noqa: B039 - it has no state


def current() -> Blocks:
    """Return what functions of rows are called by here."""
    return _current.get()


@contextmanager
def using(blocks: Blocks) -> Iterator[None]:
    """Have functions of rows called by something else."""
    token = _current.set(blocks)
    try:
        yield
    finally:
        _current.reset(token)
