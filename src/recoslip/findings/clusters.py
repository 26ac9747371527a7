"""Similar nodes of both domains -> clusters: how many of their target nodes are known, and how much those grew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recoslip.calibration.conformal import regional_p_values
from recoslip.calibration.growth import least_growth
from recoslip.detectors.base import Detector
from recoslip.findings.explanations import FeatureStatistics
from recoslip.graph.neighbourhood import k_means
from recoslip.shift import Mask

CLUSTERS = 20
MAX_FIT = 20_000  # nodes that clusters are fitted on at most
MIN_SOURCE = 10  # source nodes of a cluster whose growth is estimated
MIN_TARGET_FRACTION = 0.01  # of the target nodes, in a cluster that is said to have grown
MIN_GROWTH = 2.5  # confidence bound from which on a cluster is said to have grown


@dataclass(frozen=True)
class Cluster:
    """A k-means cluster of all nodes by what they and their neighbours are like."""

    source: int
    target: int
    known: int  # target nodes that score as its source nodes do: twice those below the median of these
    listed: int
    growth: float | None  # how many times as frequent its known nodes are in the target; None: too few source nodes
    least_growth: float  # lower confidence bound of the growth (95 %, one-sided), 0 where there is none
    name: str | None  # the features that it has more of than the source, where features have names
    members: NDArray[np.int64] = field(repr=False, compare=False)

    def sentence(self) -> str:
        """Say how much it grew."""
        assert self.growth is not None
        like = f"like {self.name!r}" if self.name else "of one cluster"
        return (
            f"known nodes {like} are about {self.growth:.2g} times as frequent in the target as in the source "
            f"(at least {self.least_growth:.2g} times; {self.source:,} source nodes are there)"
        )


def find_clusters(
    detector: Detector, similarity: NDArray[np.floating], listed: Mask, features: FeatureStatistics, seed: int = 0
) -> tuple[Cluster, ...]:
    """Cluster all nodes and compare how frequent the known ones of each cluster are in source and target.

    The clusters do not depend on the domain, so a known target node scores as the calibration nodes of its cluster do:
    half of the known ones score below their median. A novel node scores above it, so novel nodes are not taken for
    growth, as long as the cluster's source nodes do not score like them.

    Args:
        detector: fitted on the graph.
        similarity: (nodes, width) vectors whose inner products are similarities.
        listed: (nodes,) the listed nodes.
        features: of the graph, to name clusters by.
        seed: of k-means.
    """
    is_target = detector.is_target_
    sample = np.arange(0, len(similarity), -(-len(similarity) // MAX_FIT))
    label = k_means(similarity, CLUSTERS, seed, n_init=2, fitted_on=sample)
    rotations = [(fit.scores_, fit.calibration_) for fit in detector.fits]
    p = regional_p_values(rotations, label, is_target)
    sources, targets = int((~is_target).sum()), int(is_target.sum())
    clusters = []
    for k in np.unique(label):
        inside = label == k
        source, target = int((inside & ~is_target).sum()), int((inside & is_target).sum())
        known = min(target, 2 * int((p[inside & is_target] > 0.5).sum()))
        enough = min(source, int((inside & detector.calibration_).sum())) >= MIN_SOURCE
        clusters.append(
            Cluster(
                source=source,
                target=target,
                known=known,
                listed=int((inside & listed).sum()),
                growth=known / targets / (source / sources) if enough else None,
                least_growth=least_growth(source, known, sources, targets) if enough else 0.0,
                name=features.name(np.flatnonzero(inside)),
                members=np.flatnonzero(inside),
            )
        )
    return tuple(sorted(clusters, key=lambda cluster: -(cluster.growth or 0)))


def grown(clusters: Sequence[Cluster]) -> list[Cluster]:
    """Return the clusters that can be said to have grown, the one with the most known nodes first."""
    targets = sum(cluster.target for cluster in clusters)
    found = [
        cluster
        for cluster in clusters
        if cluster.least_growth >= MIN_GROWTH and cluster.known >= MIN_TARGET_FRACTION * targets
    ]
    return sorted(found, key=lambda cluster: -cluster.known)


def unevenness(clusters: Sequence[Cluster]) -> float:
    """Return the total variation between source and known target nodes over the clusters; 0 is no shift."""
    source, known = (np.array([getattr(cluster, side) for cluster in clusters]) for side in ("source", "known"))
    return float(0.5 * np.abs(source / max(1, source.sum()) - known / max(1, known.sum())).sum())
