"""What a watch remembers -> its sentences, and a page: the course of every group and kind over batches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from recoslip.base.text import at_least, counted, percent, times
from recoslip.inference.diagnosis import least_growth
from recoslip.pipeline.report.html import asset, fill
from recoslip.products.watch.state import GROUP, Batch, Group, Settings, State

MAX_BATCHES = 400  # that a chart shows, the last ones
MAX_ROWS = 50  # of the table of batches, the last ones
MAX_LINES = 12  # of a chart
MIN_GROWTH = 2.0  # lower confidence bound from which on a kind is said to grow
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
        if bound >= MIN_GROWTH:
            like = f"like {name!r}" if name else f"like those of kind {kind}"
            found.append((bound, f"nodes {like} are at least {at_least(bound)} times as frequent"))
    if not found:
        return ""
    listed = "; ".join(sentence for _, sentence in sorted(found, reverse=True)[:3])
    return f"What is known grows: in {_batches(len(recent))} {listed} as among the known nodes."


def _batches(count: int) -> str:
    return "the last batch" if count == 1 else f"the last {count} batches"


def guarantee(settings: Settings) -> str:
    """Say what is guaranteed about alarms, and under which assumptions."""
    return (
        f"The probability of any false alarm, over all batches, is at most {100 * settings.alpha:.3g} %. This holds "
        f"under two assumptions. In no batch is a known category more than {times(settings.max_growth)} times as "
        f"frequent among the last {settings.window} batches as among the nodes before. The features and edges of a "
        "node depend on its category, not on when it came. After a first alarm this is not proven, because which nodes "
        "are counted then depends on the data."
    )


def render(state: State) -> str:
    """Return the page as HTML, without scripts."""
    last, groups = state.batches[-1], state.open_groups
    shown = state.batches[1:][-MAX_BATCHES:]
    return fill(
        "products/watch/watch.html",
        styles=[asset("pipeline/report/plain.css"), asset("products/watch/watch.css")],
        title="Watch",
        headline=last.sentence or "The watch has begun; no batch has come yet.",
        open=said(last, groups).removeprefix(last.sentence).strip(),
        is_alarm=last.verdict == "apart" or bool(groups),
        counts=_counts_sentence(state),
        groups=[_group_row(group) for group in state.groups],
        batches=[_batch_row(batch) for batch in reversed(shown[-MAX_ROWS:])],
        charts=[_shares_chart(state, shown), _evidence_chart(state, shown)] if shown else [],
        guarantee=guarantee(state.settings),
    )


def _counts_sentence(state: State) -> str:
    first, last = state.batches[0], state.batches[-1]
    return (
        f"{counted(first.nodes, 'known node')}, then {counted(last.came, 'node')} in {last.number:,} "
        f"{'batch' if last.number == 1 else 'batches'}; {len(state.nodes):,} are kept."
    )


def _group_row(group: Group) -> tuple[str, ...]:
    return (
        str(group.number),
        f"accepted as {group.label!r}" if group.status == "accepted" else group.status,
        group.name or "",
        f"{group.size:,} at batch {group.alarm}, since batch {group.since}",
        f"more than {at_least(group.growth)} times as frequent, if known",
        ", ".join(group.shown),
    )


def _batch_row(batch: Batch) -> tuple[str, ...]:
    return str(batch.number), f"{batch.nodes:,}", f"{batch.p_value:.2g}", f"{batch.level:.2g}", batch.sentence


def _shares_chart(state: State, batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the share of each group, and of the largest kinds, in every batch."""
    totals = sum((Counter(batch.counts) for batch in batches), Counter())
    ordered = sorted(totals, key=lambda kind: (int(kind) < GROUP, -totals[kind]))[:MAX_LINES]
    lines = [
        (_kind_name(state, kind), [batch.counts.get(kind, 0) / max(1, batch.nodes) for batch in batches])
        for kind in ordered
    ]
    top = max((max(values) for _, values in lines), default=1.0) or 1.0
    bold = sum(int(kind) >= GROUP for kind in ordered)
    title = "Share of each group and kind, by batch"
    return _chart(title, "", batches, lines, bold=bold, highest=top, top=percent(top), bottom="0")


def _kind_name(state: State, kind: str) -> str:
    if int(kind) < GROUP:
        return state.kinds.get(kind) or f"kind {kind}"
    group = state.group(int(kind) - GROUP)
    return f"group {group.number}: {group.label or group.name or 'new'}"


def _evidence_chart(state: State, batches: Sequence[Batch]) -> dict[str, Any]:
    """Return minus the logarithms of p-values and of levels."""
    evidence = [-math.log10(max(batch.p_value, 1e-30)) for batch in batches]
    needed = [-math.log10(batch.level) for batch in batches]
    top = max(*evidence, *needed, 1.0)
    lines = [("evidence", evidence), ("alarm level", needed)]
    note = (
        "A batch raises an alarm if its p-value is at or below its level. Levels fall. Over all batches they add up to "
        f"{state.settings.alpha:g}."
    )
    title, ends = "Evidence and alarm level, by batch", {"top": f"p = 1e-{top:.0f}", "bottom": "p = 1"}
    return _chart(title, note, batches, lines, bold=1, highest=top, **ends)


def _chart(
    title: str, note: str, batches: Sequence[Batch], lines: Sequence[tuple[str, Sequence[float]]], **scale: Any
) -> dict[str, Any]:
    """Return what the template draws: lines of values between 0 and `highest`, of which the first `bold` are bold."""
    ends = {"first": batches[0].number, "last": batches[-1].number}
    return {"title": title, "note": note, "lines": lines, **ends, **scale}
