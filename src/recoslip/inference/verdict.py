"""Share, list, growth and what the data do not support -> one verdict, and the statistical guarantee of the list."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from recoslip.base.text import PLAIN, Terms, at_least, at_least_percent, capitalised, percent, singular, times
from recoslip.data.split import MIN_SOURCE, Mask
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.check import Check
from recoslip.inference.diagnosis import GROWN, STRONG, Diagnosis
from recoslip.inference.earlier import EarlierStep
from recoslip.inference.evidence import MIN_GROWTH, PLACEBOS, BinCounts
from recoslip.inference.groups import Group
from recoslip.inference.novel_share import NovelShare
from recoslip.inference.p_values import ROUNDING, most_by_chance
from recoslip.inference.power import Power, measure_power


def guarantee(model: Calibrated, fdr: float | None, *, supported: bool, terms: Terms = PLAIN) -> str:
    """State the guarantee of the list and its assumption.

    Args:
        model: calibrated on the graph.
        fdr: the false-discovery rate that the list was made by; None if it was made by the model's `max_fpr`.
        supported: whether the data support a guarantee at all.
        terms: what the domains and the nodes are called.
    """
    if not supported:
        return "No statistical guarantee."
    if model.hiding.follows_edges:
        return (
            f"No statistical guarantee of the rate: the domains follow the edges. The list compares {terms.targets()} "
            f"with parts of the {terms.sources()} that follow the edges as much."
        )
    kind, rate = ("positive", model.max_fpr) if fdr is None else ("discovery", fdr)
    fits = len(model.fits)
    proven = ""
    if fits > 1 and not model.transferred:
        most = 2 * ((hidden := int(model.calibration.sum())) * rate + rate + fits - 1) / (hidden + fits)
        proven = " (in simulations" + (f"; proven: ≤ {percent(min(1.0, most))})" if fdr is None else ")")
    guaranteed = (
        f"Expected false-{kind} rate ≤ {100 * rate:.3g} %{proven}, assuming known {terms.targets()} are distributed as "
        f"the hidden {terms.sources()}."
    )
    if model.transferred:
        guaranteed += (
            f" The {terms.targets()} took no part in the fit, and the {terms.sources()} that they are compared with "
            "did, so the rate is measured and not proven."
        )
    return guaranteed


Kind: TypeAlias = Literal["novel", "grown", "drift", "nothing", "inconclusive"]

CHANCE = 0.95  # a longer list than chance makes with this probability, where nothing is novel, is more than chance
MOST_CLUSTERS = 3  # clusters that a verdict names
MOST_GROUPS = 2  # groups that it names


@dataclass(frozen=True)
class Figure:
    """A number to read first, and what it counts."""

    value: str
    caption: str


@dataclass(frozen=True)
class Verdict:
    """What the findings come to."""

    kind: Kind
    sentence: str
    advice: str  # what to do next
    supported: bool = True  # whether the data support a novel share at all
    stands_out: bool = False  # whether the list, or counts of similar nodes, show more than chance
    conditions: str = ""  # what it rests on
    figures: tuple[Figure, ...] = ()  # how many nodes are new, how sure that is, how much known categories may grow


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
    """Choose the verdict; the first of these that holds.

    Inconclusive, as the data do not support a verdict. Drift or novel, as counts show something new. Inconclusive, as
    more are listed than by chance. Grown, as clusters of known nodes did. Inconclusive, as counts show that something
    grew or is new. Inconclusive, as a large novel category may have been missed. Nothing.
    """
    targets, count, terms = int(model.is_target.sum()), int(listed.sum()), bins.terms
    unsupported = _unsupported(model, fdr, check, targets, terms)
    if unsupported is not None:
        return replace(unsupported, figures=_no_figures(count, terms))
    if share.low > 0:
        if earlier is not None and earlier.drifts:
            return replace(_drift(share, earlier, terms), figures=_no_figures(count, terms))
        found = _novel(share, bins, count, fdr, earlier)
        return replace(found, figures=_figures_of_new(share, bins, targets))
    by_chance = _by_chance(model, fdr, targets)
    if count > by_chance:
        one = count == 1
        elsewhere = f", or known {terms.noun} in another part of the graph" if bins.follows_edges else ""
        return Verdict(
            "inconclusive",
            f"Inconclusive: {count:,} of {terms.targets(targets)} {'stands' if one else 'stand'} out, more than by "
            "chance if known categories kept their proportions, and may be novel or known.",
            f"Inspect {'it' if one else 'a few of them'}; a domain expert can tell.",
            stands_out=True,
            conditions=f"Known {terms.noun} that became more frequent may stand out too{elsewhere}. "
            f"{_needed(bins.bound(listed).holds_up_to, share, terms)}",
            figures=(
                Figure(
                    f"{count:,}",
                    f"of {terms.targets(targets)} stand out; up to {by_chance:,} {_expected(model, fdr, terms)}",
                ),
                NOT_SURE,
                _growth_figure(share.holds_up_to, terms),
            ),
        )
    return _nothing_new(count, targets, share, bins, diagnosis)


def _nothing_new(count: int, targets: int, share: NovelShare, bins: BinCounts, diagnosis: Diagnosis) -> Verdict:
    """Return the verdict where no more is listed than by chance: grown, nothing, or inconclusive."""
    terms, changed = bins.terms, diagnosis.grown[:MOST_CLUSTERS]
    power = measure_power(replace(bins, allowed=share.max_growth))
    among = f"the {terms.targets(targets)}"
    chance = f"{count:,} {'is' if count == 1 else 'are'} listed, no more than expected by chance. " if count else ""
    conditions = f"{chance}{power.sentence(terms)}"
    listed = f"; {count:,} {'is' if count == 1 else 'are'} listed, as chance may do" if count else ""
    shown = Figure("0", f"of {terms.targets(targets)} are shown to be new{listed}")
    if changed:
        growth = Figure(
            f"at least {at_least(changed[0].least_growth)} times",
            f"as frequent {terms.in_target} as {terms.in_source} (95 % bound; estimate: "
            f"{times(changed[0].growth or 0)} times)",
        )
        every = " ".join(f"{capitalised(cluster.sentence(terms))}." for cluster in changed)
        return Verdict(
            "grown",
            f"Known categories grew, {terms.noun} {changed[0].kind} most of all. Nothing new stands out among {among}.",
            "Check whether this growth is expected.",
            conditions=f"{every} {conditions}",
            figures=(shown, _power_figure(power, terms), growth),
        )
    figures = (shown, _power_figure(power, terms), _growth_figure(share.holds_up_to, terms))
    if share.holds_up_to >= GROWN and not bins.follows_edges:
        return Verdict(
            "inconclusive",
            f"Inconclusive: a known category is at least {at_least(share.holds_up_to)} times as frequent "
            f"{terms.in_target} as {terms.in_source}, or something is new.",
            f"Inspect the {terms.noun} with the highest scores; a domain expert can tell.",
            stands_out=True,
            conditions=f"Counts of similar {terms.noun} show it (95 % confidence). {conditions}",
            figures=(shown, NOT_SURE, _growth_figure(share.holds_up_to, terms)),
        )
    if not power.suffices:
        strongly = (diagnosis.unevenness or 0) >= STRONG
        shifted = "proportions of known ones differ strongly, and " if strongly else ""
        sentence = f"Inconclusive: nothing stands out among {among}, but {shifted}too little can be seen in these data."
        return Verdict("inconclusive", sentence, power.advice(terms), conditions=conditions, figures=figures)
    unseen = "A novel category that looks like a known one remains possible."
    sentence = (
        f"Nothing stands out among {among}. A distinct new category of {percent(power.share or 0)} of them or more "
        "would have been noticed."
    )
    smaller = f"look at the {count:,} listed" if count else f"more {terms.sources()} would show them"
    advice = f"Nothing has to be done, unless smaller ones matter: {smaller}."
    return Verdict("nothing", sentence, advice, conditions=f"{conditions} {unseen}", figures=figures)


def _novel(share: NovelShare, bins: BinCounts, count: int, fdr: float | None, earlier: EarlierStep | None) -> Verdict:
    """Return the verdict where known categories do not explain the target."""
    terms = bins.terms
    unless = (
        f"unless a known category is more than {at_least(share.max_growth)} times as frequent as {terms.in_source}. "
        f"The estimate is {percent(share.estimate)}."
    )
    conditions = f"The lower bound has {100 * share.confidence:.0f} % confidence, {unless}"
    if bins.follows_edges:
        conditions = (
            f"The lower bound holds {unless} It has no confidence level, because the domains follow the edges. "
            f"Parts of the {terms.sources()} that follow them as much were taken for {terms.targets()} instead: in "
            f"{PLACEBOS} of {PLACEBOS}, nothing seemed to have grown more than that."
        )
    conditions += " Own features show it, without those of neighbours." if _own_show(share, bins) else ""
    return Verdict(
        "novel",
        _new_sentence(share, bins),
        f"Inspect a few {terms.noun} of each group, and confirm or reject the groups in a review."
        if count
        else f"No single {singular(terms.noun)} can be listed at this level: ask for a higher {_option(fdr)}.",
        stands_out=True,
        conditions=conditions + ("" if earlier is None else f" {earlier.sentence(terms)}"),
    )


def _new_sentence(share: NovelShare, bins: BinCounts, names: Sequence[str] = ()) -> str:
    """Say that something is new, and among which nodes."""
    terms, like = bins.terms, " or ".join(f"'{name}'" for name in names)
    among = f", among {terms.noun} like {like}" if names else ""
    judged = "" if _own_show(share, bins) else ", judged by the features of their neighbours only"
    lowest = at_least_percent(share.low)
    return f"Something new{among}: known categories do not explain at least {lowest} of the {terms.targets()}{judged}."


def _own_show(share: NovelShare, bins: BinCounts) -> bool:
    """Return whether bins of the nodes' own vectors alone show that something is new."""
    return bins.own_hold_up_to > share.max_growth


