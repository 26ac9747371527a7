"""NodeGraph -> the same graph, with the target's features brought to the location and scale of the source's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recoslip.graph.neighbourhood import reduced_features
from recoslip.graph.node_graph import NodeGraph


def aligned(graph: NodeGraph) -> NodeGraph:
    """Return a graph whose features have the same mean and standard deviation in both domains.

    Of many features the first singular vectors are aligned, and have no names.
    """
    x = match_moments(reduced_features(graph), graph.is_target.numpy())
    names = graph.feature_names if x.shape[1] == graph.num_features else None
    return graph.with_features(x.astype(np.float32), names)


def match_moments(x: NDArray[np.float64], is_target: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Shift and scale the target's columns to the means and the standard deviations of the source's.

    A column that is constant in the target is shifted alone.

    >>> match_moments(np.array([[0.0], [2.0], [10.0], [30.0]]), np.array([False, False, True, True])).ravel().tolist()
    [0.0, 2.0, 0.0, 2.0]
    """
    source, target = x[~is_target], x[is_target]
    # In double precision: in single precision, NumPy's sums over millions of rows are off by several percent.
    spread, wanted = target.std(axis=0, dtype=np.float64), source.std(axis=0, dtype=np.float64)
    scale = np.divide(wanted, spread, out=np.ones_like(wanted), where=spread > 1e-9 * (1 + np.abs(target).max(axis=0)))
    result = x.copy()
    means = [side.mean(axis=0, dtype=np.float64) for side in (source, target)]
    result[is_target] = (target - means[1]) * scale + means[0]
    return result
