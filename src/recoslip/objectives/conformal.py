"""Scores of nodes known to be known -> p-values, a threshold that keeps a promise, and a list that keeps another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def p_values(scores: ArrayLike, calibration: ArrayLike) -> NDArray[np.float64]:
    r"""$p(v) = \frac{1 + |\{c : s(c) \ge s(v)\}|}{1 + n}$ over n calibration nodes c.

    If v and the calibration nodes are exchangeable, $P(p(v) \le u) \le u$ for every u, whatever the scores.

    >>> p_values([0.9, 0.5], [0.1, 0.5, 0.7]).tolist()
    [0.25, 0.75]
    """
    ordered = np.sort(np.asarray(calibration, dtype=float))
    at_least = len(ordered) - np.searchsorted(ordered, np.asarray(scores, dtype=float), side="left")
    return np.asarray((1 + at_least) / (1 + len(ordered)))


def threshold(calibration: ArrayLike, level: float) -> float:
    """Return the lowest threshold above which p is at most `level`; 1, which no score exceeds, if none can be so small.

    >>> threshold([0.1, 0.2, 0.3, 0.9], 0.4)
    0.3
    >>> threshold([0.1, 0.2, 0.3, 0.9], 0.1)
    1.0
    """
    ordered = np.sort(np.asarray(calibration, dtype=float))
    above = int(level * (len(ordered) + 1) + 1e-9) - 1  # calibration nodes that may be as high
    if above < 0:
        return 1.0
    return float(ordered[-1 - above]) if above < len(ordered) else float(np.nextafter(0, -1))


def benjamini_hochberg(p: ArrayLike, fdr: float) -> NDArray[np.bool_]:
    """Choose the k smallest p-values for the largest k with $p_{(k)} \\le k \\cdot \\text{fdr} / m$.

    >>> benjamini_hochberg([0.001, 0.2, 0.03, 0.8], 0.1).tolist()
    [True, False, True, False]
    """
    values = np.asarray(p, dtype=float)
    order = np.sort(values)
    passed = np.flatnonzero(order <= fdr * np.arange(1, len(order) + 1) / max(1, len(order)))
    return np.asarray(values <= order[passed[-1]] if len(passed) else np.zeros(len(values), dtype=bool))
