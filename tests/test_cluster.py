"""Scans and rotations on a cluster give what one process gives; what was lost is done again."""

import os
import signal
import threading
import time
from collections import Counter
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
from recoslip.data import blocks, partitions, vectors
from recoslip.inference.calibrated import mean_uncertainty
from recoslip.learning.base import Presentation
from recoslip.learning.base import learn as learn_here
from recoslip.products import cluster
from recoslip.products.cluster import Task, fingerprints, pack_learned, unpack_learned

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
    assert len(fitted.fits) == 3
    np.testing.assert_allclose(fitted.decision_function(data.graph), rotated.decision_function(data.graph), atol=1e-6)
    assert all(fit.scores_.flags.writeable for fit in fitted.fits)


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
    assert np.array_equal(mean_uncertainty(third), mean_uncertainty(rotated))
    next(storage.iterdir()).write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match=r"rotation-.* is damaged"):
        fit_rotations(data.graph, data.split, storage=storage)


@pytest.mark.parametrize("name", QUICK)
def test_what_was_learned_survives_its_file(name, data):
    model = quick(name)
    (learned,) = learn_here(model, [Presentation(data.graph, data.split, 3)], lambda done, total: None)
    again = unpack_learned(model, data.graph.num_features, pack_learned(model, learned))
    assert set(again) == set(learned)
    assert again["scores_"].flags.writeable
    networks = {"fleet_"} & set(learned)
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
    assert [len(fitted.scores) for fitted in fits] == [400, 300]
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
    task = Task(0, target, split, 0)
    tasks = [task, Task(0, ~target, split, 0), Task(0, target, other, 0), Task(0, target, split, 1)]
    models = [quick("nnpu"), quick("reco-slip", epochs=9)]
    prints = fingerprints(model, graph, None, tasks)
    prints += [fingerprints(model, each, None, [task])[0] for each in graphs[1:]]
    prints += [fingerprints(each, graph, None, [task])[0] for each in models]
    assert len(set(prints)) == len(prints) == 11
    again = NodeGraph(graph.x.copy(), graph.edge_index.copy(), graph.is_target, ids=list(range(400)))
    assert fingerprints(quick("reco-slip", device="auto"), again, None, [task])[0] == prints[0]


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


# The scan, a block of nodes at a time


