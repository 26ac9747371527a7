"""The commands `pack`, `report`, `methods`, `datasets` and `bench`."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from recoslip.base.files import output_lock, printable, put_right, resolve, update
from recoslip.data.datasets.catalogue import CATALOGUE
from recoslip.learning.methods import DETECTORS
from recoslip.products.bench import Choices
from recoslip.products.cli import options
from recoslip.products.cli.console import make_console, say, show_steps, stdout, tabulate
from recoslip.products.cli.options import argument


@options.takes()
def pack(
    nodes: Annotated[Path, argument("Table of nodes: .csv, .tsv, .parquet or .arrow.")],
    edges: Annotated[Path, argument("Table of edges.")],
    folder: Annotated[Path, argument("Folder to write, which detect takes as its graph.")],
    show: options.Show = "",
    quiet: options.Quiet = False,
    force: options.Force = False,
    *,
    read: dict[str, Any],
) -> None:
    """Write a graph that is larger than memory as a folder that stays on disk."""
    console = make_console(quiet)
    with show_steps(console, "packing", "rows") as progress:
        from recoslip.data.packed.reader import open_packed
        from recoslip.data.packed.writer import pack as pack_tables

        pack_tables(nodes, edges, folder, replace=force, progress=progress, **options.kept(read, show))
    say(console, repr(open_packed(folder)))
    say(console, f"Written to {printable(folder)}. recoslip detect {printable(folder)} --out out/ reads it.")


def report(
    folder: Annotated[Path, argument("Folder that detect or demo wrote.")], quiet: options.Quiet = False
) -> None:
    """Write the report of an earlier run anew."""
    from recoslip.pipeline.report.html import saved_report

    path = resolve(folder)
    with output_lock(path):
        put_right(path)
        update(path, {"report.html": saved_report(path).html()}, "result")
    say(make_console(quiet), f"written: {printable(path / 'report.html')}")


def methods(as_json: options.Json = False) -> None:
    """List the methods that `detect --method` knows."""
    rows = [
        {"name": name, "paper": method.paper, "inputs": method.inputs, "trains a network": method.trains}
        for name, method in DETECTORS.items()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    table = tabulate(*rows[0])
    for row in rows:
        table.add_row(*(("yes" if v else "no") if isinstance(v, bool) else str(v) for v in row.values()))
    stdout.print(table)


def datasets(as_json: options.Json = False) -> None:
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

    command.__signature__ = inspect.signature(Choices)  # type: ignore[attr-defined]
    return command


for name, about in {
    "main": "AU-ROC of all methods on the paper's five datasets, or on those that you name.",
    "panel": "All methods on several cases of every graph: other novel categories, shares and edges.",
}.items():
    bench.command(name, help=about)(_experiment(name))
