"""Sparse matrices of SciPy <-> CSR tensors of PyTorch, and rows of either."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(crow, column, values, size=tuple(shape), check_invariants=False)


def select_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of a dense or CSR matrix, in the order of `index`."""
    return x[index] if x.layout == torch.strided else to_csr(to_scipy(x)[index.numpy()])


def concatenated_ranges(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate the ranges 0, 1, ..., `lengths[k]` - 1: the range k each number is from, and the number.

    The entries of rows of a CSR matrix, one row after the other, are `row_start[rows][k] + number`.

    >>> [each.tolist() for each in concatenated_ranges(torch.tensor([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    before = torch.cumsum(lengths, 0) - lengths
    return owner, torch.arange(len(owner)) - before[owner]
