"""Matrices that stand still while everything else learns: products with them, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import scipy.sparse as sp
import torch
from torch import Tensor

from recoslip.graph import to_csr, to_scipy

Product: TypeAlias = Callable[[Tensor], Tensor]  # (columns of the matrix, any) -> (rows of the matrix, any)


def identity(dense: Tensor) -> Tensor:
    """Multiply by the identity."""
    return dense


@dataclass(frozen=True, eq=False)
class DenseProduct:
    """Product with a dense matrix."""

    matrix: Tensor

    def __call__(self, dense: Tensor) -> Tensor:
        return self.matrix @ dense


@dataclass(frozen=True, eq=False)
class SparseProduct:
    """Product with a sparse matrix. The transpose, which the gradient needs, is built once."""

    matrix: Tensor  # CSR
    transpose: Tensor  # CSR

    @classmethod
    def of(cls, matrix: sp.sparray, device: torch.device, dtype: torch.dtype, *, symmetric: bool = False) -> SparseProduct:
        """Put a scipy matrix and its transpose on a device."""
        forward = _on(to_csr(matrix), device, dtype)
        return cls(forward, forward if symmetric else _on(to_csr(matrix.T), device, dtype))

    def __call__(self, dense: Tensor) -> Tensor:
        return cast(Tensor, _SparseMatmul.apply(dense, self.matrix, self.transpose))


def chain(outer: Product, inner: Product) -> Product:
    """Apply `inner`, then `outer`."""
    return lambda dense: outer(inner(dense))


class _SparseMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        return _matmul(matrix, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return _matmul(ctx.transpose, grad), None, None


def _matmul(matrix: Tensor, dense: Tensor) -> Tensor:
    if dense.device.type == "cpu":  # PyTorch's own row-parallel kernel: twice MKL's speed for wide right sides
        return torch.sparse.mm(matrix, dense.contiguous(), "sum")
    return matrix @ dense


def _on(matrix: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    small = matrix.values().numel() < 2**31 and device.type == "cuda"  # cuSPARSE is faster with 32-bit indices
    index = torch.int32 if small else torch.int64
    return torch.sparse_csr_tensor(
        matrix.crow_indices().to(device, index),
        matrix.col_indices().to(device, index),
        matrix.values().to(device, dtype),
        size=matrix.shape,
        check_invariants=False,
    )


__all__ = ["DenseProduct", "Product", "SparseProduct", "chain", "identity", "to_scipy"]
