"""Seed and path -> keys of independent streams, and permutations: PyTorch's bits, without PyTorch."""

import numpy as np
from numpy.typing import NDArray

WORD = 2**64
_WEYL = 0x9E3779B97F4A7C15
_SHORT = 2**32 // 20  # numbers up to which PyTorch draws a permutation with 32 bits each


def derive(key: int, *path: int) -> int:
    """Return the key of an independent stream for a path of numbers below `key` (SplitMix64).

    >>> derive(0, 83, 1) == derive(0, 83, 1) != derive(0, 83, 2)
    True
    """
    for number in path:
        key = mix(key + (((_WEYL - WORD) * (number + 1)) & (WORD // 2 - 1)))
    return key


def mix(word: int) -> int:
    """Apply SplitMix64's finaliser: a bijection of 64-bit words in which every input bit flips half the output."""
    word %= WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % WORD
    return word ^ (word >> 31)


class Permutations:
    """A stream of permutations: those that `torch.randperm` draws from a generator with this seed.

    >>> Permutations(0)(5).tolist()
    [4, 0, 1, 3, 2]
    """

    def __init__(self, seed: int) -> None:
        self._stream = np.random.RandomState(seed % 2**32)

    def __call__(self, count: int) -> NDArray[np.int64]:
        """Draw a permutation of so many numbers."""
        if count >= _SHORT:
            raise ValueError(f"at most {_SHORT} numbers can be permuted; got {count}")
        words = self._stream.randint(0, 2**32, max(0, count - 1), dtype=np.uint32)
        order = list(range(count))
        for k, jump in enumerate((words % np.arange(count, 1, -1)).tolist()):
            order[k], order[k + jump] = order[k + jump], order[k]
        return np.array(order, dtype=np.int64)
