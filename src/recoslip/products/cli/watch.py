"""The command `watch`: batches of nodes, one call each -> an alarm when a new category appears."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from recoslip.base.errors import SettingError
from recoslip.base.files import printable
from recoslip.products.cli.console import make_console, note, say
from recoslip.products.cli.options import Json, Quiet, argument, option, takes

IN_EVERY_BATCH = ("drop_unknown", "encoding")  # options of reading; the others are fixed when the watch begins


@takes("id", "features", "ignore", "text", "block_weights", "impute", "label", *IN_EVERY_BATCH)
def watch(
    state: Annotated[Path, argument("Folder of the watch.")],
    nodes: Annotated[Path | None, option("Table of the batch's nodes, or of the known ones.")] = None,
    edges: Annotated[Path | None, option("Table of their edges, also to earlier nodes.")] = None,
    begin: Annotated[bool, option("Begin a watch: the nodes are those that are known.", "--begin")] = False,
    accept: Annotated[int | None, option("Number of a group that is a new category indeed.")] = None,
    called: Annotated[str | None, option("The name that it is accepted under.", "--as")] = None,
    reject: Annotated[int | None, option("Number of a group that is none.")] = None,
    alpha: Annotated[float | None, option("With --begin: probability of any false alarm, ever; default: 0.05.")] = None,
    max_growth: Annotated[float | None, option("With --begin: times a known category may grow; default: 10.")] = None,
    window: Annotated[int | None, option("With --begin: how many batches are tested together; default: 5.")] = None,
    keep: Annotated[int | None, option("With --begin: earlier nodes kept at most; default: 50,000.")] = None,
    time: Annotated[str | None, option("With --begin: column with times, in whose order batches must come.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Watch batches of nodes for a new category: once with --begin, then once per batch.

    Exit codes: 0 without an alarm, 10 while an alarm is open, 11 if the batch cannot be judged.
    """
    from recoslip.products.watch.watch import Watch

    console = make_console(quiet or as_json)
    given = (("--begin", begin or None), ("--accept", accept), ("--reject", reject))
    asked = [name for name, value in given if value is not None]
    if len(asked) > 1:
        raise SettingError(f"{' and '.join(asked)} do not go together; give one of them")
    if (called is not None and accept is None) or (accept is not None and not called):
        raise SettingError("accept a group with its name: --accept 1 --as 'garden tools'")
    if accept is not None or reject is not None:
        if nodes is not None:
            raise SettingError("a decision and a batch are two calls; leave --nodes out")
        own = Watch(state)
        group = own.accept(accept, str(called)) if accept is not None else own.reject(reject or 0)
        if as_json:
            print(json.dumps(asdict(group)))
        say(console, f"group {group.number} is {group.status}{f' as {group.label!r}' if group.label else ''}")
        return
    if nodes is None:
        raise SettingError("give the table of the batch (--nodes), or a decision (--accept, --reject)")
    settings = {"alpha": alpha, "max_growth": max_growth, "window": window, "keep": keep, "time": time}
    fixed: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if begin:
        Watch.begin(state, nodes, edges, **fixed, **read)
        if as_json:
            print(json.dumps(asdict(Watch(state).state.batches[0])))
        say(console, f"The watch has begun: {printable(state)}")
        return
    for name in (*fixed, *read):
        if name not in IN_EVERY_BATCH:
            raise SettingError(f"--{name.replace('_', '-')} was fixed when the watch began; leave it out")
    outcome = Watch(state).add(nodes, edges, **read)
    if as_json:
        print(json.dumps(outcome.to_dict()))
    batch, folder = outcome.batch, printable(state)
    if outcome.again:
        note(console, f"this batch was given before, as batch {batch.number}; nothing was changed.")
    style = "bold" if outcome.exit_code == 0 else "bold red"
    sentence = f"Batch {batch.number}, {batch.nodes:,} nodes. [{style}]{escape(outcome.sentence)}[/]"
    console.print(sentence, soft_wrap=True)
    for group in outcome.open_groups:
        decide = f"recoslip watch {shlex.quote(folder)} --accept {group.number} --as NAME"
        say(console, f"Decide: {decide}, or --reject {group.number}")
    if batch.lost_edges:
        console.print(f"{batch.lost_edges:,} edges lead to nodes that are no longer kept.", style="dim")
    say(console, f"The course over all batches: {printable(state / 'report.html')}")
    raise typer.Exit(outcome.exit_code)
