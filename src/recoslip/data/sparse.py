"""Sparse matrices of SciPy: rows in canonical form, and ranges of their entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

SPARSE_BELOW = 0.1  # density under which the sparse product is the faster one (docs/decisions/sparse-features.md)


def is_mostly_zero(x: NDArray[Any]) -> bool:
    """Return whether products with a dense matrix take less time in sparse form."""
    return bool(np.count_nonzero(x) < SPARSE_BELOW * x.size)


def to_csr(matrix: sp.sparray | sp.spmatrix) -> sp.csr_array:
    """Any sparse matrix -> a float32 CSR matrix of its own memory with sorted, unique columns."""
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return csr.astype(np.float32, copy=False)


def concatenated_ranges(lengths: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenate the ranges 0, 1, ..., `lengths[k]` - 1: the range k each number is from, and the number.

    The entries of rows of a CSR matrix, one row after the other, are `row_start[rows][k] + number`.

    >>> [each.tolist() for each in concatenated_ranges(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return owner, np.arange(len(owner)) - before[owner]
