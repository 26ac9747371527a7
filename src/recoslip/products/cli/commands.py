"""Arguments of the command line -> one command, with errors as one line and an exit code.

Commands import what they compute with when they are called, so that --version, --help and the lists are quick.
"""

import logging
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from recoslip._version import __version__
from recoslip.base.errors import RecoslipError, RecoslipWarning
from recoslip.base.files import forget_outputs, placed_outputs
from recoslip.base.memory import memory_errors
from recoslip.products.cli.console import exit_if_done, print_problem, stderr
from recoslip.products.cli.detect import DetectCommand, check, demo, detect, score
from recoslip.products.cli.other import bench, datasets, methods, pack, report
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


app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Find the nodes of a graph that belong to a category nobody has seen before.",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Find the nodes of a graph that belong to a category nobody has seen before."""
    if version:
        print(f"recoslip {__version__}")
        raise typer.Exit


for each in (demo, check):
    app.command()(each)
app.command(cls=DetectCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(detect)
for each in (score, watch, compare, pack, report, review, methods, datasets):
    app.command()(each)
app.add_typer(bench, name="bench")
