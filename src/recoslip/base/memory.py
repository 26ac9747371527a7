"""This machine -> the bytes of memory it has, how many of them are free, and errors that name what limits them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from recoslip.base.errors import OutOfMemory

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


MACHINE = "all processes of the machine"
USABLE_ADDRESSES = 0.8  # of an address space: allocators reserve more than they use
LARGE = 1 / 16  # of the memory: a graph of fewer bytes is not why it ran out
BATCHES = "set or reduce batch_size, or reduce hidden_channels"
WORDS = re.compile(
    "out of memory|not enough memory|allocate memory|memory allocation|alloc_failed|failed to map segment|"
    "storage size calculation overflowed",
    re.IGNORECASE,
)


class Memory(NamedTuple):
    """Bytes of a memory, or fewer where this process or its container is limited."""

    total: int
    free: int


def memory() -> Memory:
    """Return the total and the free memory of this machine, or what this process may use of it."""
    limits = _limits().values()
    return Memory(min(limit.total for limit in limits), max(0, min(limit.free for limit in limits)))


def _limits() -> dict[str, Memory]:
    """Return what limits the memory of this process, in words, and how many bytes."""
    machine = psutil.virtual_memory()
    limits = {MACHINE: Memory(machine.total, machine.available)}
    cgroup = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError, KeyError):  # not Linux, no control group, or no limit
        maximum, used = (int((cgroup / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        reclaimable = int(statistics["inactive_file"])  # page cache, which the kernel drops on demand
        limits["the container (its control group)"] = Memory(maximum, maximum - used + reclaimable)
    if resource is not None and (maximum := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        reserved = psutil.Process().memory_info().vms
        limits["the process (ulimit -v)"] = Memory(maximum, int(USABLE_ADDRESSES * (maximum - reserved)))
    return limits


@contextmanager
def memory_errors(size: int = 0) -> Iterator[None]:
    """Turn every library's error for too little memory into OutOfMemory.

    Args:
        size: bytes that the graph takes whose computation it is; batches and packing are advised where they matter.
    """
    try:
        yield
    except (MemoryError, RuntimeError, ImportError, OSError) as problem:
        if not isinstance(problem, MemoryError) and not WORDS.search(str(problem)):
            raise
        if "CUDA" in str(problem):
            raise OutOfMemory(f"out of memory: that of the GPU is full; {BATCHES}") from problem
        if "overflowed" in str(problem):  # whatever the memory of the machine
            raise OutOfMemory(f"out of memory: no memory holds a layer of this size; {BATCHES}") from problem
        raise OutOfMemory(_explanation(size)) from problem


def _explanation(size: int) -> str:
    """Say which limit is the lowest, and what would help."""
    name, lowest = min(_limits().items(), key=lambda item: item[1].total)
    remedy = "end other programs" if name == MACHINE else "raise this limit"
    if size > LARGE * lowest.total:
        remedy = f"{BATCHES}, or pack the graph (recoslip pack), or {remedy}"
    return f"out of memory: {name} may use {lowest.total / 2**30:.2g} GiB; {remedy}"
