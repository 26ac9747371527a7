"""Tensors on a GPU -> what PyTorch's operators would make of them, by Triton kernels that pass over memory less often.

Every kernel has a counterpart of PyTorch's operators beside its caller, which runs on CPUs, and on GPUs where Triton is
missing or finds no C compiler. Kernels add in a fixed order, so that the same seed gives the same bits
(docs/decisions/kernels.md).
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from recoslip.base.errors import RecoslipWarning


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
