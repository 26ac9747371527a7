"""The command line, as a person uses it; most commands run in processes that are forked with everything imported."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import recoslip
from recoslip.data.datasets.block_model import csbm
from recoslip.learning.methods import DETECTORS
from recoslip.products.cli import app
from recoslip.products.cli.detect import is_demo

RECOSLIP = [sys.executable, "-c", "from recoslip.products.cli import main; main()"]


@pytest.fixture
def run(forked):
    def run_command(*arguments, cwd, code=0):
        result = forked.run(*arguments, cwd=cwd)
        assert result.returncode == code, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        return result

    return run_command


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    graph = csbm(nodes=200, features=4)
    names = np.array([f"n{k:03}" for k in range(200)])
    frame = pl.DataFrame({"id": names, "domain": graph.is_target.astype(int)})
    frame = frame.with_columns(**{f"x{k}": graph.x[:, k] for k in range(4)})
    frame.write_csv(folder / "nodes.csv")
    ends = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    pl.DataFrame({"a": names[ends[0]], "b": names[ends[1]]}).write_csv(folder / "edges.csv")
    return folder


FILES = ["model", "recoslip.json", "report.html", "report.json", "scores.csv", "summary.json"]
TABLES = ["nodes.csv", "edges.csv"]
COMMITTEE = ["detect", *TABLES, "--method", "reco-slip-plus"]
DETECT = [*COMMITTEE, "--rounds", "2", "--epochs", "20", "--hidden-channels", "8", "--max-fpr", "1"]
# For what does not depend on what is found: little training, and nothing is listed that would have to be explained.
BRIEF_SETTINGS = ["--rounds", "1", "--epochs", "2", "--hidden-channels", "8"]
BRIEF = [*COMMITTEE, *BRIEF_SETTINGS]
BRIEF_LIST = ["--max-fpr", "0.05"]


@pytest.fixture(scope="module")
def detected(forked, tables, tmp_path_factory):
    """A run into a folder that was empty, which is as good as none, and how the command ended."""
    out = tmp_path_factory.mktemp("detected") / "out"
    out.mkdir()
    more = ["--domain", "domain", "--out", out, "--seed", "7", "--title", "<b>shop</b>"]
    result = forked.run(*DETECT, *more, cwd=tables)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return out, result


@pytest.fixture
def earlier(detected, tmp_path):
    """A copy of the folder of that run."""
    return shutil.copytree(detected[0], tmp_path / "out")


def test_detect_writes_scores_summary_and_model(detected):
    out, result = detected
    assert sorted(path.name for path in out.iterdir()) == FILES
    scores = pl.read_csv(out / "scores.csv")
    assert scores.columns == ["id", "domain", "score", "p_value", "uncertainty", "holds_up_to", "listed", "group"]
    assert scores.height == 200
    target = scores.filter(pl.col("domain") == "target")
    assert scores["domain"].to_list() == ["target"] * target.height + ["source"] * (200 - target.height)
    assert target["score"].is_sorted(descending=True)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["seed"] == 7
    assert summary["settings"]["epochs"] == 20
    assert summary["target"] == target.height
    assert summary["listed"] == scores["listed"].sum()
    assert summary["recoslip"] == recoslip.__version__
    assert {"max_fpr", "seconds", "rounds", "source", "edges", "features"} <= summary.keys()
    assert [row["round"] for row in summary["rounds"]] == [1, 2]  # of each of five fits
    loaded = recoslip.Calibrated.load(out / "model")
    by_id = dict(zip(scores["id"], scores["score"], strict=True))
    assert loaded.scores[3] == pytest.approx(by_id["n003"])
    assert "fitting: 80 of 80 steps" in result.stdout  # two rounds of two encoders, in all fits at once
    assert "x0: number" in result.stdout
    assert (summary["rotations"], summary["calibration_nodes"]) == (5, summary["source"])


def test_few_source_nodes_get_the_lowest_rate_they_can_promise_before_training(run, tables, tmp_path):
    result = run(*BRIEF, "--out", tmp_path / "out", cwd=tables)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    source = summary["source"]
    assert source < 99
    note = f"With {source} source nodes to compare with, no p-value is below"
    assert result.stdout.index(note) < result.stdout.index("fitting:")
    assert summary["max_fpr"] == pytest.approx(1 / (source + 1))
    assert f"Expected false-positive rate ≤ {100 / (source + 1):.3g} %" in result.stdout
    other = run(*BRIEF, "--out", tmp_path / "o2", "--max-fpr", "0.05", cwd=tables)
    assert "no p-value is below" not in other.stdout
    strict = run(*BRIEF, "--out", tmp_path / "o3", "--fdr", "0.001", cwd=tables)
    note = "nothing can be listed at --fdr 0.001"
    assert strict.stdout.index(note) < strict.stdout.index("fitting:")
    assert "None of the" in strict.stdout


def test_the_same_seed_writes_the_same_scores(run, tables, tmp_path):
    for name in ("one", "two"):
        run(*BRIEF, *BRIEF_LIST, "--out", tmp_path / name, cwd=tables)
    assert (tmp_path / "one" / "scores.csv").read_bytes() == (tmp_path / "two" / "scores.csv").read_bytes()


def test_json_prints_the_summary_alone_and_quiet_prints_nothing(run, tables, tmp_path):
    result = run(*BRIEF, *BRIEF_LIST, "--out", tmp_path / "a", "--json", "--format", "parquet", cwd=tables)
    assert json.loads(result.stdout) == json.loads((tmp_path / "a" / "summary.json").read_text())
    assert pl.read_parquet(tmp_path / "a" / "scores.parquet").height == 200
    assert run(*BRIEF, *BRIEF_LIST, "--out", tmp_path / "b", "--quiet", cwd=tables).stdout == ""


def test_settings_come_from_toml_and_options_override_it(run, tables, tmp_path):
    (tmp_path / "settings.toml").write_text(
        'epochs = 10\nlinks = "none"\nrecall-targets = [0.1, 0.2]\nmax_fpr = 0.05\n'
    )
    config = [
        "--config",
        tmp_path / "settings.toml",
        "--hidden_channels=8",
        "--links",
        "target",
        "--method",
        "reco-slip",
        "--json",
    ]
    result = run(*COMMITTEE, "--out", tmp_path / "out", *config, cwd=tables)
    settings = json.loads(result.stdout)["settings"]
    assert (settings["epochs"], settings["links"], settings["hidden_channels"]) == (10, "target", 8)
    assert settings["recall_targets"] == [0.1, 0.2]
    batched = ["--recall-targets", "0.3,0.4", "--batch-size", "50", "--json", "--method", "reco-slip", "--epochs", "2"]
    options = ["detect", *TABLES, *batched, *BRIEF_LIST, "--out", tmp_path / "o2"]
    lists = json.loads(run(*options, cwd=tables).stdout)["settings"]
    assert lists["recall_targets"] == [0.3, 0.4]
    assert lists["batch_size"] == 50


def test_an_existing_output_is_refused_before_any_work_and_replaced_with_force(run, tables, earlier):
    before = (earlier / "scores.csv").read_bytes()
    result = run(*DETECT, "--out", earlier, cwd=tables, code=2)
    assert "holds an earlier result" in result.stderr
    assert "training" not in result.stdout
    assert (earlier / "scores.csv").read_bytes() == before
    run(*BRIEF, *BRIEF_LIST, "--out", earlier, "--force", cwd=tables)
    assert sorted(path.name for path in earlier.iterdir()) == FILES
    assert (earlier / "scores.csv").read_bytes() != before


@pytest.mark.parametrize("command", [[*DETECT, "--force"], ["demo"]])
def test_a_folder_with_anything_else_in_it_is_never_replaced(run, tables, tmp_path, command):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("summary.json", "thesis.tex"):
        (out / name).write_text("{}")
    result = run(*command, "--out", out, cwd=tables, code=2)
    assert "'summary.json', which was not written by this version" in result.stderr
    assert sorted(path.name for path in out.iterdir()) == ["summary.json", "thesis.tex"]


def test_the_command_line_beats_the_config_file(run, tables, tmp_path):
    brief = "epochs = 2\n"
    (tmp_path / "s.toml").write_text(f"seed = 5\nmax_fpr = 0.05\n{brief}")
    config = [*COMMITTEE, "--json", "--config", tmp_path / "s.toml"]
    assert json.loads(run(*config, "--out", tmp_path / "a", cwd=tables).stdout)["seed"] == 5
    result = run(*config, "--out", tmp_path / "b", "--seed", "7", "--dropout", ".25", cwd=tables)
    assert json.loads(result.stdout)["seed"] == 7
    assert json.loads(result.stdout)["settings"]["dropout"] == 0.25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nodez.csv"], "there is no file nodez.csv"),
        (["nodes.csv", "--domain", "domane"], "did you mean 'domain'"),
        (
            ["nodes.csv", "--method", "reco-slip", "--epochs", "many"],
            "epochs must be a whole number of at least 1; got 'many'",
        ),
        (["nodes.csv", "--method", "reco-slip", "--epoch", "5"], "did you mean '--epochs'"),
        (["nodes.csv", "--egdes", "edges.csv"], "egdes"),
        (["nodes.csv", "--method", "reco-slip-plus", "--rounds"], "--rounds needs a value"),
        (["nodes.csv", "--method", "reco"], "no method is called 'reco'"),
        (["nodes.csv", "--epochs", "5"], "choose a method that has it by --method: thorough, reco-slip"),
        (["nodes.csv", "--config", "none.toml"], "cannot read none.toml"),
        (["nodes.csv", "--config", "edges.csv"], "is not TOML"),
        (["nodes.csv", "--device", "cuda:99"], "device 'cuda:99' cannot be used here"),
    ],
)
def test_bad_input_ends_with_code_2_one_line_and_no_output(tables, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tables)
    result = CliRunner().invoke(app, ["detect", "--out", str(tmp_path / "out"), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--format", "--align", "--effort", "--write-graph"])
def test_a_choice_that_there_is_not_ends_with_code_2(tables, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tables)
    result = CliRunner().invoke(app, ["detect", *TABLES, "--out", str(tmp_path / "out"), option, "xml"])
    assert result.exit_code == 2
    assert option in result.stderr
    assert "xml" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_with_130_one_line_and_no_output(tables, tmp_path):
    command = [*RECOSLIP, *DETECT, "--epochs", "1000000", "--out", str(tmp_path / "out")]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=tables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as p:
        for line in p.stdout:
            if "NodeGraph" in line:  # the tables are read, training begins
                break
        p.send_signal(signal.SIGINT)
        _, errors = p.communicate()
    assert p.returncode == 130
    assert errors == "interrupted; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["lp-pul", "reco-slip-none", "upu"])
def test_other_methods_run_by_name_and_the_oracle_is_refused(tables, tmp_path, monkeypatch, method):
    monkeypatch.chdir(tables)
    base = ["detect", *TABLES, "--max-fpr", "0.05", "--quiet"]
    more = {"lp-pul": [], "upu": ["--epochs", "9", "--prior-epochs", "5"]}.get(method, ["--epochs", "5"])
    result = CliRunner().invoke(app, [*base, "--method", method, "--out", str(tmp_path / method), *more])
    assert result.exit_code == 0, result.stderr
    assert pl.read_csv(tmp_path / method / "scores.csv").height == 200
    refused = CliRunner().invoke(app, [*base, "--method", "oracle", "--out", str(tmp_path / "o")])
    assert refused.exit_code == 2
    assert "the oracle needs the truth" in refused.stderr


def test_hostile_names_are_printed_as_text(run, tmp_path):
    rows = ["id,domain,v", *(f"[red]n{k}:heart:[/oops],{k % 2},{k}" for k in range(12))]
    (tmp_path / "nodes.csv").write_text("\n".join(rows))
    result = run("detect", "nodes.csv", "--out", "out", "--method", "lp-pul", "--max-fpr", "1", cwd=tmp_path)
    assert re.search(r"\[red\]n\d+:heart:\[/oops\]", result.stdout)


def test_demo_finds_the_nines_and_writes_what_detect_writes(run, tmp_path):
    result = run("demo", cwd=tmp_path)
    out = tmp_path / "recoslip-demo"
    assert sorted(path.name for path in out.iterdir()) == FILES
    summary = json.loads((out / "summary.json").read_text())
    assert summary["truth"]["auroc_target"] > 0.85
    assert is_demo(out)  # so the next demo may replace it
    for wanted in ("AU-ROC", "most novel", "report.html in a browser"):
        assert wanted in result.stdout


def test_demo_does_not_replace_what_detect_wrote(run, tables, earlier):
    before = (earlier / "scores.csv").read_bytes()
    assert "--force" in run("demo", "--out", earlier, cwd=tables, code=2).stderr
    assert (earlier / "scores.csv").read_bytes() == before


def test_ctrl_c_while_packing_ends_with_130(tables, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("recoslip.data.packed.writer.pack", interrupted)
    result = CliRunner().invoke(app, ["pack", str(tables / "nodes.csv"), str(tables / "edges.csv"), "out"])
    assert result.exit_code == 130
    assert result.stderr == "interrupted; nothing was written\n"


def test_the_page_is_rebuilt_from_what_a_run_left(run, earlier, tmp_path):
    out = earlier
    page = (out / "report.html").read_text()
    assert "<title>&lt;b&gt;shop&lt;/b&gt;</title>" in page
    (out / "report.html").unlink()
    assert "report.html" in run("report", out, cwd=tmp_path).stdout
    assert (out / "report.html").read_text() == page
    assert "holds no report.json" in run("report", tmp_path, cwd=tmp_path, code=2).stderr
    (out / "report.json").write_text('{"title": "x"}')
    assert "report.json cannot be read" in " ".join(run("report", out, cwd=tmp_path, code=2).stderr.split())
    (out / "report.json").write_text('{"title": "x", "format": 1}')
    assert "another version of recoslip" in " ".join(run("report", out, cwd=tmp_path, code=2).stderr.split())
    assert (out / "report.html").read_text() == page


def test_the_list_follows_the_rate_that_is_asked_for(run, tables, tmp_path):
    settings = ["--method", "lp-pul", "--json", *TABLES]
    by_fdr = json.loads(run("detect", *settings, "--out", tmp_path / "a", "--fdr", "0.9", cwd=tables).stdout)
    assert "≤ 90 %" in by_fdr["guarantee"]
    assert by_fdr["fdr"] == 0.9
    by_fpr = json.loads(run("detect", *settings, "--out", tmp_path / "b", "--max-fpr", "0.2", cwd=tables).stdout)
    scores = pl.read_csv(tmp_path / "b" / "scores.csv").filter(pl.col("domain") == "target")
    assert (scores["listed"] == (scores["p_value"] <= 0.2)).all()
    assert by_fpr["calibration_nodes"] > 0
    for option, value in (("--fdr", "1.5"), ("--rotations", "1")):
        result = run("detect", *settings, "--out", tmp_path / "d", option, value, cwd=tables, code=2)
        assert option.strip("-") in result.stderr
    assert not (tmp_path / "d").exists()


def test_version_help_and_datasets(run, tmp_path):
    assert run("--version", cwd=tmp_path).stdout == f"recoslip {recoslip.__version__}\n"
    shown = run("detect", "--help", cwd=tmp_path).stdout
    assert "Settings of reco-slip, reco-slip-none, reco-slip-all, reco-slip-target" in " ".join(shown.split())
    for name, method in DETECTORS.items():
        assert name in shown
        for setting in method().get_params().keys() - {"random_state", "device"}:
            assert f"--{setting.replace('_', '-')} " in shown
    assert "cora-s" in run("datasets", cwd=tmp_path).stdout
    listed = {row["name"]: row for row in json.loads(run("methods", "--json", cwd=tmp_path).stdout)}
    assert listed["lp-pul"] == {
        "name": "lp-pul",
        "paper": "Carnevali et al. 2021",
        "inputs": "edges",
        "trains a network": False,
    }
    assert json.loads(run("datasets", "--json", cwd=tmp_path).stdout)["cora-s"]["ratios"][0] == 0.1


def test_detect_on_a_packed_graph_is_detect_on_its_tables(run, tables, tmp_path):
    result = run("pack", tables / "nodes.csv", tables / "edges.csv", tmp_path / "graph", cwd=tmp_path)
    assert "200 nodes" in result.stdout
    settings = ["--method", "reco-slip-plus", *BRIEF_SETTINGS, *BRIEF_LIST, "--batch-size", "100", "--rotations", "2"]
    run("detect", "graph", "--out", "packed", *settings, cwd=tmp_path)
    run("detect", *TABLES, "--out", tmp_path / "tables", *settings, cwd=tables)
    assert (tmp_path / "packed" / "scores.csv").read_text() == (tmp_path / "tables" / "scores.csv").read_text()
    result = run("detect", "graph", "--id", "name", "--out", "other", cwd=tmp_path, code=2)
    assert "id is about reading tables" in " ".join(result.stderr.split())
    assert not (tmp_path / "other").exists()
    result = run("pack", tables / "nodes.csv", tables / "edges.csv", tmp_path / "graph", cwd=tmp_path, code=2)
    assert "--force" in result.stderr
    result = run("detect", "packed", "--out", "other", cwd=tmp_path, code=2)
    assert "packed graph" in result.stderr
    assert not (tmp_path / "other").exists()


def on_a_terminal(*arguments, cwd, typed="") -> str:
    """What a person sees, who types something."""
    controller, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"}
    with subprocess.Popen(
        [*RECOSLIP, *map(str, arguments)], cwd=cwd, stdout=terminal, stderr=terminal, stdin=terminal, env=environment
    ) as process:
        os.close(terminal)
        os.write(controller, typed.encode())
        seen = b""
        with contextlib.suppress(OSError):  # the other side has been closed
            while chunk := os.read(controller, 2**16):
                seen += chunk
    os.close(controller)
    assert process.returncode == 0, seen.decode()
    return seen.decode()


def test_a_terminal_asks_which_column_is_the_domain(tables, tmp_path):
    nodes = pl.read_csv(tables / "nodes.csv")
    (domain,) = [name for name in nodes.columns if nodes[name].n_unique() == 2]
    nodes.rename({domain: "region"}).write_csv(tmp_path / "n.csv")
    command = ("detect", "n.csv", "--method", "lp-pul", *BRIEF_LIST, "--out", "out")
    in_a_script = CliRunner().invoke(app, [*map(str, command[:1]), str(tmp_path / "n.csv"), *map(str, command[2:])])
    assert in_a_script.exit_code == 2
    assert "--domain region" in in_a_script.output
    values = sorted(map(str, nodes[domain].unique()))
    seen = on_a_terminal(*command, cwd=tmp_path, typed=f"1\n{values[1]}\n")
    assert "1  --domain region --target" in seen
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["target"] == (nodes[domain].cast(pl.String) == values[1]).sum()


def test_a_terminal_shows_steps_and_time_left(tables, tmp_path):
    network = ["--method", "domain-discriminator", "--epochs", "100", "--patience", "100", "--rotations", "2"]
    seen = on_a_terminal("detect", *TABLES, *network, *BRIEF_LIST, "--out", tmp_path / "out", cwd=tables)
    assert re.search(r"fitting.*\d+/\d+.*steps,.*\d:\d\d:\d\d", seen), seen
    assert "trains a network" in on_a_terminal("methods", cwd=tables)
