"""Arguments of the command line -> one command, with errors as one line and an exit code; and the small commands.

Commands import what they compute with when they are called, so that --version, --help and the lists are quick.
"""

import inspect
import json
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from recoslip._version import __version__
from recoslip.base.errors import RecoslipError, RecoslipWarning
from recoslip.base.files import forget_outputs, output_lock, placed_outputs, printable, put_right, resolve, update
from recoslip.base.memory import memory_errors
from recoslip.data.datasets.catalogue import CATALOGUE
from recoslip.learning.methods import DETECTORS
from recoslip.products.bench import Choices
from recoslip.products.cli import options
from recoslip.products.cli.console import exit_if_done, make_console, print_problem, say, show_steps, stderr, tabulate
from recoslip.products.cli.detect import DetectCommand, ScoreCommand, check, demo, detect, score
from recoslip.products.cli.options import argument, option
from recoslip.products.cli.review import compare, review
from recoslip.products.cli.signals import exit_code, received
from recoslip.products.cli.watch import watch


class CommandGroup(TyperGroup):
    """Commands that end with code 2 after an error in the input, with 130 after SIGINT and with 143 after SIGTERM."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        log = logging.getLogger("recoslip")
        forget_outputs()
        logging_before = log.handlers, log.level, log.propagate
        try:
            with warnings.catch_warnings(), memory_errors():
                warnings.showwarning = _print_warning
                return super().invoke(ctx)
        except RecoslipError as problem:
            print_problem("error", str(problem))
            sys.exit(2)
        except OSError as problem:  # of the system: no temporary folder, too many open files
            print_problem("error", f"the system refused: {problem}")
            sys.exit(2)
        except KeyboardInterrupt as problem:
            _interrupted(problem)
        except Exception:
            if (signal := received()) is None:
                raise
            _interrupted(signal)
        finally:
            log.handlers, log.level, log.propagate = logging_before


def _interrupted(problem: KeyboardInterrupt) -> NoReturn:
    exit_if_done(placed_outputs())
    stderr.print("interrupted; nothing was written")
    sys.exit(exit_code(problem))


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print the package's own warnings; those of other libraries are about their use by this one."""
    if issubclass(category, RecoslipWarning):
        print_problem("warning", str(message), "bold yellow")


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
        {"name": name, "paper": method.paper, "inputs": method.inputs, "trains a network": method.needs_networks}
        for name, method in DETECTORS.items()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    table = tabulate(*rows[0])
    for row in rows:
        table.add_row(*(("yes" if v else "no") if isinstance(v, bool) else str(v) for v in row.values()))
    make_console(False).print(table)


def datasets(as_json: options.Json = False) -> None:
    """List the datasets that can be loaded by name."""
    if as_json:
        print(json.dumps({name: {"about": entry.about, "ratios": entry.ratios} for name, entry in CATALOGUE.items()}))
        return
    table = tabulate("name", "what", "source ratio per category (0: novel)")
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.about, " ".join(f"{ratio:g}" for ratio in entry.ratios) or "-")
    make_console(False).print(table)


def _experiment(name: str) -> Callable[..., None]:
    """Make the command that runs an experiment of the bench; all such commands have the same options."""

    def command(**given: Any) -> None:
        from recoslip.products.bench.run import Session

        choices = Choices(**given)
        if Session(choices, make_console(choices.quiet)).run(name):
            raise typer.Exit(1)

    command.__signature__ = inspect.signature(Choices)  # type: ignore[attr-defined]
    return command


bench = typer.Typer(
    no_args_is_help=True,
    help="Compare methods on the paper's datasets or on your own graphs. "
    "An interrupted command can be run again: runs that have a record are not repeated.",
)
for name, about in {
    "main": "AU-ROC of all methods on the paper's five datasets, or on those that you name.",
    "panel": "All methods on several cases of every graph: other novel categories, shares and edges.",
}.items():
    bench.command(name, help=about)(_experiment(name))

app = typer.Typer(cls=CommandGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, option("Print the version and exit.", "--version")] = False) -> None:
    """Find the nodes of a graph that belong to a category nobody has seen before."""
    if version:
        print(f"recoslip {__version__}")
        raise typer.Exit


for each in (demo, check):
    app.command()(each)
app.command(cls=DetectCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(detect)
app.command(cls=ScoreCommand)(score)
for each in (watch, compare, pack, report, review, methods, datasets):
    app.command()(each)
app.add_typer(bench, name="bench")
