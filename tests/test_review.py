"""A review: nothing that was acknowledged is lost, what people decide adds up, and nobody else gets in."""

import io
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import recoslip
from recoslip import NodeGraph, detector
from recoslip.base.errors import RecoslipError
from recoslip.data.datasets.block_model import csbm
from recoslip.inference.analysis import find_novel
from recoslip.inference.calibrated import Calibrated
from recoslip.pipeline.result import Result
from recoslip.pipeline.saved import REVIEW
from recoslip.products.cli import app
from recoslip.products.review import access, server
from recoslip.products.review.decision_tables import export, parse_decisions, to_fill_in
from recoslip.products.review.decisions import (
    CannotWriteError,
    ConflictError,
    Decisions,
    Entry,
    ReviewError,
    new_key,
    only_new,
    validated,
)
from recoslip.products.review.journal import Journal
from recoslip.products.review.session import REVIEWED, ReviewSession, what_moved

HOSTILE = ["<img src=x onerror=\"document.title='hacked'\">", "=cmd|' /C calc'!A0", "'quoted", 'line\nbreak, "quote"']


def make_folder(folder, rotations=2):
    """Write what a fast detector finds; the first target nodes have hostile ids."""
    drawn = csbm(nodes=120, categories=3, noise=0.4, features=4)
    ids = np.array([f"n{k:03}" for k in range(120)], dtype=object)
    ids[np.flatnonzero(drawn.is_target)[: len(HOSTILE)]] = HOSTILE
    kept = {"Group": [f"shelf {k % 3}" for k in range(120)], "self": range(120)}
    graph = NodeGraph(drawn.x, drawn.edge_index, drawn.is_target, ids=ids, columns=kept)
    chosen = detector("domain-discriminator", epochs=30, hidden_channels=8)
    if rotations == 1:
        fitted = Calibrated.uncalibrated(chosen.fit(graph)).with_settings(max_fpr=0.3)
    else:
        fitted = recoslip.calibrate(chosen, graph, rotations=rotations, max_fpr=0.3)
    Result.of(find_novel(fitted, graph)).save(folder)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("run") / "out")


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "out")


@pytest.fixture
def store(folder):
    with Journal(folder) as opened:
        yield opened


@pytest.fixture
def review(folder):
    with ReviewSession(folder) as opened:
        yield opened


def verdict(node, value, who="Ada", **fields):
    about = {"group": node} if isinstance(node, int) else {"node": node}
    return Entry(fields.pop("key", new_key()), who, "verdict", value=value, **about, **fields)


def targets(review, count):
    """Return ids of target nodes that no text of the tests depends on."""
    pairs = zip(review.nodes.ids, review.nodes.is_target, strict=True)
    return [node for node, is_target in pairs if is_target and node not in HOSTILE][:count]


def a_group(review):
    return int(max(review.nodes.group))


# The journal


def test_events_are_kept_in_their_order_and_numbered(store, folder):
    store.append([verdict("a", "confirmed"), verdict("b", "rejected", note="grew")])
    with Journal(folder) as again:
        assert [(e.seq, e.node, e.value, e.note) for e in again.events()] == [
            (1, "a", "confirmed", ""),
            (2, "b", "rejected", "grew"),
        ]
        assert [event.seq for event in again.events(since=1)] == [2]
        assert again.last() == 2


def test_an_event_that_is_sent_again_is_recorded_once(store):
    entry = verdict("a", "confirmed", key="k1")
    first = store.append([entry])
    assert store.append([entry]) == first
    assert store.last() == 1
    with pytest.raises(ConflictError, match="another event has the key"):
        store.append([verdict("a", "rejected", key="k1")])


def test_events_of_one_call_are_recorded_all_or_none(store):
    with pytest.raises(ConflictError, match="no such decision"):
        store.append([verdict("a", "confirmed"), Entry(new_key(), "Ada", "undo", value="unknown")])
    assert store.events() == []


def test_events_are_never_changed_or_deleted(store):
    store.append([verdict("a", "confirmed")])
    with sqlite3.connect(store.path) as connection:
        for statement in ("UPDATE events SET value = 'rejected'", "DELETE FROM events"):
            with pytest.raises(sqlite3.IntegrityError, match="events never"):
                connection.execute(statement)
    connection.close()


def test_looking_at_a_run_begins_no_review(folder):
    with Journal(folder) as opened:
        assert opened.events() == []
    assert not (folder / REVIEW).exists()


def test_only_its_owner_can_read_a_review(store):
    store.append([verdict("a", "confirmed")])
    assert store.path.stat().st_mode & 0o077 == 0


WRITER = """
import sys
from pathlib import Path
from recoslip.products.review.decisions import Entry, new_key
from recoslip.products.review.journal import Journal
with Journal(Path(sys.argv[1])) as store:
    for number in range(int(sys.argv[3])):
        key = new_key()
        store.append([Entry(key, sys.argv[2], "verdict", node=f"n{number}", value="confirmed")])
        print(key, flush=True)
"""


