"""Fitted detector + graph -> findings: how many nodes may be novel, which are listed, in what groups, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.calibration.novel_share import NovelShare, novel_share
from recoslip.detectors.base import Detector, Scores
from recoslip.errors import GraphError
from recoslip.findings.diagnosis import Diagnosis, diagnose
from recoslip.findings.group_profiles import Group, profile_groups
from recoslip.findings.groups import Partition, find_groups, single_group
from recoslip.graph import NodeGraph
from recoslip.graph.neighbourhood import neighbourhood_features, reduced_features
from recoslip.shift import Mask


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that the page and the tables show."""

    detector: Detector
    graph: NodeGraph
    p_value: Scores  # (nodes,) NaN for source nodes
    listed: Mask  # (nodes,) the target nodes that are listed as novel
    promise: str  # what the list promises, in words
    fdr: float | None  # the false-discovery rate that the list was made by; None: by the detector's threshold
    novel_share: NovelShare
    partition: Partition  # of the listed nodes into groups
    groups: tuple[Group, ...]
    diagnosis: Diagnosis
    neighbourhood: NDArray[np.float64] = field(repr=False)  # (nodes, width) neighbourhood features

    def headline(self) -> str:
        """Sum up in a sentence or two."""
        share, listed, targets = self.novel_share, int(self.listed.sum()), int(self.graph.is_target.sum())
        if not listed:
            return f"None of the {targets:,} target nodes is listed as novel."
        groups = f"; they form {self.partition.count} groups" if self.partition.has_structure else ""
        return (
            f"{listed:,} of {targets:,} target nodes {'is' if listed == 1 else 'are'} listed as novel{groups}. In all, "
            f"{100 * share.low:.0f} to {100 * share.high:.0f} % of the target nodes may belong to a novel category."
        )

    def table(self) -> pl.DataFrame:
        """List all nodes, target nodes first and the highest scores on top.

        Columns: id, domain, score, p_value, uncertainty (where the detector has one), listed, and group, which is 0 for
        listed nodes in no group and null for nodes that are not listed.
        """
        label = self.partition.label.tolist()
        frame = pl.DataFrame(
            {
                "id": pl.Series(self.graph.ids.tolist(), strict=False),
                "domain": np.where(self.graph.is_target.numpy(), "target", "source"),
                "score": self.detector.scores_,
                "p_value": pl.Series(self.p_value, nan_to_null=True),
                **({"uncertainty": self.detector.uncertainty_} if hasattr(self.detector, "uncertainty_") else {}),
                "listed": self.listed,
                "group": pl.Series([None if number < 0 else number for number in label], dtype=pl.Int64),
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
    """Turn the scores of a fitted detector into findings.

    Args:
        detector: fitted on `graph`, with `calibration` if the promises shall hold.
        graph: the graph.
        fdr: list nodes by this false-discovery rate; without it, by the detector's threshold (`max_fpr`).
        max_growth: how many times as frequent a known category may have become, for the novel share's lower end.
        grouped: whether to divide the listed nodes into groups, which needs `recoslip[report]`.
    """
    detector.check_is_fitted()
    is_target = graph.is_target.numpy()
    if len(detector.scores_) != graph.num_nodes or not np.array_equal(detector.is_target_, is_target):
        raise GraphError("the detector was fitted on another graph; analyse it with the graph it was fitted on")
    listed = detector.predict() if fdr is None else detector.shortlist(fdr)
    seed = detector.random_state % 2**31  # NumPy and igraph take no larger ones
    reduced = reduced_features(graph)
    neighbourhood = neighbourhood_features(graph, reduced)
    share = novel_share(detector.scores_[is_target], detector.scores_[detector.calibration_], max_growth=max_growth)
    diagnosis = diagnose(detector, graph, listed, reduced, neighbourhood, fdr=fdr, seed=seed)
    if listed.any() and share.breaks_at < diagnosis.growth:
        diagnosis = replace(diagnosis, warnings=(*diagnosis.warnings, _growth_warning(diagnosis.growth, share)))
    partition = find_groups(graph, listed, neighbourhood, seed=seed) if grouped else single_group(listed)
    return Findings(
        detector=detector,
        graph=graph,
        p_value=detector.p_values(),
        listed=listed,
        promise=_promise(detector, fdr),
        fdr=fdr,
        novel_share=share,
        partition=partition,
        groups=profile_groups(graph, detector.scores_, listed, partition),
        diagnosis=diagnosis,
        neighbourhood=neighbourhood,
    )


def _growth_warning(growth: float, share: NovelShare) -> str:
    return (
        f"A known category seems to be {growth:.1f} times as frequent in the target as in the source. From "
        f"{share.breaks_at:.1f} times on, such a category could explain the whole list: look at each group."
    )


def _promise(detector: Detector, fdr: float | None) -> str:
    if not detector.calibrated_:
        return "No promise goes with this list: the detector was fitted without calibration nodes."
    regions = len(np.unique(detector.region_))
    within = f" within each of the {regions} regions that nodes are compared in" if regions > 1 else ""
    if fdr is not None:
        return (
            f"At most {100 * fdr:.3g} % of the listed nodes are expected to be known, if known categories kept their "
            f"proportions{within}."
        )
    return (
        f"Of known nodes, at most {100 * detector.max_fpr:.3g} % are listed, if known categories kept their "
        f"proportions{within}."
    )


def facts(findings: Findings) -> dict[str, Any]:
    """Return what the findings add to a run's summary, as JSON values."""
    detector, share = findings.detector, findings.novel_share
    partition, diagnosis = findings.partition, findings.diagnosis
    return {
        "headline": findings.headline(),
        "promise": findings.promise,
        "calibrated": detector.calibrated_,
        "fdr": findings.fdr,
        "lowest_listed_score": float(detector.scores_[findings.listed].min()) if findings.listed.any() else None,
        "calibration_nodes": int(detector.calibration_.sum()),
        "rotations": len(detector.fits),
        "regions": len(np.unique(detector.region_)),
        "novel_share": {
            "estimate": share.estimate,
            "low": share.low,
            "low_unshifted": share.low_unshifted,
            "high": share.high,
            "max_growth": share.max_growth,
            "breaks_at": share.breaks_at,
        },
        "groups": {
            "count": partition.count,
            "stability": partition.stability,
            "has_structure": partition.has_structure,
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
