"""Rows of a matrix, and which of them belong together -> sums of rows, and inner products of pairs of them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from recoslip.learning.networks.triton_dropout import OPTIONS

COLUMNS = 512  # of a sum, that one program computes
SUMMED = 4096  # numbers that it reads at once
PAIRED = 2048  # numbers of a node that a program multiplies at once
PARTNERS = 4  # nodes paired with a node whose rows a program reads at once
PARTNER_NUMBERS = 256  # numbers of each that it reads


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
