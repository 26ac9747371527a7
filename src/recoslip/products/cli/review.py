"""The commands `review` and `compare`: a run's folder -> decisions about its nodes; two of them -> what changed."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape

from recoslip.base.errors import RecoslipError, SettingError
from recoslip.base.files import check_new, check_update, printable, resolve, update, write_new
from recoslip.base.text import at_least_percent, counted, percent
from recoslip.products.cli.console import make_console, note, resumable, say, tabulate
from recoslip.products.cli.options import Json, Quiet, argument, option

if TYPE_CHECKING:
    from recoslip.products.compare import Comparison, GroupChange, Outcome
    from recoslip.products.review.session import ReviewSession

PROPOSED = 0  # the size of a sample that was not given
SAMPLE = "sample.csv"  # in the run's folder


def review(
    folder: Annotated[Path, argument("Folder that detect wrote.")],
    port: Annotated[int, option("Port of the review; 0 is the run's own, or a free one.", min=0, max=65535)] = 0,
    host: Annotated[str, option("Address to listen at; 0.0.0.0 for a team.")] = "127.0.0.1",
    allow_host: Annotated[list[str] | None, option("A further host name of the review; may be repeated.")] = None,
    no_browser: Annotated[bool, option("Do not open a browser.", "--no-browser")] = False,
    new_token: Annotated[bool, option("Make addresses that were given away invalid.", "--new-token")] = False,
    decisions: Annotated[
        Path | None, option("Import a CSV table (id, verdict; maybe note, who, group); no server.")
    ] = None,
    export: Annotated[Path | None, option("Write the decisions to a CSV table; no server.")] = None,
    queue: Annotated[int, option("With --export: add so many nodes whose verdict teaches most.", min=0, max=1000)] = 0,
    sample: Annotated[
        int | None, option(f"Draw the certificate's sample of so many nodes, 0 as proposed, into {SAMPLE}; no server.")
    ] = None,
    who: Annotated[str | None, option("Who decides; default: the user of this machine.")] = None,
    quiet: Quiet = False,
) -> None:
    """Decide about the nodes of a run, with colleagues, in the browser or in tables."""
    console, path = make_console(quiet), resolve(folder)
    if queue and export is None:
        raise SettingError("--queue adds nodes to the table that --export names; give --export too")
    if decisions is None and export is None and sample is None:
        _serve(console, path, host, port, allow_host or [], open_browser=not no_browser, new_token=new_token)
        return
    with resumable("the recorded decisions are kept"):
        _without_server(console, path, decisions, export, queue, sample, who)


def _without_server(
    console: Console,
    folder: Path,
    decisions: Path | None,
    export_to: Path | None,
    queue: int,
    sample: int | None,
    who: str | None,
) -> None:
    from recoslip.products.review.decision_tables import export, read_decisions
    from recoslip.products.review.decisions import check_name
    from recoslip.products.review.session import ReviewSession, user_name

    name = check_name(user_name() if who is None else who)
    if export_to is not None:
        check_new(export_to)
    if sample is not None:
        _check_sample(folder)
    with ReviewSession(folder) as session:
        if decisions is not None:
            count = session.import_decisions(read_decisions(decisions, session.nodes, name))
            say(console, f"{counted(count, 'decision')} added from {printable(decisions)}.")
        if sample is not None:
            _draw(console, session, name, sample)
        console.print(session.summary())
        if (certificate := session.certificate()) is not None:
            say(console, certificate.sentence)
        if (decisions is not None or export_to is not None) and session.can_learn():
            _learn(console, session)
        if export_to is not None:
            write_new(export_to, export(session.decisions, session.nodes, session.queue(queue) if queue else ()))
            say(console, f"written: {printable(export_to)}")


def _check_sample(folder: Path) -> None:
    """Raise if the table of the sample was filled in, which a new one would replace."""
    try:
        check_update(folder, [SAMPLE])
    except RecoslipError as problem:
        path = printable(folder / SAMPLE)
        raise RecoslipError(f"{problem}; what was filled in is imported by --decisions {path}, alone") from problem


def _learn(console: Console, session: ReviewSession) -> None:
    """Write the final list, ranked by what the verdicts teach; a model that does not learn keeps its scores."""
    from recoslip.products.review.session import REVIEWED

    try:
        console.print(escape(session.learn()), soft_wrap=True)
    except RecoslipError as problem:
        note(console, f"the nodes are not ranked anew: {problem}")
        session.write_list()
    say(console, f"The list after these verdicts: {printable(session.folder / REVIEWED)}")


def _draw(console: Console, session: ReviewSession, who: str, size: int) -> None:
    """Draw the sample, or take the one that was drawn, and write it as a table to fill in."""
    from recoslip.products.review.decision_tables import to_fill_in
    from recoslip.products.review.decisions import ConflictError

    drawn = session.sampled()
    if drawn is not None and size not in (PROPOSED, len(drawn.nodes)):
        raise ConflictError(
            f"a sample of {len(drawn.nodes):,} nodes was drawn already, and a certificate rests on the first one; "
            "--sample 0 writes it again"
        )
    nodes = session.draw(who, size or None) if drawn is None else list(drawn.nodes)
    update(session.folder, {SAMPLE: to_fill_in(session.nodes, nodes)}, "result")
    path, folder = printable(session.folder / SAMPLE), printable(session.folder)
    say(console, f"The sample of {len(nodes):,} nodes, in the order of its review: {path}")
    say(console, f"Fill in the column verdict, then: recoslip review {folder} --decisions FILE")


def _serve(
    console: Console, folder: Path, host: str, port: int, names: list[str], *, open_browser: bool, new_token: bool
) -> None:
    try:
        from recoslip.products.review import access, server
    except ModuleNotFoundError as problem:
        if problem.name not in ("starlette", "uvicorn"):
            raise
        raise RecoslipError("recoslip review needs starlette and uvicorn: pip install 'recoslip[review]'") from problem
    from recoslip.products.review.session import ReviewSession

    with ReviewSession(folder) as session, access.bind_own(host, port, session.journal.run) as bound:
        if new_token:
            session.journal.renew_token()
        number = bound.getsockname()[1]
        serving = server.make_server(session, host, number, names)
        address = access.address(host, number, session.journal.token)
        print(f"The review: {address}", flush=True)  # whole, however narrow the terminal is
        console.print("Ctrl-C closes it.", style="dim")
        if host not in access.LOCAL:
            note(
                console,
                "others in the network can reach this address, and can read what is sent: put TLS or a proxy with TLS "
                "in front, and name it with --allow-host.",
            )
        if open_browser:
            _open_browser(address)
        try:
            serving.run(sockets=[bound])
        except KeyboardInterrupt:
            say(console, f"The review is closed. {session.summary()}")
            session.journal.check()
            say(console, f"Every recorded decision is in {printable(session.journal.path)}")


def _open_browser(address: str) -> None:
    """Open the address; the socket listens already, so that the browser waits until the server answers."""
    import webbrowser

    has_screen = not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_screen:  # elsewhere a browser for terminals would take this one
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


MAX_ROWS = 5  # nodes that are printed of each kind of change
MAX_WIDTH = 200  # letters of a value that are printed
NONE = "–"


def compare(
    first: Annotated[Path, argument("Folder that detect, demo or score wrote.")],
    second: Annotated[Path, argument("Another one, with some of the same nodes.")],
    out: Annotated[Path | None, option("New CSV file of the nodes whose list status or group changed.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare two results: two weeks, two settings, or before and after a review."""
    from recoslip.products import compare as comparison

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
        say(console, f"{counted(compared.changes.height, 'changed node')} written to {printable(out)}")


