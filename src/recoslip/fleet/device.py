"""Where to compute, and how much at once."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

from recoslip.errors import SettingError
from recoslip.graph import NodeGraph


def block_size(nodes: int, width: int, device: torch.device) -> int:
    """How many members to train at once: as many as keep one layer's activations small.

    On a CPU they should stay in the cache (docs/decisions/fleet.md), on a GPU a dozen of them in its memory.
    """
    budget = torch.cuda.mem_get_info(device)[1] // 64 if device.type == "cuda" else 16 * 2**20  # bytes
    return max(1, int(budget) // (4 * nodes * width))


try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

BATCH_SIZE = 2048  # where a graph has to be trained in batches
_LAYERS = 12  # of a network's width that training holds for every node: activations, masks and gradients


def memory_needed(graph: NodeGraph, width: int) -> int:
    """About how many bytes training a network of this width on the whole graph takes, besides the graph itself."""
    entries = graph.x.numel() if graph.x.layout == torch.strided else 4 * graph.x.values().numel()
    return 4 * (graph.num_nodes * width * _LAYERS + 2 * entries) + 64 * graph.num_edges


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


def resolve_device(name: str) -> torch.device:
    """Turn a device setting into a device; "auto" takes a CUDA GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise SettingError(f"device {name!r} cannot be used here ({reason}); use auto, cpu or cuda") from problem
    return device
