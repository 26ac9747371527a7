"""The command `bench`: options -> an experiment that is run and rendered.

As in the rest of the command line, what computes is imported when a command is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from recoslip.products.cli.console import make_console

app = typer.Typer(
    no_args_is_help=True,
    help="Compare methods on the paper's datasets or on your own graphs. "
    "An interrupted command can be run again: runs that have a record are not repeated.",
)


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user wants to compare, and how: the options of every experiment."""

    datasets: Annotated[
        str | None, _option("Names of datasets, separated by commas; default: those of the experiment.")
    ] = None
    methods: Annotated[
        str | None, _option("Names of methods, separated by commas; default: those of the experiment.")
    ] = None
    without: Annotated[str, _option("Names of methods to leave out, separated by commas.")] = ""
    seeds: Annotated[str, _option("Number of seeds from the paper's 10, 20, ..., or a list such as 1,2,3.")] = "10"
    splits: Annotated[
        str,
        _option(
            "own: the split that comes with a dataset, the authors' for the paper's graphs; "
            "a number n: the split seeds 0 to n-1; or a list such as own,7,8."
        ),
    ] = "own"
    settings: Annotated[
        list[str] | None, _option("Setting for all methods that have it, such as --set epochs=100.", "--set")
    ] = None
    device: Annotated[str, _option("Device to train on: auto, cpu or cuda.")] = "auto"
    jobs: Annotated[
        int,
        _option("Number of processes that share the work. On one GPU they take turns, unless NVIDIA's MPS is running."),
    ] = 1
    out: Annotated[Path, _option("Folder of records and tables.")] = Path("recoslip-bench")
    root: Annotated[
        Path | None, _option("Folder of the paper's graphs; default: RECOSLIP_DATA, or the cache folder.")
    ] = None
    config: Annotated[
        Path | None, _option("TOML file that describes your own datasets in tables \\[datasets.NAME].")
    ] = None
    reference: Annotated[str, _option("Name of the method that the others are tested against.")] = "reco-slip"
    any_version: Annotated[bool, _option("Accept records that other versions of the code made.", "--any-version")] = (
        False
    )
    render_only: Annotated[bool, _option("Train nothing; render the records that exist.", "--render")] = False
    quiet: Annotated[bool, _option("Print errors only.", "--quiet", "-q")] = False


def _command(experiment: str) -> Callable[..., None]:
    """Make the command that runs an experiment; all such commands have the same options."""

    def command(**given: Any) -> None:
        from recoslip.products.bench.run import Session

        choices = Choices(**given)
        if Session(choices, make_console(choices.quiet)).run(experiment):
            raise typer.Exit(1)

    command.__signature__ = inspect.signature(Choices, eval_str=True)  # type: ignore[attr-defined]
    return command


app.command("main", help="AU-ROC of all methods on the paper's five datasets, or on those that you name.")(
    _command("main")
)
app.command("panel", help="All methods on several cases of every graph: other novel categories, shares and edges.")(
    _command("panel")
)