def name_new(verdict: Verdict, groups: Sequence[Group], share: NovelShare, bins: BinCounts) -> Verdict:
    """Name in the sentence of a verdict "novel" the groups of which some nodes are shown to be new."""
    shown = [each for each in groups if each.evidence and each.evidence.least_growth > share.max_growth]
    names = [each.name for each in shown if each.name][:MOST_GROUPS]
    if verdict.kind != "novel" or not names:
        return verdict
    return replace(verdict, sentence=_new_sentence(share, bins, names))


def _drift(share: NovelShare, earlier: EarlierStep, terms: Terms) -> Verdict:
    """Return the verdict where the source itself changed in the same way."""
    return Verdict(
        "drift",
        f"Drift: about {percent(share.estimate)} of the {terms.targets()} are unlike the {terms.sources()}, but "
        f"{earlier.drift(terms)}.",
        f"Known content may change steadily. Look at the groups of listed {terms.noun} to see what is new in them.",
        supported=False,
        stands_out=True,
        conditions="Bounds and rates assume that known content does not change, so none is given.",
    )


def make_surer(verdict: Verdict, terms: Terms) -> str:
    """Say what would make a verdict surer."""
    if not verdict.supported or (verdict.kind == "inconclusive" and not verdict.stands_out):
        return verdict.advice
    if verdict.stands_out:
        return (
            f"Decisions of a person on a random sample of the {terms.targets()}: a review draws one, and bounds how "
            "many of the list and of the rest are new, whatever the method does."
        )
    return f"With more {terms.sources()}, smaller new categories would be noticed."


