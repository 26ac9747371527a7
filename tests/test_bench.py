"""The bench: what is planned is run once, survives kills, and is written down as it was measured."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
from scipy.stats import wilcoxon
from typer.testing import CliRunner

from recoslip.base.errors import RecoslipError
from recoslip.data.datasets.block_model import csbm
from recoslip.inference.metrics import auroc
from recoslip.learning.methods import DETECTORS, detector
from recoslip.products.bench import records as statistics
from recoslip.products.bench import tables
from recoslip.products.bench.datasets import DEFAULT_SPLIT, read_sources
from recoslip.products.bench.records import Job, Records, code_version, key_of, missing, plan, recorded, revision
from recoslip.products.bench.tables import Page
from recoslip.products.cli import app

RECOSLIP = [sys.executable, "-c", "from recoslip.products.cli import main; main()"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a user's own tables and the bench's file that names them."""
    folder = tmp_path_factory.mktemp("shop")
    graph = csbm(nodes=240, categories=4, features=6, noise=0.5)
    frame = pl.DataFrame(
        {
            "id": np.arange(240),
            "region": np.where(graph.is_target, "north", "south"),
            "department": np.array(["books", "food", "games", "toys"])[graph.categories],
            **{f"x{k}": graph.x[:, k] for k in range(6)},
        }
    )
    frame.write_parquet(folder / "products.parquet")
    left, right = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    pl.DataFrame({"a": left, "b": right}).write_csv(folder / "bought.csv")
    (folder / "bench.toml").write_text(
        textwrap.dedent("""
        [datasets.shop]
        nodes = "products.parquet"
        edges = "bought.csv"
        domain = "region"
        target = "north"
        category = "department"
        settings = { hidden_channels = 8, out_channels = 8, head_channels = 4 }
        """)
    )
    return folder


QUICK = ["--set", "epochs=30", "--device", "cpu"]


def bench(shop, out, *arguments, code=0):
    command = ["bench", *arguments, "--config", str(shop / "bench.toml"), "--out", str(out), *QUICK]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def command_line(shop, out, *choices):
    """Return the command that runs a bench in a process of its own."""
    return [*RECOSLIP, "bench", "main", *choices, "--config", shop / "bench.toml", "--out", out]


def record(
    method="upu", dataset="cora-s", split=DEFAULT_SPLIT, seed=10, settings="s", code="c", when="2030-01-01", **values
):
    return {
        "dataset": dataset,
        "split": split,
        "method": method,
        "seed": seed,
        "settings_hash": settings,
        "code": code,
        "time": when,
        "auroc": 0.5,
        "ap": 0.5,
        "f1": 0.5,
        "fpr95": 0.5,
        "seconds": 1.0,
        "device": "abacus",
        "torch": "2",
    } | values


def job(method="upu", dataset="cora-s", split=DEFAULT_SPLIT, seeds=(10, 20)):
    return Job(dataset, split, method, {}, "s", tuple(seeds))


def test_a_users_own_tables_join_the_bench_and_nothing_is_done_twice(shop, tmp_path):
    methods = ["--methods", "oracle,lp-pul,energy", "--seeds", "2"]
    first = bench(shop, tmp_path, "main", "--datasets", "shop", *methods)
    assert "5 runs planned, 0 have a record, 5 to do" in first.output
    frame = pl.read_ndjson(sorted((tmp_path / "records").glob("*.jsonl")))
    assert sorted(frame["method"].to_list()) == ["energy", "energy", "lp-pul", "oracle", "oracle"]
    assert sorted(json.loads(text).get("hidden_channels", 0) for text in frame["settings"]) == [0, 8, 8, 8, 8]
    data = read_sources(shop / "bench.toml", None).load("shop", DEFAULT_SPLIT)
    scores = detector("lp-pul").fit(data.graph, data.split).scores_
    assert frame.filter(pl.col("method") == "lp-pul")["auroc"].item() == auroc(data.novel, scores, data.split.test)
    for column in ("auroc", "ap", "f1", "fpr95"):
        assert frame[column].is_between(0, 1).all()
    table = (tmp_path / "main.md").read_text()
    again = bench(shop, tmp_path, "main", "--datasets", "shop", *methods)
    assert "5 have a record, 0 to do" in again.output
    assert (tmp_path / "main.md").read_text() == table
    more = bench(shop, tmp_path, "main", "--datasets", "shop", "--methods", "oracle,lp-pul,energy", "--seeds", "3")
    assert "7 runs planned, 5 have a record, 2 to do" in more.output


