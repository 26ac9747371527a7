"""Killed at any moment (kill -9), a command leaves its output whole or absent, and running it again succeeds.

A command is killed after a random time, until enough kills have landed before its end; or it kills itself at its n-th
change to the file system, for every n, or where a run takes long for many n and all of the last.
"""

import itertools
import json
import random
import shutil

import polars as pl
import pytest
from fork_server import spread

import recoslip
from recoslip import RecoSlipPlus
from recoslip.base.files import HIDDEN, contents, put_right
from recoslip.data.datasets.block_model import csbm

NODES = 40


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, nodes in (("", NODES), ("shop-", 200)):
        graph = csbm(nodes=nodes, features=3)
        frame = pl.DataFrame({"id": range(nodes), "domain": graph.is_target.astype(int), "kind": graph.categories})
        frame.with_columns(**{f"x{k}": graph.x[:, k] for k in range(3)}).write_csv(folder / f"{name}nodes.csv")
        left, right = graph.edge_index
        pl.DataFrame({"a": left, "b": right}).write_csv(folder / f"{name}edges.csv")
    text = '[datasets.shop]\nnodes = "shop-nodes.csv"\nedges = "shop-edges.csv"\ndomain = "domain"\ncategory = "kind"\n'
    (folder / "bench.toml").write_text(text)
    RecoSlipPlus(epochs=2, hidden_channels=4).fit(csbm(nodes=NODES)).save(folder / "saved")
    return folder


def detect(tables, out):
    files = [tables / "nodes.csv", tables / "edges.csv", "--ignore", "kind", "--out", out]
    return ["detect", *files, "--method", "lp-pul", "--max-fpr", "0.3", "--quiet"]


def save(tables, out):
    return ["save", tables / "saved", out]


def pack(tables, out):
    return ["pack", tables / "nodes.csv", tables / "edges.csv", out, "--ignore", "kind", "--quiet"]


def is_packed(out):
    assert recoslip.open_packed(out).num_nodes == NODES


def is_result(out):
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(HIDDEN)) == [
        "model",
        "recoslip.json",
        "report.html",
        "report.json",
        "scores.csv",
        "summary.json",
    ]
    assert pl.read_csv(out / "scores.csv").height == NODES
    assert json.loads((out / "summary.json").read_text())["nodes"] == NODES
    assert (out / "report.html").read_text().endswith("</html>\n")
    recoslip.Calibrated.load(out / "model")


def is_model(out):
    assert len(recoslip.load_detector(out).scores_) == NODES


# A command that writes a folder joins by one more line: how to call it, the options that replace an earlier output, how
# to check a whole output, and how many kills at random moments.
WRITERS = [
    pytest.param(detect, ["--force"], is_result, 6, id="detect"),
    pytest.param(save, [], is_model, 15, id="save"),
    pytest.param(pack, ["--force"], is_packed, 8, id="pack"),
]


@pytest.mark.parametrize(("command", "force", "check_whole", "kills"), WRITERS)
def test_the_output_is_whole_or_absent_whenever_it_is_killed(
    forked, tables, tmp_path, command, force, check_whole, kills
):
    chance = random.Random(0)
    outs = [tmp_path / f"out{k}" for k in range(4)]

    def run(out, **options):
        return forked.run(*command(tables, out), *(force if out.exists() else []), **options)

    ended = run(tmp_path / "first")
    check_whole(tmp_path / "first")
    seconds, killed = ended.seconds, 0
    for out in itertools.cycle(outs):
        ended = run(out, kill_after=chance.uniform(0, seconds))
        if ended.killed:
            killed += 1
        else:
            assert ended.returncode == 0, ended.stderr
            seconds = ended.seconds  # the machine is faster or slower now: kill within the time that it took last
        put_right(out)  # as the next command does
        if out.exists():
            check_whole(out)
        if killed == kills:
            break
    for out in outs:
        ended = run(out)
        assert ended.returncode == 0, ended.stderr
        check_whole(out)


