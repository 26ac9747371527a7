"""Arrays of NumPy and SciPy -> tensors; products with matrices that are not learned, forward and backward."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from recoslip.data.validation import to_csr as to_canonical
from recoslip.learning.networks.device import can_take
from recoslip.learning.networks.interfaces import Product
from recoslip.learning.networks.random_bits import binary_digits, drop, keep_mask, kept_factor


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

    def dropped(self, key: Tensor, keep: float) -> DenseProduct:
        """Return the product with each entry kept with probability `keep`, and scaled up."""
        return DenseProduct(drop(self.matrix[:, None], key.view(1), keep)[:, 0])


class Entries(NamedTuple):
    """A sparse matrix by its entries, in any order; those of one place add up."""

    row: Tensor
    column: Tensor
    value: Tensor
    shape: tuple[int, int]

    def scipy(self) -> sp.csr_array:
        """Return it as a scipy matrix."""
        return sp.csr_array((self.value.numpy(), (self.row.numpy(), self.column.numpy())), shape=self.shape)


@dataclass(frozen=True, eq=False)
class SparseProduct:
    """Product with a sparse matrix. The transpose, which the gradient needs, is built once."""

    matrix: Rows | Segments
    transpose: Rows | Segments
    order: Tensor | None = None  # (entries,) the index in the matrix of each entry of the transpose

    @classmethod
    def of(
        cls,
        matrix: sp.sparray,
        device: torch.device,
        dtype: torch.dtype,
        *,
        symmetric: bool = False,
        droppable: bool = False,
    ) -> SparseProduct:
        """Put a scipy matrix and its transpose on a device; `droppable` for one whose entries will be dropped."""
        kind: type[Rows | Segments] = Segments if device.type == "cuda" else Rows
        csr = to_csr(matrix)
        forward = kind.of(csr, device, dtype)
        order = None
        if droppable:
            entries = sp.csr_array(
                (np.arange(len(csr.values())), csr.col_indices().numpy(), csr.crow_indices().numpy()), matrix.shape
            )
            order = torch.from_numpy(sp.csr_array(entries.T).data).to(device)
        return cls(forward, forward if symmetric else kind.of(to_csr(matrix.T), device, dtype), order)

    @classmethod
    def of_entries(cls, entries: Entries, device: torch.device, dtype: torch.dtype) -> SparseProduct:
        """Put a matrix given by its entries on a device, and its transpose."""
        row, column, value, (rows, columns) = entries
        return cls(
            on_device(csr_of_entries(row, column, value, (rows, columns)), device, dtype),
            on_device(csr_of_entries(column, row, value, (columns, rows)), device, dtype),
        )

    def dropped(self, key: Tensor, keep: float) -> SparseProduct:
        """Return the product with each entry kept with probability `keep`, and scaled up."""
        assert self.order is not None
        if isinstance(self.matrix, Segments) and can_take(self.matrix.value):
            from recoslip.learning.networks.triton_kernels import drop_entries

            matrix, transpose = self.matrix, cast(Segments, self.transpose)
            draw = key, binary_digits(keep), kept_factor(keep)
            return SparseProduct(
                replace(matrix, value=drop_entries(matrix.value, *draw)),
                replace(transpose, value=drop_entries(transpose.value, *draw, self.order)),
            )
        factors = keep_mask(key.view(1), 1, len(self.order), keep, self.matrix.value.dtype).view(-1)
        return SparseProduct(self.matrix.scaled(factors), self.transpose.scaled(factors[self.order]))

    def __call__(self, dense: Tensor) -> Tensor:
        """Multiply; the gradient multiplies by the transpose."""
        return cast(Tensor, _SparseMatmul.apply(dense, self.matrix, self.transpose))  # type: ignore[no-untyped-call]


Features: TypeAlias = DenseProduct | SparseProduct


def chain(outer: Product, inner: Product) -> Product:
    """Apply `inner`, then `outer`."""
    return lambda dense: outer(inner(dense))


class _SparseMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Product, transpose: Product) -> Tensor:
        ctx.transpose = transpose
        return matrix(dense.contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose(grad.contiguous()), None, None


# Why neither class multiplies by `matrix @ dense`: docs/decisions/networks.md.


def on_device(matrix: sp.sparray | Tensor, device: torch.device, dtype: torch.dtype) -> Rows | Segments:
    """Put a scipy matrix or a CSR tensor on a device, for products without a gradient."""
    kind: type[Rows | Segments] = Segments if device.type == "cuda" else Rows
    return kind.of(matrix if isinstance(matrix, Tensor) else to_csr(matrix), device, dtype)


@dataclass(frozen=True, eq=False)
class Rows:
    """A sparse matrix for the CPU: sums the rows that a row's entries name."""

    csr: Tensor

    @classmethod
    def of(cls, csr: Tensor, device: torch.device, dtype: torch.dtype) -> Rows:
        """Build from a CSR tensor."""
        return cls(csr_tensor(csr.crow_indices(), csr.col_indices(), csr.values().to(dtype), csr.shape).to(device))

    @property
    def value(self) -> Tensor:
        """The entries, row by row."""
        return self.csr.values()

    def scaled(self, factor: Tensor) -> Rows:
        """Multiply each entry by its own factor, (entries,)."""
        csr = self.csr
        return Rows(csr_tensor(csr.crow_indices(), csr.col_indices(), csr.values() * factor, csr.shape))

    def __call__(self, dense: Tensor) -> Tensor:
        """Multiply, without a gradient."""
        return cast(Tensor, torch.sparse.mm(self.csr, dense, "sum"))


