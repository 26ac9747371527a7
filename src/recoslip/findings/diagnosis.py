"""Graph + listed nodes -> whether the data can support a conclusion, and how far proportions shifted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recoslip.detectors.base import Detector
from recoslip.findings.clusters import Cluster, find_clusters, grown, unevenness
from recoslip.findings.explanations import FeatureStatistics
from recoslip.graph import NodeGraph
from recoslip.graph.split import Mask

FEW_SOURCE = 100  # fewer source nodes may not represent what is known


@dataclass(frozen=True)
class Diagnosis:
    """What the data can tell."""

    unevenness: float | None  # total variation between source and known target nodes over the clusters; 0: no shift
    clusters: tuple[Cluster, ...]  # in descending order of their growth
    warnings: tuple[str, ...]

    @property
    def grown(self) -> list[Cluster]:
        """The clusters whose known nodes can be said to have grown."""
        return grown(self.clusters)

    def shift(self) -> str:
        """Say how far the proportions of known categories shifted."""
        if self.unevenness is None:
            return "The shift of known categories is not estimated: too few target nodes look known."
        moved = f"{100 * self.unevenness:.0f} % of the source nodes would have to change cluster to match the target"
        if self.unevenness < 0.1:
            return f"Known categories have similar proportions in source and target: {moved}."
        how = "somewhat" if self.unevenness < 0.3 else "strongly"
        return f"The proportions of known categories shifted {how}: {moved}."


def diagnose(
    detector: Detector,
    graph: NodeGraph,
    listed: Mask,
    own: NDArray[np.float32],
    similarity: NDArray[np.float32],
    features: FeatureStatistics,
    *,
    seed: int = 0,
) -> Diagnosis:
    """Measure the shift, and warn of what the data cannot support; uses no true categories.

    Args:
        detector: fitted on `graph`.
        graph: the graph.
        listed: (nodes,) the listed nodes.
        own: (nodes, width) vectors of the nodes' own features.
        similarity: (nodes, width) vectors whose inner products are similarities.
        features: of the graph, to name clusters by.
        seed: of clusters and folds.
    """
    is_target = graph.is_target.numpy()
    clusters = find_clusters(detector, similarity, listed, features, seed)
    ends = graph.edge_index.numpy()
    joined = bool((is_target[ends[0]] & is_target[ends[1]]).any())
    return Diagnosis(
        unevenness=unevenness(clusters),
        clusters=clusters,
        warnings=(*_data_warnings(is_target, own, joined=joined), *_fit_warnings(detector)),
    )


def _data_warnings(is_target: Mask, own: NDArray[np.float32], *, joined: bool) -> list[str]:
    """Say what the graph itself cannot support."""
    source = int((~is_target).sum())
    warnings = []
    if source < FEW_SOURCE:
        warnings.append(f"There are only {source} source nodes. They may not represent all known categories.")
    if not joined:
        warnings.append("No edge joins two target nodes, so edges do not show which target nodes belong together.")
    if np.ptp(own, axis=0).max(initial=0) < 1e-6:
        warnings.append("All nodes have the same features. Only edges can distinguish them.")
    return warnings


def _fit_warnings(detector: Detector) -> list[str]:
    """Say what the detector noticed while it was fitted."""
    rejected = sum(getattr(fit, "proposal_rejected_", False) for fit in detector.fits)
    if not rejected:
        return []
    fits = "the fit" if len(detector.fits) == 1 else f"{rejected} of {len(detector.fits)} fits"
    return [
        f"In {fits}, source nodes were near the first proposals, as for a known category that grew. The ranking was "
        "made from new proposals."
    ]
