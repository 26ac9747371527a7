"""Keys and numbers -> random bits, and values of which these drop some: the draws of `random_bits.py`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WORDS = 16  # 64-bit words of a program
OPTIONS = {"enable_fp_fusion": True}  # as by default; versions of Triton that will change the default warn of it


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
    if count == 0:
        return tl.full(index.shape, 0xFFFFFFFFFFFFFFFF if digits else 0, tl.uint64)
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
    flat, result = keys.reshape(-1), torch.empty_like(keys, memory_format=torch.contiguous_format)
    if not isinstance(number, Tensor):
        number = torch.full((), number, dtype=torch.long, device=keys.device)
    with torch.cuda.device_of(keys):
        _derive_kernel[(triton.cdiv(len(flat), 128),)](flat, number, result, len(flat), 128, **OPTIONS)
    return result


def dropout(
    values: Tensor,
    keys: Tensor,
    digits: tuple[int, int],
    factor: float,
    *,
    relu: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Keep each of (rows, members, width) with a probability, times a factor, after ReLU where asked for.

    Args:
        values: what some are kept of.
        keys: (members,) of the draws.
        digits: of the probability, as `counter_rng.binary_digits` returns them.
        factor: that those are multiplied by which are kept.
        relu: whether those below 0 are dropped, too.
        out: where to put the result, contiguous; may be `values`. By default a new tensor.
    """
    rows, members, width = values.shape
    padded = -(-width // 8) * 8
    result = torch.empty_like(values, memory_format=torch.contiguous_format) if out is None else out
    assert result.is_contiguous()
    words = triton.cdiv(rows * padded, 64)
    grid = (triton.cdiv(words, WORDS), members)
    arguments = (rows, members, width, padded, factor, relu, *digits, WORDS)
    with torch.cuda.device_of(values):
        _dropout_kernel[grid](values.contiguous(), keys, result, *arguments, **OPTIONS)
    return result


def drop_entries(
    values: Tensor, key: Tensor, digits: tuple[int, int], factor: float, order: Tensor | None = None
) -> Tensor:
    """Keep each of (entries,) as `dropout` does, by the draws of the entries at `order`; by default by its own."""
    result, count = torch.empty_like(values), len(values)
    ordered = order is not None
    arguments = (order if ordered else values, key, result, count, factor, ordered, *digits, 256)
    with torch.cuda.device_of(values):
        _entries_kernel[(triton.cdiv(count, 256),)](values, *arguments, **OPTIONS)
    return result
