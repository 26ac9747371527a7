"""Killed at any moment (kill -9), a command leaves its output whole or absent, and running it again succeeds.

A process that has imported everything waits and forks one child per run, so that a kill costs no imports. A child is
killed after a random time, or kills itself at its n-th change to the file system, for every n.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import polars as pl
import pytest

import recoslip
from recoslip import RecoSlipPlus
from recoslip.datasets import csbm

NODES = 40
NURSERY = """
import json, os, signal, sys, time
import igraph, leidenalg, plotly.offline, sklearn.manifold, sklearn.linear_model, torch_geometric.explain
import recoslip
from recoslip.cli import app

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate"}

def child(arguments, change):
    sys.stdout = sys.stderr = open(os.devnull, "w")
    seen = 0
    def hook(event, details):
        nonlocal seen
        writes = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or writes:
            if seen == change:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
    sys.addaudithook(hook)
    try:
        if arguments[0] == "save":
            recoslip.load(arguments[1]).save(arguments[2])
        else:
            app(arguments)
    except SystemExit as end:
        os._exit(end.code or 0)
    except BaseException:
        os._exit(99)
    os._exit(0)

for line in sys.stdin:
    request = json.loads(line)
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        child(request["arguments"], request["change"])
    end = begin + (request["seconds"] or 60)
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if time.perf_counter() > end:
            os.kill(pid, signal.SIGKILL)
            done = os.waitpid(pid, 0)
            break
        time.sleep(0.0005)
    print(json.dumps([os.waitstatus_to_exitcode(done[1]), time.perf_counter() - begin]), flush=True)
"""


@pytest.fixture(scope="module")
def run():
    """Run a command in a fork: arguments -> exit code, -9 if it was killed, and seconds."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", NURSERY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as nursery:
        codes = []

        def ask(*arguments, seconds=None, change=None):
            request = {"arguments": list(map(str, arguments)), "seconds": seconds, "change": change}
            nursery.stdin.write(json.dumps(request) + "\n")
            nursery.stdin.flush()
            code, taken = json.loads(nursery.stdout.readline())
            codes.append(code)
            return code, taken

        yield ask
        nursery.stdin.close()
        print(f"\n{codes.count(-9)} kills in {len(codes)} runs")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, nodes in (("", NODES), ("shop-", 200)):
        graph = csbm(nodes=nodes, features=3)
        frame = pl.DataFrame(
            {"id": range(nodes), "domain": graph.is_target.numpy().astype(int), "kind": graph.categories}
        )
        frame.with_columns(**{f"x{k}": graph.x[:, k].numpy() for k in range(3)}).write_csv(folder / f"{name}nodes.csv")
        left, right = graph.edge_index.numpy()
        pl.DataFrame({"a": left, "b": right}).write_csv(folder / f"{name}edges.csv")
    text = '[datasets.shop]\nnodes = "shop-nodes.csv"\nedges = "shop-edges.csv"\ndomain = "domain"\ncategory = "kind"\n'
    (folder / "bench.toml").write_text(text)
    RecoSlipPlus(epochs=2, round_epochs=2, hidden_channels=4).fit(csbm(nodes=NODES)).save(folder / "saved")
    return folder


def detect(tables, out):
    files = ["--nodes", tables / "nodes.csv", "--edges", tables / "edges.csv", "--ignore", "kind", "--out", out]
    return ["detect", *files, "--method", "lp-pul", "--max-fpr", "0.3", "--quiet"]


def save(tables, out):
    return ["save", tables / "saved", out]


def pack(tables, out):
    return ["pack", tables / "nodes.csv", tables / "edges.csv", out, "--ignore", "kind", "--quiet"]


def is_packed(out):
    assert recoslip.open_packed(out).num_nodes == NODES


def is_result(out):
    assert sorted(path.name for path in out.iterdir()) == [
        "model",
        "report.html",
        "report.json",
        "scores.csv",
        "summary.json",
    ]
    assert pl.read_csv(out / "scores.csv").height == NODES
    assert json.loads((out / "summary.json").read_text())["nodes"] == NODES
    assert (out / "report.html").read_text().endswith("</html>\n")
    recoslip.load(out / "model")


def is_model(out):
    assert len(recoslip.load(out).scores_) == NODES


