"""Graph + listed nodes -> whether the data can support a conclusion, and how far proportions shifted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recoslip.detectors.base import Detector
from recoslip.graph import NodeGraph
from recoslip.graph.neighbourhood import k_means
from recoslip.shift import Mask

MAX_EDGES = 5_000_000  # that homophily is measured on
NEW_CLUSTER_GROWTH = 30.0  # a cluster that is so many times as frequent in the target counts as new, not as grown
MIN_TARGET_FRACTION = 0.01  # of the target nodes, in a cluster whose growth is reported


@dataclass(frozen=True)
class Cluster:
    """A k-means cluster of neighbourhood features."""

    size: int
    source_fraction: float  # fraction of the source nodes that are in it
    target_fraction: float  # fraction of the target nodes that are in it
    listed: int  # listed nodes in it
    growth: float  # how many times as frequent it is in the target as in the source


@dataclass(frozen=True)
class Diagnosis:
    """What the data can tell."""

    homophily: float  # how much more often than by chance edges stay inside a feature cluster; 1 always, 0 by chance
    target_edges: int  # edges with both ends in the target
    separability: float  # cross-validated AU-ROC of a linear model that tells source from target
    unevenness: float  # total variation between source and target over the clusters known in the source; 0: no shift
    growth: float  # the highest growth of such a cluster
    clusters: tuple[Cluster, ...]  # in descending order of their growth
    advice: str
    warnings: tuple[str, ...]


def diagnose(
    detector: Detector,
    graph: NodeGraph,
    listed: Mask,
    reduced: NDArray[np.float64],
    neighbourhood: NDArray[np.float64],
    *,
    fdr: float | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Measure homophily, separability and shift, and warn of what the data cannot support; uses no true categories.

    Args:
        detector: fitted on `graph`.
        graph: the graph.
        listed: (nodes,) the listed nodes.
        reduced: (nodes, width) reduced features.
        neighbourhood: (nodes, width) neighbourhood features.
        fdr: the false-discovery rate that the list was made by; None if it was made by the detector's threshold.
        seed: of clusters and folds.
    """
    is_target = graph.is_target.numpy()
    clusters = _clusters(neighbourhood, listed, is_target, seed)
    # Whether a node is listed does not matter here: a list of known nodes would hide the shift that put them there.
    known = [cluster for cluster in clusters if cluster.growth < NEW_CLUSTER_GROWTH]
    known_target_fraction = sum(cluster.target_fraction for cluster in known) or 1.0
    unevenness = 0.5 * sum(
        abs(cluster.source_fraction - cluster.target_fraction / known_target_fraction) for cluster in known
    )
    growth = max([1.0, *(c.growth for c in known if c.target_fraction >= MIN_TARGET_FRACTION)])
    ends = graph.edge_index.numpy()
    target_edges = int((is_target[ends[0]] & is_target[ends[1]]).sum()) // 2
    separability = _separability(neighbourhood, is_target, seed)
    return Diagnosis(
        homophily=_homophily(graph, reduced, seed),
        target_edges=target_edges,
        separability=separability,
        unevenness=float(unevenness),
        growth=float(growth),
        clusters=tuple(clusters),
        advice=_advice(unevenness, separability),
        warnings=(
            *_data_warnings(is_target, reduced, target_edges, separability),
            *_list_warnings(detector, is_target, listed, fdr),
        ),
    )


