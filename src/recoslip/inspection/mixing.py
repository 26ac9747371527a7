"""NodeGraph -> how far source and target mix, region by region, by their features, their neighbours and their edges.

If proportions alone differ, the nodes of one category look the same in both domains, so that in most regions a
classifier cannot tell the domain, however much of the region is target. Where it can almost everywhere, known target
nodes differ from known source nodes, and what looks novel may be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from recoslip.graph import NodeGraph
from recoslip.graph.neighbourhood import k_means, neighbourhood_features, reduced_features
from recoslip.graph.sparse import to_scipy
from recoslip.graph.split import Mask

Situation: TypeAlias = Literal["too few", "proportions", "new kind", "apart"]

MAX_NODES = 2000  # of each domain that it is measured on
MIN_NODES = 30  # of each domain that it can be measured on
MAX_REGIONS = 10
NODES_PER_REGION = 50
ALONE = 0.05  # a region with a smaller share of one domain, if both were equally large, holds the other alone;
# regions of target nodes alone that hold more of them than this are a new kind
APART = 0.85  # AU-ROC within a region from which on its source and target nodes do not mix
MIXED_QUARTER = 0.25  # of the nodes of a domain must lie where domains mix, or else they are apart
NEIGHBOURS = 15


@dataclass(frozen=True)
class Region:
    """A cluster of nodes of both domains, with numbers as if the domains were equally large."""

    source: float  # fraction of the source nodes that lie in it
    target: float
    auroc: float | None  # of a classifier that tells source from target, inside; None where one domain is alone

    @property
    def mixes(self) -> bool:
        """Whether source and target nodes cannot be told apart there."""
        return self.auroc is not None and self.auroc <= APART

    @property
    def is_target_alone(self) -> bool:
        """Whether it has hardly any source nodes."""
        return self.auroc is None and self.target > self.source


@dataclass(frozen=True)
class Mixing:
    """How far source and target mix."""

    regions: tuple[Region, ...]  # in ascending order of how well source and target are told apart
    neighbours: float | None  # nearest neighbours of the other domain, against as many as by chance
    edges: float | None  # edges between the domains, against as many as by chance; None without edges
    separability: float | None  # AU-ROC within the regions where the quarter of the nodes lies that mixes best

    @property
    def situation(self) -> Situation:
        """Which of three situations this is: proportions differ, a new kind appears, or the two worlds are apart."""
        if self.separability is None:
            return "too few"
        if self.separability > APART:
            return "apart"
        alone = sum(region.target for region in self.regions if region.is_target_alone)
        return "new kind" if alone > ALONE else "proportions"

    def mixed_share(self) -> tuple[float, float]:
        """Return which fraction of the source and of the target nodes lies in regions that mix."""
        mixed = [region for region in self.regions if region.mixes]
        return sum(region.source for region in mixed), sum(region.target for region in mixed)


def measure_mixing(
    graph: NodeGraph,
    reduced: NDArray[np.float64] | None = None,
    neighbourhood: NDArray[np.float64] | None = None,
    *,
    seed: int = 0,
) -> Mixing:
    """Measure how far source and target mix; uses no categories.

    Args:
        graph: the graph.
        reduced: (nodes, width) its reduced features, where they are known.
        neighbourhood: (nodes, width) its neighbourhood features, where they are known.
        seed: of the nodes it is measured on, the regions and the folds.
    """
    is_target = graph.is_target.numpy()
    edges = _edges_between(graph, is_target)
    domains = [np.flatnonzero(is_target == side) for side in (False, True)]
    if min(map(len, domains)) < MIN_NODES:
        return Mixing((), None, edges, None)
    rng = np.random.default_rng(seed)
    nodes = np.sort(np.concatenate([rng.permutation(domain)[:MAX_NODES] for domain in domains]))
    own = reduced_features(graph) if reduced is None else reduced
    if neighbourhood is None:
        neighbourhood = neighbourhood_features(graph, own) if graph.num_edges else own
    own, neighbourhood, sizes = (
        _standardised(each) for each in (own[nodes], neighbourhood[nodes], _row_sizes(graph, nodes))
    )
    is_target = is_target[nodes]
    both = [own, neighbourhood] if graph.num_edges else [own]
    scores = _domain_scores(np.hstack([*both, sizes]), is_target, seed)
    count = max(1, min(MAX_REGIONS, len(nodes) // NODES_PER_REGION))
    regions = _regions(k_means(neighbourhood, count, seed), scores, is_target)
    return Mixing(regions, _neighbours_between(neighbourhood, is_target), edges, _best_mixed_quarter(regions))


def _standardised(x: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 1e-12, spread, 1))


def _row_sizes(graph: NodeGraph, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithms of the norm and of the number of non-zero features of each node: (nodes, 2)."""
    if graph.x.layout == torch.strided:
        x = graph.x.numpy()[nodes].astype(np.float64)  # squares of large numbers overflow in single precision
        norm, count = np.linalg.norm(x, axis=1), (x != 0).sum(axis=1)
    else:
        sparse = to_scipy(graph.x)[nodes].astype(np.float64)
        norm, count = np.sqrt(sparse.multiply(sparse).sum(axis=1)), np.diff(sparse.indptr)
    return np.log1p(np.stack([norm, count], axis=1).astype(np.float64))


