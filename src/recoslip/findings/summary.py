"""Findings -> what is said of a run, as JSON values, and what a result shows of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl

from recoslip._version import __version__
from recoslip.findings.analysis import Findings


@dataclass(frozen=True)
class ListedGroup:
    """A group of listed nodes."""

    number: int
    size: int
    name: str | None  # the features that it has more of than the source, where features have names
    evidence: str | None  # that it is new, in a sentence
    members: tuple[Any, ...] = field(repr=False)  # ids, the highest scores first


@dataclass(frozen=True)
class SavedCheck:
    """What the check of a loaded result found."""

    facts: dict[str, Any] = field(repr=False)  # as `Check.facts` returns them

    def rows(self) -> list[tuple[str, str]]:
        """Return what was checked, and what was found."""
        return [(what, found) for what, found in self.facts["rows"]]


def listed_groups(summary: Mapping[str, Any], table: pl.DataFrame) -> tuple[ListedGroup, ...]:
    """Return the groups that a summary tells of, with their members in the table of scores."""
    found = summary.get("groups", {}).get("found", [])
    members = [tuple(table.filter(pl.col("group") == each["number"])["id"]) for each in found]
    return tuple(
        ListedGroup(each["number"], each["size"], each["name"], each["evidence"], own)
        for each, own in zip(found, members, strict=True)
    )


def summarise(findings: Findings) -> dict[str, Any]:
    """Summarise a run in JSON values: the graph, the decisions, and what is needed to repeat the run."""
    detector, graph = findings.detector, findings.graph
    is_target = graph.is_target.numpy()
    result: dict[str, Any] = {
        "recoslip": __version__,
        "method": detector.name,
        "settings": detector.json_params(),
        "rotation_settings": detector.rotation_params() if detector.rotations_ else {},
        "seed": detector.random_state,
        "nodes": graph.num_nodes,
        "source": int((~is_target).sum()),
        "target": int(is_target.sum()),
        "edges": graph.num_edges,
        "features": graph.num_features,
        "feature_names": None if graph.feature_names is None else list(graph.feature_names),
        "edge_repairs": {
            "mirrored": graph.repairs.mirrored,
            "merged": graph.repairs.merged,
            "loops": graph.repairs.loops,
        },
        "threshold": detector.threshold_,
        "listed": int(findings.listed.sum()),
        **facts(findings),
    }
    first = detector.fits[0]
    if hasattr(first, "prior_"):
        result["known_fraction_of_target"] = first.prior_
    candidates: pl.DataFrame | None = getattr(first, "candidates_", None)
    if candidates is not None:
        result["chosen"] = candidates.filter("chosen").drop("chosen").to_dicts()
    for table in ("encoders", "rounds"):
        if hasattr(first, f"{table}_"):
            result[table] = getattr(first, f"{table}_").to_dicts()
    return result


def facts(findings: Findings) -> dict[str, Any]:
    """Return what the findings add to a run's summary, as JSON values."""
    detector, share = findings.detector, findings.novel_share
    partition, diagnosis, check = findings.partition, findings.diagnosis, findings.check.to_dict()
    return {
        "verdict": findings.verdict.kind,
        "headline": findings.headline(),
        "advice": findings.verdict.advice,
        "supported": findings.verdict.supported,
        "list": findings.list_sentence(),
        "inspect_first": [str(findings.graph.ids[node]) for node in findings.inspect_first()],
        "guarantee": findings.guarantee,
        "calibrated": detector.calibrated_,
        "fdr": findings.fdr,
        "lowest_listed_score": float(detector.scores_[findings.listed].min()) if findings.listed.any() else None,
        "calibration_nodes": int(detector.calibration_.sum()),
        "rotations": len(detector.fits),
        "regions": len(np.unique(detector.region_)),
        "novel_share": asdict(share) if findings.verdict.supported else None,
        "groups": {
            "count": partition.count,
            "stability": partition.stability,
            "has_structure": partition.has_structure,
            "found": [group.to_dict() for group in findings.groups],
        },
        "check": check | {"rows": [*map(list, findings.before_scoring), *check["rows"]]},
        "diagnosis": {
            "shift": diagnosis.shift() if findings.verdict.supported else None,
            "grown": [cluster.sentence() for cluster in diagnosis.grown] if findings.verdict.supported else [],
            "warnings": list(diagnosis.warnings),
        },
    }
