"""What `recoslip plan` says of a graph that is not there is what is seen of one that is."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from recoslip import RecoSlipPlus, load_dataset, open_packed, pack
from recoslip.cli import app
from recoslip.fleet import batches, mini_batch
from recoslip.plan import Plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A packed graph."""
    path = tmp_path_factory.mktemp("packed")
    graph = load_dataset("csbm", nodes=3000, features=16, degree=10.0).graph
    columns = {f"x{k}": graph.x[:, k].numpy() for k in range(16)}
    pl.DataFrame({"id": graph.ids, "domain": graph.is_target.numpy().astype(int), **columns}).write_csv(path / "n.csv")
    once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].numpy()
    pl.DataFrame({"a": once[0], "b": once[1]}).write_csv(path / "e.csv")
    pack(path / "n.csv", path / "e.csv", path / "graph")
    return path / "graph"


def run(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_the_bytes_on_disk_are_those_of_a_packed_graph(folder):
    facts = json.loads(run(folder, "--json").stdout)
    graph = open_packed(folder)
    sizes = {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    assert {name: facts[name] for name in sizes} == sizes
    on_disk = sum(path.stat().st_size for path in folder.iterdir())
    named = [part for name, size in sizes.items() for part in (f"--{name}", size)]
    by_sizes = json.loads(run(*named, "--json").stdout)
    assert by_sizes.pop("packed_bytes") == pytest.approx(on_disk, rel=0.1)
    assert facts.pop("packed_bytes") == on_disk
    assert by_sizes == facts


@pytest.mark.parametrize("nodes", [300, 1600])
def test_steps_and_evaluations_are_those_of_a_fit(nodes, monkeypatch):
    """Nothing is computed in a step, and the networks of an evaluation are counted."""
    steps, passes = [], []

    def train(fleet, draw, device, objective, schedule):
        steps.append(schedule.epochs)

    def evaluate(self, fleet, output="logits"):
        passes.append(fleet.members)
        return batches.torch.rand(self.num_nodes, fleet.members, 2, dtype=batches.torch.float64)

    monkeypatch.setattr(mini_batch, "train", train)
    monkeypatch.setattr(batches.SampledGraph, "evaluate", evaluate)
    monkeypatch.setattr("recoslip.detectors.reco_slip_plus.encoder_weights", lambda auroc: np.full(len(auroc), 0.5))
    monkeypatch.setattr("recoslip.detectors.reco_slip_plus.MAX_SOURCE_RATIO", np.inf)  # no proposal is rejected
    monkeypatch.setattr("recoslip.detectors.reco_slip_plus.MEDIUM_GRAPH", 300)  # so that the other takes more steps
    graph = load_dataset("csbm", nodes=nodes, features=4, degree=2.0).graph
    RecoSlipPlus(batch_size=64, device="cpu").fit(graph, rotations=2)
    plan = Plan(nodes, graph.num_edges, 4)
    assert (plan.steps > Plan(300, 1, 4).steps) == (nodes > 300)
    assert sum(steps) == 2 * len(RecoSlipPlus().encoder) * plan.steps
    assert sum(passes) == 2 * plan.passes


def test_more_workers_take_less_time_until_each_has_one_fit():
    one, two, five, eight = (Plan(10**8, 10**9, 64, workers=workers) for workers in (1, 2, 5, 8))
    assert one.fit_seconds == 5 * one.rotation_seconds
    assert two.fit_seconds == 3 * one.rotation_seconds
    assert five.fit_seconds == eight.fit_seconds == one.rotation_seconds
    assert "3 of the workers have nothing to do" in dict(eight.rows())["fit"]
    assert "nothing to do" not in dict(five.rows())["fit"]


def test_it_prints_a_table_and_that_these_are_estimates():
    result = run("--nodes", 10**8, "--edges", 10**9, "--features", 64, "--workers", 6)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "54 GiB for the packed graph" in text
    assert "1 of the workers has nothing to do" in text
    assert text.endswith("each may be three times as much or a third.")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--nodes", 10], "give --edges and --features"),
        (["--nodes", 0, "--edges", 1, "--features", 1], "nodes must be"),
        (["--nodes", 5, "--edges", 1, "--features", 1, "--workers", 0], "workers must be"),
    ],
)
def test_sizes_that_cannot_be_are_refused(arguments, reason):
    result = run(*arguments)
    assert result.exit_code == 2
    assert reason in result.output


def test_a_folder_and_sizes_are_one_too_many(folder):
    result = run(folder, "--nodes", 5)
    assert result.exit_code == 2
    assert "not both" in result.output
