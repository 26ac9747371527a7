"""Findings -> what the report draws: places on the map, growth of known categories, periods, lists at other levels."""

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.text import percent, times
from recoslip.data.partitions import Partitions
from recoslip.data.split import Mask
from recoslip.data.tables.times import time_numbers
from recoslip.inference.analysis import Findings
from recoslip.inference.diagnosis import DEPTH, Cluster
from recoslip.inference.groups import most_like
from recoslip.inference.p_values import ROUNDING, selected
from recoslip.inference.verdict import guarantee

MOST = 8.0  # times as frequent, or as rare, at the ends of the chart of growth
PERIODS = 12  # of the chart of times, at most
LEVELS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # that the report can list nodes by, and the run's own


def growth_chart(findings: Findings) -> list[dict[str, Any]]:
    """Return the growth of each cluster with an interval, in words and as places between 0 and 100.

    Growth of 1 is in the middle; the example is the most typical source node. Clusters with too few source nodes are
    left out.
    """
    if not findings.verdict.supported:
        return []
    label = Partitions.of(findings.graph).at_depth(DEPTH)
    rows = []
    for cluster in findings.diagnosis.clusters:
        if cluster.growth is not None:
            members = np.flatnonzero((label == cluster.label) & ~findings.graph.is_target)
            rows.append(_growth_row(cluster) | {"example": int(most_like(findings.similarity, members, members, 1)[0])})
    return rows


def _growth_row(cluster: Cluster) -> dict[str, Any]:
    assert cluster.growth is not None
    low, high = cluster.least_growth, cluster.most_growth
    return {
        "name": cluster.name,
        "source": cluster.source,
        "known": cluster.known,
        "listed": cluster.listed,
        "growth": round(cluster.growth, 2),
        "interval": f"{_short(low)} to {_short(high)}" if math.isfinite(high) else f"{_short(low)} or more",
        "changed": low > 1 or high < 1,
        "place": _place(cluster.growth),
        "ends": [_place(low), _place(high)],
    }


def _short(growth: float) -> str:
    return times(growth) if growth >= 1 else f"{growth:.2g}"


def _place(growth: float) -> float:
    """Return where a growth is on a logarithmic axis.

    >>> _place(1.0), _place(8.0), _place(0.0)
    (50.0, 100.0, 0.0)
    """
    return round(50 + 50 * math.log(min(MOST, max(1 / MOST, growth))) / math.log(MOST), 1)


def period_chart(findings: Findings) -> list[dict[str, Any]]:
    """Return how many target nodes are listed in each period: every year, or up to twelve equal periods."""
    graph = findings.graph
    if graph.times is None or not findings.listed.any():
        return []
    order = time_numbers(graph.times)
    nodes = np.flatnonzero(graph.is_target & np.isfinite(order))
    is_number = np.issubdtype(graph.times.dtype, np.number)
    names, period = _periods(order[nodes], is_number=bool(is_number))
    count = np.bincount(period, minlength=len(names))
    listed = np.bincount(period, findings.listed[nodes], len(names)).astype(int)
    most = max((listed / np.maximum(count, 1)).max(initial=0), 1e-9)
    return [
        {
            "period": name,
            "listed": part,
            "all": size,
            "share": percent(part / size) if size else "",
            "width": round(100 * part / max(1, size) / most, 1),
        }
        for name, part, size in zip(names, listed.tolist(), count.tolist(), strict=True)
    ]


