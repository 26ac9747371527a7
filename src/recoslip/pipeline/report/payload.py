"""Findings -> everything that the page shows, as one JSON value; columns in the user's units; places on the map."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip._version import __version__
from recoslip.base.errors import RecoslipError, nearest
from recoslip.base.settings import json_params
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.data.split import Mask
from recoslip.inference.analysis import Findings, facts
from recoslip.inference.diagnosis import Cluster
from recoslip.inference.groups import Group
from recoslip.inference.p_values import ROUNDING
from recoslip.inference.traits import Trait, nearest_source
from recoslip.learning.base import Detector

TEXT_LENGTHS = (400, 200, 100, 50, 25)  # characters of a cell; the first with which all columns fit
MAX_CHARACTERS = 8_000_000  # of all columns together


def shown_columns(
    graph: NodeGraph, nodes: NDArray[np.int64], show: Sequence[str] | None
) -> tuple[dict[str, list[Any]], int | None]:
    """Return the values of some nodes, by column, and after how many characters texts are cut; None if none is.

    Args:
        graph: the graph, with the columns that were kept of its table.
        nodes: positions of the nodes.
        show: names of the columns; by default all that were kept.
    """
    names = list(graph.columns) if show is None else list(show)
    for name in names:
        if name not in graph.columns:
            kept = ", ".join(graph.columns) or "none"
            raise RecoslipError(
                f"show must name columns that were kept of the table ({kept}); got {name!r}"
                f"{nearest(name, graph.columns)}"
            )
    columns = {name: [_json_value(value) for value in graph.columns[name][nodes].tolist()] for name in names}
    texts = [value for values in columns.values() for value in values if isinstance(value, str)]
    longest = max(map(len, texts), default=0)
    limit = next(
        (each for each in TEXT_LENGTHS if sum(min(len(text), each) for text in texts) <= MAX_CHARACTERS),
        TEXT_LENGTHS[-1],
    )
    if longest <= limit:
        return columns, None
    return {name: [shortened(value, limit) for value in values] for name, values in columns.items()}, limit


def node_labels(graph: NodeGraph, nodes: NDArray[np.int64]) -> list[str | None] | None:
    """Return what a person calls each of some nodes; None where the table has no such column."""
    if graph.label is None:
        return None
    values = [_json_value(value) for value in graph.columns[graph.label][nodes].tolist()]
    return [None if value is None else shortened(str(value), TEXT_LENGTHS[0]) for value in values]


def shortened(value: Any, length: int) -> Any:
    """Cut a text.

    >>> shortened("a long title", 7), shortened("short", 7), shortened(12.5, 7)
    ('a long…', 'short', 12.5)
    """
    return f"{value[: length - 1]}…" if isinstance(value, str) and len(value) > length else value


def _json_value(value: Any) -> Any:
    """Return a value of a table as JSON holds it: missing and infinite numbers as null, what is no number as text."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)


FORMAT = 7  # version of the payload
MAX_NODES = 50_000  # on the page
MAX_WITH_NEIGHBOURS = 2_000  # nodes with the highest scores whose neighbours are given, besides the listed nodes
MAX_WITH_TRAITS = 500  # listed nodes whose traits are given
MAX_NEIGHBOURS = 30  # of a node
TRAITS = 6  # of a node
BINS = 60
MAX_LEVEL = 0.5  # highest level that the page can list nodes by, unless the run's own is higher


