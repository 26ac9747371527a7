"""Sparse matrices of SciPy <-> CSR tensors of PyTorch, and rows of either."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

SPARSE_BELOW = 0.1  # density under which the sparse product is the faster one (docs/decisions/sparse-features.md)


def is_mostly_zero(x: Tensor) -> bool:
    """Return whether products with a strided matrix take less time in sparse form."""
    return bool(torch.count_nonzero(x) < SPARSE_BELOW * x.numel())


def to_scipy(x: Tensor) -> sp.csr_array:
    """CSR tensor -> scipy CSR sharing its memory."""
    return sp.csr_array((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))


def to_csr(matrix: sp.sparray | sp.spmatrix) -> Tensor:
    """Any scipy sparse matrix -> float32 CSR tensor with sorted, unique columns."""
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    crow, column = torch.from_numpy(csr.indptr.astype(np.int64)), torch.from_numpy(csr.indices.astype(np.int64))
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        values = torch.from_numpy(csr.data.astype(np.float32))
    return csr_tensor(crow, column, values, csr.shape)


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


def select_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of a dense or CSR matrix, in the order of `index`."""
    return x[index] if x.layout == torch.strided else to_csr(to_scipy(x)[index.numpy()])


def concatenated_ranges(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate the ranges 0, 1, ..., `lengths[k]` - 1: the range k each number is from, and the number.

    The entries of rows of a CSR matrix, one row after the other, are `row_start[rows][k] + number`.

    >>> [each.tolist() for each in concatenated_ranges(torch.tensor([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    owner = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    before = torch.cumsum(lengths, 0) - lengths
    return owner, torch.arange(len(owner), device=lengths.device) - before[owner]
