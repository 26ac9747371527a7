"""Events -> what stands of them; tables that people fill in <-> events."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import category

import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import TableError, nearest
from recoslip.base.files import printable
from recoslip.pipeline.saved import INNER_APOSTROPHE, for_spreadsheets
from recoslip.products.review.ranking import Ranking
from recoslip.products.review.store import LONGEST, Entry, Event, new_key

Subject: TypeAlias = "str | int"  # the id of a node, or the number of a group

WORDS = {
    "confirmed": ("confirmed", "confirm", "c", "new", "novel", "yes", "y", "true", "1"),
    "rejected": ("rejected", "reject", "r", "known", "no", "n", "false", "0"),
    "unsure": ("unsure", "u", "maybe", "?"),
}
VERDICT_OF = {word: verdict for verdict, words in WORDS.items() for word in words}
READ = ("id", "verdict", "note", "who", "group")  # columns of a table that is filled in
MAX_NAMED = 5  # rows that an error names


@dataclass
class Decision:
    """What stands about a node or a group."""

    by: dict[str, str] = field(default_factory=dict)  # verdicts that stand, by person, the latest last
    notes: list[tuple[str, str]] = field(default_factory=list)  # who, words
    name: str = ""

    @property
    def is_contradiction(self) -> bool:
        """Whether one person confirms what another rejects; being unsure contradicts nobody."""
        return {"confirmed", "rejected"} <= set(self.by.values())

    @property
    def verdict(self) -> str:
        """The last verdict; '' where there is none, or where people contradict each other."""
        return "" if self.is_contradiction or not self.by else list(self.by.values())[-1]

    def take(self, event: Event) -> None:
        """Let one more event count."""
        if event.note.strip():
            self.notes.append((event.who, event.note))
        if event.kind == "name":
            self.name = event.value
        if event.kind != "verdict":
            return
        if self.is_contradiction and event.value in ("confirmed", "rejected"):
            self.by.clear()  # somebody decides again, and that settles it
        self.by.pop(event.who, None)
        if event.value != "cleared":
            self.by[event.who] = event.value

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "verdict": self.verdict,
            "contradiction": self.is_contradiction,
            "by": self.by,
            "notes": self.notes,
            "name": self.name,
        }


class Decisions:
    """What stands of a review's events; `take` lets further ones count."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.last = 0  # number of the last event
        self.people: dict[str, None] = {}  # in the order in which they came
        self.standing: dict[Subject, Decision] = {}
        self._events: dict[str, Event] = {}
        self._of: dict[Subject, list[Event]] = {}
        self._undone: set[str] = set()
        self.take(events)

    def take(self, events: Iterable[Event]) -> None:
        """Let further events count."""
        changed: dict[Subject, None] = {}  # in the order of the events
        for event in events:
            self.last = max(self.last, event.seq)
            if event.kind == "undo":
                self._undone.add(event.value)
            else:
                self._events[event.key] = event
                self._of.setdefault(_subject(event), []).append(event)
                self.people[event.who] = None
            changed[self.subject(event)] = None
        for subject in changed:
            self._settle(subject)

    def _settle(self, subject: Subject) -> None:
        standing = Decision()
        for event in self._of[subject]:
            if event.key not in self._undone:
                standing.take(event)
        self.standing[subject] = standing

    def subject(self, event: Event) -> Subject:
        """Return the node or group that an event is about; an undo is about that of the event that it undoes."""
        return _subject(self._events[event.value] if event.kind == "undo" else event)

    def verdict(self, node: str, group: int) -> str:
        """Return what is decided about a node: by itself, or else with its group; '' if nothing is."""
        own = self.standing.get(node)
        if own is not None and own.by:
            return own.verdict
        with_group = self.standing.get(group) if group > 0 else None
        return "" if with_group is None else with_group.verdict

    def own_verdicts(self, nodes: Collection[str]) -> dict[str, bool]:
        """Return which of some nodes are confirmed (True) or rejected (False), each looked at by itself."""
        found = {node: self.standing[node].verdict for node in nodes if node in self.standing}
        return {node: verdict == "confirmed" for node, verdict in found.items() if verdict in ("confirmed", "rejected")}

    def decided(self, nodes: Ranking) -> dict[str, list[str]]:
        """Return the ids of target nodes by verdict, those of their groups included."""
        by_verdict: dict[str, list[str]] = {verdict: [] for verdict in WORDS}
        for node, group, is_target in zip(nodes.ids, nodes.group.tolist(), nodes.is_target.tolist(), strict=True):
            verdict = self.verdict(node, group) if is_target else ""
            if verdict:
                by_verdict[verdict].append(node)
        return by_verdict

    def contradictions(self) -> list[Subject]:
        """Return the nodes and groups that people contradict each other about."""
        return [subject for subject, standing in list(self.standing.items()) if standing.is_contradiction]

    def disputed(self, nodes: Ranking) -> list[str]:
        """Return the target nodes that people contradict each other about, by themselves or with their group."""
        about = set(self.contradictions())
        return [
            node
            for node, group, is_target in zip(nodes.ids, nodes.group.tolist(), nodes.is_target.tolist(), strict=True)
            if is_target and (node in about or (group in about and not self.verdict(node, group)))
        ]

    def last_of(self, who: str, subject: Subject) -> str:
        """Return the last verdict of a person on a node or group, whether it still stands or was overruled."""
        own = [event for event in self._of.get(subject, ()) if event.who == who and event.kind == "verdict"]
        return next((event.value for event in reversed(own) if event.key not in self._undone), "")

    def has_note(self, who: str, subject: Subject, note: str) -> bool:
        """Whether a person has written this note already."""
        own = [words for author, words in self.standing.get(subject, Decision()).notes if author == who]
        return note in own or note == "\n".join(own)  # as `export` writes several


