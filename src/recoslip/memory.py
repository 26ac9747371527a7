"""A device -> how many bytes there are, and how many are free."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


class Memory(NamedTuple):
    """Bytes of a device's memory, or less where this process or its container is limited."""

    total: int
    free: int


def memory(device: torch.device) -> Memory:
    """Look up how much memory there is."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(total, free + cached)
    machine = psutil.virtual_memory()
    limits = [Memory(machine.total, machine.available)]
    container = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError, KeyError):  # another system, or no limit
        most, used = (int((container / name).read_text()) for name in ("memory.max", "memory.current"))
        parts = dict(line.split() for line in (container / "memory.stat").read_text().splitlines())
        limits.append(Memory(most, most - used + int(parts["inactive_file"])))  # files read lately give way
    if resource is not None and (most := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        limits.append(Memory(most, most - psutil.Process().memory_info().vms))
    return Memory(min(limit.total for limit in limits), max(0, min(limit.free for limit in limits)))