def writer(folder, who, count):
    command = [sys.executable, "-c", WRITER, str(folder), who, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_loses_nothing_that_it_acknowledged(folder):
    acknowledged = []
    for killed_after in (1, 4, 9):
        with writer(folder, "Ada", 100_000) as process:
            acknowledged += [process.stdout.readline().strip() for _ in range(killed_after)]
            process.send_signal(signal.SIGKILL)
            acknowledged += process.stdout.read().split()
    with Journal(folder) as store:
        recorded = [event.key for event in store.events()]
    assert len(set(recorded)) == len(recorded)
    assert set(acknowledged) <= set(recorded)
    assert len(recorded) <= len(acknowledged) + 3  # what was recorded right before each kill


def test_two_processes_write_at_once(folder):
    with writer(folder, "Ada", 40) as one, writer(folder, "Bo", 40) as other:
        keys = {*one.stdout.read().split(), *other.stdout.read().split()}
    with Journal(folder) as store:
        events = store.events()
    assert {event.key for event in events} == keys
    assert [event.seq for event in events] == list(range(1, 81))


def refuses(folder, words):
    """Assert that a review is refused with these words, and that its file is as it was."""
    before = (folder / REVIEW).read_bytes()
    with pytest.raises(ReviewError, match=words):
        Journal(folder)
    assert (folder / REVIEW).read_bytes() == before


def begun(folder):
    with Journal(folder) as store:
        store.append([verdict(f"node {k}", "confirmed", note="x" * 500) for k in range(40)])


def test_a_file_that_is_no_database_is_refused(folder):
    (folder / REVIEW).write_text("id,verdict\n")
    refuses(folder, "is damaged .* move it away")


def test_a_damaged_database_is_refused(folder):
    begun(folder)
    content = bytearray((folder / REVIEW).read_bytes())
    content[5000:20000] = bytes(15000)
    (folder / REVIEW).write_bytes(content)
    refuses(folder, "is damaged .* Put a backup in its place")


def test_a_truncated_database_is_refused(folder):
    begun(folder)
    (folder / REVIEW).write_bytes((folder / REVIEW).read_bytes()[:6000])
    refuses(folder, "is damaged")


def test_a_database_of_a_later_version_is_refused(folder):
    begun(folder)
    with sqlite3.connect(folder / REVIEW) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    refuses(folder, "of a later recoslip .version 99, .* update recoslip")


def test_the_database_of_another_program_is_refused(folder):
    with sqlite3.connect(folder / REVIEW) as connection:
        connection.execute("CREATE TABLE cats (name)")
    connection.close()
    refuses(folder, "another program")


def test_the_review_of_another_run_is_refused(folder):
    begun(folder)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"seconds": 2.0}))
    refuses(folder, "the review of another run .* move the review away")


def test_an_empty_file_that_a_killed_process_left_becomes_a_review(folder):
    (folder / REVIEW).touch()
    begun(folder)
    with Journal(folder) as store:
        assert store.last() == 40


def test_a_full_disk_loses_nothing(store):
    store.append([verdict("a", "confirmed")])
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    long = [verdict(f"n{k}", "confirmed", note="x" * 2000) for k in range(20)]
    with pytest.raises(CannotWriteError, match="the disk is full or fails; make room"):
        store.append(long)
    assert [event.node for event in store.events()] == ["a"]
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert len(store.append(long)) == 20


def removed(folder, aside):
    shutil.move(folder, aside)


def replaced(folder, aside):
    shutil.move(folder, aside)
    shutil.copytree(aside, folder)


def without_its_last_events(folder, aside):
    shutil.move(folder, aside)
    shutil.copytree(aside, folder, ignore=shutil.ignore_patterns("*-wal", "*-shm"))


def without_the_journal(folder, aside):
    (folder / REVIEW).unlink()


def without_the_file_of_the_last_events(folder, aside):
    Path(f"{folder / REVIEW}-wal").unlink()


GONE = [removed, replaced, without_its_last_events, without_the_journal, without_the_file_of_the_last_events]


@pytest.mark.parametrize("change", GONE)
def test_nothing_is_acknowledged_once_the_journal_is_not_the_file_that_was_opened(store, folder, tmp_path, change):
    store.append([verdict("a", "confirmed")])
    change(folder, tmp_path / "aside")
    for _ in range(2):
        with pytest.raises(CannotWriteError, match="was removed, moved or replaced"):
            store.append([verdict("b", "confirmed")])
    with pytest.raises(CannotWriteError, match="was removed, moved or replaced"):
        store.add_sample("Ada", "{}")


def test_a_journal_that_goes_while_an_event_is_written_is_not_acknowledged(store, folder, tmp_path):
    store.append([verdict("a", "confirmed")])
    with pytest.raises(CannotWriteError, match="was removed"), store._writing():
        shutil.move(folder, tmp_path / "aside")
    shutil.move(tmp_path / "aside", folder)
    assert [event.node for event in store.append([verdict("b", "confirmed")])] == ["b"]  # it is back


def another_run(folder):
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"seconds": 2.0}))


def test_nothing_is_recorded_or_learned_once_another_run_is_beside_the_journal(review, folder):
    node, other = targets(review, 2)
    review.record([verdict(node, "confirmed")])
    another_run(folder)
    for refused in (
        lambda: review.record([verdict(other, "confirmed")]), review.learn, review.queue, lambda: review.draw("Ada", 3)
    ):  # fmt: skip
        with pytest.raises(CannotWriteError, match="another run than when the review was opened"):
            refused()
    assert not (folder / REVIEWED).exists()
    assert review.journal.last() == 1