def _periods(order: NDArray[np.float64], *, is_number: bool) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of periods, and the period of each time."""
    instants = pl.Series(order).cast(pl.Int64).cast(pl.Datetime("us"))
    whole = order if is_number else instants.dt.year().to_numpy().astype(np.float64)
    steps = np.ptp(whole) if len(whole) else 0
    if 0 < steps < PERIODS and (whole == np.round(whole)).all():
        first = int(whole.min())
        return [str(first + k) for k in range(int(steps) + 1)], (whole - first).astype(np.int64)
    edges = np.unique(np.linspace(order.min(), order.max(), PERIODS + 1))
    period = np.clip(np.searchsorted(edges, order, side="right") - 1, 0, max(0, len(edges) - 2))
    return [f"from {_written(edge, is_number)}" for edge in edges[:-1].tolist() or edges.tolist()], period


def _written(time: float, is_number: bool) -> str:
    return f"{time:g}" if is_number else datetime.fromtimestamp(time / 1e6, UTC).date().isoformat()


def levels(findings: Findings) -> list[dict[str, Any]]:
    """Return what each level lists: the highest p-value, how many nodes, and what is guaranteed of them."""
    model, graph = findings.model, findings.graph
    by_fdr, own = findings.fdr is not None, model.max_fpr if findings.fdr is None else findings.fdr
    p = findings.p_value[graph.is_target]
    found = []
    for level in sorted({*LEVELS, own}):
        changed = replace(model, max_fpr=model.max_fpr if by_fdr else level)
        chosen = p[selected(p, None, level) if by_fdr else selected(p, level, None)]
        found.append(
            {
                "level": f"{100 * level:.3g} %",
                "own": level == own,
                "highest": float(chosen.max(initial=-1.0) * (1 + ROUNDING)),
                "listed": len(chosen),
                "guarantee": guarantee(
                    changed, level if by_fdr else None, supported=findings.verdict.supported, terms=graph.terms
                ),
            }
        )
    return found


MAX_PLACES = 300_000  # of nodes in bins that the report holds, to bound the new nodes of a selection


def selection_bound(findings: Findings, position: NDArray[np.int64]) -> list[dict[str, list[int]]]:
    """Return what bounds how many of any selected nodes are new: counts of bins, tree by tree, and who is in them.

    Args:
        findings: of the run.
        position: (nodes,) of each node on the page, or -1.
    """
    if not findings.verdict.supported:
        return []
    trees, places = [], 0
    for tree in sorted(findings.bins.telling(findings.novel_share.max_growth), key=lambda tree: -len(tree.nodes)):
        shown = position[tree.nodes] >= 0
        places += int(shown.sum())
        if places > MAX_PLACES:  # fewer trees bound less, and the bound holds
            break
        trees.append(
            {
                "around": tree.around.tolist(),
                "most_known": tree.most_known.tolist(),
                "nodes": position[tree.nodes[shown]].tolist(),
                "inside": tree.inside[shown].tolist(),
            }
        )
    return trees


MAX_LANDMARKS = 1_000  # nodes that t-SNE is run on; the others are interpolated
COMPONENTS = 30  # principal components that distances are measured in
NEAREST_LANDMARKS = 3  # that another node is interpolated from
JITTER = 0.004  # standard deviation of the noise on interpolated nodes, relative to the extent of the map


def projection(vectors: NDArray[np.float64], preferred: Mask, seed: int = 0) -> NDArray[np.float64]:
    """Project nodes to a plane, so that nodes with similar vectors are close: (nodes, 2).

    Args:
        vectors: (nodes, width).
        preferred: (nodes,) nodes that become landmarks of t-SNE before others do.
        seed: of the landmarks, t-SNE and jitter.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.preprocessing import StandardScaler

    standardised = StandardScaler().fit_transform(vectors)
    rng = np.random.default_rng(seed)
    if np.ptp(standardised, axis=0).max() < 1e-9:  # all nodes are alike
        return rng.normal(0, 1, (len(standardised), 2))
    x = PCA(min(COMPONENTS, *standardised.shape), random_state=seed).fit_transform(standardised)
    if len(x) < 10 or x.shape[1] < 2:
        return np.asarray(np.column_stack([x, np.zeros((len(x), 2))])[:, :2])
    landmarks = np.argsort(rng.random(len(x)) - preferred, kind="stable")[:MAX_LANDMARKS]
    perplexity = min(30.0, (len(landmarks) - 1) / 3)
    embedded = TSNE(perplexity=perplexity, init="pca", max_iter=350, angle=0.8, random_state=seed).fit_transform(
        x[landmarks]
    )
    result = np.empty((len(x), 2)) if len(landmarks) == len(x) else _interpolated(x, x[landmarks], embedded, rng)
    result[landmarks] = embedded
    return result


def _interpolated(
    x: NDArray[np.float64], landmarks: NDArray[np.float64], embedded: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Place nodes between the nearest landmarks, weighted by inverse distance and jittered, so that none are hidden."""
    from sklearn.neighbors import NearestNeighbors

    distance, index = NearestNeighbors(n_neighbors=NEAREST_LANDMARKS).fit(landmarks).kneighbors(x)
    weight = 1 / (distance + 1e-9)
    mean = (embedded[index] * weight[..., None]).sum(axis=1) / weight.sum(axis=1, keepdims=True)
    return np.asarray(mean + rng.normal(0, JITTER * np.ptp(embedded), mean.shape))