def _domain_scores(x: NDArray[np.float64], is_target: Mask, seed: int) -> NDArray[np.float64]:
    """Return how much each node looks like a target node to a classifier that was not fitted on it."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    model = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=15, max_features=0.3, early_stopping=False, random_state=seed
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    with threadpool_limits(1, user_api="openmp"):  # its threads wait for each other where others use the cores
        return np.asarray(cross_val_predict(model, x, is_target, cv=folds, method="predict_proba")[:, 1])


def _regions(label: NDArray[np.int64], scores: NDArray[np.float64], is_target: Mask) -> tuple[Region, ...]:
    from sklearn.metrics import roc_auc_score

    found = []
    for own in np.unique(label):
        inside = label == own
        source, target = (inside & ~is_target).sum() / (~is_target).sum(), (inside & is_target).sum() / is_target.sum()
        few = min((inside & ~is_target).sum(), (inside & is_target).sum()) < 5
        alone = few or min(source, target) < ALONE * (source + target)
        auroc = None if alone else float(roc_auc_score(is_target[inside], scores[inside]))
        found.append(Region(float(source), float(target), auroc))
    return tuple(sorted(found, key=_told_apart))


def _told_apart(region: Region) -> float:
    return 1.0 if region.auroc is None else region.auroc


def _best_mixed_quarter(regions: tuple[Region, ...]) -> float:
    """Return the AU-ROC within the regions that hold the first quarter of the source or the target nodes."""
    quartiles = []
    for share in ([region.source for region in regions], [region.target for region in regions]):
        first = int(np.searchsorted(np.cumsum(share), MIXED_QUARTER))
        quartiles.append(_told_apart(regions[min(first, len(regions) - 1)]))
    return min(quartiles)


def _neighbours_between(x: NDArray[np.float64], is_target: Mask) -> float:
    """Return how many of the nearest neighbours are of the other domain, against as many as there are by chance."""
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(x) - 1)
    near = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(x).kneighbors(return_distance=False)
    share = is_target.mean()
    return float((is_target[near] != is_target[:, None]).mean() / (2 * share * (1 - share)))


def _edges_between(graph: NodeGraph, is_target: Mask) -> float | None:
    """Return how many edges join the domains, against as many as by chance with the same degrees."""
    if graph.num_edges == 0:
        return None
    left, right = is_target[graph.edge_index.numpy()]
    share = left.mean()
    return float((left != right).mean() / max(2 * share * (1 - share), 1e-12)) if 0 < share < 1 else 0.0