def test_a_run_that_was_touched_and_is_the_same_stays_open(review, folder):
    for name in ("summary.json", "scores.csv"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / name).write_bytes(content)
    review.record([verdict(targets(review, 1)[0], "confirmed")])
    assert review.queue(3)


def test_a_run_that_is_exchanged_while_a_review_learns_gets_no_ranking(review, folder, monkeypatch):
    review.record([verdict(targets(review, 1)[0], "confirmed")])
    learn = ReviewSession.learned

    def learns(*arguments):
        another_run(folder)
        return learn(*arguments)

    monkeypatch.setattr(ReviewSession, "learned", learns)
    with pytest.raises(CannotWriteError, match="another run"):
        review.learn()
    assert not (folder / REVIEWED).exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "verdict", "node": "a", "value": "perhaps"}, "a verdict is one of"),
        ({"kind": "verdict", "value": "confirmed"}, "about one node or one group"),
        ({"kind": "verdict", "node": "a", "group": 1, "value": "confirmed"}, "about one node or one group"),
        ({"kind": "note", "node": "a", "note": "  "}, "needs words"),
        ({"kind": "note", "node": "a", "note": "x" * 2001}, "note: .* 2000 characters"),
        ({"kind": "name", "node": "a", "value": "b"}, "given to a group"),
        ({"kind": "undo", "node": "a", "value": "k"}, "no node or group"),
        ({"kind": "undo"}, "needs the key"),
        ({"kind": "dance", "node": "a"}, "kind: .*'verdict', 'note', 'name' or 'undo'"),
        ({"kind": "verdict", "node": "a", "value": "confirmed", "who": " "}, "who: a person's name has 1 to 80"),
        ({"kind": "verdict", "node": "a", "value": "confirmed", "who": "x" * 81}, "who: .* 80 characters"),
    ],
)
def test_events_that_say_nothing_are_refused(fields, words):
    with pytest.raises(ReviewError, match=words):
        validated(Entry, {"key": "k", "who": "Ada", **fields})


# What is decided


def stands(store, *entries):
    store.append(entries)
    return Decisions(store.events())


def test_a_persons_last_verdict_counts(store):
    decisions = stands(store, verdict("a", "confirmed"), verdict("a", "rejected"))
    assert decisions.verdict("a", -1) == "rejected"
    assert decisions.verdict("b", -1) == ""
    assert stands(store, verdict("a", "cleared")).verdict("a", -1) == ""


def test_people_who_differ_contradict_each_other_until_somebody_decides_again(store):
    decisions = stands(store, verdict("a", "confirmed", "Ada"), verdict("a", "rejected", "Bo"))
    assert decisions.verdict("a", -1) == ""
    assert decisions.contradictions() == ["a"]
    assert decisions.own_verdicts(["a"]) == {}
    decisions = stands(store, verdict("a", "unsure", "Cy"))
    assert decisions.contradictions() == ["a"]
    decisions = stands(store, verdict("a", "confirmed", "Ada"))
    assert decisions.contradictions() == []
    assert decisions.own_verdicts(["a"]) == {"a": True}


def test_who_is_unsure_contradicts_nobody(store):
    decisions = stands(store, verdict("a", "unsure", "Ada"), verdict("a", "rejected", "Bo"))
    assert decisions.contradictions() == []
    assert decisions.verdict("a", -1) == "rejected"


def test_a_nodes_own_verdict_goes_before_its_groups(store):
    decisions = stands(store, verdict("a", "confirmed"), verdict(1, "rejected"))
    assert decisions.verdict("a", 1) == "confirmed"
    assert decisions.verdict("b", 1) == "rejected"
    assert decisions.own_verdicts(["a", "b"]) == {"a": True}
    assert stands(store, verdict("a", "cleared")).verdict("a", 1) == "rejected"


def test_undo_takes_back_an_own_event_once(store):
    store.append([verdict("a", "confirmed", key="k1"), verdict("a", "rejected", key="k2")])
    decisions = stands(store, Entry("k3", "Ada", "undo", value="k2"))
    assert decisions.verdict("a", -1) == "confirmed"
    for entry, words in [
        (Entry("k4", "Ada", "undo", value="k2"), "undone already"),
        (Entry("k5", "Bo", "undo", value="k1"), "Ada decided that"),
        (Entry("k6", "Ada", "undo", value="k3"), "no such decision"),
    ]:
        with pytest.raises(ConflictError, match=words):
            store.append([entry])


def test_what_stands_is_the_same_event_by_event_and_at_once(store):
    rng = np.random.default_rng(0)
    bit_by_bit = Decisions()
    for number in range(200):
        who, node = rng.choice(["Ada", "Bo", "Cy"]), str(rng.integers(4))
        value = str(rng.choice(["confirmed", "rejected", "unsure", "cleared"]))
        events = store.append([verdict(node, value, str(who), key=f"k{number}")])
        if number % 5 == 4:
            events += store.append([Entry(f"u{number}", str(who), "undo", value=f"k{number}")])
        bit_by_bit.take(events)
    at_once = Decisions(store.events())
    assert {s: standing.to_dict() for s, standing in bit_by_bit.about.items()} == {
        s: standing.to_dict() for s, standing in at_once.about.items()
    }


# Tables


def csv(text):
    return text.encode()


