"""Events, each checked as it comes -> what is decided about each node and group of a run."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar
from unicodedata import category

import numpy as np
import polars as pl
import pydantic
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from recoslip.base.errors import RecoslipError, TableError
from recoslip.pipeline.result import Result
from recoslip.pipeline.saved import COLUMNS

Kind: TypeAlias = Literal["verdict", "note", "name", "undo"]
Subject: TypeAlias = "str | int"  # the id of a node, or the number of a group
VERDICTS = ("confirmed", "rejected", "unsure", "cleared")
LONGEST_NAME = 80  # characters of a person's name
T = TypeVar("T")


class ReviewError(RecoslipError):
    """A review cannot be opened, or an event cannot be taken."""

    status = 422  # of the answer that a browser gets


class ConflictError(ReviewError):
    """An event does not go with those that are recorded."""

    status = 409


class CannotWriteError(ReviewError):
    """An event cannot be recorded in this place; a browser keeps it and sends it again."""

    status = 507


def check_name(who: str) -> str:
    """Return the name of a person, or raise if it is none."""
    name = " ".join(who.split())
    is_text = all(category(character) not in ("Cc", "Cs") for character in name)  # controls, bytes that are no UTF-8
    if not 1 <= len(name) <= LONGEST_NAME or not is_text:
        raise TableError(
            f"a person's name has 1 to {LONGEST_NAME} characters, without control characters and in UTF-8; "
            f"got {who!r:.100}"
        )
    return name


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds the character NUL, which tables cannot hold; leave it out")
    return text


Name: TypeAlias = Annotated[str, AfterValidator(check_name)]
WithoutNul = AfterValidator(_without_nul)
STRICT = pydantic.ConfigDict(strict=True, extra="forbid")


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Entry:
    """What somebody decided, not recorded yet. An event is about a node or about a group."""

    key: Annotated[str, Field(min_length=1, max_length=64), WithoutNul]  # the sender's; sent twice, recorded once
    who: Name
    kind: Kind
    node: Annotated[str, Field(max_length=2000)] | None = None
    group: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    value: Annotated[str, Field(max_length=200), WithoutNul] = ""  # a verdict, a name, or the key of what is undone
    note: Annotated[str, Field(max_length=2000), WithoutNul] = ""

    @pydantic.model_validator(mode="after")
    def _is_clear(self) -> Self:
        about = (self.node is not None) + (self.group is not None)
        if self.kind == "undo":
            if about or not self.value:
                raise ValueError("an undo needs the key of the event that it undoes, and no node or group")
        elif about != 1:
            raise ValueError(f"a {self.kind} is about one node or one group")
        elif self.kind == "verdict" and self.value not in VERDICTS:
            raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}; got {self.value!r:.40}")
        elif self.kind == "name" and self.group is None:
            raise ValueError("a name is given to a group")
        elif self.kind == "note" and not self.note.strip():
            raise ValueError("a note needs words")
        return self

    @property
    def subject(self) -> Subject:
        """The node or group that it is about; '' of an undo."""
        return self.node or self.group or ""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Event(Entry):
    """What somebody decided, as it is recorded."""

    seq: int = 0
    at: str = ""  # UTC


def validated(kind: type[T], values: Any) -> T:
    """Build what came from outside; raise ReviewError with the first thing that is wrong with it.

    Args:
        kind: a pydantic model or dataclass.
        values: its fields, or JSON as bytes.
    """
    try:
        return pydantic.TypeAdapter(kind).validate_json(values) if isinstance(values, bytes) else kind(**values)
    except pydantic.ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        words = first["msg"].removeprefix("Value error, ")
        is_said = "; got " in words or not isinstance(first["input"], str | int | float)
        got = "" if is_said or not where else f"; got {first['input']!r:.60}"
        raise ReviewError(f"{where}: {words}{got}" if where else words) from problem


def new_key() -> str:
    """Return a key for an event."""
    return secrets.token_hex(12)


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a run, the target first and the highest scores on top."""

    ids: list[str]
    is_target: NDArray[np.bool_]
    score: NDArray[np.float64]
    listed: NDArray[np.bool_]
    group: NDArray[np.int64]  # 0: listed, in no group; -1: not listed
    digest: str  # SHA-256 of the table of scores
    kept: pl.DataFrame = field(default_factory=pl.DataFrame)  # the user's own columns
    names: dict[int, str] = field(default_factory=dict)  # of groups

    @classmethod
    def of(cls, result: Result, digest: str) -> Nodes:
        """Take the nodes of a result that was loaded from a folder."""
        table = result.table
        return cls(
            table["id"].to_list(),
            (table["domain"] == "target").to_numpy(),
            table["score"].to_numpy(),
            table["listed"].to_numpy(),
            table["group"].fill_null(-1).to_numpy(),
            digest,
            table.drop(*COLUMNS, "uncertainty", strict=False),
            {group.number: group.name for group in result.groups if group.name},
        )

    @cached_property
    def known(self) -> dict[str, bool]:
        """The id of each node, and whether it is target."""
        return dict(zip(self.ids, self.is_target.tolist(), strict=True))

    @cached_property
    def groups(self) -> set[int]:
        """The numbers of the groups."""
        return {group for group in self.group.tolist() if group > 0}

    def rows(self) -> Iterator[tuple[str, int, bool]]:
        """Return the id and the group of each node, and whether it is target."""
        return zip(self.ids, self.group.tolist(), self.is_target.tolist(), strict=True)


