"""Findings -> everything that the page shows, as one JSON value; columns in the user's units; places on the map."""

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
from recoslip.base.text import counted, shortened, singular
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.inference.analysis import Findings, facts
from recoslip.inference.evidence import some_are_new
from recoslip.inference.groups import Group
from recoslip.inference.traits import Trait, nearest_source
from recoslip.learning.base import Detector
from recoslip.pipeline.report.charts import growth_chart, levels, period_chart, projection, selection_bound

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
    cut = {name: [_shortened(value, limit) for value in values] for name, values in columns.items()}
    return cut, limit


def _shortened(value: Any, length: int) -> Any:
    return shortened(value, length) if isinstance(value, str) else value


def node_labels(graph: NodeGraph, nodes: NDArray[np.int64]) -> list[str | None] | None:
    """Return what a person calls each of some nodes; None where the table has no such column."""
    if graph.label is None:
        return None
    values = [_json_value(value) for value in graph.columns[graph.label][nodes].tolist()]
    return [None if value is None else shortened(str(value), TEXT_LENGTHS[0]) for value in values]


def _json_value(value: Any) -> Any:
    """Return a value of a table as JSON holds it: missing and infinite numbers as null, what is no number as text."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)


FORMAT = 9  # version of the payload
MAX_NODES = 50_000  # on the page
MAX_WITH_NEIGHBOURS = 2_000  # nodes with the highest scores whose neighbours are given, besides the listed nodes
MAX_WITH_TRAITS = 500  # listed nodes whose traits are given
MAX_NEIGHBOURS = 30  # of a node
TRAITS = 6  # of a node
READ = {"number": "a number", "category": "a category", "text": "words of a text", "vector": "a vector"}
HUES = 8  # colours of groups
SHAPES = ("circle", "square", "triangle", "diamond")
POINTS = {"square": "2,2 10,2 10,10 2,10", "triangle": "6,1 11,10.5 1,10.5", "diamond": "6,0.5 11.5,6 6,11.5 0.5,6"}
FIRST = 5  # nodes to inspect first that the report names


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
    growth = growth_chart(findings)
    unnamed = {"name": None} if image_shape else {}  # pixels name nothing
    return {
        "format": FORMAT,
        "title": title,
        "facts": facts(findings),
        "words": _words(findings),
        "legend": _legend(findings, steady=sum(not row["changed"] for row in growth)),
        "notes": _notes(graph, len(shown), cut_after),
        "read": _read(graph),
        "terms": dataclasses.asdict(graph.terms),
        "shapes": POINTS,
        "counts": {
            "nodes": graph.num_nodes,
            "source": int((~graph.is_target).sum()),
            "target": int(graph.is_target.sum()),
            "edges": graph.num_edges,
            "features": graph.num_features,
            "listed": int(findings.listed.sum()),
            "shown": len(shown),
        },
        "inspect_first": [int(position[node]) for node in findings.inspect_first()[:FIRST] if position[node] >= 0],
        "levels": levels(findings),
        "bound": selection_bound(findings, position),
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
        "groups": [_group(findings, group, position) | unnamed for group in findings.groups],
        "growth": [row | unnamed | {"example": int(position[row["example"]])} for row in growth],
        "periods": period_chart(findings),
        "details": details,
        "evidence": evidence,
        "images": _images(graph, shown, image_shape),
        "run": {
            "recoslip": __version__,
            "method": model.name,
            "settings": _settings(model.fits[0]),
        },
    }


def _words(findings: Findings) -> dict[str, str]:
    """Return what the scripts of the page say; values stand in the places that are named."""
    terms, supported = findings.graph.terms, findings.verdict.supported
    these, growth = f"these {{number}} {terms.targets()}", findings.novel_share.max_growth
    shown = some_are_new("{new}", these, growth, findings.bins.follows_edges, terms)
    not_shown = f"Counts of similar {terms.noun} do not show that any of {these} are new."
    return {
        "some_are_new": shown if supported else "",
        "none_shown": not_shown if supported else "",
        "source": terms.source,
        "target": terms.target,
        "one": singular(terms.noun),
        "many": terms.noun,
        "not_listed": f"{terms.target}, not listed",
        "no_group": "listed, in no group",
        "group": "group {number}",
        "found": "{nodes} found.",
        "selected": "{nodes} selected. The table shows them.",
        "nothing_selected": f"No {terms.noun} selected.",
        "map": "The map shows {nodes}. The table below has the same, with the same search and selection.",
        "level": f"At {{level}}, {{listed}} {terms.targets()} are listed. {{guarantee}}",
        "compared": f"Compared with the {{number}} {terms.sources()} most similar to it",
        "neighbours": f"{{number}} in all, {{others}} of them {terms.source}.",
        "no_neighbours": f"Neighbours are given for listed {terms.noun} and the highest scores only.",
    }


def _legend(findings: Findings, steady: int) -> dict[str, str]:
    """Return what explains each part of the page; so many clusters did not clearly change."""
    terms, verdict = findings.graph.terms, findings.verdict
    return {
        "map": (
            f"On the map, {terms.noun} that are alike are close to each other. Click one to see all about it. Drag the "
            "map to move it; click it and turn the wheel to zoom. On the keyboard, use +, −, 0 and the arrow keys, and "
            f"Enter to open the {singular(terms.noun)} in the middle."
        ),
        "groups": "What stands out" if verdict.stands_out else f"Groups of listed {terms.noun}",
        "nearest": f"Most similar {terms.in_source}:",
        "traits": (
            f"For a number, the mean; for a category or a word, the share of the {terms.noun} that have it. The group "
            f"is compared with the {terms.sources()} most similar to it."
        ),
        "same": f"{counted(steady, 'cluster')} that did not clearly change",
        "growth": (
            f"How many times as frequent a cluster is among the {terms.targets()} that are not listed as among the "
            f"{terms.sources()}. How many are known is an estimate from their scores. The axis is logarithmic, from "
            f"1/8 to 8 times. A bar reaches from a lower to an upper 95 % bound. Clusters with few {terms.sources()} "
            "are left out."
        ),
        "no_growth": (
            "Growth is not measured where the domains follow the edges."
            if findings.bins.follows_edges
            else f"No cluster has enough {terms.sources()} to measure its growth."
        ),
        "periods": f"Share of the {terms.targets()} on the list, by time",
        "made": _made(findings),
    }


def _made(findings: Findings) -> str:
    """Say what the result was made of."""
    graph, model, terms = findings.graph, findings.model, findings.graph.terms
    sources, targets = int((~graph.is_target).sum()), int(graph.is_target.sum())
    size = (
        f"{terms.sources(sources)} and {terms.targets(targets)}, {counted(graph.num_edges, 'edge')}, "
        f"{counted(graph.num_features, 'feature')}"
    )
    p_values = f"p-values from {terms.sources(int(model.calibration.sum()))}"
    return f"{size}; recoslip {__version__}, method {model.name}, {counted(len(model.fits), 'fit')}; {p_values}."


def _notes(graph: NodeGraph, shown: int, cut_after: int | None) -> list[str]:
    """Say what the table leaves out."""
    notes = []
    if shown < graph.num_nodes:
        notes.append(f"The page has {shown:,} of {graph.terms.nodes(graph.num_nodes)}; the table of scores has all.")
    if cut_after is not None:
        notes.append(f"Texts are cut after {cut_after} characters.")
    return notes


def _read(graph: NodeGraph) -> list[tuple[str, str]]:
    """Return how each column of the user's table was read."""
    columns = (graph.encoding or {}).items()
    return [(name, READ.get(str(own.get("encoding")), str(own.get("encoding")))) for name, own in columns]


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