def test_a_table_goes_out_and_comes_back(review):
    node, other = targets(review, 2)
    group = a_group(review)
    review.record([verdict(name, "confirmed", note="=1+1") for name in HOSTILE])
    review.record([verdict(node, "confirmed", "Ada"), verdict(node, "rejected", "Bo"), verdict(group, "rejected")])
    review.record(
        [Entry(new_key(), "Bo", "note", node=other, note="ask Cy"), verdict(other, "unsure", "Bo", note="hm")]
    )
    table = export(review.decisions, review.nodes, queue=targets(review, 3)[2:])
    frame = pl.read_csv(io.StringIO(table), infer_schema=False)
    assert "'=cmd|' /C calc'!A0" in frame["id"].to_list()
    assert frame["verdict"].to_list()[-1] in (None, "")
    entries = parse_decisions(csv(table), review.nodes, "Di", "table")
    assert only_new(entries, review.decisions) == []  # the same decisions
    events = [Entry(e.key, e.who, e.kind, e.node, e.group, e.value, e.note) for e in entries]
    (review.folder / REVIEW).unlink()
    with ReviewSession(review.folder) as fresh:
        fresh.record(events)
        assert fresh.decisions.decided(fresh.nodes) == review.decisions.decided(review.nodes)
        assert fresh.decisions.contradictions() == [node]


def test_a_corrected_row_is_recorded_and_what_stands_is_not(review):
    node, other = targets(review, 2)
    rows = f"id,verdict,note,who\n{node},{{}},seen,Ada\n{other},known,,Ada\n"
    counts = []
    for word in ("new", "new", "known", "known", "new", "unsure"):
        counts.append(review.import_decisions(parse_decisions(rows.format(word).encode(), review.nodes, "x", "table")))
    assert counts == [2, 0, 1, 0, 1, 1]
    assert [event.value for event in review.journal.events() if event.node == node] == [
        "confirmed", "rejected", "confirmed", "unsure"
    ]  # fmt: skip


def test_a_row_that_settles_a_contradiction_is_recorded(review):
    node = targets(review, 1)[0]
    review.record([verdict(node, "rejected", "Bo"), verdict(node, "confirmed", "Ada")])
    assert review.decisions.contradictions() == [node]
    row = f"id,verdict,who\n{node},known,Ada\n".encode()
    assert review.import_decisions(parse_decisions(row, review.nodes, "x", "table")) == 1
    assert review.decisions.verdict(node, -1) == "rejected"


def test_tables_say_which_nodes_are_on_the_list_after_the_decisions(review):
    listed = [node for node, is_listed in zip(review.nodes.ids, review.nodes.listed, strict=True) if is_listed]
    other = next(node for node in targets(review, 120) if node not in listed)
    review.record([verdict(listed[0], "rejected"), verdict(listed[1], "unsure"), verdict(other, "confirmed")])
    table = pl.read_csv(io.StringIO(export(review.decisions, review.nodes)), infer_schema=False)
    assert table["listed"].to_list() == ["false", "true", "true"]
    assert table["listed_before"].to_list() == ["true", "true", "false"]
    assert all(table["at"].str.contains(r"^20\d\d-\d\d-\d\dT"))
    final = {*listed[1:], other}
    review.learn()
    ranked = pl.read_csv(review.folder / REVIEWED)
    assert set(ranked.filter("listed")["id"].str.strip_prefix("'")) == final
    review.record([verdict(listed[0], "cleared"), verdict(a_group(review), "rejected")])
    members = {
        node for node, group in zip(review.nodes.ids, review.nodes.group, strict=True) if group == a_group(review)
    }
    review.learn()
    ranked = pl.read_csv(review.folder / REVIEWED)
    assert set(ranked.filter("listed")["id"].str.strip_prefix("'")) == {*listed, other} - (members - {listed[1], other})


@pytest.mark.parametrize("word", ["Confirm", "confirmed", "NEW", "yes", " y "])
def test_verdicts_have_many_words(review, word):
    node = targets(review, 1)[0]
    entry = parse_decisions(csv(f"Id;Verdict\n{node};{word}\n"), review.nodes, "Ada", "table")[0]
    assert (entry.node, entry.value, entry.who) == (node, "confirmed", "Ada")


BAD_TABLES = {
    "id,verdict\nnobody,confirmed\n": "row 2: 'nobody' is no node of this run",
    "id,verdict\n{a},confirmed\n{a},rejected\n": "row 3: it contradicts row 2",
    "id,verdict\n{b},\n{a},perhaps\n": "row 3: 'perhaps' is no verdict; write confirmed, rejected, unsure",
    "id,verdict\n,confirmed\n": "row 2: it has neither an id nor",
    "id,decision\n{a},confirmed\n": "no column 'verdict'",
    "verdict\nconfirmed\n": "no column 'id'",
    "id,verdict\n{source},confirmed\n": "is a source node",
    "": "is empty",
    "id,verdict\n{a},confirmed,new\n": "a row has more cells than the heading",
    'id,verdict\n"{a},confirmed\n': "a quotation mark is not closed",
    "id,verdict,group\n,confirmed," + "9" * 5000 + "\n": "neither an id nor the number of a group",
    "id,verdict,who\n{a},confirmed,A\x1b[31mda\n": "row 2: who: a person's name has 1 to 80 characters",
    "id,verdict,note\n{a},confirmed," + "x" * 2001 + "\n": "2000 characters",
}


def fill(text, review):
    source = review.nodes.ids[int(np.flatnonzero(~review.nodes.is_target)[0])]
    a, b = targets(review, 2)
    return text.replace("{a}", a).replace("{b}", b).replace("{source}", source)