@dataclass(frozen=True, eq=False)
class Segments:
    """A sparse matrix for the GPU: its rows in segments of a few entries, summed by themselves and then by row.

    Each segment is summed by itself, so without them all would wait for the one that has the longest row.
    """

    LENGTH: ClassVar[int] = 32

    column: Tensor  # (entries,)
    value: Tensor  # (entries,)
    segment: Tensor  # (segments + 1,) where each begins among the entries
    row: Tensor | None  # (rows + 1,) where each begins among the segments; None where every row is one segment

    @classmethod
    def of(cls, csr: Tensor, device: torch.device, dtype: torch.dtype) -> Segments:
        """Cut the rows of a CSR tensor into segments."""
        begin, entries = csr.crow_indices()[:-1], csr.crow_indices().diff()
        count = torch.div(entries - 1, cls.LENGTH, rounding_mode="floor").clamp(min=0) + 1  # segments of each row
        row = F.pad(count.cumsum(0), (1, 0))
        owner, number = concatenated_ranges(count)  # row of each segment, and its number there
        segment = F.pad(begin[owner] + cls.LENGTH * number, (0, 1), value=len(csr.values()))
        index = torch.int32 if max(len(csr.values()), csr.shape[1]) < 2**31 else torch.int64
        return cls(
            csr.col_indices().to(device, index),
            csr.values().to(device, dtype),
            segment.to(device, index),
            None if (count == 1).all() else row.to(device, index),
        )

    def scaled(self, factor: Tensor) -> Segments:
        """Multiply each entry by its own factor, (entries,)."""
        return replace(self, value=self.value * factor)

    def __call__(self, dense: Tensor) -> Tensor:
        """Multiply, without a gradient."""
        if can_take(dense):
            from recoslip.learning.networks.triton_kernels import segment_sum

            result = segment_sum(dense, self.segment, self.column, self.value)
            return result if self.row is None else segment_sum(result, self.row)
        result = F.embedding_bag(
            self.column, dense, self.segment, mode="sum", per_sample_weights=self.value, include_last_offset=True
        )
        if self.row is None:
            return result
        segments = torch.arange(len(result), device=dense.device, dtype=self.row.dtype)
        return F.embedding_bag(segments, result, self.row, mode="sum", include_last_offset=True)