def test_other_data_under_the_same_name_is_other_work(shop):
    sources = read_sources(shop / "bench.toml", None)
    before = plan(["shop"], ["lp-pul"], [DEFAULT_SPLIT], [10], sources)[0]
    content = (shop / "bought.csv").read_bytes()
    try:
        (shop / "bought.csv").write_bytes(content + b"0,1\n")
        assert plan(["shop"], ["lp-pul"], [DEFAULT_SPLIT], [10], sources)[0].settings_hash != before.settings_hash
    finally:
        (shop / "bought.csv").write_bytes(content)
    assert plan(["shop"], ["lp-pul"], [DEFAULT_SPLIT], [10], sources)[0] == before


def auroc_table(out):
    text = (out / "main-splits.md").read_text()
    return text[text.index("## Test AU-ROC") : text.index("##", text.index("## Test AU-ROC") + 5)]


def test_killed_and_resumed_gives_the_same_table(shop, tmp_path):
    methods = "domain-discriminator,lp-pul,reco-slip"
    choices = ["--datasets", "shop", "--methods", methods, "--splits", "3", "--seeds", "2"]
    bench(shop, tmp_path / "whole", "main", *choices)
    fleets = len(list((tmp_path / "whole" / "records").iterdir()))
    assert fleets == 9
    command = command_line(shop, tmp_path / "killed", *choices, *QUICK)
    chance = random.Random(0)
    for wanted in (2, 7):  # kill when so many fleets are stored, and a moment later
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(list((tmp_path / "killed").glob("records/*.jsonl"))) < wanted and process.poll() is None:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
    stored = len(list((tmp_path / "killed").glob("records/*.jsonl")))
    assert stored >= 7
    last = bench(shop, tmp_path / "killed", "main", *choices)
    assert f"{fleets - stored}/{fleets - stored} " in last.output or stored == fleets
    assert auroc_table(tmp_path / "killed") == auroc_table(tmp_path / "whole")
    for path in (tmp_path / "whole" / "records").iterdir():
        ours, theirs = (
            [json.loads(line) for line in (tmp_path / which / "records" / path.name).read_text().splitlines()]
            for which in ("whole", "killed")
        )
        assert [r["auroc"] for r in ours] == [r["auroc"] for r in theirs]


def test_several_processes_do_the_same_work(shop, tmp_path):
    choices = ["--datasets", "shop", "--methods", "lp-pul,domain-discriminator", "--splits", "2", "--seeds", "1"]
    bench(shop, tmp_path / "one", "main", *choices)
    bench(shop, tmp_path / "two", "main", *choices, "--jobs", "2")
    one, two = ({key_of(r): r for r in Records(tmp_path / which / "records")} for which in ("one", "two"))
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert value["auroc"] == pytest.approx(two[key]["auroc"], abs=0.02)


