"""Fitted detector + list -> the statistical guarantee of the list, and the regions without one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recoslip.detectors.base import Detector
from recoslip.detectors.conformal import ROUNDING, benjamini_hochberg
from recoslip.findings.explanations import FeatureStatistics
from recoslip.graph.split import Mask
from recoslip.wording import counted


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

    In a region with n calibration nodes no p-value is below 1 / (n + 1). By Benjamini-Hochberg those regions are out
    of reach that would not be listed even if all target nodes had the lowest p-value of their region.

    Args:
        detector: fitted on the graph.
        listed: (nodes,) the listed nodes.
        fdr: the false-discovery rate that the list was made by; None if it was made by the detector's `max_fpr`.
        features: of the graph, to name regions by.
    """
    if not detector.calibrated_:
        return ()
    is_target, region = detector.is_target_, detector.region_
    calibration = np.bincount(region[detector.calibration_], minlength=int(region.max()) + 1)
    lowest = 1 / (calibration[region] + 1)  # (nodes,)
    if fdr is None:
        within_reach = lowest <= detector.max_fpr * (1 + ROUNDING)
    else:
        within_reach = listed.copy()
        within_reach[is_target] = benjamini_hochberg(lowest[is_target], fdr)
    found = []
    for number, own in enumerate(np.unique(region[is_target]), start=1):
        inside = region == own
        if not within_reach[inside & is_target].any():
            features_there = features.name(np.flatnonzero(inside & ~is_target))
            name = f"region {number}" + (f", {features_there!r}" if features_there else "")
            found.append(Withheld(name, int(calibration[own]), int((inside & is_target).sum())))
    return tuple(found)


def guarantee(detector: Detector, fdr: float | None, withheld: tuple[Withheld, ...], *, supported: bool) -> str:
    """State the guarantee of the list, its assumption, and the regions in which nothing can be listed.

    Args:
        detector: fitted on the graph.
        fdr: the false-discovery rate that the list was made by; None if it was made by the detector's `max_fpr`.
        withheld: regions in which nothing can be listed.
        supported: whether the data support a guarantee at all.
    """
    if not supported:
        return "No statistical guarantee."
    regions = len(np.unique(detector.region_))
    within = f" in each of the {regions} regions that nodes are compared in" if regions > 1 else ""
    assumption = f"assuming known target nodes are distributed as the hidden source nodes{within}"
    if fdr is not None:
        guaranteed = f"Expected false-discovery rate ≤ {100 * fdr:.3g} %, {assumption}."
    else:
        guaranteed = f"Expected false-positive rate ≤ {100 * detector.max_fpr:.3g} %, {assumption}."
    if detector.transferred_:
        guaranteed += (
            " The new nodes took no part in the fit, and the source nodes that they are compared with did, so the rate "
            "is measured and not proven."
        )
    if not withheld:
        return guaranteed
    places = "; ".join(
        f"{each.name}: {counted(each.calibration, 'source node')} for {counted(each.target, 'target node')}"
        for each in withheld
    )
    return f"{guaranteed} Nothing can be listed where there are too few source nodes to compare with: {places}."


def reachable_rate(calibration: int, max_fpr: float, fdr: float | None) -> tuple[float, tuple[str, ...]]:
    """Return a false-positive rate that so many calibration nodes can reach, and in words what this changes.

    A false-discovery rate stays as it is.

    >>> reachable_rate(199, 0.001, None)[0], reachable_rate(199, 0.01, None)
    (0.005, (0.01, ()))
    """
    lowest, asked = 1 / (calibration + 1), max_fpr if fdr is None else fdr
    if asked >= lowest:
        return max_fpr, ()
    compared = f"With {calibration:,} source nodes to compare with, no p-value is below {lowest:.2g}"
    if fdr is not None:
        return max_fpr, (f"{compared}: nothing can be listed at fdr={fdr:g}. Give a higher fdr, or max_fpr instead.",)
    return lowest, (f"{compared}: the list was made with max_fpr={lowest:.3g} instead of {asked:g}.",)
