"""Share, list, growth and what the data cannot support -> one verdict, in one of four forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from recoslip.calibration.novel_share import NovelShare
from recoslip.detectors.base import Detector
from recoslip.findings.diagnosis import Diagnosis
from recoslip.findings.promise import Withheld
from recoslip.shift import Mask

Kind: TypeAlias = Literal["new", "grown", "nothing", "cannot tell"]

APART = 0.99  # AU-ROC of a linear model from which on source and target are different worlds
CHANCE = 0.95  # a longer list than chance makes with this probability, where nothing is novel, is more than chance
MAX_GROWN = 3  # clusters that a verdict names
MIN_SOURCE = 3  # source nodes, of which one calibrates and two are learned from


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
) -> Verdict:
    """Choose the verdict: what cannot be told comes first, then what is new, then what grew."""
    targets, count = int(detector.is_target_.sum()), int(listed.sum())
    unsupported = _unsupported(detector, diagnosis, withheld, targets)
    if unsupported is not None:
        return unsupported
    if count and share.low > 0:
        return Verdict(
            "new",
            f"Something new: at least {_percent(share.low)} of the target nodes, about {_percent(share.estimate)}, "
            "belong to no category of the source.",
            f"That holds with {100 * share.confidence:.0f} % confidence, unless a known category is more than "
            f"{share.max_growth:.2g} times as frequent as before among the nodes that it is compared with. Look at the "
            "groups one after the other: each says what else it may be.",
        )
    if count > _by_chance(detector, fdr, targets):
        return Verdict(
            "cannot tell",
            f"Cannot be told: {count:,} of {targets:,} target nodes stand out, more than by chance, and may be new or "
            "a known category that grew.",
            f"{_needed(share.breaks_at)} Look at a few nodes of each group: who knows the source can say which it is.",
        )
    chance = f"{count:,} {'is' if count == 1 else 'are'} listed, no more than by chance. " if count else ""
    unseen = (
        f"{chance}Up to {_percent(share.high)} of the target nodes may be novel all the same: so many score higher "
        "than seven of ten known nodes that they are compared with."
    )
    changed = diagnosis.grown[:MAX_GROWN]
    if changed:
        sentences = "; ".join(cluster.sentence() for cluster in changed)
        return Verdict(
            "grown",
            f"Nothing new stands out among the {targets:,} target nodes, but a known kind grew: {sentences}.",
            unseen,
        )
    return Verdict("nothing", f"Nothing stands out among the {targets:,} target nodes.", unseen)


def _unsupported(
    detector: Detector, diagnosis: Diagnosis, withheld: tuple[Withheld, ...], targets: int
) -> Verdict | None:
    """Say why nothing can be told, if the data do not allow for it."""
    sources = len(detector.is_target_) - targets
    if sources < MIN_SOURCE:
        reason = f"{sources:,} source nodes are too few to learn from and to compare with"
        advice = "Give more source nodes; a few hundred are needed for a list with a promise."
    elif not detector.calibrated_:
        reason = "the detector was fitted without calibration nodes, so that it is not known how high known nodes score"
        advice = "Fit it with rotations=5, as recoslip detect does."
    elif diagnosis.separability > APART:
        reason = (
            "a linear model tells source from target almost perfectly, so that everything in the target looks novel "
            f"(AU-ROC {diagnosis.separability:.3f})"
        )
        advice = "Look for a feature that says the same as the domain, such as a date or a region, and leave it out."
    elif np.ptp(detector.scores_[detector.is_target_]) == 0:
        reason = f"all of the {targets:,} target nodes have the same score"
        advice = "Give the nodes features, or edges, that differ between categories."
    elif sum(region.target for region in withheld) == targets:
        most = max(region.calibration for region in withheld)
        reason = f"{most:,} source nodes to compare with cannot promise a rate below {100 / (most + 1):.2g} %"
        advice = f"Ask for --max-fpr {_rounded_up(1 / (most + 1))}, or give more source nodes."
    else:
        return None
    return Verdict("cannot tell", f"Cannot be told: {reason}.", advice, supported=False)


def _by_chance(detector: Detector, fdr: float | None, targets: int) -> int:
    """Return how many nodes may be listed where nothing is novel: by false-discovery rate, none."""
    from scipy.stats import poisson

    return int(poisson.ppf(CHANCE, detector.max_fpr * targets)) if fdr is None else 0


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if fraction >= 0.1 else f"{100 * fraction:.2g} %"


def _needed(growth: float) -> str:
    """Say how much a known category must have grown to explain a list."""
    if growth < 1.05:
        return "Hardly any growth would explain it."
    return f"It would have to be {growth:.2g} times as frequent as before among the nodes that it is compared with."


def _rounded_up(level: float) -> float:
    """Round up to two digits."""
    step = 10 ** (np.floor(np.log10(level)) - 1)
    return float(f"{np.ceil(level / step - 1e-9) * step:.2g}")