@pytest.mark.parametrize(("text", "words"), BAD_TABLES.items(), ids=BAD_TABLES.values())
def test_a_table_that_is_not_clear_is_refused_whole(review, tmp_path, text, words):
    table = tmp_path / "mine.csv"
    table.write_text(fill(text, review))
    result = CliRunner().invoke(app, ["review", str(review.folder), "--decisions", str(table)])
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
    assert not (review.folder / REVIEW).exists()
    assert not (review.folder / REVIEWED).exists()


# The server


class Served:
    """A review that is served by a thread, and a browser's requests to it."""

    def __init__(self, review):
        self.session = review
        self.socket = access.bind("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = server.make_server(review, "127.0.0.1", self.port, ["review.example.org"])
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.thread.start()
        self.client = httpx.Client(base_url=self.address, timeout=600)
        welcome = self.client.get("/", params={"token": review.journal.token})
        self.welcome = welcome

    def post(self, path, body, **headers):
        own = {"Origin": self.address, "Content-Type": "application/json"}
        return self.client.post(path, content=json.dumps(body), headers=own | headers)

    def close(self):
        self.client.close()
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


@pytest.fixture(scope="module")
def served(finished, tmp_path_factory):
    copied = shutil.copytree(finished, tmp_path_factory.mktemp("served") / "out")
    with ReviewSession(copied) as review:
        serving = Served(review)
        yield serving
        serving.close()


def event(**fields):
    return {"key": new_key(), "who": "Ada", "kind": "verdict", "value": "confirmed"} | fields


def test_the_token_becomes_a_cookie_and_leaves_the_address(served):
    assert served.welcome.status_code == 303
    assert served.welcome.headers["location"] == "/"
    cookie = served.welcome.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    page = served.client.get("/")
    assert page.status_code == 200
    assert served.session.journal.token not in page.text
    assert 'id="review-config"' in page.text


@pytest.mark.parametrize("path", ["/", "/api/state", "/api/export.csv", "/certificate.html", "/nowhere"])
def test_nobody_gets_in_without_the_token(served, path):
    for options in ({}, {"params": {"token": "wrong"}}, {"headers": {"Cookie": "recoslip=x"}}):
        answer = httpx.get(served.address + path, **options)
        assert answer.status_code == 403
        assert "n00" not in answer.text
    posted = httpx.post(served.address + "/api/events", json={"events": []}, headers={"Origin": served.address})
    assert posted.status_code == 403


def test_a_foreign_name_of_the_host_is_refused(served):
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", ""):
        assert served.client.get("/", headers={"Host": host}).status_code == 421
    for host in (f"localhost:{served.port}", "review.example.org"):
        assert served.client.get("/", headers={"Host": host}).status_code == 200


def test_requests_of_foreign_pages_change_nothing(served):
    body = {"events": [event(node=targets(served.session, 1)[0])]}
    last = served.session.journal.last()
    for origin in ("http://evil.example", "null", "https://127.0.0.1", "file://", "", "http://[::1", "//"):
        assert served.post("/api/events", body, Origin=origin).status_code == 403
    assert served.client.post("/api/events", json=body).status_code == 403  # no Origin
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert served.post("/api/events", body, **{"Content-Type": kind}).status_code == 415
    assert served.client.get("/api/events").status_code == 405
    assert served.session.journal.last() == last


def test_answers_tell_the_browser_to_be_strict(served):
    page = served.client.get("/")
    policy = page.headers["content-security-policy"]
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy
    assert "connect-src 'self'" in policy
    for answer in (page, served.client.get("/api/state"), httpx.get(served.address)):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


def test_hostile_words_stay_words(served):
    notes = [event(node=name, note="<script>x</script>") for name in HOSTILE]
    assert served.post("/api/events", {"events": notes}).status_code == 200
    assert served.client.get("/api/state").headers["content-type"] == "application/json"
    page = served.client.get("/").text
    assert "<img src=x" not in page
    exported = served.client.get("/api/export.csv").text
    assert "'=cmd" in exported
    assert "\n=cmd" not in exported


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"events": []}, 422, "events: "),
        ({"events": "all"}, 422, "events: "),
        ([1], 422, "object"),
        ({"events": [event(node="nobody")]}, 422, "no node of this run"),
        ({"events": [event(group=999)]}, 422, "no group 999"),
        ({"events": [event(group=True)]}, 422, "events.0.group: "),
        ({"events": [event(node=7)]}, 422, "events.0.node: "),
        ({"events": [event(node="a", extra=1)]}, 422, "events.0.extra: "),
        ({"events": [event(node="a", who="x" * 81)]}, 422, "1 to 80 characters"),
        ({"events": [event(node="a", note="x" * 3000)]}, 422, "2000 characters"),
        ({"events": [event(node="a", note="\ud800")]}, 422, "JSON"),
        ({"events": [event(node="a", note="a\0b")]}, 422, "the character NUL"),
        ({"events": [event(node="a", who="\x1b[31mAda")]}, 422, "without control characters"),
        ({"events": [event(node="a", note="x" * 2**17)]}, 413, "65,536 bytes"),
    ],
)
def test_requests_that_are_not_clear_are_answered_with_a_sentence(served, body, status, words):
    last = served.session.journal.last()
    answer = served.post("/api/events", body)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert served.session.journal.last() == last


