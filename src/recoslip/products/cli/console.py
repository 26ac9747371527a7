"""Messages, progress, checks and results -> the terminal."""

from __future__ import annotations

import ast
import json
import logging
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.prompt import IntPrompt, Prompt
from rich.table import Table
from rich.text import Text

from recoslip.base.errors import NoDomainError
from recoslip.base.files import placed_outputs, printable
from recoslip.base.progress import Progress, shown
from recoslip.data.options import declared
from recoslip.products.cli.signals import exit_code

if TYPE_CHECKING:
    from recoslip.pipeline.result import Result

MAX_GROUPS = 5  # that are printed
# An argument in a message, as Python writes it; the command line shows its option instead.
ARGUMENT = re.compile(
    r"\b(?P<name>[a-z_]+)=(?P<value>\.\.\.|True|'(?:[^'\\]|\\.)*'|\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|[-\w.]*\w)"
)
NAMES = ("allow_leak", "align", "fdr", "max_fpr", "method", "effort", "rotations", "rename", "seed")
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in (*declared(), *NAMES)}
OPTIONS |= {"old": "--with", "graph": "--write-graph", "replace": "--force"}

stdout = Console(emoji=False)  # an id such as :heart: stays as it is
stderr = Console(stderr=True, emoji=False)


def with_flags(message: str) -> str:
    """Write the arguments that a message names as options.

    >>> with_flags("leave it out (ignore=['size', 'date']), or fill it: impute=True")
    'leave it out (--ignore size,date), or fill it: --impute'
    >>> with_flags("rename={'price_eur': 'price'}, target='North Sea', old=...")
    "--rename price_eur=price, --target 'North Sea', --with"
    """

    def flag(match: re.Match[str]) -> str:
        option, value = OPTIONS.get(match["name"]), match["value"]
        if option is None or value in ("True", "..."):
            return option or match[0]
        if value == "False":
            return option.replace("--", "--no-", 1)
        text = _option_text(value)
        return f"{option}{'=' if text.startswith('-') else ' '}{_shell_word(text)}"

    return ARGUMENT.sub(flag, message)


def _option_text(value: str) -> str:
    """Return a text, a list or a dictionary of Python's as the command line takes it, and anything else as it is."""
    if value[0] not in "'\"[{" or "..." in value:
        return value
    try:
        read = ast.literal_eval(value)
    except (SyntaxError, ValueError):  # a message's own words
        return value
    if isinstance(read, dict):
        return ",".join(f"{left}={right}" for left, right in read.items())
    return ",".join(map(str, read)) if isinstance(read, list) else str(read)