def _subject(event: Entry) -> Subject:
    if event.node is not None:
        return event.node
    assert event.group is not None
    return event.group


def export(decisions: Decisions, nodes: Ranking, queue: Sequence[str] = ()) -> str:
    """Write what stands as CSV: a row per person and node or group, then the nodes that are still to be decided."""
    position = {node: k for k, node in enumerate(nodes.ids)}
    is_final = final(decisions, nodes)
    rows = [row for subject in list(decisions.standing) for row in _rows(decisions, subject)]
    rows += [{"id": node} for node in queue]
    for row in rows:
        k = position.get(row.get("id", ""))
        if k is not None:
            row |= {"group": _group(nodes, k), "score": f"{nodes.score[k]:.6f}"}
            row["final"] = str(is_final[k]).lower()
    columns = ("id", "verdict", "note", "who", "group", "score", "state", "final")
    table = pl.DataFrame([[row.get(column, "") for column in columns] for row in rows], _text(columns), orient="row")
    return _csv(_with_kept(table, nodes))


def final(decisions: Decisions, nodes: Ranking) -> list[bool]:
    """Return which nodes are on the list after the decisions: confirmed, or listed and not rejected."""
    rows = zip(nodes.ids, nodes.group.tolist(), nodes.listed.tolist(), nodes.is_target.tolist(), strict=True)
    found = []
    for node, group, listed, is_target in rows:
        verdict = decisions.verdict(node, group)
        found.append(is_target and (verdict == "confirmed" or (listed and verdict != "rejected")))
    return found


def _rows(decisions: Decisions, subject: Subject) -> list[dict[str, str]]:
    standing = decisions.standing[subject]
    about = {"id": subject} if isinstance(subject, str) else {"group": str(subject)}
    state = "contradiction" if standing.is_contradiction else "decided" if standing.by else "note"
    rows = []
    for who in dict.fromkeys([*standing.by, *(who for who, _ in standing.notes)]):
        note = "\n".join(words for author, words in standing.notes if author == who)
        rows.append({**about, "verdict": standing.by.get(who, ""), "note": note, "who": who, "state": state})
    return rows


def to_fill_in(nodes: Ranking, ids: Sequence[str]) -> str:
    """Write a table of nodes in their order, with an empty column for the verdicts."""
    position = {node: k for k, node in enumerate(nodes.ids)}
    rows = [[node, "", "", _group(nodes, position[node]), f"{nodes.score[position[node]]:.6f}"] for node in ids]
    table = pl.DataFrame(rows, _text(("id", "verdict", "note", "group", "score")), orient="row")
    return _csv(_with_kept(table, nodes))


def reviewed(decisions: Decisions, nodes: Ranking, scores: NDArray[Any]) -> str:
    """Write the target nodes as they rank after learning from the verdicts."""
    rows = zip(nodes.ids, nodes.is_target.tolist(), nodes.group.tolist(), strict=True)
    table = pl.DataFrame(
        {
            "id": nodes.ids,
            "score": scores,
            "score_before": nodes.score,
            "verdict": [decisions.verdict(node, group) if is_target else "" for node, is_target, group in rows],
            "listed": nodes.listed,
            "final": final(decisions, nodes),
            "group": [_group(nodes, k) for k in range(len(nodes.ids))],
        }
    )
    ranked = table.filter(pl.Series(nodes.is_target)).sort("score", descending=True, maintain_order=True)
    return _csv(_with_kept(ranked, nodes))


def _with_kept(table: pl.DataFrame, nodes: Ranking) -> pl.DataFrame:
    """Add the user's own columns; one that is called as one of ours has `own_` before its name."""
    ours = {*table.columns, *READ}
    renamed = nodes.kept.rename({name: f"own_{name}" for name in nodes.kept.columns if name.strip().lower() in ours})
    if not renamed.width:
        return table
    return table.join(renamed.with_columns(id=pl.Series(nodes.ids)), on="id", how="left", maintain_order="left")


