"""Share, list, growth and what the data do not support -> one verdict, and the statistical guarantee of the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from recoslip.base.text import at_least, at_least_percent, capitalised, counted, percent, times
from recoslip.data.split import MIN_SOURCE, Mask
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.check import Check
from recoslip.inference.diagnosis import Diagnosis
from recoslip.inference.earlier import EarlierStep
from recoslip.inference.evidence import ALLOWED_GROWTH, MIN_GROWTH, BinCounts
from recoslip.inference.novel_share import NovelShare, most_by_chance
from recoslip.inference.p_values import ROUNDING
from recoslip.inference.power import measure_power


def guarantee(model: Calibrated, fdr: float | None, *, supported: bool) -> str:
    """State the guarantee of the list and its assumption.

    Args:
        model: calibrated on the graph.
        fdr: the false-discovery rate that the list was made by; None if it was made by the model's `max_fpr`.
        supported: whether the data support a guarantee at all.
    """
    if not supported:
        return "No statistical guarantee."
    if model.hiding.follows_edges:
        return (
            "No statistical guarantee of the rate: the domains follow the edges. The list compares target nodes with "
            "parts of the source that follow the edges as much."
        )
    kind, rate = ("positive", model.max_fpr) if fdr is None else ("discovery", fdr)
    guaranteed = (
        f"Expected false-{kind} rate ≤ {100 * rate:.3g} %, assuming known target nodes are distributed as the hidden "
        "source nodes."
    )
    if model.transferred:
        guaranteed += (
            " The new nodes took no part in the fit, and the source nodes that they are compared with did, so the rate "
            "is measured and not proven."
        )
    return guaranteed


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


Kind: TypeAlias = Literal["novel", "grown", "drift", "nothing", "inconclusive"]

CHANCE = 0.95  # a longer list than chance makes with this probability, where nothing is novel, is more than chance
MAX_GROWN = 3  # clusters that a verdict names


@dataclass(frozen=True)
class Verdict:
    """What the findings come to."""

    kind: Kind
    sentence: str
    advice: str  # what it rests on, and what to do next
    supported: bool = True  # whether the data support a novel share at all
    stands_out: bool = False  # whether something does, more than expected by chance


def decide(
    model: Calibrated,
    listed: Mask,
    fdr: float | None,
    share: NovelShare,
    bins: BinCounts,
    diagnosis: Diagnosis,
    check: Check,
    earlier: EarlierStep | None = None,
) -> Verdict:
    """Choose the verdict: what the data do not support comes first, then what is novel, then what grew."""
    targets, count = int(model.is_target.sum()), int(listed.sum())
    unsupported = _unsupported(model, fdr, check, targets)
    if unsupported is not None:
        return unsupported
    if share.low > 0:
        return _novel(share, bins, count, fdr, earlier)
    if count > _by_chance(model, fdr, targets):
        stand = "stands" if count == 1 else "stand"
        return Verdict(
            "inconclusive",
            f"Inconclusive: {count:,} of {counted(targets, 'target node')} {stand} out, more than expected by chance. "
            f"{'It' if count == 1 else 'They'} may be novel, or known nodes that became more frequent"
            f"{', or known nodes in another part of the graph' if bins.follows_edges else ''}.",
            f"{_needed(share)} Inspect a few of them; a domain expert can tell.",
            stands_out=True,
        )
    among = f"the {counted(targets, 'target node')}"
    chance = f"{count:,} {'is' if count == 1 else 'are'} listed, no more than expected by chance. " if count else ""
    power = measure_power(bins)
    changed = diagnosis.grown[:MAX_GROWN]
    if changed:
        sentences = "; ".join(cluster.sentence() for cluster in changed)
        return Verdict(
            "grown",
            f"Known categories grew: {sentences}. Nothing new stands out among {among}.",
            f"{chance}{power.sentence()}",
        )
    if not power.suffices:
        sentence = f"Inconclusive: nothing stands out among {among}, but too little can be seen in these data."
        return Verdict("inconclusive", sentence, f"{chance}{power.sentence()} {power.advice()}")
    unseen = "A novel category that looks like a known one remains possible."
    return Verdict("nothing", f"Nothing stands out among {among}.", f"{chance}{power.sentence()} {unseen}")


def _novel(share: NovelShare, bins: BinCounts, count: int, fdr: float | None, earlier: EarlierStep | None) -> Verdict:
    """Return the verdict where known categories do not explain the target."""
    lowest = at_least_percent(share.low)
    confidence = (
        f"The lower bound has {100 * share.confidence:.0f} % confidence, unless a known category is more than "
        f"{times(share.max_growth)} times as frequent as in the source. That something is new holds up to "
        f"{at_least(share.holds_up_to)} times."
    )
    if share.max_growth > ALLOWED_GROWTH and bins.follows_edges:
        confidence += (
            " The domains follow the edges, so parts of the source that do so too were compared with the rest of it: "
            "they seemed to have grown up to so many times."
        )
    if earlier is not None and earlier.drifts:
        return Verdict(
            "drift",
            f"Drift: at least {lowest} of the target nodes are unlike anything in the source, but {earlier.drift()}.",
            "Known content may change steadily. Look at the groups of listed nodes to see what is new in them.",
            supported=False,
            stands_out=True,
        )
    own = bins if bins.follows_edges else bins.of_own_vectors()
    what = "in their own features" if own.holds_up_to > share.max_growth else "in the features of their neighbours"
    return Verdict(
        "novel",
        f"Something new: at least {lowest} of the target nodes, about {percent(share.estimate)}, are unlike anything "
        f"in the source {what}.",
        confidence
        + ("" if earlier is None else f" {earlier.sentence()}")
        + ("" if count else f" No single node can be listed at this level: ask for a higher {_option(fdr)}."),
        stands_out=True,
    )


def _unsupported(model: Calibrated, fdr: float | None, check: Check, targets: int) -> Verdict | None:
    """Return the verdict where the data do not support any other; else None."""
    sources, hidden = len(model.is_target) - targets, int(model.calibration.sum())
    lowest, asked = 1 / (hidden + 1), model.max_fpr if fdr is None else fdr
    if sources < MIN_SOURCE:
        reason = f"{counted(sources, 'source node')} are too few to learn from and to compare with"
        advice = "Give more source nodes."
    elif not model.guaranteed:
        reason = "no source nodes were hidden during the fit, so there is nothing to compare scores with"
        advice = "Fit it with recoslip.calibrate, as recoslip.detect does."
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
    elif check.remedy == "aligned":
        reason = (
            "source and target were separable and had to be aligned, and hidden source nodes do not show how known "
            "target nodes score after that"
        )
        advice = (
            f"{capitalised(check.differences())}. The ranking is a hint: inspect the highest scores. Measure both "
            "domains in the same way, or add source nodes measured as the target nodes are, for a verdict."
        )
    elif np.ptp(model.scores[model.is_target | model.calibration]) == 0:
        reason = "all target nodes and all source nodes that they are compared with have the same score"
        advice = "Give the nodes features, or edges, that differ between categories."
    elif lowest > asked * (1 + ROUNDING):
        reason = (
            f"with {counted(hidden, 'source node')} to compare with, no rate below {100 * lowest:.2g} % can be "
            "guaranteed"
        )
        advice = f"Ask for a {_option(fdr)} of {_rounded_up(lowest)} or more, or give more source nodes."
    else:
        return None
    return Verdict("inconclusive", f"Inconclusive: {reason}.", advice, supported=False)


def _option(fdr: float | None) -> str:
    return "false-positive rate (max_fpr)" if fdr is None else "false-discovery rate (fdr)"


def _by_chance(model: Calibrated, fdr: float | None, targets: int) -> int:
    """Return how many nodes may be listed where nothing is novel.

    By a false-discovery rate: as many as of the hidden part of which most are, if it were the target.
    """
    if fdr is not None:
        return int(max(model.placebo_lists(fdr), default=0.0) * targets)
    return most_by_chance(model.max_fpr, targets, int(model.calibration.sum()), CHANCE)


def _needed(share: NovelShare) -> str:
    """Say how much known categories must have grown to explain what stands out."""
    if share.holds_up_to < MIN_GROWTH:
        return "Very little growth of known categories, or none, would explain the list."
    return (
        f"To explain the list, a known category would have to be {times(share.holds_up_to)} times as frequent as in "
        f"the source. Up to {times(share.max_growth)} times is allowed for."
    )


def _rounded_up(level: float) -> float:
    """Round up to two digits."""
    step = 10 ** (np.floor(np.log10(level)) - 1)
    return float(f"{np.ceil(level / step - 1e-9) * step:.2g}")
