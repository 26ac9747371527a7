"""Rotations on a cluster give what one process gives; what was lost is fitted again, and what has finished is not."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn import GCN

import recoslip
from recoslip import NodeGraph, Split, detector, load_dataset, open_packed, pack
from recoslip.base.errors import Diverged, GraphError, ModelFileError, RecoslipError, SettingError
from recoslip.base.files import output_lock
from recoslip.learning.base import Callbacks
from recoslip.products import cluster
from recoslip.products.cluster import fingerprint, pack_learned, unpack_learned

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings(  # of Ray, about itself and what it leaves open
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::UserWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)  # fmt: skip

QUICK = {
    "reco-slip-plus": {"epochs": 12, "rounds": 2},
    "reco-slip": {"epochs": 30, "recall_targets": (0.1,)},
    "nnpu": {"epochs": 40, "patience": 10, "prior_epochs": 12},
    "sar-em": {"epochs": 10, "em_steps": 2},
    "domain-discriminator": {"epochs": 40},
    "conoc": {"epochs": 6},
    "dominant": {"epochs": 6},
    "lp-pul": {},
}
NARROW = {"hidden_channels": 8, "out_channels": 8, "head_channels": 4, "device": "cpu", "batch_size": 64}
OBJECT_STORE = 80 * 2**20  # bytes; Ray wants no less than 75 MiB
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
def data():
    return load_dataset("csbm", nodes=400, categories=4, features=8, noise=0.5, split_seed=1)


def quick(name: str, **more):
    known = detector(name).get_params()
    return detector(name, **{key: value for key, value in (QUICK[name] | NARROW | more).items() if key in known})


ROTATED = {"epochs": 7, "rounds": 1}


@pytest.fixture(scope="module")
def rotated(data):
    """What one process learns from three rotations."""
    return recoslip.calibrate(quick("reco-slip-plus", **ROTATED), data.graph, data.split, rotations=3)


def fit_rotations(graph, split, **options):
    return cluster.fit(quick("reco-slip-plus", **ROTATED), graph, split, rotations=3, **options)


def test_rotations_on_two_machines_give_the_bits_of_one_process(machines, rotated, data):
    fitted = fit_rotations(data.graph, data.split, workers=2)
    assert np.array_equal(fitted.scores, rotated.scores)
    assert np.array_equal(fitted.p_values(), rotated.p_values(), equal_nan=True)
    assert len(fitted.rotations_) == 3
    np.testing.assert_allclose(fitted.decision_function(data.graph), rotated.decision_function(data.graph), atol=1e-6)
    assert all(fit.scores_.flags.writeable for fit in fitted.rotations_)


def test_a_packed_graph_is_opened_by_each_process(machines, rotated, data, tmp_path):
    graph = data.graph
    frame = {"id": graph.ids, "domain": graph.is_target.astype(int), "x": graph.x}
    pl.DataFrame(frame).write_parquet(tmp_path / "nodes.parquet")
    ends = graph.edge_index
    pl.DataFrame({"a": ends[0], "b": ends[1]}).write_parquet(tmp_path / "edges.parquet")
    pack(tmp_path / "nodes.parquet", tmp_path / "edges.parquet", tmp_path / "graph", features=["x"])
    opened = open_packed(tmp_path / "graph")
    alone = recoslip.calibrate(quick("reco-slip-plus", **ROTATED), opened, rotations=3)
    fitted = cluster.fit(quick("reco-slip-plus", **ROTATED), tmp_path / "graph", rotations=3, workers=2)
    assert np.array_equal(fitted.scores, alone.scores)


def test_a_graph_larger_than_the_object_store_is_fitted_all_the_same(machines):
    rng = np.random.default_rng(0)
    nodes, features = 400, 60_000
    x = rng.normal(size=(nodes, features)).astype(np.float32)
    assert x.nbytes > OBJECT_STORE
    graph = NodeGraph(x, rng.integers(0, nodes, (2, 1500)), np.arange(nodes) % 2 == 0)
    model = detector("domain-discriminator", epochs=2, **NARROW)
    fitted = cluster.fit(model, graph, rotations=2, workers=2)
    assert np.array_equal(fitted.scores, recoslip.calibrate(model, graph, rotations=2).scores)


def test_a_method_that_trains_nothing_gives_its_bits_too(machines, data):
    fitted = cluster.fit(quick("lp-pul"), data.graph, data.split, rotations=2)
    assert np.array_equal(
        fitted.scores, recoslip.calibrate(quick("lp-pul"), data.graph, data.split, rotations=2).scores
    )


def test_a_machine_lost_in_the_middle_does_not_lose_the_run(machines, rotated, data, tmp_path, monkeypatch):
    """A rotation on a third machine waits there until the machine is gone."""
    machine = machines.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
    third, reached = machine.node_id, tmp_path / "reached"

    def learn_rotation(detector, graph, task, threads):  # runs in the processes of the cluster
        import ray

        from recoslip.products import cluster  # where nothing is patched

        with (tmp_path / f"started-{task.number}").open("a") as file:
            file.write("x")
        if ray.get_runtime_context().get_node_id() == third:
            reached.write_text(str(task.number))
            time.sleep(3600)
        while not reached.exists():  # until one of them is on the third machine
            time.sleep(0.05)
        return cluster.learn_rotation(detector, graph, task, threads)

    def remove():
        while not reached.exists() and not over.is_set():
            time.sleep(0.05)
        machines.remove_node(machine, allow_graceful=False)

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    over = threading.Event()
    thread = threading.Thread(target=remove)
    thread.start()
    try:
        fitted = fit_rotations(data.graph, data.split, workers=3)
    finally:
        over.set()
        thread.join()
    assert len((tmp_path / f"started-{reached.read_text()}").read_text()) > 1
    assert np.array_equal(fitted.scores, rotated.scores)


def test_the_rotation_of_a_killed_process_is_fitted_again(machines, rotated, data, tmp_path, monkeypatch):
    def learn_rotation(detector, graph, task, threads):  # as above
        from recoslip.products import cluster

        if task.number == 1 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return cluster.learn_rotation(detector, graph, task, threads)

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    fitted = fit_rotations(data.graph, data.split)
    assert (tmp_path / "killed").exists()
    assert np.array_equal(fitted.scores, rotated.scores)


def test_finished_rotations_are_not_fitted_again(machines, rotated, data, tmp_path, monkeypatch):
    """With one worker, rotations run one after the other; the first fit is interrupted once one of them is stored."""
    storage = tmp_path / "storage"

    def learn_rotation(detector, graph, task, threads):  # as above
        from recoslip.products import cluster

        with (tmp_path / "starts").open("a") as file:
            file.write(str(task.number))
        return cluster.learn_rotation(detector, graph, task, threads)

    def interrupt(done, total):
        if storage.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    with pytest.raises(KeyboardInterrupt):
        fit_rotations(data.graph, data.split, workers=1, storage=storage, progress=interrupt)
    finished, before = len([*storage.iterdir()]), (tmp_path / "starts").read_text()
    assert 1 <= finished < 3
    again = fit_rotations(data.graph, data.split, workers=1, storage=storage)
    starts = (tmp_path / "starts").read_text().removeprefix(before)
    assert set(starts) == set("012"[finished:])
    assert np.array_equal(again.scores, rotated.scores)

    monkeypatch.setattr(cluster, "cluster", lambda *_: pytest.fail("a cluster was joined"))
    third = fit_rotations(data.graph, data.split, storage=storage)
    assert np.array_equal(third.p_values(), rotated.p_values(), equal_nan=True)
    assert np.array_equal(third.uncertainty_, rotated.uncertainty_)
    next(storage.iterdir()).write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match=r"rotation-.* is damaged"):
        fit_rotations(data.graph, data.split, storage=storage)


@pytest.mark.parametrize("name", QUICK)
def test_what_was_learned_survives_its_file(name, data):
    model = quick(name)
    (learned,) = model.learn_presented(data.graph, data.split, [3], Callbacks(lambda done, total: None))
    again = unpack_learned(model, data.graph.num_features, pack_learned(model, learned))
    assert set(again) == set(learned)
    assert again["scores_"].flags.writeable
    networks = {"fleet_", "autoencoder_"} & set(learned)
    for key in networks:
        tensors = learned[key].state_dict()
        assert all(torch.equal(value, tensors[name]) for name, value in again[key].state_dict().items())
    for key in set(learned) - networks:
        equal = np.array_equal if isinstance(learned[key], np.ndarray) else lambda a, b: str(a) == str(b)
        assert equal(again[key], learned[key]), key


def test_fits_of_different_graphs_share_a_storage_folder_at_once(machines, data, tmp_path):
    other = load_dataset("csbm", nodes=300, categories=4, features=8, noise=0.5, split_seed=2)
    with ThreadPoolExecutor(2) as threads:
        fits = list(threads.map(lambda each: fit_rotations(each.graph, each.split, storage=tmp_path), (data, other)))
    assert [len(fitted.scores_) for fitted in fits] == [400, 300]
    assert len([*tmp_path.iterdir()]) == 6


def test_the_same_fit_is_not_run_twice_at_once_in_a_storage_folder(machines, data, tmp_path):
    model = quick("lp-pul")
    cluster.fit(model, data.graph, data.split, rotations=2, storage=tmp_path)
    with ThreadPoolExecutor(1) as thread, ExitStack() as held:
        for path in tmp_path.iterdir():
            thread.submit(held.enter_context, output_lock(path)).result()
        with pytest.raises(RecoslipError, match=r"another process is writing"):
            cluster.fit(model, data.graph, data.split, rotations=2, storage=tmp_path)
        thread.submit(held.close).result()


def test_a_fingerprint_tells_graphs_splits_and_settings_apart(data):
    model, graph, split = quick("reco-slip"), data.graph, data.split
    target, other = graph.is_target, Split(split.validation, split.train, split.test)
    graphs = (
        graph,
        NodeGraph(graph.x, graph.edge_index, graph.is_target, edge_weight=np.ones(graph.edge_index.shape[1])),
        NodeGraph(sp.csr_array(graph.x), graph.edge_index, graph.is_target),
        NodeGraph(graph.x, graph.edge_index, graph.is_target, ids=[f"n{k}" for k in range(400)]),
        NodeGraph(graph.x + 1, graph.edge_index, graph.is_target),
        NodeGraph(graph.x, graph.edge_index[:, ::3], graph.is_target),
    )
    assert len({cluster.graph_digest(each, None) for each in graphs}) == len(graphs)
    prints = [
        fingerprint(*each)
        for each in (
            (model, b"", target, split, 0), (model, b"x", target, split, 0), (model, b"", ~target, split, 0),
            (model, b"", target, other, 0), (model, b"", target, split, 1), (quick("nnpu"), b"", target, split, 0),
            (quick("reco-slip", epochs=9), b"", target, split, 0),
        )
    ]  # fmt: skip
    assert len(set(prints)) == len(prints)
    assert fingerprint(quick("reco-slip", device="auto"), b"", target, split, 0) == prints[0]


def test_no_more_rotations_run_at_once_than_there_are_workers(machines, rotated, data, tmp_path, monkeypatch):
    def learn_rotation(detector, graph, task, threads):  # as above
        from recoslip.products import cluster

        mine = tmp_path / str(task.number)
        mine.touch()
        with (tmp_path / "seen").open("a") as file:
            file.write(str(sum(path.name.isdigit() for path in tmp_path.iterdir())))
        learned = cluster.learn_rotation(detector, graph, task, threads)
        mine.unlink()
        return learned

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    fit_rotations(data.graph, data.split, workers=1)
    assert set((tmp_path / "seen").read_text()) == {"1"}


def test_progress_counts_rotations(machines, data):
    seen = []
    model = quick("domain-discriminator")
    cluster.fit(model, data.graph, rotations=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (2, 2)


def test_an_error_of_a_rotation_is_raised_as_it_is(machines, data, monkeypatch):
    def learn_rotation(detector, graph, task, threads):
        from recoslip.base.errors import Diverged

        raise Diverged("this cannot be learned")

    monkeypatch.setattr(cluster, "learn_rotation", learn_rotation)
    with pytest.raises(Diverged, match="this cannot be learned"):
        fit_rotations(data.graph, data.split)


def test_what_a_cluster_cannot_fit_is_refused(data, tmp_path):
    with pytest.raises(SettingError, match="rotations=1 is a single fit"):
        cluster.fit(quick("reco-slip"), data.graph, rotations=1)
    with pytest.raises(SettingError, match="workers must be a whole number"):
        cluster.fit(quick("reco-slip"), data.graph, workers=0)
    with pytest.raises(SettingError, match="not a module of your own"):
        cluster.fit(detector("reco-slip", encoder=GCN(8, 8, 2)), data.graph)
    with pytest.raises(SettingError, match="learn_rotations is for several rotations"):
        quick("reco-slip").fit(data.graph, learn_rotations=lambda: None)
    with pytest.raises(GraphError, match=r"holds no graph\.json"):
        cluster.fit(quick("reco-slip"), tmp_path)