def payload(
    findings: Findings,
    *,
    title: str,
    image_shape: tuple[int, int] | None = None,
    show: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Collect what the page shows. Nodes are referred to by their position among the nodes on the page.

    Args:
        findings: what `recoslip.analyse` returned.
        title: of the page.
        image_shape: rows and columns, if a node's features are the pixels of an image.
        show: names of the table's columns to show, of those that the graph kept; by default all of them.
    """
    model, graph = findings.model, findings.graph
    shown = _shown_nodes(findings)
    position = np.full(graph.num_nodes, -1)  # on the page; -1 for a node that is not shown
    position[shown] = np.arange(len(shown))
    representation = model.fits[0].representation(graph, shown)
    represented = findings.similarity[shown].astype(np.float64) if representation is None else representation
    xy = projection(represented, findings.listed[shown])
    columns, cut_after = shown_columns(graph, shown, show)
    details, evidence = _details(findings, shown, position)
    summary = facts(findings)
    lowest_listed = summary["lowest_listed_score"]
    return {
        "format": FORMAT,
        "title": title,
        "facts": summary,
        "counts": {
            "nodes": graph.num_nodes,
            "source": int((~graph.is_target).sum()),
            "target": int(graph.is_target.sum()),
            "edges": graph.num_edges,
            "features": graph.num_features,
            "listed": int(findings.listed.sum()),
            "shown": len(shown),
        },
        "inspect_first": [int(position[node]) for node in findings.inspect_first() if position[node] >= 0],
        "threshold": model.threshold() if lowest_listed is None else lowest_listed,
        "level": _level(findings),
        "nodes": {
            "id": [str(node_id) for node_id in graph.ids[shown].tolist()],
            "label": node_labels(graph, shown),
            "target": graph.is_target[shown].astype(int).tolist(),
            "score": _rounded(model.scores[shown], 6),
            "p_value": [None if np.isnan(p) else _twelve_digits(p) for p in findings.p_value[shown].tolist()],
            "listed": findings.listed[shown].astype(int).tolist(),
            "group": findings.partition.label[shown].tolist(),
            "x": _rounded(xy[:, 0], 3),
            "y": _rounded(xy[:, 1], 3),
        },
        "columns": columns,
        "label_column": graph.label,
        "cut_after": cut_after,
        "histogram": _histogram(findings),
        "groups": [_group(group, position) for group in findings.groups],
        "clusters": [_cluster(cluster) for cluster in findings.diagnosis.clusters],
        "details": details,
        "evidence": evidence,
        "images": _images(graph, shown, image_shape),
        "run": {
            "recoslip": __version__,
            "method": model.name,
            "settings": _settings(model.fits[0]),
        },
    }


def _shown_nodes(findings: Findings) -> NDArray[np.int64]:
    """Choose the nodes of the page: all, or half by priority (listed, target, score) and half at random."""
    graph = findings.graph
    if graph.num_nodes <= MAX_NODES:
        return np.arange(graph.num_nodes)
    priority = findings.model.scores + 2.0 * findings.listed + 1.0 * graph.is_target
    order = np.argsort(-priority, kind="stable")
    half = MAX_NODES // 2
    others = np.random.default_rng(0).permutation(order[half:])
    return np.sort(np.concatenate([order[:half], others[: MAX_NODES - half]]))


def _level(findings: Findings) -> dict[str, Any]:
    """Return what the page needs to list nodes by another level: its kind, its guarantee, and all p-values.

    The lowest p-values of all target nodes are given with their counts, so that the list is right where the page shows
    some of the nodes alone.
    """
    model = findings.model
    own = model.max_fpr if findings.fdr is None else findings.fdr
    p, count = np.unique(findings.p_value[findings.graph.is_target], return_counts=True)
    low = p <= max(MAX_LEVEL, own) * (1 + ROUNDING)
    return {
        "own": own,
        "by_fdr": findings.fdr is not None,
        "guaranteed": findings.verdict.supported and not model.hiding.follows_edges,
        "transferred": model.transferred,
        "p_values": [_twelve_digits(value) for value in p[low].tolist()],
        "counts": count[low].tolist(),
    }


def _settings(detector: Detector) -> list[dict[str, str]]:
    """Return each setting of a detector with its value and what it means, in words."""
    values = json_params(detector)
    meaning = {
        field.name: field.metadata["param"].doc for field in dataclasses.fields(detector) if "param" in field.metadata
    }
    return [
        {"name": name, "value": _in_words(value), "meaning": meaning.get(name, "")} for name, value in values.items()
    ]


def _in_words(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_in_words, value)) if isinstance(value, list) else str(value)


def _histogram(findings: Findings) -> dict[str, list[float]]:
    """Return which fraction of the source, calibration and target nodes is in every bin of the score."""
    model, is_target = findings.model, findings.graph.is_target
    bin_edges = np.linspace(0, 1, BINS + 1)
    calibration = model.calibration if model.guaranteed else np.zeros_like(is_target)
    masks = {"source": ~is_target & ~calibration, "calibration": calibration, "target": is_target}
    fractions = {
        name: _rounded(np.histogram(model.scores[mask], bin_edges)[0] / max(1, mask.sum()), 6)
        for name, mask in masks.items()
    }
    return {"bin_edges": _rounded(bin_edges, 6), **fractions}


def _details(
    findings: Findings, shown: NDArray[np.int64], position: NDArray[np.int64]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return neighbours, evidence and traits of the listed nodes and the highest scores, by position; the sentences.

    The evidence of a node is the place of its sentence, as many nodes lie in the same bin.
    """
    graph, scores = findings.graph, findings.model.scores
    is_target = graph.is_target
    listed = np.flatnonzero(findings.listed & (position >= 0))
    listed = listed[np.argsort(-scores[listed], kind="stable")]
    highest = shown[np.argsort(-(scores + is_target)[shown], kind="stable")][:MAX_WITH_NEIGHBOURS]
    adjacency = Neighbours(graph)
    details: dict[str, dict[str, Any]] = {}
    for node in np.union1d(listed, highest).tolist():
        _, neighbours = adjacency.of([node])
        by_score = neighbours[np.argsort(-scores[neighbours], kind="stable")]
        details[str(position[node])] = {
            "degree": len(neighbours),
            "source_neighbours": int((~is_target[neighbours]).sum()),
            "neighbours": [int(position[k]) for k in by_score[:MAX_NEIGHBOURS].tolist() if position[k] >= 0],
        }
    sentences: dict[str, int] = {}
    evidence = findings.bins.of_nodes(listed) if findings.verdict.stands_out else []
    for node, own in zip(listed.tolist(), evidence, strict=False):
        details[str(position[node])]["evidence"] = sentences.setdefault(own.sentence(), len(sentences))
    with_traits = listed[:MAX_WITH_TRAITS].tolist()
    references = nearest_source(graph, findings.similarity, with_traits).tolist() if with_traits else []
    for node, similar in zip(with_traits, references, strict=True):
        details[str(position[node])] |= {
            "references": len(similar),
            "traits": [_trait(trait) for trait in findings.features.traits([node], similar, TRAITS)],
        }
    return details, list(sentences)


def _group(group: Group, position: NDArray[np.int64]) -> dict[str, Any]:
    return {
        **group.to_dict(),
        "exemplars": [int(position[node]) for node in group.exemplars if position[node] >= 0],
        "traits": [_trait(trait) for trait in group.traits],
        "references": group.references,
        "internal_edges": group.internal_edges,
        "edges_to_listed": group.edges_to_listed,
        "edges_to_target": group.edges_to_target,
        "edges_to_source": group.edges_to_source,
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "source": cluster.source,
        "target": cluster.target,
        "known": cluster.known,
        "listed": cluster.listed,
        "growth": None if cluster.growth is None else round(cluster.growth, 2),
    }


def _trait(trait: Trait) -> dict[str, Any]:
    return {
        "feature": trait.feature,
        "strength": round(trait.strength, 2),
        "here": trait.here,
        "reference": trait.there,
        "source": trait.in_source,
    }


def _images(graph: NodeGraph, shown: NDArray[np.int64], shape: tuple[int, int] | None) -> dict[str, Any] | None:
    """Return the features of the nodes as bytes, if they are the pixels of small images."""
    if shape is None or shape[0] * shape[1] != graph.num_features or sp.issparse(graph.x):
        return None
    x = graph.x[shown]
    pixels = np.round(255 * (x - x.min()) / max(1e-12, float(np.ptp(x)))).astype(np.uint8)
    return {"rows": shape[0], "columns": shape[1], "pixels": base64.b64encode(pixels.tobytes()).decode()}


def _rounded(values: NDArray[np.float64], decimals: int) -> list[float]:
    return [round(value, decimals) for value in values.tolist()]


def _twelve_digits(value: float) -> float:
    """Round a p-value: finer than the tolerance that levels are compared with."""
    return float(f"{value:.12g}")


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
    embedded = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=seed).fit_transform(x[landmarks])
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