def _group(nodes: Ranking, k: int) -> str:
    return str(nodes.group[k]) if nodes.group[k] > 0 else ""


def _text(columns: Sequence[str]) -> dict[str, type[pl.String]]:
    return dict.fromkeys(columns, pl.String)


def _csv(table: pl.DataFrame) -> str:
    return for_spreadsheets(table).write_csv()


def read_decisions(path: Path, nodes: Ranking, who: str) -> list[Entry]:
    """Read a table of verdicts that was filled in by hand; raise if any row of it is not clear."""
    if path.exists() and not path.is_file():
        raise TableError(f"{printable(path)} is a folder, a pipe or a device; give a CSV file")
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise TableError(f"cannot read {printable(path)}: {problem.strerror}") from problem
    return parse_decisions(content, nodes, who, printable(path))


def parse_decisions(content: bytes, nodes: Ranking, who: str, name: str) -> list[Entry]:
    """Read the bytes of a table of verdicts; `who` decided where the table does not say.

    A row with an id and a verdict is about a node; one without id, but with a group, about that group.
    """
    table = _table(content, name)
    known: dict[str, bool] = dict(zip(nodes.ids, nodes.is_target.tolist(), strict=True))
    groups = {str(group): group for group in nodes.group.tolist() if group > 0}
    problems: list[str] = []
    entries: list[Entry] = []
    seen: dict[tuple[str, Subject], tuple[int, str]] = {}
    verdicts: dict[Subject, list[str]] = {}
    for number, row in enumerate(table.iter_rows(named=True), 2):  # as a spreadsheet counts, with the heading
        cells = {column: value if column == "id" else value.strip() for column, value in row.items()}
        if not cells.get("verdict") and not cells.get("note"):
            continue
        try:
            entry = _entry(cells, known, groups, who)
        except ValueError as problem:
            problems.append(f"row {number}: {problem}")
            continue
        before = seen.setdefault((entry.who, _subject(entry)), (number, entry.value))
        if before[1] != entry.value:
            problems.append(f"row {number}: it contradicts row {before[0]}, which is about the same by the same person")
        about = verdicts.setdefault(_subject(entry), [])
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


def _entry(cells: dict[str, str], known: dict[str, bool], groups: dict[str, int], who: str) -> Entry:
    word, note = cells["verdict"].lower(), _plain(cells.get("note", ""))
    verdict = VERDICT_OF.get(word)
    if word and verdict is None:
        raise ValueError(f"{cells['verdict']!r:.60} is no verdict; write confirmed, rejected, unsure, or nothing")
    about: dict[str, Any]
    if cells["id"].strip():
        about = {"node": _known_node(cells["id"], known)}
    elif (group := cells.get("group", "").lstrip("0")) in groups:
        about = {"group": groups[group]}
    else:
        raise ValueError("it has neither an id nor the number of a group that there is")
    author = check_name(_plain(cells.get("who", "")) or who)
    if verdict is None:
        return Entry(new_key(), author, "note", note=note, **about)
    return Entry(new_key(), author, "verdict", value=verdict, note=note, **about)


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


def only_new(entries: Sequence[Entry], decisions: Decisions) -> list[Entry]:
    """Leave out what the same person has decided or noted already: importing a table twice changes nothing."""
    return [entry for entry in entries if not _is_recorded(entry, decisions)]


def _is_recorded(entry: Entry, decisions: Decisions) -> bool:
    subject = _subject(entry)
    noted = not entry.note or decisions.has_note(entry.who, subject, entry.note)
    return noted and (entry.kind == "note" or decisions.last_of(entry.who, subject) == entry.value)


def in_words(by_verdict: dict[str, list[str]], decisions: Decisions) -> str:
    """Say what a review has come to."""
    counts = Counter({verdict: len(nodes) for verdict, nodes in by_verdict.items()})
    people = len(decisions.people)
    parts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in WORDS)
    total = counts.total()
    sentence = (
        f"{total:,} {'node' if total == 1 else 'nodes'} decided by {people:,} {'person' if people == 1 else 'people'}: "
        f"{parts}."
    )
    if open_ := len(decisions.contradictions()):
        sentence += f" {open_:,} {'contradiction is' if open_ == 1 else 'contradictions are'} open."
    return sentence


def check_name(who: str) -> str:
    """Return the name of a person, or raise if it is none."""
    name = " ".join(who.split())
    is_text = all(category(character) not in ("Cc", "Cs") for character in name)  # controls, bytes that are no UTF-8
    if not 1 <= len(name) <= LONGEST["who"] or not is_text:
        raise TableError(
            f"a person's name has 1 to {LONGEST['who']} characters, without control characters and in UTF-8; "
            f"got {who!r:.100}"
        )
    return name