HALF = "\ud800"  # of a character, as \\ud800 in JSON


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/api/events", {"events": [event(node="a", who=HALF)]}),
        ("/api/events", {"events": [event(node=HALF)]}),
        ("/api/events", {"events": [event(node="a", key=HALF)]}),
        ("/api/events", {"events": [event(node="a", value=HALF)]}),
        ("/api/events", {"events": [event(node="a", **{HALF: "x"})]}),
        ("/api/sample", {"who": HALF}),
        ("/api/sample", {"who": "Ada", "size": HALF}),
        ("/api/import", {"who": HALF, "csv": "id,verdict\n"}),
        ("/api/import", {"who": "Ada", "csv": f"id,verdict\n{HALF},new\n"}),
        ("/api/learn", {"x": HALF}),
    ],
)
def test_half_a_character_is_refused_wherever_it_is(served, address, body):
    last = served.session.journal.last()
    answer = served.post(address, body)
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert served.session.journal.last() == last


@pytest.mark.parametrize("address", ["/api/events", "/api/sample", "/api/import", "/api/learn"])
@pytest.mark.parametrize("content", [b"", b"null", b"7", b"[" * 60_000, b'{"a":' * 9000, b"\xff{}", b"1" * 9000, b"{"])
def test_what_is_no_object_is_answered_with_a_sentence(served, address, content):
    headers = {"Origin": served.address, "Content-Type": "application/json"}
    answer = served.client.post(address, content=content, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_a_retry_records_nothing_twice(served):
    body = {"events": [event(node=targets(served.session, 1)[0])]}
    first, second = (served.post("/api/events", body) for _ in range(2))
    assert first.json() == second.json()


def test_news_arrive_while_a_request_waits(served):
    node = targets(served.session, 1)[0]
    last = served.session.journal.last()
    later = threading.Timer(0.2, lambda: served.session.record([verdict(node, "unsure", "Bo")]))
    later.start()
    state = {"events": []}
    while not state["events"]:
        state = served.client.get("/api/state", params={"since": last, "wait": 20}).json()
    later.join()
    assert [news["who"] for news in state["events"]] == ["Bo"]
    assert set(state["nodes"]) == {node}
    assert served.client.get("/api/state", params={"since": "x"}).status_code == 422


def test_a_full_disk_is_said_to_the_browser(served):
    store = served.session.journal
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    notes = {"events": [event(node=targets(served.session, 1)[0], note="x" * 1900) for _ in range(30)]}
    refused = served.post("/api/events", notes)
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert refused.status_code == 507
    assert "make room" in refused.json()["error"]
    assert served.post("/api/events", notes).status_code == 200


def test_a_browser_is_told_that_the_folder_is_gone_and_keeps_its_event(served, tmp_path):
    body = {"events": [event(node=targets(served.session, 1)[0])]}
    shutil.move(served.session.folder, tmp_path / "aside")
    refused = served.post("/api/events", body)
    shutil.move(tmp_path / "aside", served.session.folder)
    assert refused.status_code == 507  # below 500 the browser would drop it
    assert "was removed, moved or replaced" in refused.json()["error"]
    assert served.post("/api/events", body).status_code == 200


def test_learning_ranks_the_nodes_anew_and_one_at_a_time(served):
    one, other = targets(served.session, 2)
    served.post("/api/events", {"events": [event(node=one), event(node=other, value="rejected", who="Cy")]})
    answer = served.post("/api/learn", {}).json()
    assert len(answer["scores"]) == 120
    assert served.client.get("/api/scores").json() == answer
    assert answer["moved"] == served.session.moved != ""
    assert served.client.get("/api/state").json()["rankings"] == answer["rankings"]
    table = pl.read_csv(served.session.folder / REVIEWED, infer_schema=False)
    assert set(table["verdict"]) >= {"confirmed", "rejected"}
    with served.session._computing:
        busy = served.post("/api/learn", {})
    assert busy.status_code == 409
    assert "being computed already" in busy.json()["error"]


def test_learning_says_which_nodes_moved_and_how_far(review):
    nodes = review.nodes
    target = [node for node, is_target in zip(nodes.ids, nodes.is_target, strict=True) if is_target]
    last = targets(review, 120)[-1]  # of the lowest score
    review.record([verdict(last, "confirmed")])
    said = review.learn()
    ranked = pl.read_csv(io.StringIO(review.final()))["id"].str.strip_prefix("'").to_list()
    rises = {node: target.index(node) - ranked.index(node) for node in target}
    up, down = max(rises, key=rises.get), min(rises, key=rises.get)
    assert f"{sum(map(bool, rises.values()))} of {len(target)} target nodes moved" in said
    assert f"Largest rise: {up!r} from rank {target.index(up) + 1} to {ranked.index(up) + 1}." in said
    assert f"Largest fall: {down!r} from rank {target.index(down) + 1} to {ranked.index(down) + 1}." in said
    assert what_moved(nodes, nodes.score, nodes.score) == "The order of the nodes stays."


def test_the_queue_asks_about_undecided_target_nodes(served):
    queue = served.client.get("/api/queue", params={"count": 7}).json()["nodes"]
    assert 0 < len(queue) <= 7
    decided = served.session.decisions.decided(served.session.nodes)
    assert not set(queue) & {node for nodes in decided.values() for node in nodes}
    assert served.client.get("/api/queue", params={"count": 0}).status_code == 422


def test_a_sample_is_drawn_once_and_certified_by_own_verdicts(served):
    assert served.client.get("/certificate.html").status_code == 422
    proposed = served.client.get("/api/certificate").json()["proposed"]
    assert proposed >= 1
    nodes = served.post("/api/sample", {"who": "Ada", "size": min(proposed, 5)}).json()["nodes"]
    again = served.post("/api/sample", {"who": "Ada"})
    assert again.status_code == 409
    assert "rests on the first one" in again.json()["error"]
    served.post("/api/events", {"events": [event(node=node, who="Di") for node in nodes]})
    answer = served.client.get("/api/certificate").json()
    assert answer["nodes"] == nodes
    assert answer["sentence"] == served.session.certificate().sentence
    assert answer["sentence"]
    assert served.client.get("/certificate.html").headers["content-type"].startswith("text/html")


def test_the_final_list_leaves_out_what_was_rejected(served):
    nodes = served.session.nodes
    node = next(nodes.ids[k] for k in np.flatnonzero(nodes.listed) if nodes.ids[k] not in HOSTILE)
    served.session.record([verdict(node, value, who) for value, who in (("cleared", "Ada"), ("rejected", "Flo"))])
    final = pl.read_csv(io.StringIO(served.client.get("/api/final.csv").text), infer_schema=False)
    row = final.filter(pl.col("id") == node)
    decided = served.session.decisions.verdict(node, nodes.group[nodes.ids.index(node)])
    assert (row["listed"][0], row["listed_before"][0]) == (str(decided != "rejected").lower(), "true")
    assert decided in ("rejected", "")
    assert "group_name" in final.columns


def test_a_table_is_imported_whole_or_not(served):
    node = targets(served.session, 4)[3]
    sent = served.post("/api/import", {"who": "Ed", "csv": f"id,verdict\n{node},yes\n"})
    assert sent.json() == {"recorded": 1}
    assert served.post("/api/import", {"who": "Ed", "csv": f"id,verdict\n{node},yes\n"}).json() == {"recorded": 0}
    refused = served.post("/api/import", {"who": "Ed", "csv": f"id,verdict\n{node},no\nx,yes\n"})
    assert refused.status_code == 422
    assert "row 3" in refused.json()["error"]
    assert served.session.decisions.last_of("Ed", node) == "confirmed"


# The command


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["review", *map(str, arguments)])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result.stderr.replace("\n", " ") if code else result.stdout


