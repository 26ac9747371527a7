"""A device -> the bytes of memory it has, and how many of them are free."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


USABLE_ADDRESSES = 0.8  # of an address space: allocators reserve more than they use


class Memory(NamedTuple):
    """Bytes of a device's memory, or fewer where this process or its container is limited."""

    total: int
    free: int


def memory(device: torch.device) -> Memory:
    """Return the total and the free memory of a device."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(total, free + cached)
    machine = psutil.virtual_memory()
    limits = [Memory(machine.total, machine.available)]
    cgroup = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError, KeyError):  # not Linux, no control group, or no limit
        maximum, used = (int((cgroup / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        reclaimable = int(statistics["inactive_file"])  # page cache, which the kernel drops on demand
        limits.append(Memory(maximum, maximum - used + reclaimable))
    if resource is not None and (maximum := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        reserved = psutil.Process().memory_info().vms
        limits.append(Memory(maximum, int(USABLE_ADDRESSES * (maximum - reserved))))
    return Memory(min(limit.total for limit in limits), max(0, min(limit.free for limit in limits)))