def test_a_fleet_that_fails_does_not_stop_the_others(shop, tmp_path):
    lines = (shop / "bench.toml").read_text() + '\n[datasets.odd]\nnodes = "odd.csv"\ncategory = "department"\n'
    config = tmp_path / "bench.toml"
    config.write_text(lines.replace('"products', f'"{shop}/products').replace('"bought', f'"{shop}/bought'))
    # One novel node, which does not test: nothing to measure an AU-ROC with.
    departments = ["a"] * 19 + ["new"]
    pl.DataFrame({"id": range(20), "domain": [0] * 10 + [1] * 10, "department": departments, "x": range(20)}).write_csv(
        tmp_path / "odd.csv"
    )
    arguments = ["bench", "main", "--datasets", "odd,shop", "--methods", "lp-pul", "--splits", "own,0,1,2,3"]
    result = CliRunner().invoke(app, [*arguments, "--config", str(config), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "AU-ROC needs novel and known nodes" in result.output
    done = [r for r in Records(tmp_path / "out" / "records") if r["dataset"] == "shop"]
    assert len(done) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("category", "#category"), "needs category"),
        (("domain", "dommain"), "no option 'dommain' (did you mean 'domain'?)"),
        (("datasets.shop", "datasets.cora-s"), "choose another name"),
        (("datasets.shop", 'datasets."a/b"'), "letters, digits"),
        (('"department"', '"department"\nnovel = ["books"]'), "a source node is novel"),
        (('"department"', '"department"\nnovel = []'), "no node is novel"),
        (("products.parquet", "absent.parquet"), "absent.parquet"),
        (("[datasets.shop]", "[dataset.shop]"), "expected tables [datasets.NAME]"),
        (('"department"', '"department'), "is not TOML"),
    ],
)
def test_a_bad_file_is_refused(shop, tmp_path, change, message):
    text = (shop / "bench.toml").read_text().replace(*change)
    (tmp_path / "bench.toml").write_text(text.replace('"bought', f'"{shop}/bought').replace('"prod', f'"{shop}/prod'))
    name = "a/b" if "a/b" in text else "shop"
    arguments = ["bench", "main", "--datasets", name, "--methods", "lp-pul", "--config", str(tmp_path / "bench.toml")]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code in (1, 2), result.output
    assert message in " ".join(result.output.split())
    assert not list(tmp_path.glob("out/records/*"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("edges = 3", "edges must be a str"),
        ("settings = 3", "settings must be a dict"),
        ("settings = { hiden_channels = 3 }", "did you mean 'hidden_channels'?"),
        ('settings = { device = "cpu" }', "no method has 'device'"),
        ("text = 3", "text must be a list"),
        ('novel = ["toys", "toyz"]', "no node is of the novel category 'toyz'"),
    ],
)
def test_values_of_the_wrong_type_are_refused(shop, tmp_path, line, message):
    text = f'[datasets.shop]\nnodes = "{shop}/products.parquet"\ndomain = "region"\ntarget = "north"\n'
    (tmp_path / "bench.toml").write_text(text + f'category = "department"\n{line}\n')
    arguments = ["bench", "main", "--datasets", "shop", "--methods", "lp-pul", "--config", str(tmp_path / "bench.toml")]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code in (1, 2), result.output
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reference", "recoslip"], "did you mean 'reco-slip'?"),
        (["--splits", "0"], "--splits must be own, 1 or more"),
        (["--methods", "reco-slip-all", "--set", "links=none"], "reco-slip-all means links='all'"),
        (["--methods", "upu", "--set", "epochs=100"], "upu on digits: prior_epochs must be fewer"),
        (["--render"], "has no record of main"),
        (["--methods", "nnpuu"], "did you mean 'nnpu'?"),
        (["--datasets", "kora-s"], "did you mean 'cora-s'?"),
        (["--seeds", "0"], "--seeds must be"),
        (["--seeds", "1,x"], "--seeds: expected a whole number"),
        (["--splits", "-1"], "--splits: expected a whole number"),
        (["--set", "epoch=3"], "did you mean 'epochs'?"),
        (["--set", "epochs=many"], "epochs"),
        (["--jobs", "0"], "'--jobs'"),
        (["--methods", "upu", "--without", "upu"], "nothing to compare"),
        (["--device", "cuda:99"], "cannot be used here"),
    ],
)
def test_a_bad_choice_is_refused(tmp_path, arguments, message):
    quick = ["--datasets", "digits"] if "--datasets" not in arguments else []
    command = ["bench", "main", *quick, *arguments, "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_written_is_said_before_the_work(shop, tmp_path):
    (tmp_path / "file").write_text("")
    result = bench(shop, tmp_path / "file", "main", "--datasets", "shop", "--methods", "oracle", code=2)
    assert "cannot write" in result.output
    assert "1/1" not in result.output


def has_ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("victim", "number", "code", "message"),
    [
        ("bench", signal.SIGINT, 130, "interrupted; what had ended is stored"),
        pytest.param("bench", signal.SIGKILL, -signal.SIGKILL, "", marks=pytest.mark.slow),
        pytest.param("process", signal.SIGKILL, 2, "a process of the bench died", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_all_processes_and_keeps_what_is_stored(shop, tmp_path, victim, number, code, message):
    # Each of the two processes trains one fleet that ends, then one that does not.
    choices = ["--datasets", "shop", "--methods", "lp-pul,domain-discriminator", "--splits", "2", "--seeds", "1"]
    endless = ["--set", "epochs=1000000000", "--set", "patience=1000000000", "--jobs", "2", "--device", "cpu"]
    command = command_line(shop, tmp_path, *choices, *endless)
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    while len(list(tmp_path.glob("records/[!.]*.jsonl"))) < 2:
        assert process.poll() is None, (tmp_path / "stderr").read_text()
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2
    busiest = max(children, key=lambda child: sum(child.cpu_times()[:2]))
    (process if victim == "bench" else busiest).send_signal(number)
    assert process.wait() == code
    while not all(map(has_ended, children)):
        time.sleep(0.01)
    assert message in " ".join((tmp_path / "stderr").read_text().split())
    assert [record["method"] for record in Records(tmp_path / "records")] == ["lp-pul", "lp-pul"]


def documented_detector():
    """Return the code of the detector that docs/bench.md shows."""
    text = (Path(__file__).parent.parent / "docs" / "bench.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import numpy.*?)```", text, re.DOTALL)
    return code


def test_another_packages_detector_joins_by_its_entry_point(shop, tmp_path):
    site = tmp_path / "site"
    (site / "other-1.0.dist-info").mkdir(parents=True)
    (site / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    points = ["few-neighbours = other:FewNeighbours", "broken = other:Missing", "upu = other:FewNeighbours"]
    (site / "other-1.0.dist-info" / "entry_points.txt").write_text("\n".join(["[recoslip.detectors]", *points]))
    (site / "other.py").write_text(documented_detector())
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}

    def run(*arguments):
        command = [*RECOSLIP, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stdout + result.stderr
        return result

    listed = run("methods", "--json")
    assert "few-neighbours" in [row["name"] for row in json.loads(listed.stdout)]
    assert "'broken' of other:Missing is left out" in " ".join(listed.stderr.split())
    assert "'upu' of other:FewNeighbours is left out" in " ".join(listed.stderr.split())
    out = tmp_path / "out"
    command = [
        "bench",
        "main",
        "--datasets",
        "shop",
        "--methods",
        "few-neighbours,lp-pul",
        "--config",
        shop / "bench.toml",
    ]
    run(*command, "--out", out)
    assert {r["method"] for r in Records(out / "records")} == {"few-neighbours", "lp-pul"}
    assert "| few-neighbours |" in (out / "main.md").read_text()
    (site / "other.py").write_text(documented_detector().replace("return 1 /", "return 1 / 0 /"))
    failed = subprocess.run(
        [*RECOSLIP, *map(str, command), "--out", str(tmp_path / "again")],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert failed.returncode == 1
    assert "few-neighbours: ZeroDivisionError" in " ".join(failed.stderr.split())
    assert {r["method"] for r in Records(tmp_path / "again" / "records")} == {"lp-pul"}


def test_records_of_other_code_count_only_if_told(tmp_path):
    records = Records(tmp_path)
    now = code_version(DETECTORS["upu"].kind)
    records.add([record(seed=10, code=now), record(seed=20, code="older")])
    assert [c.seeds for c in missing([job()], records)] == [(20,)]
    assert missing([job()], records, any_version=True) == []
    assert [c.seeds for c in missing([job(seeds=(10, 20, 30))], records, any_version=True)] == [(30,)]


def test_records_by_the_code_as_it_is_go_before_newer_ones(tmp_path):
    records = Records(tmp_path)
    now = code_version(DETECTORS["upu"].kind)
    records.add([record(auroc=0.1, code=now, when="2030-01-01")])
    records.add([record(auroc=0.2, code="other", when="2031-01-01")])
    found = recorded([job(seeds=(10,))], records)
    assert [r["auroc"] for r in found.values()] == [0.1]
    assert recorded([job(method="nnpu")], records) == {}


def test_damaged_records_are_named(tmp_path):
    Records(tmp_path).add([record()])
    (tmp_path / ".temporary").write_text("half")
    (tmp_path / "folder.jsonl").mkdir()
    assert len(list(Records(tmp_path))) == 1
    for damage in (
        '{"dataset": "cora-s"}',
        "{",
        "[" * 99_999,
        json.dumps(record(auroc=None)),
        json.dumps(record(seed="10")),
    ):
        (tmp_path / "cora-s.own.upu.x.jsonl").write_text(damage + "\n")
        with pytest.raises(RecoslipError, match=r"cora-s\.own\.upu\.x\.jsonl cannot be read"):
            list(Records(tmp_path))


def test_means_and_standard_errors_are_over_seeds_or_over_splits(tmp_path):
    records = Records(tmp_path)
    records.add([record(seed=10, auroc=0.6), record(seed=20, auroc=0.8)])
    for split, values in (("0", (0.5, 0.7)), ("1", (0.9, 0.9))):
        records.add([record(split=split, seed=s, auroc=v) for s, v in zip((10, 20), values, strict=True)])
    one = statistics.summarise([job()], recorded([job()], records), "auroc")["upu", "cora-s"]
    assert (one.mean, one.error) == (pytest.approx(0.7), pytest.approx(0.1))
    jobs = [job(split="0"), job(split="1"), job(split="2")]
    several = statistics.summarise(jobs, recorded(jobs, records), "auroc")["upu", "cora-s"]
    assert several.mean == pytest.approx(0.75)
    assert several.error == pytest.approx(np.std([0.6, 0.9], ddof=1) / np.sqrt(2))
    assert several.by_split == {"0": pytest.approx(0.6), "1": pytest.approx(0.9)}


def summaries(values, split="0"):
    return {key: statistics.Summary(mean, 0.01, {split: mean}, 10, 10) for key, mean in values.items()}


def test_the_best_is_bold_the_second_underlined_and_the_oracle_neither():
    drawn = tables.method_grid(
        summaries(
            {("oracle", "cora-s"): 0.99, ("upu", "cora-s"): 0.6, ("nnpu", "cora-s"): 0.7, ("x_y", "cora-s"): 0.5}
        ),
        ["oracle", "upu", "nnpu", "x_y", "absent"],
        ["cora-s"],
        tables.format_mean,
    )
    assert drawn.markdown().splitlines() == [
        "|  | cora-s |",
        "|---|---|",
        "| oracle | 0.990 ± 0.010 |",
        "| upu | <u>0.600 ± 0.010</u> |",
        "| nnpu | **0.700 ± 0.010** |",
        "| x_y | 0.500 ± 0.010 |",
        "| absent | – |",
    ]
    assert drawn.latex().splitlines() == [
        r"\begin{tabular}{lc}",
        r"\toprule",
        r"\textbf{Method} & \textbf{cora-s} \\",
        r"\midrule",
        r"oracle & 0.990 $\pm$ 0.010 \\",
        r"upu & \underline{0.600 $\pm$ 0.010} \\",
        r"nnpu & \textbf{0.700 $\pm$ 0.010} \\",
        r"x\_y & 0.500 $\pm$ 0.010 \\",
        r"absent & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_incomplete_means_say_so_and_do_not_compete(tmp_path):
    records = Records(tmp_path)
    records.add([record("upu", seed=s, auroc=0.6) for s in (10, 20)])
    records.add([record("nnpu", seed=s, auroc=0.7) for s in (10, 20)])
    records.add([record("pu-gnn", seed=10, auroc=0.9)])
    jobs = [job("upu"), job("nnpu"), job("pu-gnn")]
    text = Page("main", jobs, recorded(jobs, records)).files()["main.md"]
    assert "| pu-gnn | 0.900 (1 of 2 runs) |" in text
    assert "| nnpu | **0.700 ± 0.000** |" in text
    assert "5 of 6 planned runs" in text


def test_paired_comparison_is_scipys_over_splits():
    values = {"reco-slip": [0.7, 0.8, 0.75, 0.72, 0.9, 0.66], "upu": [0.6, 0.81, 0.7, 0.6, 0.85, 0.6]}
    found = {
        (m, "d"): statistics.Summary(float(np.mean(v)), 0.0, dict(zip("abcdef", v, strict=True)), 6, 6)
        for m, v in values.items()
    }
    (result,) = statistics.compare(found, ["reco-slip", "upu"], ["d"], "reco-slip")
    difference = np.array(values["upu"]) - np.array(values["reco-slip"])
    assert result == ("upu", 6, pytest.approx(difference.mean()), 1, 5, pytest.approx(wilcoxon(difference).pvalue))
    assert statistics.compare(found, ["upu"], ["d"], "nnpu") == []


def test_tables_name_changed_settings_and_say_where_nothing_was_run(tmp_path):
    records = Records(tmp_path)
    records.add([record(seed=s) for s in (10, 20)])
    page = Page("main", [job()], recorded([job()], records), changed={"epochs": 20})
    assert "With epochs = 20, not the paper's." in page.files()["main.md"]
    files = Page("main", [job()], {}).files()
    assert sorted(files) == ["main-ap.tex", "main-f1.tex", "main-fpr95.tex", "main-seconds.tex", "main.md", "main.tex"]
    assert "| upu | – |" in files["main.md"]
    assert "None of the planned runs has a record yet." in files["main.md"]


def test_a_revision_follows_commits_and_changes_of_its_folder(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, "-C", tmp_path, *arguments], check=True, capture_output=True)

    assert revision(tmp_path) == ""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "First")
    first = revision(tmp_path / "code")
    assert re.fullmatch(r"\+g[0-9a-f]{8}", first)
    (tmp_path / "notes").write_text("elsewhere")
    git("add", ".")
    git("commit", "-m", "Second")
    assert revision(tmp_path / "code") == first
    (tmp_path / "code" / "a.py").write_text("2")
    assert re.fullmatch(re.escape(first) + r"\.[0-9a-f]{8}", revision(tmp_path / "code"))
    assert revision(tmp_path / "notes") == ""  # no folder