def test_decisions_without_the_server(folder, tmp_path):
    with ReviewSession(folder) as review:
        one, other = targets(review, 2)
    table = tmp_path / "mine.csv"
    table.write_text(f"id,verdict,note,who\n{one},new,shiny,\n{other},known,,Bo\n")
    said = run(folder, "--decisions", table, "--who", "Ada", "--export", tmp_path / "all.csv", "--queue", 3)
    assert "2 decisions added" in said
    assert "2 nodes decided by 2 people: 1 confirmed, 1 rejected, 0 unsure." in said
    exported = pl.read_csv(tmp_path / "all.csv", infer_schema=False)
    assert exported["who"].to_list()[:2] == ["Ada", "Bo"]
    assert exported.height == 5
    assert "target nodes moved" in said
    ranked = pl.read_csv(folder / REVIEWED, infer_schema=False)
    assert dict(ranked.select("id", "verdict").iter_rows())[one] == "confirmed"
    assert "0 decisions added" in run(folder, "--decisions", table, "--who", "Ada")


def test_decisions_are_kept_where_the_model_does_not_learn(tmp_path):
    folder = make_folder(tmp_path / "out", rotations=1)
    with ReviewSession(folder) as review:
        node = targets(review, 1)[0]
    (tmp_path / "mine.csv").write_text(f"id,verdict\n{node},new\n")
    said = run(folder, "--decisions", tmp_path / "mine.csv")
    assert "1 decision added" in said
    assert "not ranked anew: scores learn from decisions after" in said.replace("\n", " ")
    final = pl.read_csv(folder / REVIEWED)  # the list is there, with the scores that there were
    assert final["score"].equals(final["score_before"].alias("score"))
    assert final.filter(pl.col("id") == node)["listed"].to_list() == [True]


def test_a_sample_without_the_server(folder):
    assert "The sample of 4 nodes" in run(folder, "--sample", 4)
    sample = pl.read_csv(folder / "sample.csv", infer_schema=False)
    assert sample.height == 4
    assert "The sample of 4 nodes" in run(folder, "--sample", 0)  # the same again
    assert pl.read_csv(folder / "sample.csv", infer_schema=False).equals(sample)
    assert "a sample of 4 nodes was drawn already" in run(folder, "--sample", 5, code=2)
    sample.with_columns(verdict=pl.lit("confirmed")).write_csv(folder / "sample.csv")
    said = run(folder, "--decisions", folder / "sample.csv")
    with ReviewSession(folder) as review:
        assert review.certificate().sentence in said.replace("\n", " ")


@pytest.mark.parametrize("name", ["x\udcff", "\ud800"])
def test_a_name_that_is_no_text_is_refused_or_shown_as_far_as_it_is(folder, monkeypatch, name):
    assert "in UTF-8" in run(folder, "--sample", 3, "--who", name, code=2)
    monkeypatch.setenv("LOGNAME", "Ada\udcff")
    assert "The sample of 3 nodes" in run(folder, "--sample", 3)
    with sqlite3.connect(folder / REVIEW) as connection:
        assert connection.execute("SELECT who FROM samples").fetchall() == [("Ada\ufffd",)]
    connection.close()


