"""Arrays of NumPy and SciPy <-> tensors of PyTorch, on one device; sparse matrices as CSR tensors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from recoslip.data.validation import to_csr as to_canonical


def to_tensor(x: NDArray[Any] | sp.csr_array) -> Tensor:
    """Return an array as a tensor that shares its memory where it may be written to; a sparse one as a CSR tensor."""
    if sp.issparse(x):
        return to_csr(x)
    return torch.from_numpy(x if x.flags.writeable else x.copy())


def to_csr(matrix: sp.sparray | sp.spmatrix) -> Tensor:
    """Any SciPy sparse matrix -> float32 CSR tensor with sorted, unique columns."""
    csr = to_canonical(matrix)
    crow, column = (torch.from_numpy(each.astype(np.int64)) for each in (csr.indptr, csr.indices))
    return csr_tensor(crow, column, torch.from_numpy(csr.data), csr.shape)


def csr_tensor(crow: Tensor, column: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Build a CSR tensor without checking its invariants and without PyTorch's warnings that CSR is in beta."""
    _warned_of_csr()
    return torch.sparse_csr_tensor(crow, column, values, size=tuple(shape), check_invariants=False)


@cache
def _warned_of_csr() -> None:
    """Let PyTorch give its warnings of CSR tensors, which it gives once, where nobody sees them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        one = torch.ones(1)
        torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), one, size=(1, 1), check_invariants=False)


def csr_of_entries(row: Tensor, column: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Build a CSR tensor from entries in any order, on their device; entries of one place stay apart.

    >>> matrix = csr_of_entries(torch.tensor([1, 0, 1]), torch.tensor([2, 0, 2]), torch.ones(3), (2, 3))
    >>> (matrix @ torch.tensor([[1.0], [2.0], [3.0]])).flatten().tolist()
    [1.0, 6.0]
    """
    order = torch.argsort(row, stable=True)
    crow = F.pad(torch.bincount(row, minlength=shape[0]).cumsum(0), (1, 0))
    return csr_tensor(crow, column[order], values[order], shape)


def concatenated_ranges(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate ranges as `recoslip.data.neighbours.concatenated_ranges` does, on the device of their lengths."""
    owner = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    before = torch.cumsum(lengths, 0) - lengths
    return owner, torch.arange(len(owner), device=lengths.device) - before[owner]


def to_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return named arrays as tensors."""
    return {name: to_tensor(array) for name, array in arrays.items()}
