"""Scores of calibration nodes -> p-values, a threshold that bounds the FPR, a list that bounds the FDR."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recoslip.base.errors import SettingError
from recoslip.base.settings import Number
from recoslip.base.text import PLAIN, Terms
from recoslip.data.split import Mask

ROUNDING = 1e-9  # 0.29 * 100 counts as 29


def p_values(scores: ArrayLike, calibration: ArrayLike) -> NDArray[np.float64]:
    r"""$p(v) = \frac{1 + |\{c : s(c) \ge s(v)\}|}{1 + n}$ over n calibration nodes c.

    If v and the calibration nodes are exchangeable, $P(p(v) \le u) \le u$ for every u, whatever the scores.

    >>> p_values([0.9, 0.5], [0.1, 0.5, 0.7]).tolist()
    [0.25, 0.75]
    """
    return cross_p_values([(scores, calibration, None)])


def cross_p_values(fits: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike | None]]) -> NDArray[np.float64]:
    r"""$p(v) = \frac{1 + \sum_r \sum_{c \in C_r : s_r(c) \ge s_r(v)} w_r(c)}{1 + \sum_r \sum_{c \in C_r} w_r(c)}$
    over several fits r.

    Each calibration node is compared with the score that v has in the same fit (cross-conformal, Vovk 2015). One that
    calibrates k fits has the weight 1/k in each of them.

    Args:
        fits: of each fit, the scores of the nodes, those of its calibration nodes, and the weights of these; None: 1.

    >>> cross_p_values([([0.9, 0.5], [0.1, 0.5, 0.7], None), ([0.9, 0.6], [0.8], None)]).tolist()
    [0.2, 0.8]
    >>> cross_p_values([([0.9, 0.5], [0.1, 0.5], [1, 0.5]), ([0.9, 0.6], [0.8], [0.5])]).round(3).tolist()
    [0.333, 0.667]
    """
    at_least: Any = 1.0
    count = 1.0
    for scores, calibration, weight in fits:
        known = np.asarray(calibration, dtype=float)
        order = np.argsort(known, kind="stable")
        below = np.cumsum(np.append(0.0, np.ones(len(known)) if weight is None else np.asarray(weight)[order]))
        first = np.searchsorted(known[order], np.asarray(scores, dtype=float), side="left")
        at_least = at_least + below[-1] - below[first]
        count += below[-1]
    return np.asarray(at_least / count)


def p_values_within(
    fits: Sequence[tuple[NDArray[np.float64], Mask]], part: NDArray[np.integer], nodes: Mask
) -> NDArray[np.float64]:
    """Return p-values as `cross_p_values` does, where calibration nodes are those of a node's own part of the graph.

    With one fit and one part this is `p_values`. Several fits are cross-conformal prediction (Vovk 2015), several parts
    are Mondrian (Vovk et al. 2005).

    Args:
        fits: of each fit, the scores of all nodes, (nodes,), and which of them are its calibration nodes.
        part: (nodes,) the part that each node belongs to.
        nodes: (nodes,) those to give p-values to; others get NaN.

    >>> scores, is_calibration = np.array([0.1, 0.5, 0.7, 0.9, 0.5]), np.array([True, True, True, False, False])
    >>> p_values_within([(scores, is_calibration)], np.zeros(5, dtype=int), ~is_calibration)[3:].tolist()
    [0.25, 0.75]
    >>> p_values_within([(scores, is_calibration)], np.array([0, 0, 1, 1, 0]), ~is_calibration)[3:].tolist()
    [0.5, 0.6666666666666666]
    """
    p, weight = np.full(len(part), np.nan), weights([calibration for _, calibration in fits])
    for own in np.unique(part[nodes]):
        inside = part == own
        chosen = nodes & inside
        p[chosen] = cross_p_values(
            (scores[chosen], scores[calibration & inside], weight[calibration & inside]) for scores, calibration in fits
        )
    return p


def weights(calibration: Sequence[Mask]) -> NDArray[np.float64]:
    """Return 1 over the number of fits that each node calibrates, (nodes,); 1 where it calibrates none."""
    return np.asarray(1 / np.maximum(1, np.sum(calibration, axis=0)))


def threshold(calibration: ArrayLike, level: float) -> float:
    """Return the lowest threshold above which p is at most `level`; 1, which no score exceeds, if none can be so small.

    >>> threshold([0.1, 0.2, 0.3, 0.9], 0.4)
    0.3
    >>> threshold([0.1, 0.2, 0.3, 0.9], 0.1)
    1.0
    """
    scores = np.asarray(calibration, dtype=float)
    allowed = int(level * (len(scores) + 1) + ROUNDING) - 1  # calibration nodes that may be as high
    return 1.0 if allowed < 0 else _exceeded_by(scores, allowed)


def empirical_threshold(calibration: ArrayLike, level: float) -> float:
    """Return the lowest threshold that at most a fraction `level` of the scores exceed.

    >>> empirical_threshold([0.1, 0.2, 0.3, 0.9], 0.25)
    0.3
    """
    scores = np.asarray(calibration, dtype=float)
    return _exceeded_by(scores, int(level * len(scores) + ROUNDING))


def _exceeded_by(scores: NDArray[np.float64], allowed: int) -> float:
    """Return the lowest score that at most `allowed` of them exceed, or less than 0 if all may."""
    return float(np.sort(scores)[-1 - allowed]) if allowed < len(scores) else float(np.nextafter(0, -1))


def selected(p: ArrayLike, max_fpr: float | None, fdr: float | None) -> Mask:
    """Choose p-values up to `max_fpr`, or by a false-discovery rate where one is given.

    >>> selected([0.01, 0.2], 0.1, None).tolist()
    [True, False]
    """
    if fdr is not None:
        return benjamini_hochberg(p, fdr)
    return np.asarray(np.asarray(p) <= np.float64(max_fpr or 0) * (1 + ROUNDING))


def benjamini_hochberg(p: ArrayLike, fdr: float) -> NDArray[np.bool_]:
    r"""Choose the k smallest p-values for the largest k with $p_{(k)} \le k \cdot \text{fdr} / m$.

    >>> benjamini_hochberg([0.001, 0.2, 0.03, 0.8], 0.1).tolist()
    [True, False, True, False]
    """
    from scipy.stats import false_discovery_control

    values = np.asarray(p, dtype=float)
    if not len(values):
        return np.zeros(0, dtype=bool)
    # Conformal p-values are multiples of 1 / (n + 1), so equality is common and must survive rounding.
    return np.asarray(false_discovery_control(values) <= fdr * (1 + ROUNDING))


def check_rates(max_fpr: float | None, fdr: float | None) -> None:
    """Raise unless at most one rate is given, between 0 and 1."""
    if max_fpr is not None and fdr is not None:
        raise SettingError(f"a list is made by one rate; got max_fpr={max_fpr!r} and fdr={fdr!r}, leave one out")
    if max_fpr is not None:
        Number(0, 1)("max_fpr", max_fpr)
    if fdr is not None:
        Number(0, 1, open_ends=True)("fdr", fdr)


def reachable_rate(
    calibration: int, max_fpr: float, fdr: float | None, terms: Terms = PLAIN
) -> tuple[float, tuple[str, ...]]:
    """Return a false-positive rate that so many calibration nodes can reach, and in words what this changes.

    A false-discovery rate stays as it is.

    >>> reachable_rate(199, 0.001, None)[0], reachable_rate(199, 0.01, None)
    (0.005, (0.01, ()))
    """
    lowest, asked = 1 / (calibration + 1), max_fpr if fdr is None else fdr
    if asked >= lowest:
        return max_fpr, ()
    compared = f"With {terms.sources(calibration)} to compare with, no p-value is below {lowest:.2g}"
    if fdr is not None:
        return max_fpr, (f"{compared}: nothing can be listed at fdr={fdr:g}. Give a higher fdr, or max_fpr instead.",)
    return lowest, (f"{compared}: the list was made with max_fpr={lowest:.3g} instead of {asked:g}.",)


def most_by_chance(level: float, target_nodes: int, calibration_nodes: int, confidence: float = 0.95) -> int:
    r"""Return how many target nodes may have p-values up to `level` where nothing is novel and nothing grew.

    With n calibration nodes, $p \le u$ means a score above the j-th highest of theirs, $j = \lfloor u (n + 1) \rfloor$.
    The probability of that is Beta(j, n + 1 - j) distributed for a known node.

    Args:
        level: of the p-values.
        target_nodes: how many there are.
        calibration_nodes: how many they are compared with.
        confidence: the number is exceeded with probability 1 - confidence.

    >>> most_by_chance(0.01, 1000, 100_000)
    15
    >>> most_by_chance(0.01, 1000, 99)
    31
    """
    from scipy.stats import betabinom

    rank = int(level * (calibration_nodes + 1) + ROUNDING)
    if not 0 < rank <= calibration_nodes:
        return 0 if rank <= 0 else target_nodes
    return int(betabinom.ppf(confidence, target_nodes, rank, calibration_nodes + 1 - rank))
