r"""Pooled nodes, some of them recent -> whether growth alone explains where the recent ones lie.

1. Cells, sets of similar nodes, are formed without knowing which nodes are recent.
2. If no known category is more than G times as frequent among M recent nodes as among S earlier ones, a node of a cell
   is recent with probability at most $\pi = \frac{G M}{G M + S}$, whatever the cell. The recent ones of N are then no
   more than binomial, $p = P(\text{Bin}(N, \pi) \ge n)$.
3. Cells are many, so the lowest p-value is multiplied by the number of cells that are large enough to reach the level
   at all (Tarone 1990).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recoslip.data.alignment import average_over_neighbours, reduced_features
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.data.split import Mask

CLUSTERS = (12, 24, 48, 96)  # how many clusters the nodes are divided into, one after the other
CORE = 0.6  # fraction of a cluster, the nodes that are surest of it, that is a cell of its own
MAX_FIT = 20_000  # nodes that clusters are fitted on at most
ROUNDS = 20  # of k-means
MAX_GROWTH = 2.0**20  # up to which `growth` is sought
SPENDING = 1.5  # exponent of the share of the error probability that each batch may spend
SPENT = 1.6123753486854883  # sum of (t + 1)^-1.5 over t = 1, 2, ...


@dataclass(frozen=True, eq=False)
class Appearance:
    """What the counts say about the recent nodes."""

    p_value: float  # that known categories which grew G times at most explain them; 1 where no cell could tell
    members: NDArray[np.int64]  # recent nodes of the cell with the lowest p-value
    growth: float  # known nodes of that cell would have to be more than so many times as frequent as before
    least_members: int | None  # recent nodes that a cell without others must hold to reach the level; None: never


def level(batch: int, alpha: float) -> float:
    """Return the error probability that a batch, 1, 2, ..., may spend; over all batches they add up to `alpha`.

    >>> round(sum(level(batch, 0.05) for batch in range(1, 10_000)), 3)
    0.049
    """
    return float(alpha / SPENT / (batch + 1) ** SPENDING)


def views(graph: NodeGraph) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return two vectors per node: of its own features, and of its own and its neighbours', two hops far.

    They do not depend on domains.
    """
    own = reduced_features(graph, tf_idf=True)
    neighbours = Neighbours(graph, weighted=False)
    parts = [_centred_unit(average_over_neighbours(own, neighbours, hops)) for hops in range(3)]
    return parts[0], np.hstack(parts)


def _centred_unit(x: NDArray[np.float64]) -> NDArray[np.float32]:
    centred = x - x.mean(axis=0, dtype=np.float64)
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9), dtype=np.float32)


def blind_cells(x: NDArray[np.float32], seed: int = 0) -> list[NDArray[np.int64]]:
    """Divide nodes into clusters, several times, and return each cluster and its core."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    cells = []
    for count in CLUSTERS:
        if count > len(x) // 10:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # there may be fewer different rows than clusters
            model = KMeans(count, n_init=1, max_iter=ROUNDS, random_state=seed).fit(x[:: -(-len(x) // MAX_FIT)])
        centres = model.cluster_centers_
        distance = (centres**2).sum(axis=1) - 2 * x @ centres.T  # less the square of the node's own length
        row, cluster = np.arange(len(x)), distance.argmin(axis=1)
        nearest = distance[row, cluster]
        distance[row, cluster] = np.inf
        surest_first = np.lexsort((nearest - distance.min(axis=1), cluster))
        ends = np.cumsum(np.bincount(cluster, minlength=count))
        for members in np.split(surest_first, ends[:-1]):
            cells += [members, members[: round(CORE * len(members))]]
    return cells


def appearance(
    cells: Sequence[NDArray[np.int64]], is_recent: Mask, *, max_growth: float, at_level: float
) -> Appearance:
    """Test whether categories that grew `max_growth` times at most explain the recent nodes of every cell.

    Args:
        cells: positions of the nodes of each, chosen without knowing who is recent.
        is_recent: (nodes,).
        max_growth: G.
        at_level: the level at which the p-value is compared, by which cells count that are large enough.

    >>> is_recent = np.arange(1000) >= 900
    >>> cells = [np.arange(0, 1000, 2), np.arange(940, 1000)]
    >>> found = appearance(cells, is_recent, max_growth=3, at_level=0.001)
    >>> found.p_value < 1e-30, len(found.members), round(found.growth)
    (True, 60, 67)
    """
    size = np.array([len(cell) for cell in cells], dtype=np.int64)
    recent = np.array([int(is_recent[cell].sum()) for cell in cells], dtype=np.int64)
    odds = is_recent.sum() / max(1, (~is_recent).sum())
    p, count = _lowest(size, recent, max_growth * odds, at_level)
    needed = None
    if cells and odds > 0:
        needed = math.ceil(math.log(at_level / max(1, count)) / _log_probability(max_growth * odds))
    if p is None:
        return Appearance(1.0, np.empty(0, dtype=np.int64), 0.0, needed)
    lowest, best = p
    return Appearance(
        p_value=min(1.0, lowest),
        members=cells[best][is_recent[cells[best]]],
        growth=_largest_growth(size[best], recent[best], count, odds, at_level),
        least_members=needed,
    )


def _log_probability(odds: float) -> float:
    return -math.log1p(1 / odds)


def _lowest(
    size: NDArray[np.int64], recent: NDArray[np.int64], odds: float, at_level: float
) -> tuple[tuple[float, int] | None, int]:
    """Return the lowest p-value times the number of cells that could reach the level, its cell, and that number."""
    from scipy.stats import binom

    if not len(size) or odds <= 0:
        return None, 0
    reachable = size * _log_probability(odds)  # logarithm of the lowest p-value that each cell can have
    count = 1
    while (reachable <= math.log(at_level / count)).sum() > count:
        count += 1
    within = np.flatnonzero(reachable <= math.log(at_level / count))
    if not len(within):
        return None, count
    p = binom.sf(recent[within] - 1, size[within], odds / (1 + odds))
    return (float(p.min() * count), int(within[p.argmin()])), count


def _largest_growth(size: int, recent: int, count: int, odds: float, at_level: float) -> float:
    """Return, by geometric bisection, the largest growth that a cell's count still contradicts at the level."""
    from scipy.stats import binom

    low, high = 0.0, MAX_GROWTH
    middle = 1.0
    for _ in range(40):
        contradicted = binom.sf(recent - 1, size, middle * odds / (1 + middle * odds)) * count <= at_level
        low, high = (middle, high) if contradicted else (low, middle)
        middle = (low * high) ** 0.5 if low > 0 else high / 2
    return low