# A command that writes a folder joins by one more line: how to call it, whether it must be told to replace what is
# there, what a whole output is, and how many kills at random moments.
WRITERS = [
    pytest.param(detect, ["--force"], is_result, 24, id="detect"),
    pytest.param(save, [], is_model, 100, id="save"),
    pytest.param(pack, ["--force"], is_packed, 40, id="pack"),
]


@pytest.mark.parametrize(("command", "force", "is_whole", "kills"), WRITERS)
def test_the_output_is_whole_or_absent_whenever_it_is_killed(run, tables, tmp_path, command, force, is_whole, kills):
    chance = random.Random(0)
    _, seconds = run(*command(tables, tmp_path / "first"))
    is_whole(tmp_path / "first")
    killed = 0
    for k in range(kills):
        out = tmp_path / f"out{k % 7}"
        code, taken = run(*command(tables, out), *(force if out.exists() else []), seconds=chance.uniform(0, seconds))
        seconds = min(seconds, taken) if code == 0 else seconds  # the first run was slow, its files not in memory yet
        killed += code == -9
        if out.exists():
            is_whole(out)
    assert killed > kills / 3
    for k in range(7):
        out = tmp_path / f"out{k}"
        assert run(*command(tables, out), *(force if out.exists() else []))[0] == 0
        is_whole(out)


@pytest.mark.parametrize(
    ("command", "force", "is_whole", "before"),
    [
        (save, [], is_model, "nothing"),
        (save, [], is_model, "an empty folder"),
        (save, [], is_model, "an earlier output"),
        (detect, ["--force"], is_result, "an earlier output"),
    ],
)
def test_killed_at_any_change_to_the_disk_it_leaves_the_old_or_the_new(
    run, tables, tmp_path, command, force, is_whole, before
):
    assert run(*command(tables, tmp_path / "earlier"))[0] == 0
    for change in range(100):
        out = tmp_path / str(change) / "out"
        out.parent.mkdir()
        if before == "an empty folder":
            out.mkdir()
        elif before == "an earlier output":
            shutil.copytree(tmp_path / "earlier", out)
        code, _ = run(*command(tables, out), *(force if out.exists() else []), change=change)
        if code == 0:
            is_whole(out)
            break
        assert code == -9
        if out.exists() and any(out.iterdir()):
            is_whole(out)
        elif before == "an earlier output":  # between two renames: the old one is beside it, whole
            (old,) = out.parent.glob(".out-*/old")
            is_whole(old)
        if command is save or change % 6 == 0:
            assert run(*command(tables, out), *(force if out.exists() else []))[0] == 0
            is_whole(out)
    assert 3 < change < 99


def test_a_bench_loses_nothing_that_it_stored_and_ends_as_if_never_killed(run, tables, tmp_path):
    choices = ["--datasets", "shop", "--methods", "lp-pul,domain-discriminator", "--splits", "6", "--seeds", "1"]
    settings = ["--set", "epochs=4", "--config", tables / "bench.toml", "--device", "cpu", "--quiet"]
    bench = ["bench", "main", *choices, *settings, "--out"]
    code, seconds = run(*bench, tmp_path / "whole")
    assert code == 0
    chance = random.Random(1)
    stored, killed = {}, 0
    for k in range(40):
        out = tmp_path / f"killed{k // 8}"
        stored = {} if k % 8 == 0 else stored
        code, _ = run(*bench, out, seconds=chance.uniform(0.3, 1) * seconds / 2)
        killed += code == -9
        now = {path.name: path.read_bytes() for path in (out / "records").glob("[!.]*.jsonl")} if out.exists() else {}
        assert stored.items() <= now.items()  # nothing lost, nothing done again
        assert all(json.loads(line)["auroc"] >= 0 for content in now.values() for line in content.splitlines())
        stored = now
    assert killed > 20
    expected = figures(tmp_path / "whole")
    for k in range(5):
        assert run(*bench, tmp_path / f"killed{k}")[0] == 0
        assert figures(tmp_path / f"killed{k}") == expected


def figures(out):
    records = [json.loads(line) for path in out.glob("records/[!.]*.jsonl") for line in path.read_text().splitlines()]
    return sorted((r["split"], r["method"], r["auroc"], r["ap"]) for r in records)