def packed_folder(folder, nodes=3000, features=8, *, sparse=False, shuffled=False):
    """A packed graph of a csbm; its nodes in the order of their ids, or not."""
    graph = load_dataset("csbm", nodes=nodes, categories=4, features=features, noise=0.7, split_seed=1).graph
    ids = np.random.default_rng(0).permutation(nodes) if shuffled else np.arange(nodes)
    frame = {"id": ids, "domain": graph.is_target.astype(int)}
    words = [" ".join(f"w{k}" for k in np.flatnonzero(row > 0.8)) or "none" for row in graph.x]
    pl.DataFrame(frame | ({"t": words} if sparse else {"x": graph.x})).write_parquet(folder / "nodes.parquet")
    ends = ids[graph.edge_index]
    pl.DataFrame({"a": ends[0], "b": ends[1]}).write_parquet(folder / "edges.parquet")
    options = {"text": ["t"]} if sparse else {"features": ["x"]}
    pack(folder / "nodes.parquet", folder / "edges.parquet", folder / "graph", **options)
    return folder / "graph"


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks and parts of trees of some hundred nodes, so that a small graph has several."""
    monkeypatch.setattr(blocks, "ROWS", 2**10)
    monkeypatch.setattr(partitions, "PART", 700)
    monkeypatch.setattr(partitions, "COUNTED", 1100)


def scan_alone(folder):
    return recoslip.calibrate(detector("scan", trees=2), open_packed(folder), rotations=3)


def scan_on_cluster(folder, **options):
    return cluster.fit(detector("scan", trees=2), folder, rotations=3, **options)


def assert_same_bits(one, other):
    assert np.array_equal(one.scores, other.scores)
    assert np.array_equal(one.p_values(), other.p_values(), equal_nan=True)


@pytest.mark.parametrize("options", [{}, {"sparse": True, "features": 30, "shuffled": True}])
def test_a_scan_in_blocks_on_two_machines_has_the_bits_of_one_process(machines, small_blocks, tmp_path, options):
    folder, storage = packed_folder(tmp_path, **options), tmp_path / "storage"
    fitted = scan_on_cluster(folder, storage=storage)
    assert_same_bits(fitted, scan_alone(folder))
    assert not [*storage.iterdir()]
    graph = open_packed(folder)
    assert np.isfinite(fitted.decision_function(graph)).all()


def test_each_block_runs_on_the_cluster_and_not_in_this_process(machines, small_blocks, tmp_path, monkeypatch):
    folder, seen = packed_folder(tmp_path), tmp_path / "seen"

    def noting(function, name):
        def noted(*arguments, **more):
            with seen.open("a") as file:
                file.write(f"{name} {os.getpid()}\n")
            return function(*arguments, **more)

        return noted

    for module, name in ((vectors, "_own_rows"), (vectors, "_two_rows"), (partitions, "_grow"),
                         (partitions, "_assigned"), (partitions, "_count"), (partitions, "_largest")):  # fmt: skip
        monkeypatch.setattr(module, name, noting(getattr(module, name), name))
    scan_on_cluster(folder)
    lines = [line.split() for line in seen.read_text().splitlines()]
    here = [name for name, process in lines if int(process) == os.getpid()]
    count = Counter(name for name, process in lines if int(process) != os.getpid())
    trees = 8 + 4 * partitions.TREES  # of the scan, and those in which domains are compared
    assert here == ["_grow"] * trees  # the top of each tree, of a sample
    assert count["_own_rows"] == count["_two_rows"] == 3
    assert count["_assigned"] == 3 * trees
    assert count["_grow"] >= 4 * trees
    assert count["_count"] == 3 * 3 * 8  # rotations, blocks and trees of the scan
    assert count["_largest"] == 3 * 3


def test_the_block_of_a_killed_process_is_done_again(machines, small_blocks, tmp_path, monkeypatch):
    folder, killed = packed_folder(tmp_path), tmp_path / "killed"
    alone, original = scan_alone(folder), vectors._two_rows

    def two_rows(rows, *arguments):
        if rows.start > 0 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return original(rows, *arguments)

    monkeypatch.setattr(vectors, "_two_rows", two_rows)
    assert_same_bits(scan_on_cluster(folder), alone)
    assert killed.exists()


def test_a_machine_lost_during_a_scan_does_not_lose_it(machines, small_blocks, tmp_path, monkeypatch):
    machine = machines.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
    third, reached = machine.node_id, tmp_path / "reached"
    folder, original, over = packed_folder(tmp_path), vectors._own_rows, threading.Event()

    def own_rows(*arguments):
        import ray

        if ray.get_runtime_context().get_node_id() == third:
            reached.touch()
            time.sleep(3600)
        while not reached.exists():
            time.sleep(0.05)
        return original(*arguments)

    def remove():
        while not reached.exists() and not over.is_set():
            time.sleep(0.05)
        machines.remove_node(machine, allow_graceful=False)

    monkeypatch.setattr(vectors, "_own_rows", own_rows)
    thread = threading.Thread(target=remove)
    thread.start()
    try:
        fitted = scan_on_cluster(folder, workers=3)
    finally:
        over.set()
        thread.join()
    monkeypatch.setattr(vectors, "_own_rows", original)
    assert_same_bits(fitted, scan_alone(folder))


def test_a_packed_graph_larger_than_the_object_store_is_scanned(machines, small_blocks, tmp_path):
    folder = packed_folder(tmp_path, nodes=1500, features=16_000)
    assert (folder / "x.npy").stat().st_size > OBJECT_STORE
    assert_same_bits(
        cluster.fit(detector("scan", trees=1), folder, rotations=2),
        recoslip.calibrate(detector("scan", trees=1), open_packed(folder), rotations=2),
    )


def test_a_scan_on_other_machines_needs_a_folder_that_they_reach(tmp_path):
    with pytest.raises(SettingError, match="storage"):
        cluster.fit(detector("scan"), packed_folder(tmp_path, nodes=200), address="auto")


def test_the_scan_of_a_graph_in_memory_is_done_here(data, monkeypatch):
    monkeypatch.setattr(cluster, "cluster", lambda *_: pytest.fail("a cluster was joined"))
    fitted = cluster.fit(detector("scan", trees=2), data.graph, rotations=2)
    assert_same_bits(fitted, recoslip.calibrate(detector("scan", trees=2), data.graph, rotations=2))


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
    with pytest.raises(GraphError, match="cannot be used as a packed graph"):
        cluster.fit(quick("reco-slip"), tmp_path)
