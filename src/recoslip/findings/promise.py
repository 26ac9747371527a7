"""Fitted detector + list -> what the list promises, and of which regions nothing can be promised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recoslip.calibration.conformal import ROUNDING
from recoslip.detectors.base import Detector
from recoslip.findings.explanations import FeatureStatistics
from recoslip.shift import Mask


@dataclass(frozen=True)
class Withheld:
    """A region that has too few calibration nodes for any of its target nodes to be listed."""

    name: str  # its number, and the features that its source nodes have more of, where features have names
    calibration: int
    target: int


def withheld_regions(
    detector: Detector, listed: Mask, fdr: float | None, features: FeatureStatistics
) -> tuple[Withheld, ...]:
    """Return the regions whose target nodes cannot be listed, however high they score.

    In a region with n calibration nodes no p-value is below 1 / (n + 1). By Benjamini-Hochberg a node may have a
    p-value up to fdr times the fraction of the target nodes that are listed, its whole region among them at most.
    """
    if not detector.calibrated_:
        return ()
    is_target = detector.is_target_
    found = []
    for number, region in enumerate(np.unique(detector.region_[is_target]), start=1):
        inside = detector.region_ == region
        calibration, target = int((inside & detector.calibration_).sum()), int((inside & is_target).sum())
        reachable = (int(listed[~inside].sum()) + target) / int(is_target.sum())
        level = detector.max_fpr if fdr is None else fdr * reachable
        if 1 / (calibration + 1) > level * (1 + ROUNDING):
            features_there = features.name(np.flatnonzero(inside & ~is_target))
            name = f"region {number}" + (f" ({features_there})" if features_there else "")
            found.append(Withheld(name, calibration, target))
    return tuple(found)


def promise(detector: Detector, fdr: float | None, withheld: tuple[Withheld, ...], *, supported: bool) -> str:
    """Say what the list promises, under which assumption, and of which regions nothing is promised.

    Args:
        detector: fitted on the graph.
        fdr: the false-discovery rate that the list was made by; None if it was made by the detector's `max_fpr`.
        withheld: regions of which nothing is promised.
        supported: whether the data allow for a promise at all.
    """
    if not supported:
        return "No promise goes with this list."
    regions = len(np.unique(detector.region_))
    within = f" within each of the {regions} regions that nodes are compared in" if regions > 1 else ""
    assumption = f"if known categories kept their proportions{within}"
    if fdr is not None:
        promised = f"At most {100 * fdr:.3g} % of the listed nodes are expected to be known, {assumption}."
    else:
        promised = f"Of known nodes, at most {100 * detector.max_fpr:.3g} % are listed, {assumption}."
    if not withheld:
        return promised
    places = "; ".join(f"{each.name}: {each.calibration:,} for {each.target:,}" for each in withheld)
    return (
        f"{promised} Nothing is promised where there are too few source nodes to compare with, and no target node can "
        f"be listed there ({places} target nodes)."
    )
