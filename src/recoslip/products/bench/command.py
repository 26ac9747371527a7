"""The command `bench`: options -> choices -> an experiment that is run and rendered.

As in the rest of the command line, what computes is imported when a command is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

from recoslip.products.bench.options import Choices
from recoslip.products.cli.messages import make_console

app = typer.Typer(
    no_args_is_help=True,
    help="Run the paper's experiments, or compare methods on your own graphs. "
    "An interrupted command can be run again: runs that have a record are not repeated.",
)


def _command(*experiments: str) -> Callable[..., None]:
    """Make the command that runs experiments; all such commands have the same options."""

    def command(**given: Any) -> None:
        from recoslip.products.bench.session import Session

        choices = Choices(**given)
        if Session(choices, make_console(choices.quiet)).run(experiments):
            raise typer.Exit(1)

    command.__signature__ = inspect.signature(Choices, eval_str=True)  # type: ignore[attr-defined]
    return command


app.command("main", help="AU-ROC of all methods on the five datasets.")(_command("main"))
app.command("ablation", help="The contributions of the link loss and of its selection.")(_command("ablation"))
app.command("shift", help="Representative methods without, with minor and with strong shift of proportions.")(
    _command("shift")
)
app.command("panel", help="All methods on several cases of every graph: other novel categories, shares and edges.")(
    _command("panel")
)
app.command("all", help="The paper's experiments: main, ablation, shift.")(_command("main", "ablation", "shift"))
