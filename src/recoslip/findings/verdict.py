"""Share, list, growth and what the data cannot support -> one verdict, in one of four forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from recoslip.detectors.base import Detector
from recoslip.findings.diagnosis import Diagnosis
from recoslip.findings.novel_share import NovelShare, most_by_chance
from recoslip.findings.promise import Withheld
from recoslip.graph.split import MIN_SOURCE, Mask
from recoslip.inspection.check import Check
from recoslip.wording import at_least_percent, capitalised, counted, percent, times

Kind: TypeAlias = Literal["new", "grown", "nothing", "cannot tell"]

CHANCE = 0.95  # a longer list than chance makes with this probability, where nothing is novel, is more than chance
MAX_GROWN = 3  # clusters that a verdict names


@dataclass(frozen=True)
class Verdict:
    """What the findings come to."""

    kind: Kind
    sentence: str
    advice: str  # what it rests on, and what to do next
    supported: bool = True  # whether the data allow for a promise and a novel share at all

    @property
    def stands_out(self) -> bool:
        """Whether more is listed than by chance, so that it makes sense to ask what it is."""
        return self.kind == "new" or (self.kind == "cannot tell" and self.supported)


def decide(
    detector: Detector,
    listed: Mask,
    fdr: float | None,
    share: NovelShare,
    diagnosis: Diagnosis,
    withheld: tuple[Withheld, ...],
    look: Check,
) -> Verdict:
    """Choose the verdict: what cannot be told comes first, then what is new, then what grew."""
    targets, count = int(detector.is_target_.sum()), int(listed.sum())
    unsupported = _unsupported(detector, fdr, withheld, look, targets)
    if unsupported is not None:
        return unsupported
    if share.low > 0:
        return Verdict(
            "new",
            f"Something new: at least {at_least_percent(share.low)} of the target nodes, about "
            f"{percent(share.estimate)}, belong to no category of the source.",
            f"That holds with {100 * share.confidence:.0f} % confidence, unless a known category is more than "
            f"{times(share.max_growth)} times as frequent as before among the nodes that it is compared with."
            + ("" if count else f" No single node can be listed at this level: ask for a higher {_option(fdr)}."),
        )
    if count > _by_chance(detector, fdr):
        stand = "stands" if count == 1 else "stand"
        return Verdict(
            "cannot tell",
            f"Cannot be told: {count:,} of {counted(targets, 'target node')} {stand} out, more than by chance, and may "
            "be new or known nodes that became more frequent.",
            f"{_needed(share.breaks_at)} Look at a few of them: who knows the source can say which it is.",
        )
    chance = f"{count:,} {'is' if count == 1 else 'are'} listed, no more than by chance. " if count else ""
    unseen = f"{chance}A novel category that looks like a known one to this detector cannot be excluded."
    out_of_reach = sum(region.target for region in withheld)
    among = f"the {counted(targets - out_of_reach, 'target node')}"
    if out_of_reach:
        among += f" that can be compared with enough source nodes ({out_of_reach:,} cannot)"
    changed = diagnosis.grown[:MAX_GROWN]
    if changed:
        sentences = "; ".join(cluster.sentence() for cluster in changed)
        return Verdict("grown", f"Nothing new stands out among {among}, but what is known grew: {sentences}.", unseen)
    return Verdict("nothing", f"Nothing stands out among {among}.", unseen)


def _unsupported(
    detector: Detector, fdr: float | None, withheld: tuple[Withheld, ...], look: Check, targets: int
) -> Verdict | None:
    """Say why nothing can be told, if the data do not allow for it."""
    sources = len(detector.is_target_) - targets
    if sources < MIN_SOURCE:
        reason = f"{counted(sources, 'source node')} are too few to learn from and to compare with"
        advice = "Give more source nodes."
    elif not detector.calibrated_:
        reason = "the detector was fitted without calibration nodes, so that it is not known how high known nodes score"
        advice = "Fit it with rotations=5, as recoslip.detect does."
    elif look.is_apart:
        reason = (
            "source and target differ almost everywhere, in more than their proportions, so that known target nodes "
            "may look novel, too"
        )
        advice = (
            f"{capitalised(look.differences())}. Leave out what belongs to a domain and not to its nodes, such as a "
            "date, a region or another unit of measurement; measure both in the same way; or give source nodes from "
            "the target's world. Until then the order of the nodes is a hint, and no p-value is valid."
        )
    elif np.ptp(detector.scores_[detector.is_target_ | detector.calibration_]) == 0:
        reason = "all target nodes and all source nodes that they are compared with have the same score"
        advice = "Give the nodes features, or edges, that differ between categories."
    elif sum(region.target for region in withheld) == targets:
        most = max(region.calibration for region in withheld)
        lowest = 1 / (most + 1)
        reason = f"{counted(most, 'source node')} to compare with cannot promise a rate below {100 * lowest:.2g} %"
        advice = f"Ask for a {_option(fdr)} of {_rounded_up(lowest)} or more, or give more source nodes."
    else:
        return None
    return Verdict("cannot tell", f"Cannot be told: {reason}.", advice, supported=False)


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
        return "Very little growth, or none, would be enough to explain it."
    return (
        f"Known nodes would have to be {times(growth)} times as frequent as before among those they are compared with."
    )


def _rounded_up(level: float) -> float:
    """Round up to two digits."""
    step = 10 ** (np.floor(np.log10(level)) - 1)
    return float(f"{np.ceil(level / step - 1e-9) * step:.2g}")
