"""Tables that people fill in, and the final list <-> what is decided."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError, nearest
from recoslip.base.files import printable
from recoslip.pipeline.saved import INNER_APOSTROPHE, for_spreadsheets
from recoslip.products.review.decisions import Decisions, Entry, Nodes, Subject, new_key, validated

WORDS = {
    "confirmed": ("confirmed", "confirm", "c", "new", "novel", "yes", "y", "true", "1"),
    "rejected": ("rejected", "reject", "r", "known", "no", "n", "false", "0"),
    "unsure": ("unsure", "u", "maybe", "?"),
}
VERDICT_OF = {word: verdict for verdict, words in WORDS.items() for word in words}
READ = ("id", "verdict", "note", "who", "group")  # columns of a table that is filled in
OURS = {*READ, "at", "state", "of_group", "group_name", "score", "score_before", "listed", "listed_before"}
MAX_NAMED = 5  # rows that an error names


def export(decisions: Decisions, nodes: Nodes, queue: Sequence[str] = ()) -> str:
    """Write what is decided as CSV: a row per person and node or group, then the nodes that are still to be decided."""
    rows = [row for subject in list(decisions.about) for row in _rows(decisions, subject)]
    kinds = dict.fromkeys(("id", "verdict", "note", "who", "at", "state"), pl.String) | {"of_group": pl.Int64}
    said = pl.DataFrame([*rows, *({"id": node} for node in queue)], kinds)
    table = said.join(_node_table(decisions, nodes), on="id", how="left", maintain_order="left")
    table = table.with_columns(pl.coalesce("group", "of_group"))
    table = table.with_columns(group_name=_name(decisions, nodes))
    first = ("id", "verdict", "note", "who", "at", "state", "group", "group_name", "score", "listed", "listed_before")
    return _csv(table.drop("of_group").select(*first, pl.exclude(first)))


def _rows(decisions: Decisions, subject: Subject) -> list[dict[str, Any]]:
    decision = decisions.about[subject]
    about: dict[str, Any] = {"id" if isinstance(subject, str) else "of_group": subject}
    state = "contradiction" if decision.is_contradiction else "decided" if decision.by else "note"
    rows = []
    for who in dict.fromkeys([*decision.by, *(who for who, _ in decision.notes)]):
        note = "\n".join(words for author, words in decision.notes if author == who)
        said = {"verdict": decision.by.get(who, ""), "note": note, "who": who, "at": decision.at[who], "state": state}
        rows.append(about | said)
    return rows


def to_fill_in(nodes: Nodes, ids: Sequence[str]) -> str:
    """Write a table of nodes in their order, with an empty column for the verdicts."""
    table = pl.DataFrame({"id": ids, "verdict": "", "note": ""})
    kept = _node_table(Decisions(), nodes).drop("group_name", "listed", "listed_before")
    return _csv(table.join(kept, on="id", how="left", maintain_order="left"))


def reviewed(decisions: Decisions, nodes: Nodes, scores: NDArray[Any] | None) -> str:
    """Write the target nodes and which are listed after the decisions.

    They are in the order of the scores that were learned from the decisions, or else of those before.
    """
    table = _node_table(decisions, nodes).with_columns(
        score=pl.Series(nodes.score if scores is None else scores),
        score_before=pl.Series(nodes.score),
        verdict=pl.Series(decisions.verdicts(nodes)),
    )
    first = ("id", "score", "score_before", "verdict", "listed", "listed_before")
    table = table.filter(pl.Series(nodes.is_target)).select(*first, pl.exclude(first))
    return _csv(table.sort("score", descending=True, maintain_order=True))


def _node_table(decisions: Decisions, nodes: Nodes) -> pl.DataFrame:
    """Return a table of all nodes: what is said about each, and the user's own columns.

    A column of the user's that is called as one of ours has `own_` before its name.
    """
    ours = pl.DataFrame(
        {
            "id": nodes.ids,
            "group": nodes.group,
            "score": nodes.score.round(6),
            "listed": decisions.final(nodes),
            "listed_before": nodes.listed,
        }
    ).with_columns(pl.when(pl.col("group") > 0).then("group"), group_name=_name(decisions, nodes))
    kept = nodes.kept
    return ours.hstack(kept.rename({name: f"own_{name}" for name in kept.columns if name.strip().lower() in OURS}))


def _name(decisions: Decisions, nodes: Nodes) -> pl.Expr:
    """Return what the group in the column `group` is called."""
    names = {group: decisions.group_name(nodes, group) for group in nodes.groups}
    return pl.col("group").replace_strict(names, default=None, return_dtype=pl.String)


def _csv(table: pl.DataFrame) -> str:
    return for_spreadsheets(table).write_csv()


def read_decisions(path: Path, nodes: Nodes, who: str) -> list[Entry]:
    """Read a table of verdicts that was filled in by hand; raise if any row of it is not clear."""
    if not path.is_file():
        raise TableError(f"cannot read {printable(path)}: it is no file that is there; give a CSV file")
    try:
        return parse_decisions(path.read_bytes(), nodes, who, printable(path))
    except OSError as problem:
        raise TableError(f"cannot read {printable(path)}: {problem.strerror}") from problem


def parse_decisions(content: bytes, nodes: Nodes, who: str, name: str) -> list[Entry]:
    """Read the bytes of a table of verdicts; `who` decided where the table does not say.

    A row with an id and a verdict is about a node; one without id, but with a group, about that group.
    """
    table = _table(content, name)
    problems: list[str] = []
    entries: list[Entry] = []
    seen: dict[tuple[str, Subject], tuple[int, str]] = {}
    verdicts: dict[Subject, list[str]] = {}
    for number, row in enumerate(table.iter_rows(named=True), 2):  # as a spreadsheet counts, with the heading
        cells = {column: value if column == "id" else value.strip() for column, value in row.items()}
        if not cells.get("verdict") and not cells.get("note"):
            continue
        try:
            entry = _entry(cells, nodes, who)
        except ValueError as problem:
            problems.append(f"row {number}: {problem}")
            continue
        before = seen.setdefault((entry.who, entry.subject), (number, entry.value))
        if before[1] != entry.value:
            problems.append(f"row {number}: it contradicts row {before[0]}, which is about the same by the same person")
        about = verdicts.setdefault(entry.subject, [])
        about += [entry.value] if entry.value in ("confirmed", "rejected") else []
        if len(about) > 2 and len(set(about)) > 1:
            problems.append(f"row {number}: several people disagree about this in one table; keep what they agreed on")
        entries.append(entry)
    if problems:
        more = f"; and {len(problems) - MAX_NAMED:,} more rows" if len(problems) > MAX_NAMED else ""
        raise TableError(f"{name}: nothing was imported: {'; '.join(problems[:MAX_NAMED])}{more}; correct these rows")
    return entries


def _table(content: bytes, name: str) -> pl.DataFrame:
    try:
        text = content.decode("utf-8-sig")
        if not text.strip():
            raise TableError(f"{name} is empty; expected a table with the columns id and verdict")
        separator = max(",;\t", key=text.partition("\n")[0].count)  # spreadsheets of some countries write semicolons
        table = pl.read_csv(io.StringIO(text), separator=separator, infer_schema=False).fill_null("")
        names = {column.strip().lower(): column for column in reversed(table.columns)}  # the first of several counts
        table = table.select(**{name: pl.col(names[name]) for name in READ if name in names})
    except UnicodeDecodeError as problem:
        raise TableError(f"{name} is not in UTF-8: {problem}; save it as CSV in UTF-8") from problem
    except pl.exceptions.PolarsError as problem:
        raise TableError(
            f"{name} cannot be read as CSV: a row has more cells than the heading, or a quotation mark is not closed; "
            "correct that row, or save the table as CSV anew"
        ) from problem
    missing = [column for column in ("id", "verdict") if column not in table.columns]
    if missing:
        raise TableError(f"{name} has no column {missing[0]!r}; expected id and verdict, and maybe note, who, group")
    return table


def _entry(cells: dict[str, str], nodes: Nodes, who: str) -> Entry:
    word, note = cells["verdict"].lower(), _plain(cells.get("note", ""))
    verdict = VERDICT_OF.get(word)
    if word and verdict is None:
        raise ValueError(f"{cells['verdict']!r:.60} is no verdict; write confirmed, rejected, unsure, or nothing")
    about: dict[str, Any]
    if cells["id"].strip():
        about = {"node": _known_node(cells["id"], nodes.known)}
    elif (group := cells.get("group", "").lstrip("0")) in map(str, nodes.groups):
        about = {"group": int(group)}
    else:
        raise ValueError("it has neither an id nor the number of a group that there is")
    said = {"kind": "note"} if verdict is None else {"kind": "verdict", "value": verdict}
    author = _plain(cells.get("who", "")) or who
    return validated(Entry, {"key": new_key(), "who": author, "note": note, **said, **about})


def _known_node(text: str, known: dict[str, bool]) -> str:
    forms = (_plain(text), text, _plain(text.strip()), text.strip())
    node = next((form for form in forms if form in known), None)
    if node is None:
        hint = nearest(text, known) if len(known) < 100_000 else ""
        raise ValueError(f"{text!r:.60} is no node of this run{hint}")
    if not known[node]:
        raise ValueError(f"{text!r:.60} is a source node, which is known by definition")
    return node


def _plain(text: str) -> str:
    """Remove the apostrophes that `for_spreadsheets` puts before what would be a formula."""
    return re.sub(INNER_APOSTROPHE, r"\1", text.removeprefix("'"))
