"""Processes that train together agree with one alone, and resume from a checkpoint when one of them dies."""

import os
import signal

import numpy as np
import polars as pl
import pytest

from recoslip import NodeGraph, cluster, detector, load_dataset
from recoslip.errors import RecoslipError, SettingError
from recoslip.fleet.checkpoints import Checkpoint
from recoslip.metrics import auroc

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings(  # of Ray, about itself and what it leaves open
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::UserWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)  # fmt: skip

QUICK = {
    "reco-slip-plus": {"epochs": 30, "round_epochs": 12, "rounds": 2, "restarts": 1},
    "reco-slip": {"epochs": 30, "recall_targets": (0.1,)},
    "nnpu": {"epochs": 40, "patience": 10, "prior_epochs": 12},
    "sar-em": {"epochs": 10, "em_steps": 2},
}
NARROW = {"hidden_channels": 8, "out_channels": 8, "head_channels": 4, "device": "cpu", "batch_size": 64}


@pytest.fixture(scope="module")
def data():
    return load_dataset("csbm", nodes=400, categories=4, features=8, noise=0.5, split_seed=1)


def quick(name: str, **more):
    return detector(name, **(QUICK[name] | NARROW | more))


class MemoryCheckpointer:
    """Saves checkpoints in memory, and interrupts the fit after a number of them."""

    every = 7

    def __init__(self) -> None:
        self.saved: dict[int, Checkpoint] = {}

    def start_fit(self, interrupt_after: int) -> None:
        self.training, self.until_interrupt = -1, interrupt_after

    def resume(self):
        self.training += 1
        return self.saved.get(self.training)

    def save(self, checkpoint):
        state = {name: tensor.detach().clone() for name, tensor in checkpoint.state.items()}
        self.saved[self.training] = Checkpoint(checkpoint.epoch, checkpoint.finished, state)
        self.until_interrupt -= 1
        if self.until_interrupt == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", QUICK)
def test_an_interrupted_fit_resumes_to_the_same_bits(name, data):
    expected = quick(name).fit(data.graph, data.split)
    checkpointer = MemoryCheckpointer()
    interruptions = 0
    for _ in range(100):
        checkpointer.start_fit(interrupt_after=2)
        model = quick(name)
        try:
            model.fit(data.graph, data.split, checkpointer=checkpointer)
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions > 1
    assert np.array_equal(model.scores_, expected.scores_)


LONGER = {"epochs": 300, "round_epochs": 60, "learning_rate": 0.01, "batch_size": 128}


@pytest.fixture(scope="module")
def two(data):
    """What two processes learn, in a cluster that stays for the other tests."""
    with cluster.cluster(cluster.LOCAL, 2):
        yield cluster.fit(quick("reco-slip-plus", **LONGER), data.graph, data.split, workers=2)


def test_two_processes_agree_with_one(two, data):
    alone = quick("reco-slip-plus", **LONGER).fit(data.graph, data.split)
    scores = [auroc(data.novel, model.scores_, data.split.test) for model in (alone, two)]
    assert scores[0] > 0.9
    assert abs(scores[0] - scores[1]) < 0.05
    assert np.corrcoef(alone.scores_, two.scores_)[0, 1] > 0.9
    np.testing.assert_allclose(two.decision_function(data.graph), two.scores_, atol=1e-5)


def test_a_killed_process_does_not_lose_the_run(two, data, tmp_path, monkeypatch):
    """The first process kills itself right after its fourth checkpoint, so the training cannot have ended before.

    Ray takes a checkpoint over before the next but one is saved, so by then there is one to resume from.
    """
    train_worker = cluster.train_worker

    def kill_once(task):
        from recoslip import cluster
        from recoslip.fleet import distributed

        saves = 0

        class Mortal(cluster.RayCheckpointer):
            def __init__(self, every):
                super().__init__(every)
                if distributed.rank() == 0:
                    resumed = bool(list(self.folder.iterdir()))
                    with (tmp_path / "starts").open("a") as file:
                        file.write("from a checkpoint\n" if resumed else "from the beginning\n")

            def save(self, checkpoint):
                nonlocal saves
                super().save(checkpoint)
                saves += 1
                if saves == 4 and distributed.rank() == 0 and not (tmp_path / "killed").exists():
                    (tmp_path / "killed").write_text(f"{checkpoint.epoch}")
                    os.kill(os.getpid(), signal.SIGKILL)

        original, cluster.RayCheckpointer = cluster.RayCheckpointer, Mortal
        try:
            train_worker(task)
        finally:
            cluster.RayCheckpointer = original

    monkeypatch.setattr(cluster, "train_worker", kill_once)
    fitted = cluster.fit(quick("reco-slip-plus", **LONGER), data.graph, data.split, workers=2)
    assert (tmp_path / "killed").exists()
    assert (tmp_path / "starts").read_text().splitlines() == ["from the beginning", "from a checkpoint"]
    np.testing.assert_allclose(fitted.scores_, two.scores_, atol=1e-3)


def test_an_error_in_a_process_is_raised_once_and_not_retried(two, tmp_path, monkeypatch):
    train_worker = cluster.train_worker

    def count(task):
        with (tmp_path / "starts").open("a") as file:
            file.write("started\n")
        train_worker(task)

    monkeypatch.setattr(cluster, "train_worker", count)
    with pytest.raises(RecoslipError, match=r"holds no graph\.json"):
        cluster.fit(quick("reco-slip-plus"), tmp_path, workers=2)
    assert len((tmp_path / "starts").read_text().splitlines()) == 2  # once in each process


def test_what_cannot_be_shared_is_refused(data):
    with pytest.raises(SettingError, match="does not train in batches"):
        cluster.fit(detector("conoc"), data.graph)


def test_a_bench_on_a_cluster_gives_the_records_of_one_process(two, tmp_path):
    from typer.testing import CliRunner

    from recoslip.cli import app

    common = ["bench", "main", "--datasets", "mine", "--methods", "domain-discriminator,lp-pul", "--seeds", "2",
              "--set", "epochs=5", "--device", "cpu", "--config", str(tmp_path / "mine.toml"), "-q"]  # fmt: skip
    write_dataset(tmp_path)
    for out, more in (("ray", ["--ray", "local", "--jobs", "2"]), ("plain", [])):
        result = CliRunner().invoke(app, [*common, "--out", str(tmp_path / out), *more])
        assert result.exit_code == 0, result.output
    rows = [
        pl.concat(pl.read_ndjson(path) for path in sorted((tmp_path / out / "records").glob("*.jsonl"))).sort(
            "method", "seed"
        )
        for out in ("ray", "plain")
    ]
    assert rows[0].height == rows[1].height == 3
    np.testing.assert_allclose(rows[0]["auroc"], rows[1]["auroc"], atol=1e-6)


def write_dataset(folder) -> None:
    graph: NodeGraph = load_dataset("csbm", nodes=200, categories=4, features=4).graph
    pl.DataFrame(
        {
            "id": range(200),
            "domain": graph.is_target.numpy().astype(int),
            "truth": graph.categories,
            **{f"x{k}": graph.x[:, k].numpy() for k in range(4)},
        }
    ).write_csv(folder / "nodes.csv")
    pl.DataFrame({"a": graph.edge_index[0].numpy(), "b": graph.edge_index[1].numpy()}).write_csv(folder / "edges.csv")
    (folder / "mine.toml").write_text(
        '[datasets.mine]\nnodes = "nodes.csv"\nedges = "edges.csv"\ncategory = "truth"\nnovel = ["3"]\n'
    )