def _print_comparison(compared: Comparison, console: Console) -> None:
    names = ("folder", "verdict", "novel share", "target", "listed", "groups")
    sides = [vars(side) | {"novel share": _share(side)} for side in (compared.first, compared.second)]
    _print_table(console, ("", "first", "second"), [(name, *(side[name] for side in sides)) for name in names])
    console.print()
    for sentence in compared.sentences():
        say(console, sentence)
    shown = compared.changes.group_by("change", maintain_order=True).head(MAX_ROWS)
    _print_table(console, ("change", "node", "score", "p-value", "group"), map(_change, shown.iter_rows(named=True)))
    if more := compared.changes.height - shown.height:
        say(console, f"and {counted(more, 'more changed node')}: --out changes.csv or --json gives all")
    _print_table(console, ("groups", "first", "second", "found again", "known before"), map(_group, compared.groups))
    _print_table(console, ("differs", "first", "second"), [(d.name, d.first, d.second) for d in compared.differences])


def _share(outcome: Outcome) -> str | None:
    if (share := outcome.novel_share) is None:
        return None
    return f"{percent(share['estimate'])} ({at_least_percent(share['low'])} to {percent(share['high'])})"


def _change(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the cells of a node that changed, values of the first result before those of the second."""
    pairs = []
    for name, form in (("score", ".4f"), ("p_value", ".2g"), ("group", "d")):
        values = (row[f"{name}_{side}"] for side in ("first", "second"))
        pairs.append(" → ".join(NONE if value is None else format(value, form) for value in values))
    return row["change"], row["id"], *pairs


def _group(group: GroupChange) -> tuple[Any, ...]:
    """Return the cells of a change of groups."""
    texts = []
    for side in ("first", "second"):
        numbers, names, size = (getattr(group, f"{side}{what}") for what in ("", "_names", "_size"))
        each = [f"{number} {name!r}" if name else str(number) for number, name in zip(numbers, names, strict=True)]
        texts.append(f"{', '.join(each)}: {counted(size, 'node')}" if numbers else None)
    rates = (None if rate is None else percent(rate) for rate in (group.found_again, group.known_before))
    return group.kind, *texts, *rates


def _print_table(console: Console, headings: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Print an empty line and a table, if it has rows."""
    table = tabulate(*headings)
    for row in rows:
        table.add_row(*map(_cell, row))
    if table.row_count:
        console.print()
        console.print(table)


def _cell(value: Any) -> str:
    """Write a value of a summary or table: whole numbers with separators, long texts cut."""
    if value is None:
        return NONE
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value)
    return escape(text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…")
