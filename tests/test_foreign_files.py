"""Whatever a command does, with or without --force, killed or not: files that recoslip did not write stay as they are.

RECOSLIP_FUZZ=20 draws twenty times as many sequences of commands, others each time.
"""

import os
import random
import re
import shlex
import threading

import polars as pl
import pytest
from fork_server import spread
from typer.testing import CliRunner

import recoslip
from recoslip import Watch
from recoslip.base.errors import RecoslipError
from recoslip.base.files import output_lock
from recoslip.data.datasets.block_model import csbm
from recoslip.products.cli import app
from recoslip.products.review.decisions import CannotWriteError, Entry
from recoslip.products.review.journal import Journal

TIMES = int(os.environ.get("RECOSLIP_FUZZ", "1"))
NODES = 150


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of nodes and edges, of a watch's known nodes and of a batch."""
    folder = tmp_path_factory.mktemp("tables")
    graph = csbm(nodes=NODES, features=3, seed=1)
    columns = {f"x{k}": graph.x[:, k] for k in range(3)}
    frame = pl.DataFrame({"id": [f"n{k}" for k in range(NODES)], "domain": graph.is_target.astype(int)} | columns)
    frame.write_csv(folder / "nodes.csv")
    frame.drop("domain").write_csv(folder / "known.csv")
    frame.drop("domain").with_columns("b" + pl.col("id")).head(60).write_csv(folder / "batch.csv")
    left, right = ([f"n{k}" for k in ends] for ends in graph.edge_index.tolist())
    pl.DataFrame({"a": left, "b": right}).write_csv(folder / "edges.csv")
    return folder


def detect(tables, out, *more):
    options = ["--method", "lp-pul", "--max-fpr", "0.3", "--quiet"]
    return ["detect", tables / "nodes.csv", tables / "edges.csv", "--out", out, *options, *more]


def score(tables, model, out, *more):
    return ["score", model, "--nodes", tables / "nodes.csv", "--edges", tables / "edges.csv", "--out", out, "-q", *more]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def out(tables, tmp_path):
    run(*detect(tables, tmp_path / "out"))
    return tmp_path / "out"


def test_a_folder_that_looks_like_a_result_is_not_replaced(tables, tmp_path):
    (tmp_path / "out" / "model").mkdir(parents=True)
    (tmp_path / "out" / "model" / "weights.bin").write_bytes(b"of months of training")
    (tmp_path / "out" / "summary.json").write_text("{}")
    before = contents(tmp_path)
    run(*detect(tables, tmp_path / "out", "--force"), code=2)
    with pytest.raises(RecoslipError, match="was not written by this version"):
        recoslip.detect(tables / "nodes.csv", tables / "edges.csv", method="lp-pul", max_fpr=0.3).save(
            tmp_path / "out", replace=True
        )
    assert contents(tmp_path) == before


def test_a_result_of_an_earlier_version_is_read_and_never_replaced(tables, out):
    (out / "recoslip.json").unlink()
    before = contents(out)
    run(*detect(tables, out, "--force"), code=2)
    assert recoslip.load(out).table.height == NODES
    run("compare", out, out)
    assert contents(out) == before


def test_scores_do_not_replace_the_model_that_they_are_made_with(tables, out, tmp_path):
    before = contents(tmp_path)
    for model in (out, out / "model"):
        for force in ([], ["--force"]):
            message = run(*score(tables, model, out, *force), code=2)
            assert "is or holds an input" in message
            assert "--force" not in message
    result = recoslip.score(out, tables / "nodes.csv", tables / "edges.csv")
    for folder in (out, out / "model"):
        with pytest.raises(RecoslipError, match="choose another folder"):
            result.save(folder, replace=True)
    assert contents(tmp_path) == before
    result.save(tmp_path / "new")
    with pytest.raises(RecoslipError, match="holds another kind of output"):
        recoslip.detect(tables / "nodes.csv", tables / "edges.csv", method="lp-pul", max_fpr=0.3).save(
            tmp_path / "new", replace=True
        )


def test_an_output_that_holds_an_input_is_refused(tables, tmp_path):
    out = tmp_path / "out"
    run(*detect(tables, out))
    before = contents(out)
    own = ["detect", out / "scores.csv", "--method", "lp-pul", "--out", out, "--force"]
    assert "is or holds an input" in run(*own, code=2)
    run("pack", tables / "nodes.csv", tables / "edges.csv", tmp_path / "graph", "-q")
    packed = contents(tmp_path / "graph")
    assert "is or holds an input" in run("pack", tables / "nodes.csv", tables / "edges.csv", tables, "--force", code=2)
    assert "is or holds an input" in run(
        "detect", tmp_path / "graph", "--method", "lp-pul", "--out", tmp_path / "graph", "--force", code=2
    )
    assert contents(out) == before
    assert contents(tmp_path / "graph") == packed


