"""Share, list, growth and what the data do not support -> one verdict of four kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from recoslip.detectors.base import Detector
from recoslip.findings.diagnosis import Diagnosis
from recoslip.findings.guarantee import Withheld
from recoslip.findings.novel_share import NovelShare, most_by_chance
from recoslip.graph.split import MIN_SOURCE, Mask
from recoslip.inspection.check import Check
from recoslip.wording import at_least_percent, capitalised, counted, percent, times

Kind: TypeAlias = Literal["novel", "grown", "nothing", "inconclusive"]

CHANCE = 0.95  # a longer list than chance makes with this probability, where nothing is novel, is more than chance
MAX_GROWN = 3  # clusters that a verdict names


@dataclass(frozen=True)
class Verdict:
    """What the findings come to."""

    kind: Kind
    sentence: str
    advice: str  # what it rests on, and what to do next
    supported: bool = True  # whether the data support a guarantee and a novel share at all

    @property
    def stands_out(self) -> bool:
        """Whether more nodes are listed than expected by chance."""
        return self.kind == "novel" or (self.kind == "inconclusive" and self.supported)


def decide(
    detector: Detector,
    listed: Mask,
    fdr: float | None,
    share: NovelShare,
    diagnosis: Diagnosis,
    withheld: tuple[Withheld, ...],
    check: Check,
) -> Verdict:
    """Choose the verdict: what the data do not support comes first, then what is novel, then what grew."""
    targets, count = int(detector.is_target_.sum()), int(listed.sum())
    unsupported = _unsupported(detector, fdr, withheld, check, targets)
    if unsupported is not None:
        return unsupported
    if share.low > 0:
        return Verdict(
            "novel",
            f"Something new: at least {at_least_percent(share.low)} of the target nodes, about "
            f"{percent(share.estimate)}, are unlike anything in the source.",
            f"The lower bound has {100 * share.confidence:.0f} % confidence, unless a known category is more than "
            f"{times(share.max_growth)} times as frequent as in the source among the nodes that it is compared with."
            + ("" if count else f" No single node can be listed at this level: ask for a higher {_option(fdr)}."),
        )
    if count > _by_chance(detector, fdr):
        stand = "stands" if count == 1 else "stand"
        return Verdict(
            "inconclusive",
            f"Inconclusive: {count:,} of {counted(targets, 'target node')} {stand} out, more than expected by chance. "
            f"{'It' if count == 1 else 'They'} may be novel, or known nodes that became more frequent.",
            f"{_needed(share.holds_up_to)} Inspect a few of them; a domain expert can tell.",
        )
    chance = f"{count:,} {'is' if count == 1 else 'are'} listed, no more than expected by chance. " if count else ""
    unseen = f"{chance}A novel category that this detector cannot tell from a known one remains possible."
    out_of_reach = sum(region.target for region in withheld)
    among = f"the {counted(targets - out_of_reach, 'target node')}"
    if out_of_reach:
        among += f" that can be compared with enough source nodes ({out_of_reach:,} cannot)"
    changed = diagnosis.grown[:MAX_GROWN]
    if changed:
        sentences = "; ".join(cluster.sentence() for cluster in changed)
        return Verdict("grown", f"Known categories grew: {sentences}. Nothing new stands out among {among}.", unseen)
    return Verdict("nothing", f"Nothing stands out among {among}.", unseen)


def _unsupported(
    detector: Detector, fdr: float | None, withheld: tuple[Withheld, ...], check: Check, targets: int
) -> Verdict | None:
    """Return the verdict where the data do not support any other; else None."""
    sources = len(detector.is_target_) - targets
    if sources < MIN_SOURCE:
        reason = f"{counted(sources, 'source node')} are too few to learn from and to compare with"
        advice = "Give more source nodes."
    elif not detector.calibrated_:
        reason = "the detector was fitted without calibration nodes, so there is nothing to compare scores with"
        advice = "Fit it with rotations=5, as recoslip.detect does."
    elif check.is_separable:
        reason = (
            "source and target are separable almost everywhere (covariate shift), so known target nodes may look novel "
            "too"
        )
        advice = (
            f"{capitalised(check.differences())}. Leave out columns that describe the domain and not its nodes, such "
            "as a date or a region; measure both domains in the same way; or add source nodes measured as the target "
            "nodes are. Without that, the ranking is a hint and no p-value is valid."
        )
    elif np.ptp(detector.scores_[detector.is_target_ | detector.calibration_]) == 0:
        reason = "all target nodes and all source nodes that they are compared with have the same score"
        advice = "Give the nodes features, or edges, that differ between categories."
    elif sum(region.target for region in withheld) == targets:
        most = max(region.calibration for region in withheld)
        lowest = 1 / (most + 1)
        reason = (
            f"with {counted(most, 'source node')} to compare with, no rate below {100 * lowest:.2g} % can be guaranteed"
        )
        advice = f"Ask for a {_option(fdr)} of {_rounded_up(lowest)} or more, or give more source nodes."
    else:
        return None
    return Verdict("inconclusive", f"Inconclusive: {reason}.", advice, supported=False)


def _option(fdr: float | None) -> str:
    return "false-positive rate (max_fpr)" if fdr is None else "false-discovery rate (fdr)"


def _by_chance(detector: Detector, fdr: float | None) -> int:
    """Return how many nodes may be listed where nothing is novel: by false-discovery rate, none."""
    if fdr is not None:
        return 0
    region = detector.region_
    return most_by_chance(detector.max_fpr, region[detector.is_target_], region[detector.calibration_], CHANCE)


def _needed(growth: float) -> str:
    """Say how much known nodes must have grown to explain a list."""
    if growth < 1.1:
        return "Very little growth of known categories, or none, would explain the list."
    return (
        f"To explain the list, known nodes would have to be {times(growth)} times as frequent as in the source among "
        "the nodes that they are compared with."
    )


def _rounded_up(level: float) -> float:
    """Round up to two digits."""
    step = 10 ** (np.floor(np.log10(level)) - 1)
    return float(f"{np.ceil(level / step - 1e-9) * step:.2g}")
