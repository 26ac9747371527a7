"""Which device to compute on, its memory, how much at once, and whether our Triton kernels can be used on it.

Every kernel has a counterpart of PyTorch's operators beside its caller, which runs on CPUs, and on GPUs where Triton is
missing or finds no C compiler. Kernels add in a fixed order, so that the same seed gives the same bits
(docs/decisions/networks.md).
"""

from __future__ import annotations

import warnings
from functools import cache

import scipy.sparse as sp
import torch
from torch import Tensor

from recoslip.base.errors import RecoslipWarning, SettingError
from recoslip.base.memory import Memory, memory
from recoslip.data.graph import NodeGraph


def block_size(nodes: int, width: int, device: torch.device) -> int:
    """How many members to train at once: as many as keep one layer's activations small.

    On a CPU they should stay in the cache (docs/decisions/networks.md), on a GPU a dozen of them in its memory.
    """
    budget = torch.cuda.mem_get_info(device)[1] // 64 if device.type == "cuda" else 16 * 2**20  # bytes
    return max(1, int(budget) // (4 * nodes * width))


def device_memory(device: torch.device) -> Memory:
    """Return the total and the free memory of a device."""
    if device.type != "cuda":
        return memory()
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return Memory(total, free + cached)


BATCH_SIZE = 2048  # where a graph has to be trained in batches
_LAYERS = 12  # arrays of nodes x width that training holds: activations and gradients


def memory_needed(graph: NodeGraph, width: int) -> int:
    """Estimate the bytes that training on the whole graph takes besides the graph, for networks of this total width."""
    entries = int(4 * graph.x.nnz if sp.issparse(graph.x) else graph.x.size)
    return 4 * (graph.num_nodes * width * _LAYERS + 2 * entries) + 64 * graph.num_edges


def resolve_device(name: str) -> torch.device:
    """Turn a device setting into a device; "auto" takes a CUDA GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()  # which a device without memory, such as meta, cannot
    except (RuntimeError, AssertionError, TypeError) as problem:
        usable = "auto, cpu or cuda" if torch.cuda.is_available() else "auto or cpu"
        raise SettingError(f"device {name!r} cannot be used here; use {usable}") from problem
    return device


def can_take(tensor: Tensor) -> bool:
    """Return whether the kernels can compute with such a tensor: single precision, on a GPU."""
    return tensor.is_cuda and tensor.dtype == torch.float32 and compile_here()


@cache
def compile_here() -> bool:
    """Return whether Triton compiles kernels for the GPU here; warn once where it does not."""
    try:
        from recoslip.learning.networks.triton_dropout import derive_keys

        derive_keys(torch.zeros(1, dtype=torch.long, device="cuda"), 0)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # whatever an installation lacks: the package, a compiler, its cache folder
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        message = f"Triton compiles no kernels here ({reason}); training on the GPU takes longer without them"
        warnings.warn(message, RecoslipWarning, stacklevel=2)
        return False
    return True