@pytest.mark.parametrize(
    ("command", "force", "check_whole", "before"),
    [
        (save, [], is_model, "nothing"),
        (save, [], is_model, "an empty folder"),
        (save, [], is_model, "an earlier output"),
        (detect, ["--force"], is_result, "an earlier output"),
    ],
)
def test_killed_at_any_change_to_the_disk_it_leaves_the_old_or_the_new(
    forked, tables, tmp_path, command, force, check_whole, before
):
    assert forked.run(*command(tables, tmp_path / "earlier")).returncode == 0
    steps = range(120)
    if command is detect:
        shutil.copytree(tmp_path / "earlier", tmp_path / "counted")
        changes = forked.count_changes(*command(tables, tmp_path / "counted"), *force)
        steps = [*spread(changes, 8, 6), changes]
    for step, change in enumerate(steps):
        out = tmp_path / str(change) / "out"
        out.parent.mkdir()
        if before == "an empty folder":
            out.mkdir()
        elif before == "an earlier output":
            shutil.copytree(tmp_path / "earlier", out)
        ended = forked.run(*command(tables, out), *(force if out.exists() else []), kill_at_change=change)
        if ended.returncode == 0:
            check_whole(out)
            break
        assert ended.killed, ended.stderr
        put_right(out)  # as the next command does
        if before == "an earlier output" or (out.exists() and any(contents(out))):
            check_whole(out)
        if step % 4 == 0:
            assert forked.run(*command(tables, out), *(force if out.exists() else [])).returncode == 0
            check_whole(out)
    assert ended.returncode == 0
    assert 3 < change < 119


class KilledBench:
    """A bench that is killed again and again, and what it had stored after each kill."""

    def __init__(self, forked, arguments, out):
        self.forked, self.arguments, self.out, self.stored = forked, arguments, out, {}

    def run(self, **options):
        ended = self.forked.run(*self.arguments, self.out, **options)
        assert ended.killed or ended.returncode == 0, ended.stderr
        stored = {path.name: path.read_bytes() for path in (self.out / "records").glob("[!.]*.jsonl")}
        assert self.stored.items() <= stored.items()  # nothing lost, nothing done again
        assert all(json.loads(line)["auroc"] >= 0 for content in stored.values() for line in content.splitlines())
        self.stored = stored
        return ended


def test_a_bench_loses_nothing_that_it_stored_and_ends_as_if_never_killed(forked, tables, tmp_path):
    choices = ["--datasets", "shop", "--methods", "lp-pul,domain-discriminator", "--splits", "4", "--seeds", "1"]
    settings = ["--set", "epochs=4", "--config", tables / "bench.toml", "--device", "cpu", "--quiet"]
    arguments = ["bench", "main", *choices, *settings, "--out"]
    whole = KilledBench(forked, arguments, tmp_path / "whole")
    seconds = whole.run().seconds
    expected = figures(whole.out)
    assert len(expected) == 8

    at_changes, stored = KilledBench(forked, arguments, tmp_path / "at changes"), set()
    for change in range(0, 500, 8):
        if not at_changes.run(kill_at_change=change).killed:
            break
        stored.add(len(at_changes.stored))
    assert len(stored) > 3  # different numbers of records, each kept through kills
    assert figures(at_changes.out) == expected

    chance, killed = random.Random(1), 0
    for folder in itertools.count():
        bench = KilledBench(forked, arguments, tmp_path / f"killed{folder}")
        for attempt in range(6):
            ended = bench.run(kill_after=chance.uniform(0.3, 1) * seconds / 2)
            killed += ended.killed
            if not ended.killed:
                seconds = ended.seconds if attempt == 0 else seconds  # the machine is faster now: kill sooner
                break
        assert bench.run().returncode == 0
        assert figures(bench.out) == expected
        if killed >= 6:
            break


def figures(out):
    records = [json.loads(line) for path in out.glob("records/[!.]*.jsonl") for line in path.read_text().splitlines()]
    return sorted((r["split"], r["method"], r["auroc"], r["ap"]) for r in records)
