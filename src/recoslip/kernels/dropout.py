"""Keys and numbers -> random bits, and values of which these drop some: the draws of `fleet/counter_rng.py`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

DIGITS = 16  # binary digits of a probability
WORDS = 16  # 64-bit words of a program


@triton.jit
def _mix(word):
    """SplitMix64's finaliser."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    return word ^ (word >> 31)


@triton.jit
def _derive(key, number):
    return _mix(key + ((0x9E3779B97F4A7C15 * (number.to(tl.uint64) + 1)) & 0x7FFFFFFFFFFFFFFF))


@triton.jit
def _bernoulli_word(key, index, digits: tl.constexpr, count: tl.constexpr):
    """Return the words of these indices, each bit 1 with the probability that has these binary digits."""
    if count == 0:  # rounded to 1
        return tl.full(index.shape, 0xFFFFFFFFFFFFFFFF, tl.uint64)
    counter = 0x9E3779B97F4A7C15 * (index.to(tl.uint64) + 1)
    result = _mix(_derive(key, tl.full((), 0, tl.uint64)) + counter)
    for stream in tl.static_range(1, count):
        fair = _mix(_derive(key, tl.full((), stream, tl.uint64)) + counter)
        result = result | fair if (digits >> stream) & 1 else result & fair
    return result


@triton.jit
def _derive_kernel(keys, numbers, result, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    key = tl.load(keys + place, mask=inside, other=0).to(tl.uint64)
    tl.store(result + place, _derive(key, tl.load(numbers)).to(tl.int64), mask=inside)


@triton.jit
def _dropout_kernel(
    values,
    keys,
    result,
    rows,
    members,
    width,
    padded,
    scale,
    RELU: tl.constexpr,
    NUMERATOR: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    member = tl.program_id(1)
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = _bernoulli_word(tl.load(keys + member).to(tl.uint64), index, NUMERATOR, COUNT)
    place = tl.arange(0, 64)
    bit = index[:, None] * 64 + place[None, :]
    row, column = bit // padded, bit % padded
    inside = (row < rows) & (column < width)
    at = (row * members + member) * width + column
    value = tl.load(values + at, mask=inside, other=0)
    if RELU:
        value = tl.where(value <= 0, 0.0, value)
    kept = ((word[:, None] >> place[None, :].to(tl.uint64)) & 1) != 0
    tl.store(result + at, tl.where(kept, value * scale, 0.0), mask=inside)


@triton.jit
def _entries_kernel(
    values,
    order,
    key,
    result,
    count,
    scale,
    ORDERED: tl.constexpr,
    NUMERATOR: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    bit = place
    if ORDERED:
        bit = tl.load(order + place, mask=inside, other=0)
    word = _bernoulli_word(tl.load(key).to(tl.uint64), bit // 64, NUMERATOR, COUNT)
    kept = ((word >> (bit % 64).to(tl.uint64)) & 1) != 0
    value = tl.load(values + place, mask=inside, other=0)
    tl.store(result + place, tl.where(kept, value * scale, 0.0), mask=inside)


def derive_keys(keys: Tensor, number: int | Tensor) -> Tensor:
    """Compute one step of `derive` for each key."""
    flat, result = keys.reshape(-1), torch.empty_like(keys)
    if not isinstance(number, Tensor):
        number = torch.full((), number, dtype=torch.long, device=keys.device)
    _derive_kernel[(triton.cdiv(len(flat), 128),)](flat, number, result, len(flat), 128, enable_fp_fusion=True)
    return result


def dropout(
    values: Tensor, keys: Tensor, keep: float, factor: float, *, relu: bool = False, out: Tensor | None = None
) -> Tensor:
    """Keep each of (rows, members, width) with probability `keep`, times a factor, after ReLU where asked for.

    The result is a new tensor, or `out`, contiguous, which may be `values`.
    """
    rows, members, width = values.shape
    padded = -(-width // 8) * 8
    result = torch.empty_like(values, memory_format=torch.contiguous_format) if out is None else out
    assert result.is_contiguous()
    words = triton.cdiv(rows * padded, 64)
    grid = (triton.cdiv(words, WORDS), members)
    arguments = (rows, members, width, padded, factor, relu, *binary_digits(keep), WORDS)
    _dropout_kernel[grid](values.contiguous(), keys, result, *arguments, enable_fp_fusion=True)
    return result


def drop_entries(values: Tensor, key: Tensor, keep: float, factor: float, order: Tensor | None = None) -> Tensor:
    """Keep each of (entries,) with probability `keep`, times a factor; by the draws of the entries at `order`."""
    result, count = torch.empty_like(values), len(values)
    ordered = order is not None
    arguments = (order if ordered else values, key, result, count, factor, ordered, *binary_digits(keep), 256)
    _entries_kernel[(triton.cdiv(count, 256),)](values, *arguments, enable_fp_fusion=True)
    return result


def binary_digits(probability: float) -> tuple[int, int]:
    """Return the binary digits of a probability p > 0 as a number, without zeros at its end, and how many there are.

    >>> binary_digits(0.5), binary_digits(0.75)
    ((1, 1), (3, 2))
    """
    numerator, count = round(probability * 2**DIGITS), DIGITS
    while numerator % 2 == 0:
        numerator, count = numerator // 2, count - 1
    return numerator, count
