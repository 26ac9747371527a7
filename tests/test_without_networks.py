"""An installation without PyTorch: everything but the methods that train networks."""

import json
import subprocess
import sys

import polars as pl
import pytest

from recoslip.data.datasets.block_model import csbm

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torch_geometric", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

COMMAND = (
    WITHOUT
    + """
from recoslip.products.cli import app
app(sys.argv[1:])
"""
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder with the tables of a graph, known nodes and a batch of new ones."""
    graph, folder = csbm(nodes=400, categories=4, features=8, seed=1), tmp_path_factory.mktemp("tables")
    columns = {f"x{k}": graph.x[:, k] for k in range(8)}
    nodes = pl.DataFrame({"id": graph.ids, "region": graph.is_target, **columns})
    nodes = nodes.with_columns(pl.when("region").then(pl.lit("north")).otherwise(pl.lit("south")).alias("region"))
    edges = pl.DataFrame({"from": graph.edge_index[0], "to": graph.edge_index[1]})
    nodes.write_csv(folder / "nodes.csv")
    edges.write_csv(folder / "edges.csv")
    known = nodes.filter(pl.col("region") == "south").drop("region")
    known.write_csv(folder / "known.csv")
    nodes.filter(pl.col("region") == "north").drop("region").write_csv(folder / "batch.csv")
    return folder


def run(folder, *arguments):
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")


def test_tables_to_a_list_its_scores_and_what_changed(tables):
    domains = ("--domain", "region", "--target", "north")
    steps = [
        ("detect", "nodes.csv", "edges.csv", *domains, "--out", "out"),
        ("score", "out", "--nodes", "batch.csv", "--out", "new"),
        ("pack", "nodes.csv", "edges.csv", "packed", *domains),
        ("detect", "packed", "--out", "of_packed", "--fdr", "0.1"),
        ("compare", "out", "of_packed"),
        ("watch", "shop", "--begin", "--nodes", "known.csv"),
        ("review", "out", "--export", "decided.csv"),
    ]
    for step in steps:
        done = run(tables, *step)
        assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tables / "out" / "summary.json").read_text(encoding="utf-8"))
    assert {"verdict", "listed"} <= set(summary)
    assert (tables / "out" / "report.html").is_file()
    assert len(pl.read_csv(tables / "new" / "scores.csv")) == len(pl.read_csv(tables / "batch.csv"))


@pytest.mark.parametrize("choice", [("--method", "reco-slip"), ("--effort", "thorough"), ("--device", "cuda")])
def test_what_needs_networks_names_the_extra_and_writes_nothing(tables, choice):
    arguments = ("detect", "nodes.csv", "edges.csv", "--domain", "region", "--target", "north")
    done = run(tables, *arguments, *choice, "--out", "never")
    assert done.returncode == 2
    assert "pip install 'recoslip[networks]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tables / "never").exists()


def test_a_setting_of_networks_names_the_methods_that_may_have_it(tables):
    done = run(tables, "detect", "nodes.csv", "edges.csv", "--epochs", "5", "--out", "never")
    assert done.returncode == 2
    assert "--epochs is no setting of scan; thorough, reco-slip-plus" in done.stderr
    assert "pip install 'recoslip[networks]'" in done.stderr
    shown = run(tables, "detect", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "Settings of scan" in shown.stdout
    assert "reco-slip-plus" in shown.stdout


def test_every_public_name_but_those_of_networks_is_there():
    code = WITHOUT + (
        "import recoslip\n"
        "from recoslip.base.errors import MissingExtra\n"
        "missing = []\n"
        "for name in recoslip.__all__:\n"
        "    try: getattr(recoslip, name)\n"
        "    except MissingExtra: missing.append(name)\n"
        "print(','.join(sorted(missing)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "RecoSlip,RecoSlipPlus"), done.stderr
