"""Matrices that stand still while everything else learns: products with them, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from recoslip.graph import csr_tensor, to_csr

Product: TypeAlias = Callable[[Tensor], Tensor]  # (columns of the matrix, any) -> (rows of the matrix, any)


def identity(dense: Tensor) -> Tensor:
    """Multiply by the identity."""
    return dense


@dataclass(frozen=True, eq=False)
class DenseProduct:
    """Product with a dense matrix."""

    matrix: Tensor

    def __call__(self, dense: Tensor) -> Tensor:
        """Multiply."""
        return self.matrix @ dense


@dataclass(frozen=True, eq=False)
class SparseProduct:
    """Product with a sparse matrix. The transpose, which the gradient needs, is built once."""

    matrix: Tensor  # CSR
    transpose: Tensor  # CSR

    @classmethod
    def of(
        cls, matrix: sp.sparray, device: torch.device, dtype: torch.dtype, *, symmetric: bool = False
    ) -> SparseProduct:
        """Put a scipy matrix and its transpose on a device."""
        forward = _on(to_csr(matrix), device, dtype)
        return cls(forward, forward if symmetric else _on(to_csr(matrix.T), device, dtype))

    def __call__(self, dense: Tensor) -> Tensor:
        """Multiply; the gradient multiplies by the transpose."""
        return cast(Tensor, _SparseMatmul.apply(dense, self.matrix, self.transpose))  # type: ignore[no-untyped-call]


def chain(outer: Product, inner: Product) -> Product:
    """Apply `inner`, then `outer`."""
    return lambda dense: outer(inner(dense))


class _SparseMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        return _matmul(matrix, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _matmul(ctx.transpose, grad), None, None


def _matmul(matrix: Tensor, dense: Tensor) -> Tensor:
    """Sum the rows a CSR row names. Not `matrix @ dense`: docs/decisions/sparse-products.md."""
    dense = dense.contiguous()
    if dense.device.type == "cpu":
        return cast(Tensor, torch.sparse.mm(matrix, dense, "sum"))
    return F.embedding_bag(
        matrix.col_indices(),
        dense,
        matrix.crow_indices(),
        mode="sum",
        per_sample_weights=matrix.values(),
        include_last_offset=True,
    )


def _on(matrix: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    small = device.type == "cuda" and matrix.values().numel() < 2**31
    index = torch.int32 if small else torch.int64
    return csr_tensor(
        matrix.crow_indices().to(device, index),
        matrix.col_indices().to(device, index),
        matrix.values().to(device, dtype),
        matrix.shape,
    )