def test_a_sample_that_was_filled_in_is_kept(out):
    run("review", out, "--sample", "6")
    table = pl.read_csv(out / "sample.csv", infer_schema=False)
    run("review", out, "--sample", "0")  # not filled in yet
    table.with_columns(verdict=pl.lit("confirmed")).write_csv(out / "sample.csv")
    before = contents(out)
    message = run("review", out, "--sample", "0", code=2)
    assert contents(out) == before
    assert "sample.csv" in message
    run("review", out, "--decisions", out / "sample.csv")


def test_a_sample_of_the_users_is_not_taken_for_the_reviews(out):
    (out / "sample.csv").write_text("blood,tissue\n")
    run("review", out, "--sample", "6", code=2)
    assert (out / "sample.csv").read_text() == "blood,tissue\n"
    with Journal(out) as store:
        assert store.sample() is None  # refused as a whole


def test_an_export_replaces_no_file(out, tmp_path):
    run("review", out, "--sample", "6")
    (tmp_path / "notes.csv").write_text("mine")
    for path in (out / "scores.csv", out / "review.sqlite", out / "sample.csv", tmp_path / "notes.csv", out):
        before = contents(tmp_path)
        run("review", out, "--export", path, code=2)
        assert contents(tmp_path) == before
    run("review", out, "--export", tmp_path / "decisions.csv")
    run("review", out, "--export", tmp_path / "decisions.csv", code=2)


def test_a_review_does_not_begin_while_a_command_writes_its_folder(out, monkeypatch):
    monkeypatch.setattr("recoslip.products.review.journal.WAIT", 0.0, raising=False)
    held, released = threading.Event(), threading.Event()

    def hold():
        with output_lock(out):
            held.set()
            released.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    before = contents(out)
    verdict = Entry("key", "Ada", "verdict", node="n1", value="confirmed")
    try:
        with Journal(out) as store, pytest.raises(CannotWriteError, match="another process is writing"):
            store.append([verdict])
        assert contents(out) == before
    finally:
        released.set()
        thread.join()
    with Journal(out) as store:
        store.append([verdict])


def test_a_notebook_writes_its_files_again_and_no_others(tables, tmp_path):
    result = recoslip.detect(tables / "nodes.csv", tables / "edges.csv", method="lp-pul", max_fpr=0.3)
    for _ in range(2):
        result.report(tmp_path / "report.html")
        result.save(tmp_path / "out", replace=True)
    for path in (tmp_path / "report.html", tmp_path / "out" / "scores.csv"):
        path.write_text("corrected by hand")
    with pytest.raises(RecoslipError, match="is there already"):
        result.report(tmp_path / "report.html")
    with pytest.raises(RecoslipError, match=r"'scores.csv', which was changed since"):
        result.save(tmp_path / "out", replace=True)
    assert (tmp_path / "out" / "scores.csv").read_text() == "corrected by hand"


def test_the_remedies_of_messages_about_files_work(tables, out, tmp_path):
    again = detect(tables, out)
    message = run(*again, code=2)
    assert "choose another folder, or replace it: --force" in message
    run(*again, "--force")
    run(*detect(tables, tmp_path / "another"))
    (out / "notes.txt").write_text("mine")
    assert "holds 'notes.txt', which was not written by this version; move it away" in run(*again, "--force", code=2)
    (out / "notes.txt").rename(tmp_path / "notes.txt")
    run(*again, "--force")
    (out / "report.html").write_text("with my remarks")
    for command in (["report", out], [*again, "--force"]):
        assert "holds 'report.html', which was changed since; move it away" in run(*command, code=2)
    (out / "report.html").rename(tmp_path / "report.html")
    run("report", out)
    run(*again, "--force")
    assert "choose another folder" in run(*score(tables, out, out), code=2)
    run(*score(tables, out, tmp_path / "scores"))
    compare = ["compare", out, tmp_path / "another", "--out"]
    run(*compare, tmp_path / "changes.csv")
    assert "choose another name, or move it away" in run(*compare, tmp_path / "changes.csv", code=2)
    run(*compare, tmp_path / "other.csv")
    (tmp_path / "changes.csv").rename(tmp_path / "moved.csv")
    run(*compare, tmp_path / "changes.csv")
    begin = ["--begin", "--nodes", tables / "known.csv"]
    assert "begin a watch in a new folder" in run("watch", out, *begin, code=2)
    run("watch", tmp_path / "new", *begin)
    run("review", out, "--sample", "6")
    filled = pl.read_csv(out / "sample.csv", infer_schema=False).with_columns(verdict=pl.lit("rejected"))
    filled.write_csv(out / "sample.csv")
    (remedy,) = re.findall(r"--decisions \S+", run("review", out, "--sample", "0", code=2).replace(", alone", ""))
    run("review", out, *shlex.split(remedy))
    (out / "sample.csv").rename(tmp_path / "sample.csv")
    run("review", out, "--sample", "0")
    assert "choose another folder" in run(*again, "--force", code=2)  # it holds a review


