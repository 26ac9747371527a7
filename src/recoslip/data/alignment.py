"""NodeGraph -> the same graph, with the target's features brought to the location and scale of the source's."""

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours


def aligned(graph: NodeGraph) -> NodeGraph:
    """Return a graph whose features have the same mean and standard deviation in both domains.

    Of many features the first singular vectors are aligned, and have no names.
    """
    x = match_moments(reduced_features(graph), graph.is_target)
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


SPARSE_BELOW = 0.1  # density under which the sparse product is the faster one (docs/decisions/networks.md)
HOPS = 2
MAX_FIT = 100_000  # nodes that a truncated SVD is fitted on at most
MAX_DOUBLE = 1_000_000  # nodes whose vectors are in double precision; those of larger graphs would be gigabytes


def reduced_features(graph: NodeGraph, width: int = 64, *, tf_idf: bool = False) -> NDArray[Any]:
    """Features, by truncated SVD where there are more than `width`: (nodes, at most width).

    They are in double precision, and in single precision in a large graph. With `tf_idf` they are weighted by their
    inverse document frequency before, and a node's have norm 1. Features that were made of a table's columns have their
    weights already, and are not weighted again.
    """
    features: Any = graph.x
    if graph.num_nodes <= MAX_FIT and not sp.issparse(features) and is_mostly_zero(graph.x):
        features = sp.csr_array(features)
    if tf_idf:
        features = _tf_idf(features, weighted=graph.encoding is not None)
    svd = None
    if features.shape[1] > width and min(features.shape) > width:
        step = -(-graph.num_nodes // MAX_FIT)
        svd = _truncated_svd(features[::step], width)
    dtype = np.float64 if graph.num_nodes <= MAX_DOUBLE else np.float32
    reduced = np.empty((graph.num_nodes, width if svd else features.shape[1]), dtype)
    for begin in range(0, graph.num_nodes, Neighbours.BLOCK):
        rows = features[begin : begin + Neighbours.BLOCK]
        reduced[begin : begin + Neighbours.BLOCK] = (
            svd.transform(rows) if svd else rows.toarray() if sp.issparse(rows) else rows
        )
    return reduced


def is_mostly_zero(x: NDArray[Any]) -> bool:
    """Return whether products with a dense matrix take less time in sparse form."""
    return bool(np.count_nonzero(x) < SPARSE_BELOW * x.size)


def _truncated_svd(features: Any, width: int) -> Any:
    """Fit a truncated SVD, with one thread: its steps are small, and threads that wait for each other take longer."""
    from sklearn.decomposition import TruncatedSVD
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1, user_api="blas"), np.errstate(all="ignore"):  # the explained variance is not used
        return TruncatedSVD(width, random_state=0).fit(features)


def _tf_idf(features: Any, weighted: bool) -> Any:
    from sklearn.preprocessing import normalize

    if weighted:
        return normalize(features)
    frequency = np.asarray((features != 0).sum(axis=0)).ravel()
    idf = np.log((1 + features.shape[0]) / (1 + frequency)) + 1
    return normalize(features @ sp.diags_array(idf) if sp.issparse(features) else features * idf)


def neighbourhood_features(graph: NodeGraph, reduced: NDArray[Any] | None = None) -> NDArray[Any]:
    """Reduced features, averaged with those of the neighbours, two hops far: (nodes, width)."""
    x = reduced_features(graph) if reduced is None else reduced
    return average_over_neighbours(x, Neighbours(graph, weighted=False), HOPS)


def average_over_neighbours(x: NDArray[Any], neighbours: Neighbours, hops: int) -> NDArray[Any]:
    """Average the rows of nodes with those of their neighbours, several hops far; each node counts once."""
    degree = neighbours.degree[:, None]
    for _ in range(hops):
        mean = neighbours.mean(x)
        mean *= degree
        mean += x
        mean /= degree + 1
        x = mean
    return x


def k_means(
    x: NDArray[np.floating],
    clusters: int,
    seed: int = 0,
    n_init: int = 1,
    *,
    fitted_on: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Cluster rows; into fewer clusters than asked for where there are fewer distinct rows.

    Args:
        x: (rows, width).
        clusters: how many.
        seed: of k-means.
        n_init: how often it is begun anew.
        fitted_on: positions of the rows that clusters are fitted on; the others belong to the nearest. By default all.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = x if fitted_on is None else x[fitted_on]
    count = min(clusters, len(np.unique(rows, axis=0)))
    if count < 2:
        return np.zeros(len(x), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows may differ by less than their distances are rounded
        fitted = KMeans(count, n_init=n_init, random_state=seed).fit(rows)
    return np.asarray(fitted.labels_ if fitted_on is None else fitted.predict(x), dtype=np.int64)
