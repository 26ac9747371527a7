"""Where to compute, and how much at once."""

import torch

from recoslip.errors import SettingError


def block_size(nodes: int, width: int, device: torch.device) -> int:
    """How many members to train at once: as many as keep one layer's activations small.

    On a CPU they should stay in the cache (docs/decisions/fleet.md), on a GPU a dozen of them in its memory.
    """
    budget = torch.cuda.mem_get_info(device)[1] // 64 if device.type == "cuda" else 16 * 2**20  # bytes
    return max(1, int(budget) // (4 * nodes * width))


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