def _clusters(x: NDArray[np.float64], listed: Mask, is_target: Mask, seed: int) -> list[Cluster]:
    """Cluster the nodes and compare how frequent each cluster is in source and target."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.preprocessing import StandardScaler

    count = int(np.clip(np.sqrt(len(x)) / 5, 4, 20))
    count = min(count, len(np.unique(x, axis=0)))
    label = MiniBatchKMeans(count, n_init=3, random_state=seed).fit_predict(StandardScaler().fit_transform(x))
    targets, sources = is_target.sum(), (~is_target).sum()
    clusters = []
    for k in range(count):
        inside = label == k
        in_source, in_target = (inside & ~is_target).sum(), (inside & is_target).sum()
        # Half a node more in each cluster and domain (Krichevsky-Trofimov), so that none is empty.
        growth = ((in_target + 0.5) / (targets + count / 2)) / ((in_source + 0.5) / (sources + count / 2))
        clusters.append(
            Cluster(
                size=int(inside.sum()),
                source_fraction=float(in_source / sources),
                target_fraction=float(in_target / targets),
                listed=int((inside & listed).sum()),
                growth=float(growth),
            )
        )
    return sorted(clusters, key=lambda cluster: -cluster.growth)


def _homophily(graph: NodeGraph, reduced: NDArray[np.float64], seed: int) -> float:
    """Fraction of the edges inside a cluster of features, less that expected by chance, relative to its maximum."""
    if graph.num_edges == 0:
        return 0.0
    label = k_means(reduced, 10, seed)
    if label.max() == 0:
        return 0.0
    step = -(-graph.num_edges // MAX_EDGES)
    left, right = label[graph.edge_index[:, ::step].numpy()]
    degree = np.bincount(left) / len(left)
    chance = float((degree**2).sum())
    return float(((left == right).mean() - chance) / max(1e-9, 1 - chance))


def _separability(x: NDArray[np.float64], is_target: Mask, seed: int) -> float:
    """Cross-validated AU-ROC of a linear model that tells source from target; 0.5 with too few nodes to tell."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    splits = min(5, int(is_target.sum()), int((~is_target).sum()))
    if splits < 2:
        return 0.5
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    folds = StratifiedKFold(splits, shuffle=True, random_state=seed)
    probability = cross_val_predict(model, x, is_target, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(is_target, probability))


def _advice(unevenness: float, separability: float) -> str:
    """Say whether a method that allows for shifted proportions is needed."""
    if separability < 0.55:
        return "Source and target can hardly be told apart: either nothing is novel, or these features do not show it."
    if unevenness < 0.1:
        return (
            "The known categories have much the same proportions in source and target, so a plain domain "
            "discriminator would have done here too."
        )
    if unevenness < 0.3:
        return (
            "The proportions of the known categories shifted somewhat; a plain domain discriminator is biased by that."
        )
    return (
        "The proportions of the known categories shifted strongly. Telling source from target would list the "
        "categories that grew, so a method that allows for the shift is needed."
    )


def _data_warnings(is_target: Mask, reduced: NDArray[np.float64], target_edges: int, separability: float) -> list[str]:
    """Say what the graph itself cannot support."""
    source = int((~is_target).sum())
    warnings = []
    if source < 100:
        warnings.append(f"There are only {source} source nodes: they may not represent what is known.")
    if target_edges == 0:
        warnings.append("No edge joins two target nodes: the graph does not show whether novel nodes belong together.")
    if np.ptp(reduced, axis=0).max(initial=0) < 1e-12:
        warnings.append("All nodes have the same features: nothing but the edges could tell them apart.")
    if separability > 0.99:
        warnings.append(
            "A linear model tells source from target almost perfectly. Look for a feature that says the same as the "
            "domain (a date, a region): everything in the target would look novel."
        )
    return warnings


def _list_warnings(detector: Detector, is_target: Mask, listed: Mask, fdr: float | None) -> list[str]:
    """Say what is doubtful about the list, or why it is empty."""
    from sklearn.metrics import roc_auc_score

    warnings = []
    if not listed.any():
        calibration = int(np.bincount(detector.region_[detector.calibration_]).max(initial=0))
        level, rate = (detector.max_fpr, "false-positive") if fdr is None else (fdr, "false-discovery")
        if detector.calibrated_ and 1 / (calibration + 1) > level:
            warnings.append(
                f"{calibration} calibration nodes cannot promise a {rate} rate below {1 / (calibration + 1):.3f}, and "
                f"{level:g} was asked for, so nothing is listed. Ask for a higher rate or for more calibration nodes."
            )
        if roc_auc_score(is_target, detector.scores_) < 0.55:
            warnings.append("Source and target score alike: the detector found little that sets the target apart.")
        warnings.append("No target node is listed. That is a finding too, if the other warnings do not explain it.")
    if np.mean([getattr(fit, "proposal_rejected_", False) for fit in detector.fits]) > 0.5:
        warnings.append(
            "The nodes that stood out first turned out to belong to a known category that grew. No novel category "
            "could be confirmed; the ranking is a proposal, so look at each group."
        )
    return warnings