def _settings(detector: Detector) -> list[dict[str, str]]:
    """Return each setting of a detector with its value, in words."""
    return [{"name": name, "value": _in_words(value)} for name, value in json_params(detector).items()]


def _in_words(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_in_words, value)) if isinstance(value, list) else str(value)


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
    evidence = findings.bins.of_nodes(listed) if findings.verdict.stands_out and findings.verdict.supported else []
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


def _group(findings: Findings, group: Group, position: NDArray[np.int64]) -> dict[str, Any]:
    terms = findings.graph.terms
    return {
        **group.to_dict(),
        "typical": [int(position[node]) for node in group.typical if position[node] >= 0],
        "nearest": [int(position[node]) for node in group.nearest if position[node] >= 0],
        "nearest_name": findings.nearest_known(group),
        "traits": [_trait(trait) for trait in group.traits],
        "edges": (
            ""
            if not findings.graph.num_edges
            else f"Edges: {group.internal_edges:,} inside, {group.edges_to_listed:,} to other listed {terms.noun}, "
            f"{group.edges_to_target:,} to the rest of {terms.the_target}, {group.edges_to_source:,} to "
            f"{terms.the_source}."
        ),
        "hue": f"group-{1 + (group.number - 1) % HUES}",
        "shape": SHAPES[(group.number - 1 + (group.number - 1) // HUES) % len(SHAPES)],
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