# Sequences of commands, with a user's files in and around what they write


NAMES = (
    "nodes-2025-final.xlsx", "seen-by-customs.txt", "seen-000001.safetensors", "sample.csv", "reviewed.csv",
    "scores.csv", "report.html", "recoslip.json", "graph.graphml", "cells.h5ad", "model/weights.bin",
    "model/model.json", "journal", ".recoslip-mine/journal", ".recoslip-mine/new/scores.csv", ".out-mine/journal",
    ".out-mine/new/model.json", ".out.replaced/scores.csv", "nodes.parquet", "x.npy", "watch.json", "records/a.jsonl",
    "changes.csv", "decisions.csv",
)  # fmt: skip


class World:
    """A folder with outputs and a user's files, whose content is remembered."""

    def __init__(self, root, tables, draw):
        self.root, self.tables, self.draw, self.mine = root, tables, draw, {}
        root.mkdir()

    def commands(self):
        """Every command that writes, as a user would give it."""
        outs = [self.root / name for name in ("out", "scores", "graph", "watch")]
        out, scores, graph, watch = outs
        nodes, edges, known, new = (self.tables / f"{name}.csv" for name in ("nodes", "edges", "known", "batch"))
        choose, force = self.draw.choice, self.draw.choice([[], ["--force"]])
        return [
            detect(self.tables, choose([out, out, *outs]), *force),
            score(self.tables, out, choose([scores, *outs]), *force),
            ["pack", nodes, edges, choose([graph, *outs]), "-q", *force],
            ["watch", choose([watch, watch, *outs]), "--begin", "--nodes", known],
            ["watch", watch, "--nodes", new],
            ["report", choose(outs)],
            ["review", out, "--sample", "0"],
            ["review", out, "--export", choose([self.root, *outs]) / "decisions.csv"],
            ["compare", out, out, "--out", choose([self.root, *outs]) / "changes.csv"],
        ]

    def interfere(self):
        """Put a file of the user's somewhere, or write into one that is there."""
        places = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        place = self.draw.choice(places)
        hidden = any(part.startswith(".") for part in place.relative_to(self.root).parts)
        path = place / ("notes.txt" if hidden else self.draw.choice(NAMES))
        if path.is_dir() or any(parent.is_file() for parent in path.parents):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"mine {self.draw.random()}".encode())
        self.mine[path] = path.read_bytes()

    def check(self):
        for path, content in self.mine.items():
            assert path.is_file(), path
            assert path.read_bytes() == content, path


@pytest.mark.slow
@pytest.mark.parametrize("case", range(2 * TIMES))
def test_sequences_of_commands_leave_every_file_of_the_user_as_it_is(forked, tables, tmp_path, case):
    draw = random.Random(case if TIMES == 1 else None)
    world = World(tmp_path / "world", tables, draw)
    codes = []
    for step in range(24):
        if step % 3 == 2:
            world.interfere()
        command = draw.choice(world.commands())
        kill = draw.choice([None, None, draw.randrange(60)])
        ended = forked.run(*command, kill_at_change=kill)
        assert ended.killed or ended.returncode in (0, 2, 10, 11), ended.stderr
        assert "Traceback" not in ended.stderr
        codes.append(ended.returncode)
        world.check()
    assert {0, 2} <= set(codes)


@pytest.mark.slow
def test_a_replacement_that_is_killed_leaves_the_users_files_and_can_be_given_again(forked, tables, tmp_path):
    out = tmp_path / "out"
    command = [*detect(tables, out), "--force"]
    changes = forked.count_changes(*command)
    for change in spread(changes, 3, 9):
        forked.run(*command, kill_at_change=change)
        hidden = [path for path in (*tmp_path.glob(".out-*"), *out.glob(".recoslip-*")) if any(path.iterdir())]
        mine = [path / "mine.txt" for path in hidden]
        for path in mine:
            path.write_text("mine")
        ended = forked.run(*command)
        assert ended.returncode == 0, ended.stderr
        assert recoslip.load(out).table.height == NODES
        for path in mine:
            assert path.read_text() == "mine"
            path.unlink()


def test_a_watch_refuses_a_folder_before_it_touches_anything(tables, tmp_path):
    (tmp_path / "known.csv").write_bytes((tables / "known.csv").read_bytes())
    for name in ("nodes-2025-final.xlsx", "seen-by-customs.txt", "nodes-mine.csv"):
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(RecoslipError, match="is not empty"):
        Watch.begin(tmp_path, tmp_path / "known.csv")
    assert contents(tmp_path) == before
