"""Events of a review <-> review.sqlite: a journal that only grows, and that a killed process loses nothing of."""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from recoslip.base.errors import RecoslipError
from recoslip.base.files import HeldError, output_lock, printable, put_right
from recoslip.pipeline.saved import NAMES, REVIEW, read_summary, scores_file
from recoslip.products.review.decisions import CannotWriteError, ConflictError, Entry, Event, ReviewError, validated

VERSION = 1  # of the tables
APPLICATION = 0x5265636F  # says whose database a file is: "Reco"
BUSY_SECONDS = 30.0  # how long a writer waits for another
WAIT = 5.0  # how long the first event waits for a command that writes the run

Status: TypeAlias = "tuple[int, ...] | None"

SCHEMA = (
    "CREATE TABLE about (run TEXT NOT NULL, token TEXT NOT NULL, begun TEXT NOT NULL)",
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, at TEXT NOT NULL, who TEXT NOT NULL,
        kind TEXT NOT NULL, node TEXT, "group" INTEGER, value TEXT NOT NULL, note TEXT NOT NULL
    )""",
    "CREATE TABLE samples (id INTEGER PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, sample TEXT NOT NULL)",
    "CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events never change'); END",
    "CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events never go'); END",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
EXPLAINED = {  # names of SQLite's errors -> what they mean, and a remedy
    ("SQLITE_FULL", "SQLITE_IOERR"): "cannot be written: the disk is full or fails; make room. This was not recorded",
    ("SQLITE_BUSY", "SQLITE_LOCKED"): "is held by another process for too long; try again",
    ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"): "may not be written; change its rights, or copy the folder",
}
COLUMNS = ("seq", "key", "at", "who", "kind", "node", "group", "value", "note")
FIELDS = ", ".join(f'"{name}"' for name in COLUMNS)


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_of(folder: Path) -> tuple[str, str]:
    """Return the hash of a run's summary and scores, which a review belongs to, and that of the scores alone."""
    read_summary(folder)  # raises where there is none
    digests = []
    for path in (folder / "summary.json", scores_file(folder)):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256"))
    return hashlib.sha256(b"".join(each.digest() for each in digests)).hexdigest(), digests[1].hexdigest()


