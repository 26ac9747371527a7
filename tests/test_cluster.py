"""Processes that train together agree with one alone, and resume from a checkpoint when one of them dies."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import polars as pl
import pytest
import torch

from recoslip import NodeGraph, cluster, detector, load_dataset, open_packed, pack
from recoslip.errors import Diverged, RecoslipError, SettingError
from recoslip.fleet.checkpoints import Checkpoint
from recoslip.metrics import auroc
from recoslip.storage import output_lock

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings(  # of Ray, about itself and what it leaves open
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::UserWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)  # fmt: skip

QUICK = {
    "reco-slip-plus": {"epochs": 30, "round_epochs": 12, "rounds": 2},
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
        # As files have them: without the strides that they had.
        contiguous = torch.contiguous_format
        state = {name: tensor.detach().clone(memory_format=contiguous) for name, tensor in checkpoint.state.items()}
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


OBJECT_STORE = 80 * 2**20  # bytes; Ray wants no less than 75 MiB
LONGER = {
    "encoder": ("gcn", "sage"),  # neither near the least weight: rounding would decide whether it is left out
    "domain_epochs": 15,
    "epochs": 60,
    "round_epochs": 20,
    "rounds": 1,
    "learning_rate": 0.02,
    "batch_size": 128,
}


DEAD_MACHINES_ARE_NOTICED_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}


@pytest.fixture(scope="module")
def machines():
    """A cluster of two machines, simulated here, with a core each and small object stores; joined for all tests."""
    import ray
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": OBJECT_STORE}
    simulated = Cluster(
        initialize_head=True,
        head_node_args=small | {"include_dashboard": False, "_system_config": DEAD_MACHINES_ARE_NOTICED_SOON},
    )
    try:
        simulated.add_node(**small)
        with cluster.cluster(simulated.address, 2):
            assert len([node for node in ray.nodes() if node["Alive"]]) == 2
            yield simulated
    finally:
        simulated.shutdown()


@pytest.fixture(scope="module")
def two(machines, data):
    """What two processes learn, one on each machine."""
    return cluster.fit(quick("reco-slip-plus", **LONGER), data.graph, data.split, workers=2)


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

    def train_worker(task):  # runs in the processes of the cluster, where nothing is patched
        from recoslip import cluster
        from recoslip.fleet import distributed

        class KilledOnce(cluster.RayCheckpointer):
            def __init__(self, every, identity):
                super().__init__(every, identity)
                self.saves = 0
                if distributed.rank() == 0:
                    has_checkpoint = any(self.folder.iterdir())
                    with (tmp_path / "starts").open("a") as file:
                        file.write("from a checkpoint\n" if has_checkpoint else "from the beginning\n")

            def save(self, checkpoint):
                super().save(checkpoint)
                self.saves += 1
                if self.saves == 4 and distributed.rank() == 0 and not (tmp_path / "killed").exists():
                    (tmp_path / "killed").touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        cluster.RayCheckpointer = KilledOnce
        cluster.train_worker(task)

    monkeypatch.setattr(cluster, "train_worker", train_worker)
    fitted = cluster.fit(quick("reco-slip-plus", **LONGER), data.graph, data.split, workers=2)
    assert (tmp_path / "killed").exists()
    assert (tmp_path / "starts").read_text().splitlines() == ["from the beginning", "from a checkpoint"]
    np.testing.assert_allclose(fitted.scores_, two.scores_, atol=1e-3)


def test_an_error_in_a_process_is_raised_once_and_not_retried(machines, tmp_path, monkeypatch):
    def train_worker(task):  # as above
        from recoslip import cluster

        with (tmp_path / "starts").open("a") as file:
            file.write("started\n")
        cluster.train_worker(task)

    monkeypatch.setattr(cluster, "train_worker", train_worker)
    with pytest.raises(RecoslipError, match=r"holds no graph\.json"):
        cluster.fit(quick("reco-slip-plus"), tmp_path, workers=2)
    assert len((tmp_path / "starts").read_text().splitlines()) == 2  # once in each process


def test_what_cannot_be_shared_is_refused(data):
    with pytest.raises(SettingError, match="must be a folder that all machines see; got 's3://bucket/x'"):
        cluster.fit(quick("reco-slip"), data.graph, storage="s3://bucket/x")
    with pytest.raises(SettingError, match="learn_rotations is for several rotations"):
        quick("reco-slip").fit(data.graph, learn_rotations=lambda: None)
    with pytest.raises(SettingError, match="does not train in batches"):
        cluster.fit(detector("conoc"), data.graph)


def test_a_bench_on_a_cluster_gives_the_records_of_one_process(machines, tmp_path):
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


ROTATED = {"domain_epochs": 8, "epochs": 14, "round_epochs": 7, "rounds": 1, "recall_targets": (0.1,)}


@pytest.fixture(scope="module")
def rotated(data):
    """What one process learns from three rotations."""
    return quick("reco-slip-plus", **ROTATED).fit(data.graph, data.split, rotations=3)


def fit_rotations(graph, split, **options):
    return cluster.fit(quick("reco-slip-plus", **ROTATED), graph, split, rotations=3, **options)


def test_rotations_on_two_machines_give_the_bits_of_one_process(machines, rotated, data):
    fitted = fit_rotations(data.graph, data.split, workers=2)
    assert np.array_equal(fitted.scores_, rotated.scores_)
    assert np.array_equal(fitted.p_values(), rotated.p_values(), equal_nan=True)
    assert len(fitted.rotations_) == 3
    np.testing.assert_allclose(fitted.decision_function(data.graph), rotated.decision_function(data.graph), atol=1e-6)
    assert all(fit.scores_.flags.writeable for fit in fitted.rotations_)


def test_progress_of_rotations_adds_up():
    monitor = cluster.TrainingMonitor()
    assert monitor.steps() == (0, 0)
    monitor.set_steps(3, 10, 1, 5)
    assert monitor.steps() == (3, 50)  # the others will have about as many
    monitor.set_steps(10, 10, 1, 5)
    monitor.set_steps(4, 20, 0, 5)
    assert monitor.steps() == (14, 75)


def test_no_more_rotations_run_at_once_than_there_are_workers(machines, rotated, data, tmp_path, monkeypatch):
    def learn_rotation(graph, task):  # runs in the processes of the cluster, where nothing is patched
        from recoslip import cluster

        mine = tmp_path / str(task["rotation"])
        mine.touch()
        (tmp_path / "seen").open("a").write(f"{sum(path.name.isdigit() for path in tmp_path.iterdir())}\n")
        learned = cluster.learn_rotation(graph, task)
        mine.unlink()
        return learned

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    fitted = fit_rotations(data.graph, data.split, workers=1)
    assert (tmp_path / "seen").read_text().split() == ["1", "1", "1"]
    np.testing.assert_allclose(fitted.scores_, rotated.scores_, atol=1e-3)  # one worker has the threads of both cores


def test_a_packed_graph_is_opened_by_each_process(machines, rotated, data, tmp_path):
    graph = data.graph
    frame = {"id": graph.ids, "domain": graph.is_target.numpy().astype(int), "x": graph.x.numpy()}
    pl.DataFrame(frame).write_parquet(tmp_path / "nodes.parquet")
    ends = graph.edge_index.numpy()
    pl.DataFrame({"a": ends[0], "b": ends[1]}).write_parquet(tmp_path / "edges.parquet")
    pack(tmp_path / "nodes.parquet", tmp_path / "edges.parquet", tmp_path / "graph", features=["x"])
    opened = open_packed(tmp_path / "graph")
    alone = quick("reco-slip-plus", **ROTATED).fit(opened, rotations=3)
    fitted = cluster.fit(quick("reco-slip-plus", **ROTATED), tmp_path / "graph", rotations=3, workers=2)
    assert np.array_equal(fitted.scores_, alone.scores_)


def test_a_machine_lost_in_the_middle_does_not_lose_the_run(machines, rotated, data, tmp_path, monkeypatch):
    """A rotation on a third machine waits there after its second checkpoint, until the machine is gone."""
    machine = machines.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
    third, reached = machine.node_id, tmp_path / "reached"

    def learn_rotation(graph, task):  # runs in the processes of the cluster, where nothing is patched
        import ray

        from recoslip import cluster

        lost = ray.get_runtime_context().get_node_id() == third

        class Waiting(cluster.FolderCheckpointer):
            saves = 0

            def __init__(self, folder, every, identity):
                super().__init__(folder, every, identity)
                if any(folder.iterdir()):
                    (tmp_path / "resumed").write_text(folder.name)

            def save(self, checkpoint):
                super().save(checkpoint)
                self.saves += 1
                if lost and self.saves == 2:
                    reached.write_text(self.folder.name)
                    time.sleep(3600)

        while not lost and not reached.exists():  # until one of them is on the third machine
            time.sleep(0.05)
        cluster.FolderCheckpointer = Waiting
        return cluster.learn_rotation(graph, task)

    def remove():
        while not reached.exists() and not over.is_set():
            time.sleep(0.05)
        machines.remove_node(machine, allow_graceful=False)

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    over = threading.Event()
    thread = threading.Thread(target=remove)
    thread.start()
    try:
        fitted = fit_rotations(data.graph, data.split, workers=3, storage=tmp_path / "storage", checkpoint_every=5)
    finally:
        over.set()
        thread.join()
    assert reached.read_text() == (tmp_path / "resumed").read_text()
    assert np.array_equal(fitted.scores_, rotated.scores_)


def test_a_graph_larger_than_the_object_store_is_fitted_all_the_same(machines):
    rng = np.random.default_rng(0)
    nodes, features = 400, 60_000
    x = rng.normal(size=(nodes, features)).astype(np.float32)
    assert x.nbytes > OBJECT_STORE
    graph = NodeGraph(x, rng.integers(0, nodes, (2, 1500)), np.arange(nodes) % 2 == 0)
    model = detector("domain-discriminator", epochs=2, **NARROW)
    fitted = cluster.fit(model, graph, rotations=2, workers=2)
    assert np.array_equal(fitted.scores_, model.fit(graph, rotations=2).scores_)


def test_an_error_of_a_rotation_is_raised_as_it_is(machines, data, monkeypatch):
    def learn_rotation(graph, task):
        from recoslip.errors import Diverged

        raise Diverged("this cannot be learned")

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    with pytest.raises(Diverged, match="this cannot be learned"):
        fit_rotations(data.graph, data.split, workers=2)


def test_several_fits_share_a_storage_folder_at_once(machines, data, tmp_path):
    other = load_dataset("csbm", nodes=300, categories=4, features=8, noise=0.5, split_seed=2)
    with ThreadPoolExecutor(2) as threads:
        fits = list(
            threads.map(lambda each: fit_rotations(each.graph, each.split, storage=tmp_path / "s"), (data, other))
        )
    assert [len(fitted.scores_) for fitted in fits] == [400, 300]
    folders = [path for path in (tmp_path / "s").iterdir() if path.is_dir()]
    assert len(folders) == 2
    again = fit_rotations(data.graph, data.split, storage=tmp_path / "s")  # from what is there
    assert np.array_equal(again.scores_, fits[0].scores_)


def test_the_same_fit_is_not_run_twice_at_once_in_a_storage_folder(data, tmp_path):
    model = quick("reco-slip-plus", **ROTATED)
    identity = cluster.fingerprint(model, data.graph, data.split, 0.0, 3)
    with ThreadPoolExecutor(1) as thread, ExitStack() as held:
        thread.submit(held.enter_context, output_lock(tmp_path / f"recoslip-{identity}")).result()
        with pytest.raises(RecoslipError, match=r"another process is writing"):
            fit_rotations(data.graph, data.split, storage=tmp_path)
        thread.submit(held.close).result()


def test_a_fingerprint_tells_graphs_splits_and_settings_apart(data, tmp_path):
    model, graph, split = quick("reco-slip"), data.graph, data.split
    weighted = NodeGraph(graph.x, graph.edge_index, graph.is_target, edge_weight=np.ones(graph.edge_index.shape[1]))
    sparse = NodeGraph(graph.x.to_sparse_csr(), graph.edge_index, graph.is_target)
    renamed = NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=[f"n{k}" for k in range(400)])
    changed = NodeGraph(graph.x + 1, graph.edge_index, graph.is_target)
    prints = [
        cluster.fingerprint(*each)
        for each in (
            (model, graph, split, 0.0), (model, graph, None, 0.0), (model, graph, split, 0.1),
            (quick("reco-slip", epochs=9), graph, split, 0.0), (quick("reco-slip", random_state=9), graph, split, 0.0),
            (quick("nnpu"), graph, split, 0.0), (model, changed, split, 0.0), (model, weighted, split, 0.0),
            (model, sparse, split, 0.0), (model, renamed, split, 0.0), (model, tmp_path, split, 0.0),
        )
    ]  # fmt: skip
    assert len(set(prints)) == len(prints)
    assert cluster.fingerprint(quick("reco-slip", device="auto"), graph, split, 0.0) == prints[0]


def test_a_checkpoint_of_another_fit_is_refused(tmp_path, monkeypatch):
    from ray import train

    monkeypatch.setattr(train, "get_checkpoint", lambda: None)
    monkeypatch.setattr(train, "report", lambda *_, **__: None)
    ours, other = cluster.RayCheckpointer(1, "ours"), cluster.RayCheckpointer(1, "another")
    assert ours.resume() is None
    ours.save(Checkpoint(3, False, {"x": torch.ones(2)}))
    again = cluster.RayCheckpointer(1, "ours")
    again.folder = other.folder = ours.folder
    assert again.resume().epoch == 3
    with pytest.raises(RecoslipError, match="of another graph, split or settings; give an empty folder"):
        other.resume()