@dataclass
class Decision:
    """What is decided about a node or a group."""

    by: dict[str, str] = field(default_factory=dict)  # verdicts that count, by person, the latest last
    notes: list[tuple[str, str]] = field(default_factory=list)  # who, words
    at: dict[str, str] = field(default_factory=dict)  # time of each person's last verdict or note
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
        self.at[event.who] = event.at
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
        own = {"by": self.by, "notes": self.notes, "name": self.name}
        return own | {"verdict": self.verdict, "contradiction": self.is_contradiction}


class Decisions:
    """What is decided by a review's events; `take` lets further ones count."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.last = 0  # number of the last event
        self.people: dict[str, None] = {}  # in the order in which they came
        self.about: dict[Subject, Decision] = {}
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
                self._of.setdefault(event.subject, []).append(event)
                self.people[event.who] = None
            changed[self.subject(event)] = None
        for subject in changed:
            decision = Decision()
            for event in self._of[subject]:
                if event.key not in self._undone:
                    decision.take(event)
            self.about[subject] = decision

    def subject(self, event: Event) -> Subject:
        """Return the node or group that an event is about; an undo is about that of the event that it undoes."""
        return (self._events[event.value] if event.kind == "undo" else event).subject

    def verdict(self, node: str, group: int) -> str:
        """Return what is decided about a node: by itself, or else with its group; '' if nothing is."""
        own = self.about.get(node)
        if own is not None and own.by:
            return own.verdict
        with_group = self.about.get(group) if group > 0 else None
        return "" if with_group is None else with_group.verdict

    def verdicts(self, nodes: Nodes) -> list[str]:
        """Return what is decided about each node; source nodes are known."""
        return [self.verdict(node, group) if is_target else "" for node, group, is_target in nodes.rows()]

    def own_verdicts(self, nodes: Collection[str]) -> dict[str, bool]:
        """Return which of some nodes are confirmed (True) or rejected (False), each looked at by itself."""
        found = {node: self.about[node].verdict for node in nodes if node in self.about}
        return {node: verdict == "confirmed" for node, verdict in found.items() if verdict in ("confirmed", "rejected")}

    def decided(self, nodes: Nodes) -> dict[str, list[str]]:
        """Return the ids of target nodes by verdict, those of their groups included."""
        verdicts = self.verdicts(nodes)
        return {
            verdict: [node for node, said in zip(nodes.ids, verdicts, strict=True) if said == verdict]
            for verdict in VERDICTS[:3]
        }

    def final(self, nodes: Nodes) -> list[bool]:
        """Return which nodes are on the list after the decisions: confirmed, or listed and not rejected."""
        rows = zip(self.verdicts(nodes), nodes.listed.tolist(), strict=True)
        return [said == "confirmed" or (listed and said != "rejected") for said, listed in rows]

    def group_name(self, nodes: Nodes, group: int) -> str:
        """Return what a group is called: by people, or else by what it has more of than other nodes."""
        given = self.about[group].name if group in self.about else ""
        return given or nodes.names.get(group, "")

    def contradictions(self) -> list[Subject]:
        """Return the nodes and groups that people contradict each other about."""
        return [subject for subject, decision in list(self.about.items()) if decision.is_contradiction]

    def disputed(self, nodes: Nodes) -> list[str]:
        """Return the target nodes that people contradict each other about, by themselves or with their group."""
        about = set(self.contradictions())
        return [
            node
            for node, group, is_target in nodes.rows()
            if is_target and (node in about or (group in about and not self.verdict(node, group)))
        ]

    def last_of(self, who: str, subject: Subject) -> str:
        """Return the last verdict of a person on a node or group, whether it still counts or was overruled."""
        own = [event for event in self._of.get(subject, ()) if event.who == who and event.kind == "verdict"]
        return next((event.value for event in reversed(own) if event.key not in self._undone), "")

    def has_note(self, who: str, subject: Subject, note: str) -> bool:
        """Whether a person has written this note already."""
        own = [words for author, words in self.about.get(subject, Decision()).notes if author == who]
        return note in own or note == "\n".join(own)  # as `export` writes several


def only_new(entries: Sequence[Entry], decisions: Decisions) -> list[Entry]:
    """Leave out what the same person has decided or noted already: importing a table twice changes nothing."""

    def is_recorded(entry: Entry) -> bool:
        noted = not entry.note or decisions.has_note(entry.who, entry.subject, entry.note)
        return noted and (entry.kind == "note" or decisions.last_of(entry.who, entry.subject) == entry.value)

    return [entry for entry in entries if not is_recorded(entry)]
