"""NodeGraph -> how far source and target mix, region by region, by counts in bins of similar nodes, and by edges.

If proportions alone differ, the nodes of one category look the same in both domains, so that in most regions the bins
hold both, however much of the region is target. Where they hold one domain almost everywhere, known target nodes differ
from known source nodes, and what looks novel may be known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.data.blocks import current
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import derived, hashes_of
from recoslip.data.partitions import BRANCHES, Partitions
from recoslip.data.split import Mask

Situation: TypeAlias = Literal["too few", "proportions", "new kind", "apart"]

MIN_NODES = 30  # of each domain that it can be measured on
NODES_PER_REGION = 50
ALONE = 0.05  # a region with a smaller share of one domain, if both were equally large, holds the other alone;
# regions of target nodes alone that hold more of them than this are a new kind
APART = 0.85  # AU-ROC within a region from which on its source and target nodes do not mix
MIXED_QUARTER = 0.25  # of the nodes of a domain must lie where domains mix, or else they are apart


@dataclass(frozen=True)
class Region:
    """A cluster of nodes of both domains, with numbers as if the domains were equally large."""

    source: float  # fraction of the source nodes that lie in it
    target: float
    auroc: float | None  # of the target's share in a node's bins, inside; None where one domain is alone

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
    neighbours: float | None  # pairs of similar nodes that are of both domains, against as many as by chance
    edges: float | None  # edges between the domains, against as many as by chance; None without edges
    separability: float | None  # AU-ROC within the regions where the quarter of the nodes lies that mixes best

    @property
    def situation(self) -> Situation:
        """Which situation this is: proportions differ, a new kind appears, or the domains are separable."""
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


def measure_mixing(graph: NodeGraph, *, seed: int = 0) -> Mixing:
    """Measure how far source and target mix, by counts in bins that know no domain; uses no categories.

    Half of the nodes are counted in the smallest bins, and tell how much the other half look like source nodes.

    Args:
        graph: the graph.
        seed: of the bins.
    """
    is_target = graph.is_target
    edges = _edges_between(graph, is_target)
    if min(int(is_target.sum()), int((~is_target).sum())) < MIN_NODES:
        return Mixing((), None, edges, None)
    partitions = Partitions.of(graph, seed)
    half = hashes_of(graph) % 2 == 0
    scores = [_target_share(bins, is_target, half) for bins in (partitions, _bins_of_sizes(graph, seed))]
    depth = 1 if graph.num_nodes < NODES_PER_REGION * BRANCHES**2 else 2
    regions = _regions(partitions.at_depth(depth), scores, is_target)
    return Mixing(regions, _pairs_between(partitions, is_target), edges, _best_mixed_quarter(regions))


def _target_share(partitions: Partitions, is_target: Mask, half: Mask) -> NDArray[np.float64]:
    """Return the share of target nodes in each node's smallest bins, among the nodes of the other half."""
    share = np.zeros(len(is_target))
    for part in (half, ~half):
        counts = partitions.count(np.where(part, -1, is_target))
        mean = (counts[:, 1] + is_target.mean()) / (counts.sum(axis=1) + 1)
        share[part] = mean[partitions.leaf[:, part]].mean(axis=0)
    return share


def _bins_of_sizes(graph: NodeGraph, seed: int) -> Partitions:
    """Divide the nodes by the norms and numbers of their features, which vectors of length 1 do not show."""

    def make(ordered: NodeGraph) -> Partitions:
        sizes = _row_sizes(ordered)
        spread = sizes.std(axis=0)
        x = (sizes - sizes.mean(axis=0)) / np.where(spread > 1e-12, spread, 1)
        return Partitions.fit([x.astype(np.float32)], 4, seed)

    return derived(graph, f"bins of sizes {seed}", make)


def _row_sizes(graph: NodeGraph) -> NDArray[np.float64]:
    """Return the logarithms of the norm and of the number of non-zero features of each node: (nodes, 2)."""
    return current().fill((graph.num_nodes, 2), np.float64, _sizes_of_rows, graph.x)


def _sizes_of_rows(rows: slice, x: Any) -> NDArray[np.float64]:
    some = x[rows].astype(np.float64)  # squares of large numbers overflow in single precision
    if sp.issparse(some):
        norm, count = np.sqrt(some.multiply(some).sum(axis=1)), np.diff(some.indptr)
    else:
        norm, count = np.linalg.norm(some, axis=1), (some != 0).sum(axis=1)
    return np.log1p(np.stack([norm, count], axis=1).astype(np.float64))


def _regions(label: NDArray[np.integer], scores: Sequence[NDArray[np.float64]], is_target: Mask) -> tuple[Region, ...]:
    """Compare the domains within each region, by whichever of the scores tells them apart best."""
    from sklearn.metrics import roc_auc_score

    found = []
    for own in np.unique(label):
        inside = label == own
        source, target = (inside & ~is_target).sum() / (~is_target).sum(), (inside & is_target).sum() / is_target.sum()
        sizes = np.array([(inside & ~is_target).sum(), (inside & is_target).sum()])
        few = sizes.min() < 5
        alone = few or min(source, target) < ALONE * (source + target)
        # Less one standard error of that of scores that say nothing: of few nodes, a high one may be chance.
        chance = np.sqrt((inside.sum() + 1) / (12 * max(1, sizes.prod())))
        aurocs = [] if alone else [float(roc_auc_score(is_target[inside], each[inside]) - chance) for each in scores]
        found.append(Region(float(source), float(target), max(aurocs, default=None)))
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


def _pairs_between(partitions: Partitions, is_target: Mask) -> float:
    """Return how many pairs of nodes in the smallest bins are of both domains, against as many as by chance."""
    counts = partitions.count(is_target)[partitions.first < 0].astype(np.float64)
    size = counts.sum(axis=1)
    share = is_target.mean()
    return float(2 * counts.prod(axis=1).sum() / (size * (size - 1)).sum() / (2 * share * (1 - share)))


def _edges_between(graph: NodeGraph, is_target: Mask) -> float | None:
    """Return how many edges join the domains, against as many as by chance with the same degrees."""
    if graph.num_edges == 0:
        return None
    left, right = is_target[graph.edge_index]
    share = left.mean()
    return float((left != right).mean() / max(2 * share * (1 - share), 1e-12)) if 0 < share < 1 else 0.0
