"""The commands `pack`, `report`, `methods`, `datasets` and `bench`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from recoslip.data.datasets.catalogue import CATALOGUE
from recoslip.learning.methods import DETECTORS
from recoslip.products.bench.options import Choices
from recoslip.products.cli.console import make_console, show_steps, stdout, tabulate
from recoslip.products.cli.options import Force, Json, Quiet, Show, kept, takes


@takes()
def pack(
    nodes: Annotated[Path, typer.Argument(help="Table of nodes: .csv, .tsv, .parquet or .arrow.")],
    edges: Annotated[Path, typer.Argument(help="Table of edges.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write, which detect takes as its graph.")],
    show: Show = "",
    quiet: Quiet = False,
    force: Force = False,
    *,
    read: dict[str, Any],
) -> None:
    """Write a graph that is larger than memory as a folder that stays on disk."""
    console = make_console(quiet)
    with show_steps(console, "packing", "rows") as progress:
        from recoslip.base.files import printable
        from recoslip.data.packed.reader import open_packed
        from recoslip.data.packed.writer import pack as pack_tables

        pack_tables(nodes, edges, folder, replace=force, progress=progress, **kept(read, show))
    console.print(escape(repr(open_packed(folder))))
    path = escape(printable(folder))
    console.print(f"Written to {path}. recoslip detect {path} --out out/ reads it.", soft_wrap=True)


def report(
    folder: Annotated[Path, typer.Argument(help="Folder that detect or demo wrote.")], quiet: Quiet = False
) -> None:
    """Write the report of an earlier run anew."""
    from recoslip.base.files import output_lock, printable, put_right, resolve, update
    from recoslip.pipeline.report.html import saved_report

    path = resolve(folder)
    with output_lock(path):
        put_right(path)
        update(path, {"report.html": saved_report(path).html()}, "result")
    make_console(quiet).print(f"written: {escape(printable(path / 'report.html'))}", soft_wrap=True)


def methods(as_json: Json = False) -> None:
    """List the methods that `detect --method` knows."""
    rows = [
        {"name": name, "paper": method.paper, "inputs": method.inputs, "trains a network": method.trains}
        for name, method in DETECTORS.items()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    table = tabulate("name", "paper", "inputs", "trains a network")
    for row in rows:
        table.add_row(*(("yes" if v else "no") if isinstance(v, bool) else str(v) for v in row.values()))
    stdout.print(table)


def datasets(as_json: Json = False) -> None:
    """List the datasets that can be loaded by name."""
    if as_json:
        print(json.dumps({name: {"about": entry.about, "ratios": entry.ratios} for name, entry in CATALOGUE.items()}))
        return
    table = tabulate("name", "what", "source ratio per category (0: novel)")
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.about, " ".join(f"{ratio:g}" for ratio in entry.ratios) or "-")
    stdout.print(table)


bench = typer.Typer(
    no_args_is_help=True,
    help="Compare methods on the paper's datasets or on your own graphs. "
    "An interrupted command can be run again: runs that have a record are not repeated.",
)


def _experiment(experiment: str) -> Callable[..., None]:
    """Make the command that runs an experiment; all such commands have the same options."""

    def command(**given: Any) -> None:
        from recoslip.products.bench.run import Session

        choices = Choices(**given)
        if Session(choices, make_console(choices.quiet)).run(experiment):
            raise typer.Exit(1)

    command.__signature__ = inspect.signature(Choices, eval_str=True)  # type: ignore[attr-defined]
    return command


bench.command("main", help="AU-ROC of all methods on the paper's five datasets, or on those that you name.")(
    _experiment("main")
)
bench.command("panel", help="All methods on several cases of every graph: other novel categories, shares and edges.")(
    _experiment("panel")
)
