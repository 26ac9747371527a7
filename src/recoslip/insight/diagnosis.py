"""A graph and who looks novel in it -> whether the data can support a conclusion, and how uneven the shift is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from recoslip.detectors.base import Detector
from recoslip.detectors.energy import k_means, neighbourhood_features
from recoslip.graph import NodeGraph
from recoslip.shift import Mask

COUNTED = 5_000_000  # edges at most that homophily is measured on
NEW = 30.0  # a cluster that is so many times as frequent in the target counts as new, not as grown


@dataclass(frozen=True)
class Cluster:
    """A group of nodes that are alike, by features averaged over their neighbourhood."""

    size: int
    source_share: float  # of the source nodes that are in it
    target_share: float  # of the target nodes
    novel: int  # nodes in it that look novel
    growth: float  # how many times as frequent it is in the target as in the source


@dataclass(frozen=True)
class Diagnosis:
    """What the data can tell."""

    homophily: float  # how much more often edges stay inside a feature cluster than by chance; 1 always, 0 chance
    target_edges: int  # edges with both ends in the target
    separability: float  # cross-validated AU-ROC of telling source from target by a linear model
    unevenness: float  # total variation between the shares of clusters that the source has, too; 0 is no shift
    growth: float  # the highest growth of such a cluster
    clusters: tuple[Cluster, ...]
    advice: str
    warnings: tuple[str, ...]


def diagnose(
    detector: Detector, graph: NodeGraph, novel: Mask, seed: int = 0, *, fdr: float | None = None
) -> Diagnosis:
    """Look at the graph, its domains and the detector's scores; true categories are not used.

    Args:
        detector: fitted on `graph`.
        graph: the graph.
        novel: (nodes,) who was listed.
        seed: of clusters and folds.
        fdr: that the list was made by; None where that was the detector's threshold.
    """
    target = graph.is_target.numpy()
    x = neighbourhood_features(graph, 32)
    clusters = _clusters(x, novel, target, seed)
    # Who is listed plays no part here: a list of known nodes would hide the shift that put them there.
    known = [c for c in clusters if c.growth < NEW]
    in_target = sum(c.target_share for c in known) or 1.0
    unevenness = 0.5 * sum(abs(c.source_share - c.target_share / in_target) for c in known)
    growth = max([1.0, *(c.growth for c in known if c.target_share >= 0.01)])
    ends = graph.edge_index.numpy()
    target_edges = int((target[ends[0]] & target[ends[1]]).sum()) // 2
    separability = _separability(x, target, seed)
    return Diagnosis(
        _homophily(graph, seed),
        target_edges,
        separability,
        float(unevenness),
        float(growth),
        tuple(clusters),
        _advice(unevenness, separability),
        tuple(_warnings(detector, graph, novel, fdr, x, target_edges, separability)),
    )


def _clusters(x: NDArray[np.float64], novel: Mask, target: Mask, seed: int) -> list[Cluster]:
    count = int(np.clip(np.sqrt(len(x)) / 5, 4, 20))
    count = min(count, len(np.unique(x, axis=0)))
    label = MiniBatchKMeans(count, n_init=3, random_state=seed).fit_predict(StandardScaler().fit_transform(x))
    source = ~target
    found = []
    for k in range(count):
        inside = label == k
        s, t = (inside & source).sum(), (inside & target).sum()
        source_share, target_share = s / source.sum(), t / target.sum()
        growth = ((t + 0.5) / (target.sum() + count / 2)) / ((s + 0.5) / (source.sum() + count / 2))
        new = int((inside & novel).sum())
        found.append(Cluster(int(inside.sum()), float(source_share), float(target_share), new, float(growth)))
    return sorted(found, key=lambda cluster: -cluster.growth)


def _homophily(graph: NodeGraph, seed: int) -> float:
    """Share of the edges that stay inside a cluster of the nodes' own features, less chance, divided by its most."""
    if graph.num_edges == 0:
        return 0.0
    x = neighbourhood_features(graph.without_edges(), 32)
    label = k_means(x, 10, seed)
    if label.max() == 0:
        return 0.0
    step = -(-graph.num_edges // COUNTED)
    left, right = label[graph.edge_index[:, ::step].numpy()]
    degree = np.bincount(left) / len(left)
    chance = float((degree**2).sum())
    return float(((left == right).mean() - chance) / max(1e-9, 1 - chance))


def _separability(x: NDArray[np.float64], target: Mask, seed: int) -> float:
    folds = min(5, int(target.sum()), int((~target).sum()))
    if folds < 2:
        return 0.5
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    parts = StratifiedKFold(folds, shuffle=True, random_state=seed)
    return float(roc_auc_score(target, cross_val_predict(model, x, target, cv=parts, method="predict_proba")[:, 1]))


def _advice(unevenness: float, separability: float) -> str:
    if separability < 0.55:
        return "Source and target can hardly be told apart: either nothing is new, or these features do not show it."
    if unevenness < 0.1:
        return (
            "The known kinds have much the same proportions in source and target, so a plain domain discriminator "
            "would have done here too."
        )
    if unevenness < 0.3:
        return "The proportions of the known kinds shifted somewhat; a plain domain discriminator is biased by that."
    return (
        "The proportions of the known kinds shifted strongly. Telling source from target would flag the kinds that "
        "grew, so a method that allows for the shift is needed."
    )


def _warnings(
    detector: Detector,
    graph: NodeGraph,
    novel: Mask,
    fdr: float | None,
    x: NDArray[np.float64],
    target_edges: int,
    separability: float,
) -> list[str]:
    """Say what the data cannot support."""
    target = graph.is_target.numpy()
    source, calibration = int((~target).sum()), int(detector.calibration_.sum())
    found = []
    if source < 100:
        found.append(f"There are only {source} source nodes: what is known may not be represented.")
    level, rate = (detector.max_fpr, "false-positive") if fdr is None else (fdr, "false-discovery")
    if not novel.any() and detector.calibrated_ and 1 / (calibration + 1) > level:
        found.append(
            f"{calibration} source nodes that were held back cannot promise a {rate} rate below "
            f"{1 / (calibration + 1):.3f}, and {level:g} was asked for, so nothing is listed. Ask for more, or hold "
            "back more."
        )
    if target_edges == 0:
        found.append("No edge joins two target nodes: the graph does not show whether novel nodes belong together.")
    if np.ptp(x, axis=0).max(initial=0) < 1e-12:
        found.append("All nodes have the same features: nothing but the edges could tell them apart.")
    if not novel.any() and roc_auc_score(target, detector.scores_) < 0.55:
        found.append("Source and target score alike: the detector found little that sets the target apart.")
    if not novel.any():
        found.append("No node is called novel. That is a finding too, if the warnings above do not explain it.")
    if getattr(detector, "grown_", False):
        found.append(
            "The nodes that stood out first turned out to be of a kind that the source has, too, and that grew. No "
            "kind could be confirmed as new; the ranking is a proposal, look at each group."
        )
    if separability > 0.99:
        found.append(
            "Source and target are told apart almost perfectly by a linear model. Look for a feature that says the "
            "same as the domain (a date, a region): everything in the target would look new."
        )
    return found
