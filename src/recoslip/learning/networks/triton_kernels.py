"""Kernels of Triton: the bits of `random_bits.py`, values of which these drop some, sums of rows, inner products."""

import torch
import triton
import triton.language as tl
from torch import Tensor

WORDS = 16  # 64-bit words of a program
OPTIONS = {"enable_fp_fusion": True}  # as by default; versions of Triton that will change the default warn of it

COLUMNS = 512  # of a sum, that one program computes
SUMMED = 4096  # numbers that it reads at once
PAIRED = 2048  # numbers of a node that a program multiplies at once
PARTNERS = 4  # nodes paired with a node whose rows a program reads at once
PARTNER_NUMBERS = 256  # numbers of each that it reads


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
        digits: of the probability, as `random_bits.binary_digits` returns them.
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


@triton.jit
def _segment_sum_kernel(
    dense,
    segment,
    column,
    value,
    result,
    width,
    WEIGHTED: tl.constexpr,
    ENTRIES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, last = tl.load(segment + row), tl.load(segment + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        inside = entry < last
        source = entry.to(tl.int64)
        if WEIGHTED:
            source = tl.load(column + entry, mask=inside, other=0).to(tl.int64)
        within = inside[:, None] & (place < width)[None, :]
        rows = tl.load(dense + source[:, None] * width + place[None, :], mask=within, other=0)
        if WEIGHTED:
            rows *= tl.load(value + entry, mask=inside, other=0)[:, None]
        total += tl.sum(rows, axis=0)
    tl.store(result + row * width + place, total, mask=place < width)


@triton.jit
def _inner_products_kernel(
    g,
    left,
    right,
    result,
    members,
    width,
    MEMBERS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    pair = tl.program_id(0).to(tl.int64)
    member = tl.program_id(1) * MEMBERS + tl.arange(0, MEMBERS)
    channel = tl.arange(0, WIDTH)
    at = member[:, None] * width + channel[None, :]
    inside = (member < members)[:, None] & (channel < width)[None, :]
    ours = tl.load(g + tl.load(left + pair) * members * width + at, mask=inside, other=0)
    theirs = tl.load(g + tl.load(right + pair) * members * width + at, mask=inside, other=0)
    tl.store(result + pair * members + member, tl.sum(ours * theirs, axis=1), mask=member < members)


@triton.jit
def _inner_products_grad_kernel(
    g,
    grad,
    begin,
    pair,
    other,
    result,
    members,
    width,
    ENTRIES: tl.constexpr,
    MEMBERS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    node = tl.program_id(0).to(tl.int64)
    member = tl.program_id(1) * MEMBERS + tl.arange(0, MEMBERS)
    channel = tl.arange(0, WIDTH)
    at = member[:, None] * width + channel[None, :]
    inside = (member < members)[:, None] & (channel < width)[None, :]
    first, last = tl.load(begin + node), tl.load(begin + node + 1)
    total = tl.zeros((MEMBERS, WIDTH), tl.float32)
    for start in range(first, last, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        is_entry = entry < last
        rows = tl.load(other + entry, mask=is_entry, other=0)[:, None, None] * members * width + at[None, :, :]
        neighbour = tl.load(g + rows, mask=is_entry[:, None, None] & inside[None, :, :], other=0)
        of_pair = tl.load(pair + entry, mask=is_entry, other=0)[:, None] * members + member[None, :]
        weight = tl.load(grad + of_pair, mask=is_entry[:, None] & (member < members)[None, :], other=0)
        total += tl.sum(weight[:, :, None] * neighbour, axis=0)
    tl.store(result + node * members * width + at, total, mask=inside)


def segment_sum(dense: Tensor, segment: Tensor, column: Tensor | None = None, value: Tensor | None = None) -> Tensor:
    """Sum rows of a matrix, those of each segment; with `column` and `value`, the rows named there, weighted.

    Args:
        dense: (any, width).
        segment: (segments + 1,) where each begins.
        column: (entries,) rows of `dense`; by default all of them, in order.
        value: (entries,) their weights.
    """
    dense = dense.contiguous()
    count, width = len(segment) - 1, dense.shape[1]
    result = dense.new_empty(count, width)
    block = min(COLUMNS, triton.next_power_of_2(max(1, width)))
    entries = min(32, SUMMED // block)
    weighted = column is not None
    named = (column, value) if weighted else (segment, dense)
    if count and width:
        grid = (count, triton.cdiv(width, block))
        with torch.cuda.device_of(dense):
            _segment_sum_kernel[grid](dense, segment, *named, result, width, weighted, entries, block, **OPTIONS)
    return result


def inner_products(g: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Compute g_i · g_j of every pair and member: (nodes, members, out), (pairs,), (pairs,) -> (pairs, members)."""
    _, members, width = g.shape
    result = g.new_empty(len(left), members)
    channels = triton.next_power_of_2(width)
    block = min(triton.next_power_of_2(members), max(1, PAIRED // channels))
    grid = (len(left), triton.cdiv(members, block))
    arguments = (left, right, result, members, width, block, channels)
    with torch.cuda.device_of(g):
        _inner_products_kernel[grid](g.contiguous(), *arguments, **OPTIONS)
    return result


def inner_products_grad(g: Tensor, left: Tensor, right: Tensor, grad: Tensor) -> Tensor:
    """Compute the gradient with respect to g: each node adds up the rows of those that it is paired with.

    Both ends are sorted, so every node adds in the same order every time.
    """
    nodes, members, width = g.shape
    ends, others = torch.cat([left, right]), torch.cat([right, left])
    ordered, order = torch.sort(ends.int(), stable=True)
    begin = torch.searchsorted(ordered, torch.arange(nodes + 1, dtype=torch.int32, device=g.device), out_int32=True)
    result = torch.empty_like(g, memory_format=torch.contiguous_format)
    channels = triton.next_power_of_2(width)
    block = min(triton.next_power_of_2(members), max(1, PARTNER_NUMBERS // channels))
    grid = (nodes, triton.cdiv(members, block))
    arguments = (begin, order % len(left), others[order], result, members, width, PARTNERS, block, channels)
    with torch.cuda.device_of(g):
        _inner_products_grad_kernel[grid](g.contiguous(), grad.contiguous(), *arguments, **OPTIONS)
    return result
