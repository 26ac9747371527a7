"""What a watch remembers -> a page: the course of every group and kind over batches, and the alarm level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from recoslip.base.text import at_least, counted, percent, times
from recoslip.pipeline.report.html import asset, fill
from recoslip.products.watch.state import GROUP, Batch, Group, State

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 220, 46, 26, 10  # of a chart, and of its margins
MAX_BATCHES = 400  # that a chart shows, the last ones
MAX_ROWS = 50  # of the table of batches, the last ones
MAX_LINES = 12  # of a chart
COLOURS = 6  # that watch.css names; further lines are dashed


@dataclass(frozen=True)
class Line:
    """A line of a chart; its points are positions in the drawing."""

    name: str
    points: Sequence[tuple[float, float]]
    stroke: float
    colour: int
    is_dashed: bool


@dataclass(frozen=True)
class Chart:
    """Lines over batches, and the words at the ends of both axes."""

    lines: Sequence[Line]
    first: int
    last: int
    top: str
    bottom: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    base: int = HEIGHT - BOTTOM


def render(state: State) -> str:
    """Return the page as HTML, without scripts."""
    last = state.batches[-1]
    shown = state.batches[1:][-MAX_BATCHES:]
    return fill(
        "products/watch/watch.html",
        styles=[asset("pipeline/report/plain.css"), asset("products/watch/watch.css")],
        title="Watch",
        headline=last.sentence or "The watch has begun; no batch has come yet.",
        open=open_sentence(open_groups(state), last),
        is_alarm=last.verdict == "apart" or bool(open_groups(state)),
        counts=_counts_sentence(state),
        groups=[_group_row(group) for group in state.groups],
        batches=[_batch_row(batch) for batch in reversed(shown[-MAX_ROWS:])],
        shares=_shares_chart(state, shown) if shown else None,
        evidence=_evidence_chart(shown) if shown else None,
        alpha=f"{state.settings.alpha:g}",
        guarantee=guarantee(state),
    )


def open_groups(state: State) -> tuple[Group, ...]:
    """Return the groups that are neither accepted nor rejected yet."""
    return tuple(group for group in state.groups if group.status == "open")


def open_sentence(groups: Sequence[Group], batch: Batch) -> str:
    """Say which groups of batches before `batch` are open."""
    named = [f"group {group.number} of batch {group.alarm}" for group in groups if group.alarm < batch.number]
    if not named:
        return ""
    alarms, are = ("alarm", "is") if len(named) == 1 else ("alarms", "are")
    return f"The {alarms} for {', '.join(named)} {are} still open; accept or reject."


def guarantee(state: State) -> str:
    """Say what is guaranteed about alarms, and under which assumptions."""
    settings = state.settings
    return (
        f"The probability of any false alarm, over all batches, is at most {100 * settings.alpha:.3g} %. This holds "
        f"under two assumptions. In no batch is a known category more than {times(settings.max_growth)} times as "
        f"frequent among the last {settings.window} batches as among the nodes before. The features and edges of a "
        "node depend on its category, not on when it came. After a first alarm this is not proven, because which nodes "
        "count as earlier then depends on the data."
    )


def _counts_sentence(state: State) -> str:
    nodes = sum(batch.nodes for batch in state.batches[1:])
    kept = len(state.nodes)
    return (
        f"{counted(state.batches[0].nodes, 'known node')}, then {counted(nodes, 'node')} in "
        f"{len(state.batches) - 1:,} {'batch' if len(state.batches) == 2 else 'batches'}; {kept:,} are kept."
    )


def _group_row(group: Group) -> tuple[str, ...]:
    return (
        str(group.number),
        f"accepted as {group.label!r}" if group.status == "accepted" else group.status,
        group.name or "",
        f"{group.size:,} at batch {group.alarm}, since batch {group.since}",
        f"more than {at_least(group.growth)} times as frequent, if known",
        ", ".join(group.members[:10]),
    )


def _batch_row(batch: Batch) -> tuple[str, ...]:
    return str(batch.number), f"{batch.nodes:,}", f"{batch.p_value:.2g}", f"{batch.level:.2g}", batch.sentence


def _shares_chart(state: State, batches: Sequence[Batch]) -> Chart:
    """Draw the share of each group, and of the largest kinds, in every batch."""
    totals: dict[str, int] = {}
    for batch in batches:
        for kind, count in batch.counts.items():
            totals[kind] = totals.get(kind, 0) + count
    ordered = sorted(totals, key=lambda kind: (int(kind) < GROUP, -totals[kind]))[:MAX_LINES]
    shares = {kind: [batch.counts.get(kind, 0) / max(1, batch.nodes) for batch in batches] for kind in ordered}
    top = max((max(values) for values in shares.values()), default=1.0) or 1.0
    lines = [(_kind_name(state, kind), values, int(kind) >= GROUP) for kind, values in shares.items()]
    return _chart(lines, batches, top, percent(top), "0")


def _kind_name(state: State, kind: str) -> str:
    if int(kind) < GROUP:
        return state.kinds.get(kind) or f"kind {kind}"
    group = state.group(int(kind) - GROUP)
    return f"group {group.number}: {group.label or group.name or 'new'}"


def _evidence_chart(batches: Sequence[Batch]) -> Chart:
    """Draw minus the logarithms of p-values and of levels."""
    evidence = [-math.log10(max(batch.p_value, 1e-30)) for batch in batches]
    needed = [-math.log10(batch.level) for batch in batches]
    top = max(*evidence, *needed, 1.0)
    lines = [("evidence", evidence, True), ("alarm level", needed, False)]
    return _chart(lines, batches, top, f"p = 1e-{top:.0f}", "p = 1")


def _chart(
    lines: Sequence[tuple[str, Sequence[float], bool]], batches: Sequence[Batch], highest: float, top: str, bottom: str
) -> Chart:
    """Place lines of values between 0 and `highest` over batches; the important ones are bold."""
    step = (WIDTH - LEFT - 10) / max(1, len(batches) - 1)
    scale = (HEIGHT - BOTTOM - TOP) / highest
    drawn = [
        Line(
            name=name,
            points=[(LEFT + k * step, HEIGHT - BOTTOM - value * scale) for k, value in enumerate(values)],
            stroke=3 if is_bold else 1.2,
            colour=index % COLOURS,
            is_dashed=index >= COLOURS,
        )
        for index, (name, values, is_bold) in enumerate(lines)
    ]
    return Chart(drawn, batches[0].number, batches[-1].number, top, bottom)
