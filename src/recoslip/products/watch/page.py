"""What a watch remembers -> its sentences, and a page: the course of every group and kind over batches."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from recoslip.base.text import at_least, counted, percent, times
from recoslip.inference.diagnosis import least_growth
from recoslip.pipeline.report.html import asset, fill
from recoslip.products.watch.state import GROUP, Batch, Group, Settings, State

MAX_BATCHES = 400  # that a chart shows, the last ones
MAX_ROWS = 50  # of the table of batches, the last ones
MAX_LINES = 12  # of a chart
GROWN = 2.0  # lower confidence bound from which on a kind is said to grow
CONFIDENCE = 0.95  # that none of the kinds that are said to grow is said so by chance


def said(batch: Batch, open_groups: Sequence[Group]) -> str:
    """Say what a batch came to, and which groups of batches before it are open."""
    named = [f"group {group.number} of batch {group.alarm}" for group in open_groups if group.alarm < batch.number]
    if not named:
        return batch.sentence
    alarms, are = ("alarm", "is") if len(named) == 1 else ("alarms", "are")
    return f"{batch.sentence} The {alarms} for {', '.join(named)} {are} still open; accept or reject.".lstrip()


def new_sentence(group: Group, settings: Settings, batch: Batch) -> str:
    """Say that an alarm was raised for a group."""
    name = f", {group.name!r}" if group.name else ""
    return (
        f"A new category has appeared: group {group.number}, {counted(group.size, 'node')} of "
        f"{_batches(min(batch.number, settings.window))}{name}, since batch {group.since}. If they were known, such "
        f"nodes would have become more than {at_least(group.growth)} times as frequent; the alarm allows for "
        f"{times(settings.max_growth)}. Look at these first: {', '.join(group.shown)}."
    )


def apart_sentence(batches: int) -> str:
    """Say that recent batches cannot be judged."""
    return (
        f"Inconclusive: nodes of {_batches(batches)} differ from earlier ones in almost every feature, so known nodes "
        "look new; they may have been measured in another way. Compare the columns of the batch with those of the "
        "known nodes, correct what differs, or begin a new watch."
    )


def quiet_sentence(settings: Settings, batch: Batch, recent: int) -> str:
    """Say that nothing is new, and how large a new category must be to raise an alarm."""
    quiet = (
        "Nothing new: known categories that became up to "
        f"{times(settings.max_growth)} times as frequent explain where the nodes of the last batches lie."
    )
    if batch.least_members is None or batch.least_members > recent:
        return f"{quiet} With so few earlier and recent nodes, no new category can raise an alarm yet, however large."
    return (
        f"{quiet} To raise an alarm, a new category must hold at least {batch.least_members:,} of the {recent:,} "
        f"recent nodes ({percent(batch.least_members / recent)})."
    )


def grown_sentence(state: State) -> str:
    """Say which kinds of known nodes became more frequent in the recent batches, if any did."""
    first, recent = state.batches[0], state.batches[1:][-state.settings.window :]
    counts = sum((Counter(batch.counts) for batch in recent), Counter())
    nodes = sum(batch.nodes for batch in recent)
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(state.kinds))
    found = []
    for kind, name in state.kinds.items():
        bound = least_growth(first.counts.get(kind, 0), counts.get(kind, 0), first.nodes, nodes, confidence)
        if bound >= GROWN:
            like = f"like {name!r}" if name else f"like those of kind {kind}"
            found.append((bound, f"nodes {like} are at least {at_least(bound)} times as frequent"))
    if not found:
        return ""
    listed = "; ".join(sentence for _, sentence in sorted(found, reverse=True)[:3])
    return f"What is known grows: in {_batches(len(recent))} {listed} as among the known nodes."


def _batches(count: int) -> str:
    return "the last batch" if count == 1 else f"the last {count} batches"


def render(state: State) -> str:
    """Return the page as HTML, without scripts."""
    shown = state.batches[1:][-MAX_BATCHES:]
    return fill(
        "products/watch/watch.html",
        styles=[asset("pipeline/report/plain.css"), asset("products/watch/watch.css")],
        title="Watch",
        state=state,
        open=said(replace(state.batches[-1], sentence=""), state.open_groups),
        batches=shown,
        rows=shown[: -MAX_ROWS - 1 : -1],
        shares=_shares(state, shown),
        bold=len({kind for batch in shown for kind in batch.counts if int(kind) >= GROUP}),
        evidence=[
            ("evidence", [-math.log10(max(batch.p_value, 1e-30)) for batch in shown]),
            ("alarm level", [-math.log10(batch.level) for batch in shown]),
        ],
        words={"at_least": at_least, "counted": counted, "percent": percent, "times": times},
    )


def _shares(state: State, batches: Sequence[Batch]) -> list[tuple[str, list[float]]]:
    """Return the share of each group, and of the largest kinds, in every batch, by name; groups first."""
    totals = sum((Counter(batch.counts) for batch in batches), Counter())
    ordered = sorted(totals, key=lambda kind: (int(kind) < GROUP, -totals[kind]))[:MAX_LINES]
    return [
        (_kind_name(state, kind), [batch.counts.get(kind, 0) / max(1, batch.nodes) for batch in batches])
        for kind in ordered
    ]


def _kind_name(state: State, kind: str) -> str:
    if int(kind) < GROUP:
        return state.kinds.get(kind) or f"kind {kind}"
    group = state.group(int(kind) - GROUP)
    return f"group {group.number}: {group.label or group.name or 'new'}"
