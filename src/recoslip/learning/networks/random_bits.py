"""Key and counter -> random numbers that depend on nothing else: a counter-based generator.

Every 64-bit word is a hash of its key and counter (SplitMix64), so a member's dropout is the same whether it trains
alone or with fifty others, on a CPU or a GPU, and a mask costs one hash per 64 elements instead of a draw each.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from recoslip.learning.networks.device import can_take, compile_here

_WEYL = -7046029254386353131  # 0x9E3779B97F4A7C15, as the signed number torch wants
_DIGITS = 16  # binary digits of a probability

_UNPACKED = ((torch.arange(256)[:, None] >> torch.arange(8)) & 1).float()  # byte -> its eight bits


def mix_(word: Tensor) -> Tensor:
    """SplitMix64's finaliser: a bijection of 64-bit words in which every input bit flips half the output; in place."""
    word.bitwise_xor_((word >> 30).bitwise_and_(0x3FFFFFFFF)).mul_(-4658895280553007687)
    word.bitwise_xor_((word >> 27).bitwise_and_(0x1FFFFFFFFF)).mul_(-7723592293110705685)
    return word.bitwise_xor_((word >> 31).bitwise_and_(0x1FFFFFFFF))


def derive(key: Tensor, *path: int | Tensor) -> Tensor:
    """Keys of independent streams: one for each path of numbers below `key`."""
    on_gpu = key.is_cuda and compile_here()
    for number in path:
        if on_gpu:
            from recoslip.learning.networks.triton_kernels import derive_keys

            key = derive_keys(key, number)
        else:
            key = mix_(key + ((_WEYL * (number + 1)) & (2**63 - 1)))
    return key


def words(key: Tensor, count: int) -> Tensor:
    """`count` random 64-bit words for each key: (...,) -> (..., count)."""
    counter = torch.arange(1, count + 1, device=key.device) * _WEYL
    return mix_(key[..., None] + counter)


def bernoulli_words(key: Tensor, count: int, probability: float) -> Tensor:
    """Words whose bits are each 1 with `probability`, exact to 2^-16: (...,) -> (..., count).

    Reading the probability's binary digits from the last to the first, `or` with a fair word where the digit
    is 1 and `and` where it is 0 halves the distance to it each time. One half needs a single word.
    """
    digits, digit_count = binary_digits(probability)
    if digit_count == 0:
        return torch.full((*key.shape, count), -1 if digits else 0, device=key.device)
    result = words(derive(key, 0), count)
    for stream in range(1, digit_count):
        fair = words(derive(key, stream), count)
        result = (result | fair) if (digits >> stream) & 1 else (result & fair)
    return result


def binary_digits(probability: float) -> tuple[int, int]:
    """Return the digits after the binary point, as a number that does not end in 0, and how many there are.

    >>> binary_digits(0.5), binary_digits(0.75), binary_digits(1.0)
    ((1, 1), (3, 2), (1, 0))
    """
    numerator, count = round(probability * 2**_DIGITS), _DIGITS
    while count and numerator % 2 == 0:
        numerator, count = numerator // 2, count - 1
    return numerator, count


def keep_mask(key: Tensor, nodes: int, width: int, keep: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Dropout factors, 1/keep with probability `keep` and else 0: (members,) -> (nodes, members, width)."""
    packed = _packed(key, nodes, width, keep)
    mask = _factors(keep, key.device, dtype).index_select(0, packed.reshape(-1).int())  # (nodes * members * row, 8)
    return mask.view(nodes, len(key), -1)[..., :width]


def _packed(key: Tensor, nodes: int, width: int, keep: float) -> Tensor:
    """Draw a bit for each element, eight to a byte: (members,) -> (nodes, members, bytes)."""
    row = -(-width // 8)  # bytes for one node of one member
    packed = bernoulli_words(key, -(-nodes * row // 8), keep).view(torch.uint8)  # (members, bytes)
    return packed[:, : nodes * row].view(len(key), nodes, row).transpose(0, 1)


@lru_cache(maxsize=16)
def kept_factor(keep: float) -> float:
    """Return what kept elements are multiplied by, 1/keep, as it is rounded in single precision."""
    return float(torch.ones(()) / keep)


def drop(values: Tensor, key: Tensor, keep: float) -> Tensor:
    """Multiply by dropout factors: (nodes, members, width), (members,) -> (nodes, members, width)."""
    if can_take(values):
        from recoslip.learning.networks.triton_kernels import dropout

        return dropout(values, key, binary_digits(keep), kept_factor(keep))
    return values * keep_mask(key, values.shape[0], values.shape[2], keep, values.dtype)


def relu_and_drop_(values: Tensor, key: Tensor, keep: float) -> Tensor:
    """Do the same with what is positive, and set the rest to 0; in place."""
    nodes, _, width = values.shape
    if can_take(values):
        from recoslip.learning.networks.triton_kernels import dropout

        return dropout(values, key, binary_digits(keep), kept_factor(keep), relu=True, out=values)
    if values.device.type != "cpu":
        return values.relu_().mul_(keep_mask(key, nodes, width, keep, values.dtype))
    # A byte for each element, as NumPy unpacks bits: on a CPU it counts how much memory is passed over.
    packed = _packed(key, nodes, width, keep).numpy()
    kept = torch.from_numpy(np.unpackbits(packed, axis=2, count=width, bitorder="little"))
    return values.relu_().mul_(kept).mul_(kept_factor(keep))


@lru_cache(maxsize=16)
def _factors(keep: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Dropout factors of the eight elements a byte stands for, cached per device."""
    return (_UNPACKED / keep).to(device, dtype)
