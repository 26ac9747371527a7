"""A run's folder -> its ranking, the journal of its review, and the result of both."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from recoslip.base.files import check_update, update
from recoslip.products.review import certificate
from recoslip.products.review.decisions import Decisions, Subject, in_words, only_new, reviewed
from recoslip.products.review.ranking import Ranking
from recoslip.products.review.store import ConflictError, Entry, Event, ReviewError, Store

REVIEWED = "reviewed.csv"  # the ranking after learning, in the run's folder
QUEUE = 20  # nodes
MAX_QUEUE = 1000


class ReviewSession:
    """A review: its functions may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder)
        self.ranking = Ranking.open(folder)
        self.rankings = 0  # how often this process has learned
        self.scores: NDArray[Any] | None = None  # what it learned last
        self._is_target = dict(zip(self.ranking.ids, self.ranking.is_target.tolist(), strict=True))
        self._groups = {group for group in self.ranking.group.tolist() if group > 0}
        self._decisions, self._reading = Decisions(), threading.Lock()
        self._computing = threading.Lock()
        self.store.check()  # the ranking was read after the run's hash

    @property
    def decisions(self) -> Decisions:
        """What stands by now; other processes may have written too."""
        with self._reading:
            self._decisions.take(self.store.events(self._decisions.last))
            return self._decisions

    def record(self, entries: Sequence[Entry]) -> list[Event]:
        """Record events about nodes and groups that there are."""
        for entry in entries:
            if entry.node is not None and not self._is_target.get(entry.node):
                kind = "a source node, which is known" if entry.node in self._is_target else "no node of this run"
                raise ReviewError(f"{entry.node!r:.100} is {kind}")
            if entry.group is not None and entry.group not in self._groups:
                raise ReviewError(f"this run has no group {entry.group}")
        return self.store.append(entries)

    def import_decisions(self, entries: Sequence[Entry]) -> int:
        """Record what a table says and the journal does not; return how many events that were."""
        return len(self.record(only_new(entries, self.decisions)))

    def changes(self, since: int) -> dict[str, Any]:
        """Return the events after a number, what stands about their nodes and groups, and the progress."""
        decisions = self.decisions
        events = [event for event in self.store.events(since) if event.seq <= decisions.last]
        subjects: set[Subject] = {decisions.subject(event) for event in events}
        standing = {subject: decisions.standing[subject].to_dict() for subject in subjects}
        return {
            "last": decisions.last,
            "events": [asdict(event) for event in events],
            "nodes": {subject: facts for subject, facts in standing.items() if isinstance(subject, str)},
            "groups": {subject: facts for subject, facts in standing.items() if isinstance(subject, int)},
            "people": list(decisions.people),
            "rankings": self.rankings,
            "sampled": self.store.sample() is not None,
        }

    def summary(self) -> str:
        """Say what the review has come to."""
        decisions = self.decisions
        return in_words(decisions.decided(self.ranking), decisions)

    def queue(self, count: int = QUEUE) -> list[str]:
        """Return the nodes whose verdict teaches most; what people are unsure or argue about is left out."""
        if not 1 <= count <= MAX_QUEUE:
            raise ReviewError(f"a queue has 1 to {MAX_QUEUE:,} nodes; got {count}")
        decisions = self.decisions
        decided = decisions.decided(self.ranking)
        left_out = {*decided["unsure"], *decisions.disputed(self.ranking)}
        with self._computing:
            self.store.check()  # the model is read at its first use
            return self.ranking.queue(decided["confirmed"], decided["rejected"], count, left_out)

    def learn(self) -> NDArray[Any]:
        """Rank the target nodes by what the verdicts teach, and write the ranking; raise while that is under way."""
        decisions = self.decisions
        decided = decisions.decided(self.ranking)
        if not decided["confirmed"] and not decided["rejected"]:
            raise ConflictError("there is nothing to learn from yet; confirm or reject a node first")
        if not self._computing.acquire(blocking=False):
            raise ConflictError("the ranking is being computed already; wait for it")
        try:
            self.store.check()
            check_update(self.folder, [REVIEWED])
            scores = self.ranking.learn(decided["confirmed"], decided["rejected"])
            self.store.check()
            update(self.folder, {REVIEWED: reviewed(decisions, self.ranking, scores)}, "result")
            self.scores, self.rankings = scores, self.rankings + 1
        finally:
            self._computing.release()
        return scores

    def can_learn(self) -> bool:
        """Whether anything is confirmed or rejected."""
        decided = self.decisions.decided(self.ranking)
        return bool(decided["confirmed"] or decided["rejected"])

    def proposed(self) -> int:
        """Return how many nodes a sample should have."""
        return certificate.propose(self.ranking)

    def draw(self, who: str, size: int | None = None) -> list[str]:
        """Draw the sample that the certificate rests on, and return its nodes in the order of their review."""
        sample = certificate.draw(self.ranking, self.proposed() if size is None else size, secrets.randbits(63))
        self.store.add_sample(who, json.dumps(sample.to_json()))
        return list(sample.nodes)

    def sampled(self) -> certificate.Sample | None:
        """Return the sample, if one was drawn."""
        stored = self.store.sample()
        return None if stored is None else certificate.Sample.from_json(json.loads(stored.sample))

    def certificate(self) -> certificate.Certificate | None:
        """Return what the sample certifies so far. Verdicts on whole groups do not count: a sample is looked at."""
        sample = self.sampled()
        return None if sample is None else certificate.certify(sample, self.decisions.own_verdicts(sample.nodes))

    def close(self) -> None:
        """Close the journal."""
        self.store.close()

    def __enter__(self) -> ReviewSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def user_name() -> str:
    """Return the name of this machine's user, 'me' where it has none."""
    try:
        return os.fsencode(getpass.getuser()).decode("utf-8", "replace")  # it may come from the environment
    except (OSError, KeyError):  # a container may run under a number
        return "me"
