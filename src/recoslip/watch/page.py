"""What a watch remembers -> a page: the course of every group and kind over batches, and the alarm level."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from recoslip.watch.state import GROUP, Batch, Group, State
from recoslip.wording import at_least, counted, percent, times

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 220, 46, 26  # of a chart, and of its margins
MAX_BATCHES = 400  # that a chart shows, the last ones
MAX_LINES = 12  # of a chart
COLOURS = ("#0b6e99", "#c05621", "#2f855a", "#805ad5", "#b83280", "#4a5568")

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1a202c;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid #e2e8f0;vertical-align:top}
.key{white-space:nowrap;margin-right:1rem}svg{width:100%;height:auto}
text{font:11px system-ui,sans-serif;fill:currentColor}
.alarm{border-left:.3rem solid #c05621;padding-left:.8rem}.quiet{border-left:.3rem solid #2f855a;padding-left:.8rem}
@media(prefers-color-scheme:dark){body{color:#e2e8f0;background:#1a202c}td,th{border-color:#4a5568}}
"""


def render(state: State) -> str:
    """Return the page as HTML, without scripts."""
    last = state.batches[-1]
    headline = last.sentence or "The watch has begun; no batch has come yet."
    alarm = "alarm" if last.verdict in ("new", "apart") else "quiet"
    settings = state.settings
    body = [
        "<h1>Watch</h1>",
        f'<p class="{alarm}"><strong>{html.escape(headline)}</strong></p>',
        f"<p>{html.escape(_counts_sentence(state))}</p>",
    ]
    if state.groups:
        body += ["<h2>Groups</h2>", _groups_table(state.groups)]
    if len(state.batches) > 1:
        shown = state.batches[1:][-MAX_BATCHES:]
        body += [
            "<h2>Share of each group and kind, by batch</h2>",
            _shares_chart(state, shown),
            "<h2>Evidence against the alarm level, by batch</h2>",
            "<p>A batch rings where its p-value is at or below its level. Levels fall, because over all batches they "
            f"add up to {settings.alpha:g}.</p>",
            _evidence_chart(shown),
            "<h2>Batches</h2>",
            _batches_table(shown),
        ]
    body += ["<h2>What the alarm promises</h2>", f"<p>{html.escape(promise(state))}</p>"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Watch</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def promise(state: State) -> str:
    """Say what is promised about alarms, and under which assumptions."""
    settings = state.settings
    return (
        f"The probability of any false alarm, ever, is at most {100 * settings.alpha:.3g} %, if in no batch a known "
        f"category is more than {times(settings.max_growth)} times as frequent among the last {settings.window} "
        "batches as among the nodes before, and if features and edges of a node depend on its category and not on when "
        "it came. After a first alarm that is not proven any more, because who counts as earlier then depends on the "
        "data."
    )


def _counts_sentence(state: State) -> str:
    nodes = sum(batch.nodes for batch in state.batches[1:])
    kept = len(state.nodes)
    return (
        f"{counted(state.batches[0].nodes, 'known node')}, then {counted(nodes, 'node')} in "
        f"{len(state.batches) - 1:,} {'batch' if len(state.batches) == 2 else 'batches'}; {kept:,} are kept."
    )


def _groups_table(groups: Sequence[Group]) -> str:
    rows = []
    for group in groups:
        status = f"accepted as {group.label!r}" if group.status == "accepted" else group.status
        cells = (
            str(group.number),
            status,
            group.name or "",
            f"{group.size:,} at batch {group.alarm}, since batch {group.since}",
            f"more than {at_least(group.growth)} times as frequent, if known",
            ", ".join(group.members[:10]),
        )
        rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    head = "".join(f"<th>{name}</th>" for name in ("group", "decision", "has more of", "size", "evidence", "members"))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _batches_table(batches: Sequence[Batch]) -> str:
    rows = [
        f"<tr><td>{batch.number}</td><td>{batch.nodes:,}</td><td>{batch.p_value:.2g}</td><td>{batch.level:.2g}</td>"
        f"<td>{html.escape(batch.sentence)}</td></tr>"
        for batch in reversed(batches[-50:])
    ]
    head = "".join(f"<th>{name}</th>" for name in ("batch", "nodes", "p-value", "level", "verdict"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _shares_chart(state: State, batches: Sequence[Batch]) -> str:
    """Draw the share of each group, and of the largest kinds, in every batch."""
    totals: dict[str, int] = {}
    for batch in batches:
        for kind, count in batch.counts.items():
            totals[kind] = totals.get(kind, 0) + count
    ordered = sorted(totals, key=lambda kind: (int(kind) < GROUP, -totals[kind]))[:MAX_LINES]
    lines = []
    for kind in ordered:
        shares = [batch.counts.get(kind, 0) / max(1, batch.nodes) for batch in batches]
        lines.append((_kind_name(state, kind), shares, int(kind) >= GROUP))
    top = max((max(shares) for _, shares, _ in lines), default=1.0) or 1.0
    return _chart([(name, [s / top for s in shares], bold) for name, shares, bold in lines], batches, percent(top))


def _kind_name(state: State, kind: str) -> str:
    if int(kind) < GROUP:
        return state.kinds.get(kind) or f"kind {kind}"
    group = state.group(int(kind) - GROUP)
    return f"group {group.number}: {group.label or group.name or 'new'}"


def _evidence_chart(batches: Sequence[Batch]) -> str:
    """Draw minus the logarithms of p-values and of levels."""
    evidence = [-math.log10(max(batch.p_value, 1e-30)) for batch in batches]
    needed = [-math.log10(batch.level) for batch in batches]
    top = max(*evidence, *needed, 1.0)
    lines = [("evidence", [e / top for e in evidence], True), ("alarm level", [n / top for n in needed], False)]
    return _chart(lines, batches, f"p = 1e-{top:.0f}", bottom="p = 1")


def _chart(
    lines: Sequence[tuple[str, Sequence[float], bool]], batches: Sequence[Batch], top: str, bottom: str = "0"
) -> str:
    """Draw lines, given as fractions of the height, over batches."""
    step = (WIDTH - LEFT - 10) / max(1, len(batches) - 1)
    parts = [
        f'<line x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH}" y2="{HEIGHT - BOTTOM}" stroke="currentColor"/>',
        f'<text x="0" y="14">{html.escape(top)}</text><text x="0" y="{HEIGHT - BOTTOM}">{bottom}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">batch {batches[0].number}</text>',
        f'<text x="{WIDTH}" y="{HEIGHT - 8}" text-anchor="end">batch {batches[-1].number}</text>',
    ]
    legend = []
    for index, (name, values, bold) in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        points = [(LEFT + k * step, HEIGHT - BOTTOM - v * (HEIGHT - BOTTOM - 10)) for k, v in enumerate(values)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        width = 3 if bold else 1.2
        dash = "" if index < len(COLOURS) else ' stroke-dasharray="5 3"'
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="{width}"{dash} points="{path}"/>')
        if len(points) == 1:
            parts.append(f'<circle cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="{width + 1}" fill="{colour}"/>')
        mark = f'<span style="color:{colour}" aria-hidden="true">{"┅" if dash else "━"}</span>'
        legend.append(f'<span class="key">{mark} {html.escape(name)}</span>')
    label = html.escape(", ".join(name for name, _, _ in lines))
    chart = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}, by batch">{"".join(parts)}</svg>'
    return f"{chart}<p>{' '.join(legend)}</p>"