NOT_SURE = Figure("not sure", "that any of them are new")


def _figures_of_new(share: NovelShare, bins: BinCounts, targets: int) -> tuple[Figure, ...]:
    """Return how many are new at least, how sure that is, and up to which growth something is."""
    unless = f"unless a known category became more than {at_least(share.max_growth)} times as frequent"
    sure = Figure(f"{100 * share.confidence:.0f} % sure", unless)
    if bins.follows_edges:
        sure = Figure(
            f"{PLACEBOS} of {PLACEBOS}",
            f"control groups, parts of the {bins.terms.sources()} that follow the edges as much, show less",
        )
    return (
        Figure(
            f"at least {round(share.low * targets):,}",
            f"of {bins.terms.targets(targets)} are new; a rough estimate is {_two_digits(share.estimate * targets):,}",
        ),
        sure,
        _growth_figure(share.holds_up_to, bins.terms),
    )


def _growth_figure(holds_up_to: float, terms: Terms) -> Figure:
    if holds_up_to < MIN_GROWTH:
        return Figure("no sign", f"of growth, or of something new, in counts of similar {terms.noun}")
    return Figure(
        f"{at_least(holds_up_to)}-fold",
        f"growth of a known category, at least, would be needed to explain the counts of similar {terms.noun}",
    )


def _power_figure(power: Power, terms: Terms) -> Figure:
    if power.share is None:
        return Figure("20 %", f"of the {terms.targets()}: even a new category of this size may have been missed")
    return Figure(
        percent(power.share), f"of the {terms.targets()}: a distinct new category of this size would have been noticed"
    )


