"""The folder of a run -> its nodes, the journal of its review, its sample, and what is learned from decisions."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recoslip.base.errors import RecoslipError
from recoslip.base.files import check_update, printable, update
from recoslip.base.text import counted
from recoslip.data.ids import id_hashes
from recoslip.inference.feedback import Feedback
from recoslip.pipeline.result import load
from recoslip.products.review import certificate
from recoslip.products.review.decision_tables import reviewed
from recoslip.products.review.decisions import (
    VERDICTS,
    ConflictError,
    Decisions,
    Entry,
    Event,
    Nodes,
    ReviewError,
    Subject,
    only_new,
    validated,
)
from recoslip.products.review.journal import Journal

REVIEWED = "reviewed.csv"  # the final list, in the run's folder
QUEUE = 20  # nodes
MAX_QUEUE = 1000
TOP = 20  # highest nodes, whose change is counted


class ReviewSession:
    """A review: its functions may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder)
        self.result = load(folder)
        self.nodes = Nodes.of(self.result, self.journal.digest)
        self.rankings = 0  # how often this process has learned
        self.scores: NDArray[Any] | None = None  # what it learned last
        self.moved = ""  # a sentence: which nodes rose and fell by it
        self._decisions, self._reading = Decisions(), threading.Lock()
        self._computing = threading.Lock()
        self.journal.check()  # the nodes were read after the run's hash

    @property
    def decisions(self) -> Decisions:
        """What is decided by now; other processes may have written too."""
        with self._reading:
            self._decisions.take(self.journal.events(self._decisions.last))
            return self._decisions

    def record(self, entries: Sequence[Entry]) -> list[Event]:
        """Record events about nodes and groups that there are."""
        for entry in entries:
            if entry.node is not None and not self.nodes.known.get(entry.node):
                kind = "a source node, which is known" if entry.node in self.nodes.known else "no node of this run"
                raise ReviewError(f"{entry.node!r:.100} is {kind}")
            if entry.group is not None and entry.group not in self.nodes.groups:
                raise ReviewError(f"this run has no group {entry.group}")
        return self.journal.append(entries)

    def import_decisions(self, entries: Sequence[Entry]) -> int:
        """Record what a table says and the journal does not; return how many events that were."""
        return len(self.record(only_new(entries, self.decisions)))

    def changes(self, since: int) -> dict[str, Any]:
        """Return the events after a number, what is decided about their nodes and groups, and the progress."""
        decisions = self.decisions
        events = [event for event in self.journal.events(since) if event.seq <= decisions.last]
        subjects: set[Subject] = {decisions.subject(event) for event in events}
        about = {subject: decisions.about[subject].to_dict() for subject in subjects}
        return {
            "last": decisions.last,
            "events": [asdict(event) for event in events],
            "nodes": {subject: facts for subject, facts in about.items() if isinstance(subject, str)},
            "groups": {subject: facts for subject, facts in about.items() if isinstance(subject, int)},
            "people": list(decisions.people),
            "rankings": self.rankings,
            "sampled": self.journal.sample() is not None,
        }

    def summary(self) -> str:
        """Say what the review has come to."""
        decisions = self.decisions
        counts = Counter(filter(None, decisions.verdicts(self.nodes)))
        people = f"{len(decisions.people):,} {'person' if len(decisions.people) == 1 else 'people'}"
        parts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS[:3])
        sentence = f"{counted(counts.total(), 'node')} decided by {people}: {parts}."
        if open_ := len(decisions.contradictions()):
            sentence += f" {open_:,} {'contradiction is' if open_ == 1 else 'contradictions are'} open."
        return sentence

    def queue(self, count: int = QUEUE) -> list[str]:
        """Return nodes to decide on, in turns: the listed one with the highest score, and the one that teaches most.

        What people are unsure or argue about is left out.
        """
        if not 1 <= count <= MAX_QUEUE:
            raise ReviewError(f"a queue has 1 to {MAX_QUEUE:,} nodes; got {count}")
        decisions = self.decisions
        decided = decisions.decided(self.nodes)
        left_out = [*decided["unsure"], *decisions.disputed(self.nodes)]
        with self._computing:
            self.journal.check()  # the model is read at its first use
            if self.result.calibrated.vectors is None:
                done = {*decided["confirmed"], *decided["rejected"], *left_out}
                return [node for node, _, is_target in self.nodes.rows() if is_target and node not in done][:count]
            done = {*decided["confirmed"], *decided["rejected"], *left_out}
            listed = [
                name for name, own in zip(self.nodes.ids, self.nodes.listed, strict=True) if own and name not in done
            ]
            first = listed[: count // 2]  # the table has the highest scores on top
            found = self._feedback(decided["confirmed"], decided["rejected"])
            row = np.argsort(self._position)  # of each node of the model in the table
            teaching = found.queue(count - len(first), without=[*left_out, *first]).tolist()
            in_turns = zip_longest((self.nodes.ids[row[node]] for node in teaching), first)
            return [name for turn in in_turns for name in reversed(turn) if name is not None]

    def learn(self) -> str:
        """Rank the target nodes by what the verdicts teach, write the list, and say which nodes moved.

        Raise while that is under way.
        """
        decisions = self.decisions
        decided = decisions.decided(self.nodes)
        if not decided["confirmed"] and not decided["rejected"]:
            raise ConflictError("there is nothing to learn from yet; confirm or reject a node first")
        if not self._computing.acquire(blocking=False):
            raise ConflictError("the ranking is being computed already; wait for it")
        try:
            self.journal.check()
            check_update(self.folder, [REVIEWED])
            scores = self.learned(decided["confirmed"], decided["rejected"])
            self._write(decisions, scores)
            before = self.nodes.score if self.scores is None else self.scores
            self.moved = what_moved(self.nodes, before, scores)
            self.scores, self.rankings = scores, self.rankings + 1
        finally:
            self._computing.release()
        return self.moved

    def learned(self, confirmed: Collection[str], rejected: Collection[str]) -> NDArray[Any]:
        """Return scores that take verdicts on target nodes into account, in the order of the nodes."""
        return np.asarray(self._feedback(confirmed, rejected).scores()[self._position])

    def final(self) -> str:
        """Return the final list as CSV, in the order of the scores that were learned last."""
        return reviewed(self.decisions, self.nodes, self.scores)

    def write_list(self) -> None:
        """Write the final list without learning: the scores stay."""
        self._write(self.decisions, None)

    def _write(self, decisions: Decisions, scores: NDArray[Any] | None) -> None:
        self.journal.check()
        update(self.folder, {REVIEWED: reviewed(decisions, self.nodes, scores)}, "result")

    def _feedback(self, confirmed: Collection[str], rejected: Collection[str]) -> Feedback:
        return Feedback(self.result.calibrated, list(confirmed), list(rejected))

    @cached_property
    def _position(self) -> NDArray[np.int64]:
        """Where each node of the table is among those of the model."""
        hashes, nodes = id_hashes(self.nodes.ids), self.result.calibrated.node
        order = np.argsort(nodes)
        position = order[np.searchsorted(nodes, hashes, sorter=order) % len(nodes)]
        if len(nodes) != len(hashes) or not np.array_equal(nodes[position], hashes):
            raise RecoslipError(
                f"the model in {printable(self.folder)} was fitted on other nodes than its scores name; "
                "run detect again"
            )
        return np.asarray(position)

    def can_learn(self) -> bool:
        """Whether anything is confirmed or rejected."""
        return not {"confirmed", "rejected"}.isdisjoint(self.decisions.verdicts(self.nodes))

    def proposed(self) -> int:
        """Return how many nodes a sample should have."""
        return certificate.propose(self.nodes)

    def draw(self, who: str, size: int | None = None) -> list[str]:
        """Draw the sample that the certificate rests on, and return its nodes in the order of their review."""
        sample = certificate.draw(self.nodes, self.proposed() if size is None else size, secrets.randbits(63))
        self.journal.add_sample(who, json.dumps(asdict(sample)))
        return list(sample.nodes)

    def sampled(self) -> certificate.Sample | None:
        """Return the sample, if one was drawn."""
        stored = self.journal.sample()
        return None if stored is None else validated(certificate.Sample, stored.encode())

    def certificate(self) -> certificate.Certificate | None:
        """Return what the sample certifies so far. Verdicts on whole groups do not count: a sample is looked at."""
        sample = self.sampled()
        return None if sample is None else certificate.certify(sample, self.decisions.own_verdicts(sample.nodes))

    def __enter__(self) -> ReviewSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.__exit__()


def what_moved(nodes: Nodes, before: NDArray[Any], after: NDArray[Any]) -> str:
    """Say how the ranking of the target nodes changed: new ones among the highest, the largest rise and fall."""
    target = np.flatnonzero(nodes.is_target)
    old, new = (np.argsort(np.argsort(-scores[target], kind="stable")) + 1 for scores in (before, after))
    rise = old - new
    if not rise.any():
        return "The order of the nodes stays."
    entered = int(((new <= TOP) & (old > TOP)).sum())
    ends = int(rise.argmax()), int(rise.argmin())
    up, down = (f"{nodes.ids[target[k]]!r:.100} from rank {old[k]:,} to {new[k]:,}" for k in ends)
    return (
        f"{int((rise != 0).sum()):,} of {counted(len(target), 'target node')} moved; {entered:,} of the {TOP} highest "
        f"were not among them before. Largest rise: {up}. Largest fall: {down}."
    )


def user_name() -> str:
    """Return the name of this machine's user, 'me' where it has none."""
    try:
        return os.fsencode(getpass.getuser()).decode("utf-8", "replace")  # it may come from the environment
    except (OSError, KeyError):  # a container may run under a number
        return "me"
