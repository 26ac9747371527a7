"""A random sample of nodes and its verdicts -> exact bounds for how many nodes are novel in all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple


class Bounds(NamedTuple):
    """The least and the most nodes that can be novel."""

    low: int
    high: int


@cache
def least(population: int, drawn: int, novel: int, error: float) -> int:
    """Return a lower bound of the novel nodes of a population: it is too high with a probability of `error` at most.

    It is the smallest number of novel nodes at which a sample, drawn without replacement, holds `novel` of them or more
    with a probability above `error`: Clopper and Pearson's bound for a finite population.

    >>> least(population=10**6, drawn=20, novel=20, error=0.05) / 10**6
    0.860893
    >>> least(population=25, drawn=20, novel=20, error=0.05), least(population=20, drawn=20, novel=13, error=0.05)
    (24, 13)
    """
    from scipy.stats import hypergeom

    if novel == 0:
        return 0
    return _first(novel, population, lambda count: hypergeom.sf(novel - 1, population, count, drawn) > error)


def most(population: int, drawn: int, novel: int, error: float) -> int:
    """Return an upper bound of the novel nodes of a population: it is too low with a probability of `error` at most."""
    return population - least(population, drawn, drawn - novel, error)


def bounds(population: int, drawn: int, confirmed: int, rejected: int, error: float) -> Bounds:
    """Return bounds that hold together with a probability of at least 1 - `error`, whenever the review ends.

    Nodes of the sample without a verdict count as known for the lower bound and as novel for the upper one. So the
    bounds contain those of the whole sample, and nobody has to review all of it.
    """
    return Bounds(least(population, drawn, confirmed, error / 2), most(population, drawn, drawn - rejected, error / 2))


def sample_size(population: int, fraction: float, error: float) -> int:
    """Return how many nodes to draw, so that at least a `fraction` of the population is novel if all of them are.

    >>> sample_size(10**6, 0.85, 0.05), sample_size(30, 0.85, 0.05), sample_size(1, 0.85, 0.05)
    (19, 13, 1)
    """
    if population == 0:
        return 0
    return _first(1, population, lambda drawn: least(population, drawn, drawn, error) >= fraction * population)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from `low` to `high` from which on something holds; it does at `high`."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
