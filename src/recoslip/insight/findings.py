"""Fitted detector + graph -> findings: how many nodes are novel, which, of what kinds, and whether to believe it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.detectors.base import Detector, Scores
from recoslip.errors import GraphError
from recoslip.graph import Neighbours, NodeGraph
from recoslip.insight.categories import Categories, find_categories, one_category
from recoslip.insight.diagnosis import Diagnosis, diagnose
from recoslip.insight.explain import Features, Trait
from recoslip.insight.share import Share, novel_share
from recoslip.shift import Mask


@dataclass(frozen=True)
class Group:
    """A candidate category."""

    name: int
    size: int
    exemplars: tuple[int, ...]  # nodes, the most novel first
    traits: tuple[Trait, ...]  # against the source
    inside: int  # edges among its nodes
    to_novel: int  # edges to other novel nodes
    to_target: int  # edges to target nodes that do not look novel
    to_source: int


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything a page or a table needs to say."""

    detector: Detector
    graph: NodeGraph
    p_value: Scores  # (nodes,) NaN of source nodes
    novel: Mask  # (nodes,)
    rule: str  # the promise that goes with the list, in words
    fdr: float | None  # the false-discovery rate the list was made by, if it was
    share: Share
    categories: Categories
    groups: tuple[Group, ...]
    diagnosis: Diagnosis

    def headline(self) -> str:
        """Sum up in a sentence or two."""
        return headline(self)

    def table(self) -> pl.DataFrame:
        """List nodes as id, domain, score, p_value, novel, category: target nodes first, the most novel on top."""
        target = self.graph.is_target.numpy()
        label = self.categories.label
        frame = pl.DataFrame(
            {
                "id": pl.Series(self.graph.ids.tolist(), strict=False),
                "domain": np.where(target, "target", "source"),
                "score": self.detector.scores_,
                "p_value": pl.Series(self.p_value, nan_to_null=True),
                **({"uncertainty": self.detector.uncertainty_} if hasattr(self.detector, "uncertainty_") else {}),
                "novel": self.novel,
                "category": pl.Series([None if k < 0 else k for k in label.tolist()], dtype=pl.Int64),
            }
        )
        return frame.sort(["domain", "score"], descending=True, maintain_order=True)  # "target" sorts after "source"


def analyse(
    detector: Detector,
    graph: NodeGraph,
    *,
    fdr: float | None = None,
    max_growth: float = 10.0,
    grouped: bool = True,
) -> Findings:
    """Turn a fitted detector's scores into findings, and set its `categories_`.

    Args:
        detector: fitted on `graph`, with `calibration` if the promises shall hold.
        graph: the graph.
        fdr: choose novel nodes by this false-discovery rate; without it, by the detector's threshold (`max_fpr`).
        max_growth: how many times as frequent a known kind may have become, for the novel share's lower end.
        grouped: whether to look for candidate categories, which needs `recoslip[report]`.
    """
    detector._check_fitted()
    target = graph.is_target.numpy()
    if len(detector.scores_) != graph.num_nodes or not np.array_equal(detector.is_target_, target):
        raise GraphError("the detector was fitted on another graph; analyse it with the graph it was fitted on")
    novel = detector.predict() if fdr is None else detector.shortlist(fdr)
    seed = detector.random_state % 2**31  # what the libraries below take
    diagnosis = diagnose(detector, graph, novel, seed, fdr=fdr)
    share = novel_share(
        detector.scores_[target],
        detector.scores_[detector.calibration_],
        max_growth=max_growth,
    )
    if novel.any() and share.breaks_at < diagnosis.growth:
        grown = (
            f"A kind that the source has, too, seems to be {diagnosis.growth:.1f} times as frequent in the target. "
            f"From {share.breaks_at:.1f} times on, such a kind could explain the whole list: look at each group."
        )
        diagnosis = replace(diagnosis, warnings=(*diagnosis.warnings, grown))
    categories = find_categories(graph, novel, seed=seed) if grouped else one_category(graph, novel)
    detector.categories_ = categories.label
    groups = _groups(detector.scores_, graph, novel, categories.label)
    return Findings(
        detector, graph, detector.p_values(), novel, _rule(detector, fdr), fdr, share, categories, groups, diagnosis
    )


def calibration_share(graph: NodeGraph) -> float:
    """Return how much of the source to hold back: a fifth, or what makes 200 nodes, but no more than a third.

    Of one or two nodes none can be spared.
    """
    source = int((~graph.is_target).sum())
    return max(0.2, min(1 / 3, 200 / source)) if source > 2 else 0.0


def _groups(scores: Scores, graph: NodeGraph, novel: Mask, label: NDArray[np.int64]) -> tuple[Group, ...]:
    features = Features(graph)
    target = graph.is_target.numpy()
    neighbours = Neighbours(graph)
    found = []
    for name in range(1, int(label.max(initial=0)) + 1):
        members = np.flatnonzero(label == name)
        _, other = neighbours.of(members)  # the far ends of its edges, those inside twice
        order = members[np.argsort(-scores[members], kind="stable")]
        found.append(
            Group(
                name=name,
                size=len(members),
                exemplars=tuple(order[:12].tolist()),
                traits=tuple(features.traits(members.tolist())),
                inside=int((label[other] == name).sum()) // 2,
                to_novel=int((novel[other] & (label[other] != name)).sum()),
                to_target=int((target[other] & ~novel[other]).sum()),
                to_source=int((~target[other]).sum()),
            )
        )
    return tuple(found)


def _rule(detector: Detector, fdr: float | None) -> str:
    if not detector.calibrated_:
        return "No promise goes with this list: no source nodes were held back for it."
    if fdr is not None:
        return f"At most {100 * fdr:.3g} % of the list are expected to be known, if known kinds kept their proportions."
    return f"Of known nodes, at most {100 * detector.max_fpr:.3g} % get listed, if known kinds kept their proportions."


def headline(findings: Findings) -> str:
    """Say in plain words what was found."""
    share, targets = findings.share, int(findings.graph.is_target.sum())
    listed = int(findings.novel.sum())
    if not listed:
        return f"None of the {targets:,} new nodes stands out from what you had before."
    kinds = findings.categories.count
    grouped = f"; they form {kinds} groups" if findings.categories.structure else ""
    return (
        f"{listed:,} of {targets:,} new nodes look like nothing you had before{grouped}. "
        f"In all, {100 * share.low:.0f} to {100 * share.high:.0f} % of the new nodes may be of a new kind."
    )


def facts(findings: Findings) -> dict[str, Any]:
    """Return what the findings add to a run's summary, as JSON values."""
    share, diagnosis = findings.share, findings.diagnosis
    return {
        "headline": findings.headline(),
        "rule": findings.rule,
        "calibrated": findings.detector.calibrated_,
        "fdr": findings.fdr,
        "lowest_listed": float(findings.detector.scores_[findings.novel].min()) if findings.novel.any() else None,
        "calibration": int(findings.detector.calibration_.sum()),
        "novel_share": {
            "estimate": share.estimate,
            "low": share.low,
            "low_unshifted": share.low_unshifted,
            "high": share.high,
            "max_growth": share.max_growth,
            "breaks_at": share.breaks_at,
        },
        "categories": {
            "count": findings.categories.count,
            "stability": findings.categories.stability,
            "structure": findings.categories.structure,
        },
        "diagnosis": {
            "homophily": diagnosis.homophily,
            "separability": diagnosis.separability,
            "unevenness": diagnosis.unevenness,
            "growth": diagnosis.growth,
            "advice": diagnosis.advice,
            "warnings": list(diagnosis.warnings),
        },
    }
