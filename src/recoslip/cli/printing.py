"""What a run found -> tables and sentences on the console."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from recoslip.console.messages import with_flags

if TYPE_CHECKING:
    from recoslip.pipeline.result import Result

MAX_GROUPS = 5  # whose evidence is printed


def print_check(rows: list[tuple[str, str]], console: Console) -> None:
    """Print what was found before training."""
    table = Table("check", "found", box=None, pad_edge=False)
    for what, found in rows:
        table.add_row(escape(what), escape(found), style="bold yellow" if what == "leak" else None)
    console.print(table)
    console.print()


def print_result(
    result: Result, out: Path, console: Console, as_json: bool, *, more: Iterable[str] = (), shown: int = 10
) -> None:
    """Print the highest scores, the verdict, the guarantee, what to inspect first, notes, and what was written where.

    Args:
        result: of a run.
        out: the folder that it was written to.
        console: where to print.
        as_json: whether to print what summary.json holds, and nothing else.
        more: further files that were written.
        shown: how many scores; those of listed nodes are bold.
    """
    from recoslip.storage import printable

    said = result.to_dict()
    if as_json:
        print(json.dumps(said))
        return
    if shown:
        table = Table("most novel", "score", box=None, pad_edge=False)
        for row in result.table.head(shown).iter_rows(named=True):
            table.add_row(escape(str(row["id"])), f"{row['score']:.4f}", style="bold" if row["listed"] else None)
        console.print()
        console.print(table)
    console.print(f"\n[bold]{escape(said['headline'])}[/bold]", soft_wrap=True)
    if result.findings is not None:
        console.print(escape(said["advice"]), soft_wrap=True)
        console.print(escape(said["list"]), soft_wrap=True)
    console.print(escape(result.guarantee), soft_wrap=True)
    for group in [each for each in result.groups if each.evidence][:MAX_GROUPS]:
        name = f", {group.name!r}" if group.name else ""
        console.print(escape(f"Group {group.number} ({group.size:,}{name}): {group.evidence}"), soft_wrap=True)
    if said.get("inspect_first"):
        console.print(escape(f"Inspect these first: {', '.join(said['inspect_first'])}"), soft_wrap=True)
    for note in (*result.notes, *said.get("diagnosis", {}).get("warnings", ())):
        console.print(f"[yellow]note:[/] {escape(with_flags(note))}", soft_wrap=True)
    trained, folder = result.model is not None, escape(printable(out))
    files = ["scores", "summary.json"] + ["model"] * trained + ["report.html"] * (result.findings is not None)
    after = f" after {said['seconds']:.1f} s of training" if trained else ""
    console.print(f"Written to {folder}{after}: {', '.join([*files, *more])}", soft_wrap=True)
    if result.findings is not None:
        decide = f", or decide on it: [bold]recoslip review {folder}[/bold]" if trained else ""
        console.print(
            f"Open [bold]{escape(printable(out / 'report.html'))}[/bold] in a browser{decide}.", soft_wrap=True
        )
