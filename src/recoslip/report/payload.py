"""Findings -> everything the page shows, as one JSON value."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

import recoslip
from recoslip.detectors.base import Detector
from recoslip.detectors.energy import neighbourhood_features
from recoslip.detectors.networked import NetworkDetector
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import gather
from recoslip.fleet.training import evaluate
from recoslip.graph import Neighbours, NodeGraph
from recoslip.insight.explain import Features, Looked, Trait, looked_at, nearest_source
from recoslip.insight.findings import Findings, facts
from recoslip.shift import Mask

FORMAT = 1  # of the payload
SHOWN = 50_000  # nodes on the page
LANDMARKS = 2_000  # nodes that the map is made of; the others are placed among them
DETAILED = 500  # novel nodes whose traits are given
NEIGHBOURS = 30  # of a node that are listed
BINS = 60


def payload(
    findings: Findings, *, title: str, image_shape: tuple[int, int] | None = None, explained: int = 10
) -> dict[str, Any]:
    """Collect what the page shows.

    Args:
        findings: of `recoslip.analyse`.
        title: of the page.
        image_shape: rows and columns, if a node's features are the pixels of an image.
        explained: how many of the most novel nodes get an explanation of what the network looked at.
    """
    detector, graph = findings.detector, findings.graph
    shown = _shown(findings)
    place = np.full(graph.num_nodes, -1)
    place[shown] = np.arange(len(shown))
    xy = projection(detector, graph, findings.novel)[shown]
    p = findings.p_value[shown]
    return {
        "format": FORMAT,
        "title": title,
        "headline": findings.headline(),
        "facts": facts(findings),
        "counts": {
            "nodes": graph.num_nodes,
            "source": int((~graph.is_target).sum()),
            "target": int(graph.is_target.sum()),
            "edges": graph.num_edges,
            "features": graph.num_features,
            "novel": int(findings.novel.sum()),
            "shown": len(shown),
        },
        "threshold": float(detector.scores_[findings.novel].min()) if findings.novel.any() else detector.threshold_,
        "nodes": {
            "id": [str(name) for name in graph.ids[shown].tolist()],
            "target": graph.is_target.numpy()[shown].astype(int).tolist(),
            "score": [round(value, 6) for value in detector.scores_[shown].tolist()],
            "p": [None if np.isnan(value) else round(value, 5) for value in p.tolist()],
            "novel": findings.novel[shown].astype(int).tolist(),
            "group": findings.categories.label[shown].tolist(),
            "x": [round(value, 3) for value in xy[:, 0].tolist()],
            "y": [round(value, 3) for value in xy[:, 1].tolist()],
        },
        "histogram": _histogram(findings),
        "groups": [
            {
                "name": group.name,
                "size": group.size,
                "exemplars": [int(place[node]) for node in group.exemplars if place[node] >= 0],
                "traits": [_trait(trait) for trait in group.traits],
                "edges": [group.inside, group.to_novel, group.to_target, group.to_source],
            }
            for group in findings.groups
        ],
        "clusters": [
            [c.size, round(c.source_share, 4), round(c.target_share, 4), c.novel, round(c.growth, 2)]
            for c in findings.diagnosis.clusters
        ],
        "details": _details(findings, shown, place, explained),
        "images": _images(graph, shown, image_shape),
        "run": {
            "recoslip": recoslip.__version__,
            "torch": torch.__version__,
            "method": detector.name,
            "settings": detector._json_settings(),
        },
    }


def projection(detector: Detector, graph: NodeGraph, first: Mask, seed: int = 0) -> NDArray[np.float64]:
    """Place the nodes on a plane by what the network made of them, or by their neighbourhoods' features: (nodes, 2).

    t-SNE of some nodes, those of `first` before others; the rest go where those most like them are.
    """
    wide = _wide(detector, graph)
    rng = np.random.default_rng(seed)
    if np.ptp(wide, axis=0).max() < 1e-9:  # all alike: there is nothing to place them by
        return rng.normal(0, 1, (len(wide), 2))
    x = PCA(min(30, *wide.shape), random_state=seed).fit_transform(wide)
    if len(x) < 10 or x.shape[1] < 2:
        return np.asarray(np.column_stack([x, np.zeros((len(x), 2))])[:, :2])
    order = np.argsort(rng.random(len(x)) - first, kind="stable")
    landmarks = order[: min(LANDMARKS, len(x))]
    perplexity = min(30.0, (len(landmarks) - 1) / 3)
    placed = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=seed).fit_transform(x[landmarks])
    if len(landmarks) == len(x):
        result = np.empty((len(x), 2))
        result[landmarks] = placed
        return result
    near = NearestNeighbors(n_neighbors=3).fit(x[landmarks])
    distance, index = near.kneighbors(x)
    weight = 1 / (distance + 1e-9)
    result = (placed[index] * weight[..., None]).sum(axis=1) / weight.sum(axis=1, keepdims=True)
    result += rng.normal(0, 0.004 * np.ptp(placed), result.shape)  # nodes that are alike do not hide each other
    result[landmarks] = placed
    return np.asarray(result)


def _wide(detector: Detector, graph: NodeGraph) -> NDArray[np.float64]:
    if isinstance(detector, NetworkDetector):
        view, fleet = detector._view(graph), detector.fleet_
        if isinstance(view, Batches):  # one network will do to place so many nodes by
            fleet = gather([(fleet, 0)])
        representation = evaluate(fleet.to(view.device), view, "representation").flatten(1).numpy()
        fleet.to("cpu")
    else:
        representation = neighbourhood_features(graph)
    return np.asarray(StandardScaler().fit_transform(representation))


def _shown(findings: Findings) -> NDArray[np.int64]:
    """Choose the nodes of the page: all, or the novel ones, the next highest of the target, and some of the others."""
    graph = findings.graph
    if graph.num_nodes <= SHOWN:
        return np.arange(graph.num_nodes)
    target = graph.is_target.numpy()
    merit = findings.detector.scores_ + 2.0 * findings.novel + 1.0 * target
    order = np.argsort(-merit, kind="stable")
    rest = np.random.default_rng(0).permutation(order[SHOWN // 2 :])
    return np.sort(np.concatenate([order[: SHOWN // 2], rest[: SHOWN - SHOWN // 2]]))


def _histogram(findings: Findings) -> dict[str, list[float]]:
    """Return the share of each kind of node in every bin of the score."""
    detector, target = findings.detector, findings.graph.is_target.numpy()
    edges = np.linspace(0, 1, BINS + 1)
    held_back = detector.calibration_ if detector.calibrated_ else np.zeros_like(target)
    groups = {"source": ~target & ~held_back, "held": held_back, "target": target}
    shares = {
        name: (np.histogram(detector.scores_[mask], edges)[0] / max(1, mask.sum())).round(6).tolist()
        for name, mask in groups.items()
    }
    return {"edges": edges.round(6).tolist(), **shares}


def _details(
    findings: Findings, shown: NDArray[np.int64], place: NDArray[np.int64], explained: int
) -> dict[str, dict[str, Any]]:
    """Neighbours, traits and explanations of the nodes a person will ask about, by their place on the page."""
    detector, graph = findings.detector, findings.graph
    scores, target = detector.scores_, graph.is_target.numpy()
    listed = np.flatnonzero(findings.novel & (place >= 0))
    listed = listed[np.argsort(-scores[listed], kind="stable")]
    asked = np.union1d(listed, shown[np.argsort(-(scores + target)[shown], kind="stable")][:2000])
    neighbours = Neighbours(graph)
    details: dict[str, dict[str, Any]] = {}
    for node in asked.tolist():
        _, around = neighbours.of([node])
        listed_first = around[np.argsort(-scores[around], kind="stable")]
        details[str(place[node])] = {
            "degree": len(around),
            "source": int((~target[around]).sum()),
            "neighbours": [int(place[k]) for k in listed_first[:NEIGHBOURS].tolist() if place[k] >= 0],
        }
    some = listed[:DETAILED].tolist()
    if some:
        features = Features(graph)
        for node, like in zip(some, nearest_source(graph, some).tolist(), strict=True):
            details[str(place[node])]["like"] = len(like)
            details[str(place[node])]["traits"] = [_trait(t) for t in features.traits([node], like, 6)]
    for node in some[:explained]:
        looked = looked_at(detector, graph, node)
        if looked is not None:
            details[str(place[node])]["looked"] = _looked(looked, place)
    return details


def _trait(trait: Trait) -> list[Any]:
    return [trait.feature, _number(trait.value), _number(trait.usual), round(trait.strength, 2)]


def _looked(looked: Looked, place: NDArray[np.int64]) -> dict[str, Any]:
    return {
        "features": [[name, round(weight, 3)] for name, weight in looked.features],
        "neighbours": [[int(place[node]), round(w, 3)] for node, w in looked.neighbours if place[node] >= 0],
    }


def _images(graph: NodeGraph, shown: NDArray[np.int64], shape: tuple[int, int] | None) -> dict[str, Any] | None:
    """Return the features of the nodes as bytes, if they are the pixels of small images."""
    if shape is None or shape[0] * shape[1] != graph.num_features or graph.x.layout != torch.strided:
        return None
    x = graph.x.numpy()[shown]
    pixels = np.round(255 * (x - x.min()) / max(1e-12, float(np.ptp(x)))).astype(np.uint8)
    return {"rows": shape[0], "columns": shape[1], "pixels": base64.b64encode(pixels.tobytes()).decode()}


def _number(value: float) -> float:
    return float(f"{value:.3g}")