def test_wrong_uses_end_with_a_sentence(folder, tmp_path):
    assert "expected a folder" in run(tmp_path / "nothing", "--sample", 3, code=2)
    assert "give --export too" in run(folder, "--queue", 3, code=2)
    assert "cannot read" in run(folder, "--decisions", tmp_path / "none.csv", code=2)
    assert "give a CSV file" in run(folder, "--decisions", tmp_path, code=2)
    assert "1 to 80 characters" in run(folder, "--sample", 3, "--who", "", code=2)
    assert "no address of this machine" in run(folder, "--host", "no such host", "--no-browser", code=2)
    with access.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}: Address already in use; give another --port" in run(folder, "--port", port, code=2)
    page = json.loads((folder / "report.json").read_text())
    page["nodes"]["id"][0] = "somebody else"
    (folder / "report.json").write_text(json.dumps(page))
    assert "names 'somebody else', which the scores do not have" in run(folder, "--no-browser", code=2)
    (folder / "report.json").write_text("{}")
    assert "report.json cannot be read" in run(folder, "--no-browser", code=2)
    (folder / "report.json").unlink()
    assert "holds no report.json" in run(folder, "--no-browser", code=2)
    assert not (folder / REVIEWED).exists()
    assert not (folder / "sample.csv").exists()


def test_without_starlette_the_remedy_is_named(folder, monkeypatch):
    for name in ("recoslip.products.review.server", "recoslip.products.review.access"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("recoslip.products.review.server", raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] in ("starlette", "uvicorn")]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install 'recoslip[review]'" in run(folder, "--no-browser", code=2)


def test_names_and_ports_of_a_team():
    hosts = access.allowed_hosts("0.0.0.0", 8000, ["review.example.org"])
    assert {"review.example.org", "review.example.org:8000", "127.0.0.1:8000"} <= hosts
    assert "0.0.0.0:8000" not in hosts
    assert "evil.example:8000" not in hosts
    assert "127.0.0.1" not in hosts  # a Host without its port is not ours
    with pytest.raises(RecoslipError, match=r"cannot listen|no address"):
        access.bind("192.0.2.1", 0)


def test_a_review_has_the_same_port_tomorrow_unless_it_is_taken():
    with access.bind_own("127.0.0.1", 0, "ab" * 32) as first:
        port = first.getsockname()[1]
        assert first.getsockname()[0] == "127.0.0.1"
        with access.bind_own("127.0.0.1", 0, "ab" * 32) as second:
            assert second.getsockname()[1] != port


def test_a_new_token_closes_old_addresses(store):
    old = store.token
    store.renew_token()
    assert store.token != old


# Whom the queue asks about, and the user's own columns


def test_the_queue_leaves_out_what_is_unsure_or_disputed_alone_or_with_its_group(review):
    group = a_group(review)
    members = {review.nodes.ids[k] for k in np.flatnonzero(review.nodes.group == group)}
    others = [node for node in targets(review, 200) if node not in members]
    review.record([verdict(group, "confirmed", "Ada"), verdict(group, "rejected", "Ben"), verdict(others[0], "unsure")])
    review.record([verdict(others[1], "confirmed", "Ada"), verdict(others[1], "rejected", "Ben")])
    asked = review.queue(1000)
    assert set(asked) == {n for n, t in zip(review.nodes.ids, review.nodes.is_target, strict=True) if t} - members - {
        others[0],
        others[1],
    }


def test_a_member_that_somebody_decided_on_is_out_of_its_groups_dispute(review):
    group = a_group(review)
    member = review.nodes.ids[int(np.flatnonzero(review.nodes.group == group)[0])]
    review.record([verdict(group, "confirmed", "Ada"), verdict(group, "rejected", "Ben"), verdict(member, "confirmed")])
    assert member not in review.decisions.disputed(review.nodes)
    assert member in review.decisions.decided(review.nodes)["confirmed"]


def test_tables_have_the_users_columns_and_can_be_read_back(review):
    node = targets(review, 1)[0]
    table = pl.read_csv(io.StringIO(to_fill_in(review.nodes, [node])), infer_schema=False)
    assert table.columns == ["id", "verdict", "note", "group", "score", "holds_up_to", "own_Group", "self"]
    assert table["own_Group"][0].startswith("shelf")
    filled = table.with_columns(verdict=pl.lit("new")).write_csv()
    assert [entry.value for entry in parse_decisions(filled.encode(), review.nodes, "Ada", "table")] == ["confirmed"]
    review.record([verdict(node, "confirmed")])
    assert "shelf" in export(review.decisions, review.nodes)


def test_a_table_in_which_several_people_disagree_is_refused(review):
    node = targets(review, 1)[0]
    rows = f"id,verdict,who\n{node},new,Ada\n{node},known,Ben\n"
    assert len(parse_decisions(rows.encode(), review.nodes, "x", "table")) == 2
    with pytest.raises(RecoslipError, match="row 4: several people disagree about this"):
        parse_decisions(f"{rows}{node},new,Cleo\n".encode(), review.nodes, "x", "table")