def _no_figures(count: int, terms: Terms) -> tuple[Figure, ...]:
    """Return what to read first where the data do not support a verdict."""
    return (
        Figure("not known", f"how many {terms.targets()} are new"),
        Figure("no guarantee", "for the list: the ranking is a hint"),
        Figure(f"{count:,}", f"{terms.noun if count != 1 else singular(terms.noun)} on the list"),
    )


def _unsupported(model: Calibrated, fdr: float | None, check: Check, targets: int, terms: Terms) -> Verdict | None:
    """Return the verdict where the data do not support any other; else None."""
    sources, hidden = len(model.is_target) - targets, int(model.calibration.sum())
    lowest, asked = 1 / (hidden + 1), model.max_fpr if fdr is None else fdr
    conditions, alike = "", f"measured as the {terms.targets()} are"
    if sources < MIN_SOURCE:
        reason = f"{terms.sources(sources)} are too few to learn from and to compare with"
        advice = f"Give more {terms.sources()}."
    elif not model.is_calibrated:
        reason = f"no {terms.sources()} were hidden during the fit, so there is nothing to compare scores with"
        advice = "Fit it with recoslip.calibrate, as recoslip.detect does."
    elif check.is_separable:
        reason = f"{terms.both} are separable almost everywhere (covariate shift)"
        conditions = (
            f"Known {terms.targets()} may look novel too, so the ranking is a hint and no p-value is valid. "
            f"{capitalised(check.differences())}."
        )
        advice = (
            f"Leave out columns that describe the domain and not its {terms.noun}, such as a date or a region; measure "
            f"both domains in the same way; or add {terms.sources()} {alike}."
        )
    elif check.remedy == "aligned":
        reason = f"{terms.both} were separable and had to be aligned"
        conditions = (
            f"Hidden {terms.sources()} do not show how known {terms.targets()} score after alignment, so the ranking "
            f"is a hint. {capitalised(check.differences())}."
        )
        advice = (
            "Inspect the highest scores. For a verdict, measure both domains in the same way, or add "
            f"{terms.sources()} {alike}."
        )
    elif np.ptp(model.scores[model.is_target | model.calibration]) == 0:
        reason = f"all {terms.targets()} and all {terms.sources()} that they are compared with have the same score"
        advice = f"Give the {terms.noun} features, or edges, that differ between categories."
    elif lowest > asked * (1 + ROUNDING):
        reason = f"with {terms.sources(hidden)} to compare with, no rate below {100 * lowest:.2g} % can be guaranteed"
        advice = f"Ask for a {_option(fdr)} of {_rounded_up(lowest)} or more, or give more {terms.sources()}."
    else:
        return None
    return Verdict("inconclusive", f"Inconclusive: {reason}.", advice, supported=False, conditions=conditions)


def _option(fdr: float | None) -> str:
    return "false-positive rate (max_fpr)" if fdr is None else "false-discovery rate (fdr)"


def _by_chance(model: Calibrated, fdr: float | None, targets: int) -> int:
    """Return how many nodes may be listed where nothing is novel.

    By a false-discovery rate: as many as of the hidden part of which most are, if it were the target.
    """
    if fdr is not None:
        return int(max(model.placebo_lists(fdr), default=0.0) * targets)
    return most_by_chance(model.max_fpr, targets, int(model.calibration.sum()), CHANCE)


def _expected(model: Calibrated, fdr: float | None, terms: Terms) -> str:
    """Say what the number is that a list is compared with."""
    if fdr is None:
        return "may be listed by chance"
    return f"would be as many as of any of {len(model.fits)} parts of the {terms.sources()} that were hidden"


def _needed(holds_up_to: float, share: NovelShare, terms: Terms) -> str:
    """Say how much known categories must have grown to explain what stands out."""
    if holds_up_to < MIN_GROWTH:
        return "Counts of similar ones do not show how much a known category would have to have grown."
    return (
        f"To explain the list, a known category would have to be at least {at_least(holds_up_to)} times as frequent as "
        f"{terms.in_source}. Up to {at_least(share.max_growth)} times is allowed for."
    )


def _two_digits(number: float) -> int:
    """Round to two digits.

    >>> _two_digits(186.4), _two_digits(7.6)
    (190, 8)
    """
    step = 10 ** max(0, len(str(round(number))) - 2)
    return int(round(number / step) * step)


def _rounded_up(level: float) -> float:
    """Round up to two digits."""
    step = 10 ** (np.floor(np.log10(level)) - 1)
    return float(f"{np.ceil(level / step - 1e-9) * step:.2g}")
