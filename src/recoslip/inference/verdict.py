"""Share, list, growth and what the data do not support -> one verdict, and the statistical guarantee of the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from recoslip.base.text import at_least_percent, capitalised, counted, percent, times
from recoslip.data.split import MIN_SOURCE, Mask
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.check import Check
from recoslip.inference.diagnosis import Diagnosis
from recoslip.inference.novel_share import NovelShare, most_by_chance
from recoslip.inference.p_values import ROUNDING


def guarantee(model: Calibrated, fdr: float | None, *, supported: bool) -> str:
    """State the guarantee of the list and its assumption.

    Args:
        model: calibrated on the graph.
        fdr: the false-discovery rate that the list was made by; None if it was made by the model's `max_fpr`.
        supported: whether the data support a guarantee at all.
    """
    if not supported:
        return "No statistical guarantee."
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
    model: Calibrated, listed: Mask, fdr: float | None, share: NovelShare, diagnosis: Diagnosis, check: Check
) -> Verdict:
    """Choose the verdict: what the data do not support comes first, then what is novel, then what grew."""
    targets, count = int(model.is_target.sum()), int(listed.sum())
    unsupported = _unsupported(model, fdr, check, targets)
    if unsupported is not None:
        return unsupported
    if share.low > 0:
        return Verdict(
            "novel",
            f"Something new: at least {at_least_percent(share.low)} of the target nodes, about "
            f"{percent(share.estimate)}, are unlike anything in the source.",
            f"The lower bound has {100 * share.confidence:.0f} % confidence, unless a known category is more than "
            f"{times(share.max_growth)} times as frequent as in the source."
            + ("" if count else f" No single node can be listed at this level: ask for a higher {_option(fdr)}."),
        )
    if count > _by_chance(model, fdr, targets):
        stand = "stands" if count == 1 else "stand"
        return Verdict(
            "inconclusive",
            f"Inconclusive: {count:,} of {counted(targets, 'target node')} {stand} out, more than expected by chance. "
            f"{'It' if count == 1 else 'They'} may be novel, or known nodes that became more frequent.",
            f"{_needed(share.holds_up_to)} Inspect a few of them; a domain expert can tell.",
        )
    chance = f"{count:,} {'is' if count == 1 else 'are'} listed, no more than expected by chance. " if count else ""
    unseen = f"{chance}A novel category that this detector cannot tell from a known one remains possible."
    among = f"the {counted(targets, 'target node')}"
    changed = diagnosis.grown[:MAX_GROWN]
    if changed:
        sentences = "; ".join(cluster.sentence() for cluster in changed)
        return Verdict("grown", f"Known categories grew: {sentences}. Nothing new stands out among {among}.", unseen)
    return Verdict("nothing", f"Nothing stands out among {among}.", unseen)


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
    """Return how many nodes may be listed where nothing is novel: by false-discovery rate, none."""
    return 0 if fdr is not None else most_by_chance(model.max_fpr, targets, int(model.calibration.sum()), CHANCE)


def _needed(growth: float) -> str:
    """Say how much known nodes must have grown to explain a list."""
    if growth < 1.1:
        return "Very little growth of known categories, or none, would explain the list."
    return f"To explain the list, known nodes would have to be {times(growth)} times as frequent as in the source."


def _rounded_up(level: float) -> float:
    """Round up to two digits."""
    step = 10 ** (np.floor(np.log10(level)) - 1)
    return float(f"{np.ceil(level / step - 1e-9) * step:.2g}")