def _status(path: Path) -> Status:
    """Return what tells, without reading it, whether a file is the same; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class Journal:
    """The journal of one review. Threads and processes may use it at the same time."""

    def __init__(self, folder: Path) -> None:
        """Open the review of a run's folder; where there is none, the first event or the token begins one."""
        self.path = folder / REVIEW
        put_right(folder)
        self._run_files = self._run_status()
        self.run, self.digest = run_of(folder)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._files: list[Status] = []  # of the journal, since it was opened
        if _check_file(self.path):
            self._begin()

    def _begin(self) -> sqlite3.Connection:
        """Return the connection; open the file, or make it, where that was not done yet."""
        with self._lock, _explained(self.path):
            if self._connection is not None:
                return self._connection
            connection = self._open()
            if connection.execute("SELECT run FROM about").fetchone()[0] != self.run:
                connection.close()
                raise ReviewError(
                    f"{printable(self.path)} is the review of another run than the results beside it; put that run's "
                    "results back, or move the review away to begin a new one"
                )
            self._connection, self._files = connection, self._journal_files()
            return connection

    def _open(self) -> sqlite3.Connection:
        if not self.path.exists():
            try:
                with output_lock(self.path.parent, wait=WAIT), suppress(OSError):  # a command that replaces the run
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # its owner's alone: it holds the token
            except HeldError as problem:
                raise CannotWriteError(str(problem)) from problem
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=32
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # an event is on the disk before it is acknowledged
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # all is made, or nothing
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO about VALUES (?, ?, ?)", (self.run, secrets.token_urlsafe(24), now()))
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _journal_files(self) -> list[Status]:
        """Return which files lie at the paths of the journal; SQLite keeps the last events in the second one."""
        found = [_status(Path(f"{self.path}{end}")) for end in ("", "-wal", "-shm")]
        return [each and each[:2] for each in found]

    def _run_status(self) -> list[Status]:
        return [_status(self.path.parent / name) for name in ("summary.json", *NAMES)]

    def check(self) -> None:
        """Raise unless the journal and the run beside it are still those that were opened."""
        if self._connection is not None and self._journal_files() != self._files:
            raise CannotWriteError(
                f"{printable(self.path)} was removed, moved or replaced while the review was open, so nothing can be "
                "recorded; put it back, or close this review and start it anew"
            )
        if (files := self._run_status()) == self._run_files:
            return
        with suppress(OSError, RecoslipError):
            if run_of(self.path.parent)[0] == self.run:
                self._run_files = files
                return
        raise CannotWriteError(
            f"{printable(self.path.parent)} holds another run than when the review was opened, so nothing can be "
            "recorded; put that run back, or close this review and start it anew"
        )

    @property
    def token(self) -> str:
        """The secret that opens the review. It stays the same, so browsers continue after the server was killed."""
        self._begin()
        return str(self._read("SELECT token FROM about")[0][0])

    def renew_token(self) -> None:
        """Make a new token: the addresses that were given away before open nothing any more."""
        with self._writing() as connection:
            connection.execute("UPDATE about SET token = ?", (secrets.token_urlsafe(24),))

    def append(self, entries: Sequence[Entry]) -> list[Event]:
        """Record events, all or none; those whose key is recorded already are returned as they are.

        When this returns, they are on the disk.
        """
        with self._writing() as connection:
            return [self._append(connection, entry) for entry in entries]

    def _append(self, connection: sqlite3.Connection, entry: Entry) -> Event:
        if found := _one(connection, entry.key):
            if asdict(found) | asdict(entry) != asdict(found):
                raise ConflictError(f"another event has the key {entry.key!r}; make a new key")
            return found
        if entry.kind == "undo":
            _check_undo(connection, entry)
        insert = f"INSERT INTO events ({FIELDS}) VALUES (:{', :'.join(COLUMNS)}) RETURNING {FIELDS}"
        return _event(connection.execute(insert, asdict(entry) | {"seq": None, "at": now()}).fetchone())

    def events(self, since: int = 0) -> list[Event]:
        """Return the events after number `since`, in their order."""
        rows = self._read(f"SELECT {FIELDS} FROM events WHERE seq > ? ORDER BY seq", since)
        return [_event(row) for row in rows]

    def last(self) -> int:
        """Return the number of the last event, 0 before the first."""
        rows = self._read("SELECT coalesce(max(seq), 0) FROM events")
        return rows[0][0] if rows else 0

    def add_sample(self, who: str, sample: str) -> None:
        """Record the sample of the certificate. A review has one: who draws again may draw until it suits."""
        with self._writing() as connection:
            if connection.execute("SELECT count(*) FROM samples").fetchone()[0]:
                raise ConflictError("a sample was drawn already, and a certificate rests on the first one; review that")
            connection.execute("INSERT INTO samples (at, who, sample) VALUES (?, ?, ?)", (now(), who, sample))

    def sample(self) -> str | None:
        """Return the sample that was drawn, as JSON, if one was."""
        rows = self._read("SELECT sample FROM samples ORDER BY id LIMIT 1")
        return rows[0][0] if rows else None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if self._connection is None:
            return []
        with self._lock, _explained(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection within a transaction, which is undone after an error.

        The files are checked again after it: an event that went into a removed file must not be acknowledged.
        """
        connection = self._begin()
        with self._lock, _explained(self.path):
            self.check()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self.check()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite as sentences with a remedy."""
    try:
        yield
    except sqlite3.DatabaseError as problem:
        name = getattr(problem, "sqlite_errorname", "")
        for names, sentence in EXPLAINED.items():
            if name.startswith(names):
                raise CannotWriteError(f"{printable(path)} {sentence}") from problem
        reason = str(problem).rpartition("\n")[2]  # the first line of SQLite's check names the database alone
        raise ReviewError(
            f"{printable(path)} is damaged ({reason}); nothing was changed. Put a backup in its place, or try "
            "`sqlite3 review.sqlite .recover`, or move it away to begin anew"
        ) from problem


def _check_file(path: Path) -> bool:
    """Return whether there is a review, raise if the file is damaged, foreign or of a later version; change nothing."""
    if not os.path.lexists(path):
        return False
    if not path.is_file():
        raise ReviewError(f"{printable(path)} is a folder, a pipe or a device, expected a file; move it away")
    if path.stat().st_size == 0:  # a process was killed right after it had made the file
        return True
    address = f"file:{quote(os.fsencode(path))}?mode=ro"
    with (
        _explained(path),
        closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection,
    ):
        connection.execute("BEGIN")  # another process may be making the tables
        names = ("user_version", "application_id", "quick_check(1)")
        version, application, complaints = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if complaints != "ok":
            raise sqlite3.DatabaseError(complaints)
        is_made = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    if is_made and (application != APPLICATION or version > VERSION):
        raise ReviewError(
            f"{printable(path)} is the database of another program or of a later recoslip (version {version}, this one "
            f"reads {VERSION}); move it away, or update recoslip"
        )
    return True


def _one(connection: sqlite3.Connection, key: str) -> Event | None:
    row = connection.execute(f"SELECT {FIELDS} FROM events WHERE key = ?", (key,)).fetchone()
    return None if row is None else _event(row)


def _event(row: Sequence[Any]) -> Event:
    return validated(Event, dict(zip(COLUMNS, row, strict=True)))


def _check_undo(connection: sqlite3.Connection, entry: Entry) -> None:
    """Raise unless an undo is of an event that its author made and that stands."""
    undone = _one(connection, entry.value)
    if undone is None or undone.kind == "undo":
        raise ConflictError("there is no such decision to undo")
    if undone.who != entry.who:
        raise ConflictError(f"{undone.who} decided that; decide yourself instead of undoing it")
    if connection.execute("SELECT 1 FROM events WHERE kind = 'undo' AND value = ?", (entry.value,)).fetchone():
        raise ConflictError("that was undone already")