def _shell_word(text: str) -> str:
    """Quote a text for a shell; what cannot be seen, such as a tab, by its number, so that it can be copied.

    >>> print(_shell_word("North Sea"), _shell_word("source\\t"))
    'North Sea' $'source\\U00000009'
    """
    if text.isprintable():
        return shlex.quote(text)
    seen = (c if c.isprintable() and c not in "\\'" else f"\\U{ord(c):08x}" for c in text)
    return f"$'{''.join(seen)}'"


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a text as it is: no markup is read in it, and lines are not broken."""
    console.print(escape(text), style=style, soft_wrap=True)


def note(console: Console, text: str) -> None:
    """Print `note: text`, the text as it is."""
    console.print(f"[yellow]note:[/] {escape(text)}", soft_wrap=True)


def make_console(quiet: bool) -> Console:
    """Return a console for the messages of a command; what the package logs is printed there too."""
    console = Console(quiet=quiet, emoji=False)
    handler = logging.Handler()
    handler.emit = lambda record: say(console, with_flags(record.getMessage()), "dim")  # type: ignore[method-assign]
    log = logging.getLogger("recoslip")
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    return console


def print_problem(label: str, message: str, style: str = "bold red") -> None:
    """Print `label: message` to standard error, the label in a style and the message as it is."""
    text = with_flags(message)
    try:
        stderr.print(f"[{style}]{escape(label)}:[/] {escape(text)}", highlight=False, soft_wrap=True)
    except MemoryError:  # which may be what the message says
        print(f"{label}: {text}", file=sys.stderr)


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """End an interrupted block with a message: `kept` says what of its work is kept."""
    try:
        yield
    except KeyboardInterrupt as problem:
        exit_if_done([path for path in placed_outputs() if path.is_dir()])
        stderr.print(f"interrupted; {kept}, run the same command to go on")
        sys.exit(exit_code(problem))


def exit_if_done(outputs: list[Path]) -> None:
    """End with code 0 where an interrupt came after the output was in its place: the code tells of the output."""
    if outputs:
        stderr.print(f"interrupted, after {printable(outputs[-1])} was written", markup=False, soft_wrap=True)
        sys.exit(0)


@contextmanager
def show_steps(console: Console, activity: str, unit: str) -> Iterator[Progress]:
    """Yield a function to call with the steps done and the steps in all.

    A terminal shows a bar; elsewhere a line is printed for every tenth of the steps.
    """
    tenths = 0

    def print_tenth(done: int, total: int) -> None:
        nonlocal tenths
        if 10 * done // total > tenths:
            tenths = 10 * done // total
            console.print(f"{activity}: {done:,} of {total:,} {unit}")

    with shown(activity, unit, not console.quiet, console) as progress:
        yield progress or print_tenth


def ask_for_domain(problem: NoDomainError, console: Console) -> dict[str, str]:
    """Ask a person which of the proposed columns separates source from target; raise the problem in scripts."""
    if console.quiet or not problem.proposals or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise problem
    print("Which column separates the known from what may hold something new?")
    flags = [{name: str(value) for name, value in each.items()} for each in problem.proposals]
    for number, each in enumerate(flags, 1):
        print(printable(f"{number}  {' '.join(f'--{name} {_shell_word(value)}' for name, value in each.items())}"))
    number = IntPrompt.ask("Its number, or 0", choices=[str(k) for k in range(len(flags) + 1)])
    if number == 0:
        raise problem
    name, value = [*flags[number - 1].items()][1]
    return flags[number - 1] | {name: Prompt.ask(f"--{name}", default=value)}


def tabulate(*headings: str) -> Table:
    """Return an empty table without lines."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def print_check(rows: list[tuple[str, str]], console: Console) -> None:
    """Print what was found before training, if anything."""
    if not rows:
        return
    table = tabulate("check", "found")
    for what, said in rows:
        table.add_row(escape(what), escape(with_flags(said)), style="bold yellow" if what == "leak" else None)
    console.print(table)
    console.print()


def print_result(
    result: Result, out: Path, console: Console, as_json: bool, *, more: Iterable[str] = (), shown: int = 5
) -> None:
    """Print what the first screen of the report says, notes, and what was written where; the report comes last.

    Args:
        result: of a run.
        out: the folder that it was written to.
        console: where to print.
        as_json: whether to print what summary.json holds, and nothing else.
        more: further files that were written.
        shown: how many nodes with the highest scores, where there are no groups.
    """
    said = result.to_dict()
    if as_json:
        print(json.dumps(said))
        return
    console.print()
    say(console, said["headline"], "bold")
    if said.get("figures"):
        console.print()
        table = Table.grid(padding=(0, 2))
        for figure in result.verdict.figures:
            table.add_row(Text(figure.value, "bold"), Text(figure.caption))
        console.print(table)
    console.print()
    groups = said.get("groups", {}).get("found", [])[:MAX_GROUPS]
    for group in groups:
        name = group["name"] or f"Group {group['number']}"
        say(console, f"{name} ({group['size']:,}): {'; '.join(group['typical'])}")
    if not groups and shown:
        named = said["label"] if said.get("label") in result.table.columns else "id"
        highest = (f"{row[named] or row['id']} ({row['score']:.4f})" for row in result.table.head(shown).to_dicts())
        say(console, f"Highest scores: {'; '.join(highest)}")
    has_report, trained = result.findings is not None, result.model is not None
    say(console, said["advice"] if has_report else with_flags(result.guarantee))
    if said.get("inspect_first_labels"):
        say(console, f"Inspect these first: {'; '.join(said['inspect_first_labels'][: shown or MAX_GROUPS])}")
    if has_report:
        say(console, f"{said['list']} {result.guarantee}", "dim")
    console.print()
    for reservation in (*result.notes, *said.get("diagnosis", {}).get("warnings", ())):
        note(console, with_flags(reservation))
    files = ["scores", "summary.json", *["model"] * trained, *["report.html"] * has_report, *more]
    after = f" after {said['seconds']:.1f} s of training" if trained else ""
    say(console, f"Written to {printable(out)}{after}: {', '.join(files)}")
    if trained and said["listed"]:
        needs = "" if find_spec("starlette") and find_spec("uvicorn") else " (pip install 'recoslip[review]' first)"
        say(console, f"To confirm or reject what is listed: recoslip review {printable(out)}{needs}")
    if has_report:
        say(console, f"Open {printable(out / 'report.html')} in a browser.")
