"""The command `compare`: the folders of two runs -> what changed, on the console, as JSON or as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from recoslip.cli.options import Json, Quiet
from recoslip.console.messages import make_console
from recoslip.wording import at_least_percent, counted, percent

if TYPE_CHECKING:
    from recoslip.comparison import Comparison, GroupChange, Outcome

MAX_ROWS = 5  # nodes that are printed of each kind of change
MAX_WIDTH = 200  # letters of a value that are printed
NONE = "–"


def compare(
    first: Annotated[Path, typer.Argument(help="Folder that detect, demo or score wrote.")],
    second: Annotated[Path, typer.Argument(help="Another one, with some of the same nodes.")],
    out: Annotated[
        Path | None, typer.Option(help="New CSV file to write, with a row per node whose list status or group changed.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare two results: two weeks, two settings, or before and after a review."""
    from recoslip import comparison
    from recoslip.storage import check_new, printable

    console = make_console(quiet or as_json)
    if out is not None:
        check_new(out)  # before anything is read
    compared = comparison.compare(first, second)
    if out is not None:
        comparison.write_changes(compared, out)
    if as_json:
        print(json.dumps(compared.to_dict()))
        return
    _print_comparison(compared, console)
    if out is not None:
        written = f"{counted(compared.changes.height, 'changed node')} written to {printable(out)}"
        console.print(escape(written), soft_wrap=True)


def _print_comparison(compared: Comparison, console: Console) -> None:
    console.print(_outcomes(compared.first, compared.second))
    console.print()
    for sentence in compared.sentences():
        console.print(escape(sentence), soft_wrap=True)
    for table in (_nodes(compared), _groups(compared.groups), _differences(compared)):
        if table.row_count:
            console.print()
            console.print(table)


def _outcomes(first: Outcome, second: Outcome) -> Table:
    table = _table("", "first", "second")
    for name in ("folder", "verdict", "novel share", "target", "listed", "groups"):
        values = (_share(each) if name == "novel share" else getattr(each, name) for each in (first, second))
        table.add_row(name, *map(_cell, values))
    return table


def _share(outcome: Outcome) -> str | None:
    share = outcome.novel_share
    if share is None:
        return None
    low = at_least_percent(share["low"]) if share["low"] > 0 else percent(0)
    return f"{percent(share['estimate'])} ({low} to {percent(share['high'])})"


def _nodes(compared: Comparison) -> Table:
    """Return the nodes that changed, those of each kind with the highest scores."""
    table = _table("change", "node", "score", "p-value", "group")
    shown = compared.changes.group_by("change", maintain_order=True).head(MAX_ROWS)
    for row in shown.iter_rows(named=True):
        pairs = (_pair(row, name, form) for name, form in (("score", ".4f"), ("p_value", ".2g"), ("group", "d")))
        table.add_row(row["change"], _cell(row["id"]), *pairs)
    if more := compared.changes.height - shown.height:
        table.caption = f"and {counted(more, 'more changed node')}: --out changes.csv or --json gives all"
        table.caption_justify = "left"
    return table


def _pair(row: dict[str, Any], name: str, form: str) -> str:
    """Write a value of a node in the first and in the second result."""
    values = (row[f"{name}_{side}"] for side in ("first", "second"))
    return " → ".join(NONE if value is None else format(value, form) for value in values)


def _groups(groups: tuple[GroupChange, ...]) -> Table:
    table = _table("groups", "first", "second", "found again", "known before")
    for group in groups:
        table.add_row(
            group.kind,
            _side(group.first, group.first_names, group.first_size),
            _side(group.second, group.second_names, group.second_size),
            NONE if group.found_again is None else percent(group.found_again),
            NONE if group.known_before is None else percent(group.known_before),
        )
    return table


def _side(numbers: tuple[int, ...], names: tuple[str | None, ...], size: int) -> str:
    if not numbers:
        return NONE
    each = [f"{number} {name!r}" if name else str(number) for number, name in zip(numbers, names, strict=True)]
    return _cell(f"{', '.join(each)}: {counted(size, 'node')}")


def _differences(compared: Comparison) -> Table:
    table = _table("differs", "first", "second")
    for difference in compared.differences:
        table.add_row(escape(difference.name), _cell(difference.first), _cell(difference.second))
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _cell(value: Any) -> str:
    """Write a value of a summary or table: whole numbers with separators, long texts cut."""
    if value is None:
        return NONE
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value)
    return escape(text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…")
