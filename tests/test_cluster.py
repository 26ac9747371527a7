"""Processes that train together agree with one alone, and go on where they were when one of them dies."""

import os
import signal
import threading
import time

import numpy as np
import polars as pl
import psutil
import pytest

from recoslip import NodeGraph, cluster, detector, load_dataset
from recoslip.errors import RecoslipError, SettingError
from recoslip.fleet import together
from recoslip.insight.metrics import auroc

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


class Memory:
    """Keeps trainings in memory, and stops the process at a given time of keeping."""

    def __init__(self, every: int = 7) -> None:
        self.every, self.kept, self.number, self.calls, self.stop_at = every, {}, -1, 0, 0

    def begin(self):
        self.number += 1
        return self.kept.get(self.number)

    def keep(self, kept):
        self.kept[self.number] = kept._replace(state={name: t.detach().clone() for name, t in kept.state.items()})
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", QUICK)
def test_a_fit_that_is_stopped_goes_on_to_the_same_bits(name, data):
    expected = quick(name).fit(data.graph, data.split)
    memory = Memory()
    together.set_keeper(memory)
    stops = 0
    try:
        for _ in range(100):
            memory.number, memory.stop_at = -1, memory.calls + 2
            model = quick(name)
            try:
                model.fit(data.graph, data.split)
                break
            except KeyboardInterrupt:
                stops += 1
    finally:
        together.set_keeper(None)
    assert stops > 1
    assert np.array_equal(model.scores_, expected.scores_)


LONGER = {"epochs": 300, "round_epochs": 60, "learning_rate": 0.01, "batch_size": 128}


@pytest.fixture(scope="module")
def two(data):
    """What two processes make of it, in a cluster that stays for the other tests."""
    with cluster.cluster(cluster.LOCAL, 2):
        yield cluster.fit(quick("reco-slip-plus", **LONGER), data.graph, data.split, workers=2)


def test_two_processes_agree_with_one(two, data):
    alone = quick("reco-slip-plus", **LONGER).fit(data.graph, data.split)
    scores = [auroc(data.novel, model.scores_, data.split.test) for model in (alone, two)]
    assert scores[0] > 0.9
    assert abs(scores[0] - scores[1]) < 0.05
    assert np.corrcoef(alone.scores_, two.scores_)[0, 1] > 0.9
    np.testing.assert_allclose(two.decision_function(data.graph), two.scores_, atol=1e-5)


def test_a_killed_process_does_not_lose_the_run(two, data):
    killed = []
    halfway = threading.Event()

    def kill_one() -> None:
        halfway.wait(120)
        workers = [
            p for p in psutil.process_iter(["cmdline"]) if any("TrainWorker" in c for c in p.info["cmdline"] or [])
        ]
        killed.append(workers[0].pid)
        os.kill(workers[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()

    def progress(done, total):
        if done > total // 4:
            halfway.set()

    model = quick("reco-slip-plus", **LONGER)
    fitted = cluster.fit(model, data.graph, data.split, workers=2, progress=progress)
    killer.join()
    assert killed
    np.testing.assert_allclose(fitted.scores_, two.scores_, atol=1e-3)


def test_what_goes_wrong_in_a_process_is_said_once(two, tmp_path):
    begin = time.perf_counter()
    with pytest.raises(RecoslipError, match=r"holds no graph\.json"):
        cluster.fit(quick("reco-slip-plus"), tmp_path, workers=2)
    assert time.perf_counter() - begin < 60


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
