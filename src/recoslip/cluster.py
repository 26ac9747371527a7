"""A detector -> fitted by several processes or machines. Ray starts them and replaces those that die.

The fits of several rotations are independent, so each is a task of its own. A single fit is shared: every process
trains on its shard of every batch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from recoslip._version import __version__
from recoslip.detectors.base import Callbacks, Detector
from recoslip.detectors.loading import load_detector
from recoslip.detectors.network_detector import NetworkDetector
from recoslip.detectors.registry import detector as build_detector
from recoslip.errors import RecoslipError, SettingError
from recoslip.fleet import distributed
from recoslip.fleet.checkpoints import Checkpoint
from recoslip.fleet.device import BATCH_SIZE
from recoslip.graph import NodeGraph
from recoslip.graph.sparse import to_scipy
from recoslip.graph.split import Split
from recoslip.packed import open_packed
from recoslip.packed.format import INDEX
from recoslip.progress import Progress
from recoslip.storage import output_lock

LOCAL = "local"  # stands for an address: start a cluster on this machine, for this call only
MAX_RETRIES = 3  # how often work is resumed after one of its processes died


@contextmanager
def cluster(address: str, workers: int) -> Iterator[Any]:
    """Join the Ray cluster at an address, or start one on this machine; yield Ray, and disconnect afterwards."""
    try:
        import ray
    except ImportError as problem:
        raise RecoslipError("this needs Ray: pip install 'recoslip[ray]'") from problem
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")  # a checkpoint waits for it; by default 2 s
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray 2.60 warns unless it is set
    options: dict[str, Any] = {"address": address}
    if address == LOCAL:
        options = {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise SettingError(
            f"no Ray cluster answers at {address!r} ({problem}); use local, auto or the address of one"
        ) from problem
    try:
        yield ray
    finally:
        ray.shutdown()


def _has_joined() -> bool:
    """Return whether this process belongs to a Ray cluster already."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def fit(
    detector: Detector,
    graph: NodeGraph | str | os.PathLike[str],
    split: Split | None = None,
    *,
    workers: int = 2,
    address: str = LOCAL,
    storage: str | os.PathLike[str] | None = None,
    calibration: float = 0.0,
    rotations: int = 1,
    progress: Progress | None = None,
    checkpoint_every: int = 50,
) -> Detector:
    """Fit a detector with several processes; return the fitted detector.

    With several rotations, each is fitted by one process. Without, every process trains on its shard of every batch:
    gradients are averaged, and so are the rates that the multipliers follow, so that all have the same weights
    throughout. Where a process dies, work is resumed from its last checkpoint.

    Args:
        detector: one that trains on batches.
        graph: a graph; or the folder of a packed one, which every machine must then see under the same path.
        split: as for `Detector.fit`.
        workers: how many processes at once.
        address: address of a Ray cluster; "auto" for the one that this machine belongs to, "local" to start one here,
            where this process has not joined one already.
        storage: folder for checkpoints that all machines see. A single fit on several machines needs it; of rotations,
            one whose process dies begins anew without it. A fit of the same graph, split and settings that was begun
            there is resumed; others there are left alone.
        calibration: as for `Detector.fit`.
        rotations: as for `Detector.fit`.
        progress: called with steps done and steps in all.
        checkpoint_every: epochs between two checkpoints.
    """
    detector = _with_batches(detector)
    identity = fingerprint(detector, graph, split, calibration, rotations)
    if "://" in str(storage):
        raise SettingError(f"storage must be a folder that all machines see; got {str(storage)!r}")
    with ExitStack() as resources:
        starts_one = address == LOCAL and not _has_joined()
        if storage is None and starts_one:
            storage = resources.enter_context(tempfile.TemporaryDirectory())
        folder = None if storage is None else Path(storage).expanduser().absolute() / f"recoslip-{identity}"
        if folder is not None:
            resources.enter_context(output_lock(folder))  # two that fit the same would write the same checkpoints
        ray = resources.enter_context(cluster(address, workers))
        cores = torch.get_num_threads() if starts_one else int(ray.cluster_resources().get("CPU", 1))
        threads = max(1, cores // workers)
        run = Run(ray, _monitor(ray), workers, threads, folder, checkpoint_every, identity)
        if progress is not None:
            resources.enter_context(_reporting(run, progress))
        if rotations == 1:
            return _fit_sharded(run, detector, graph, split, calibration)
        packed = None if isinstance(graph, NodeGraph) else str(Path(graph).absolute())
        opened = graph if isinstance(graph, NodeGraph) else open_packed(graph)
        return detector.fit(opened, split, rotations=rotations, learn_rotations=RotationTasks(run, opened, packed))


@dataclass(frozen=True)
class Run:
    """A fit on a cluster."""

    ray: Any
    monitor: Any  # a `TrainingMonitor`
    workers: int
    threads: int  # of each worker
    folder: Path | None  # for checkpoints, which all machines see
    checkpoint_every: int
    identity: str  # fingerprint of the fit


def _fit_sharded(
    run: Run,
    detector: NetworkDetector,
    graph: NodeGraph | str | os.PathLike[str],
    split: Split | None,
    calibration: float,
) -> Detector:
    """Fit once, by processes that share every batch."""
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray = run.ray
    task = {
        "fingerprint": run.identity,
        "detector": detector.name,
        "settings": detector.get_params(),
        "graph": ray.put(graph) if isinstance(graph, NodeGraph) else str(Path(graph).absolute()),
        "split": split,
        "calibration": calibration,
        "checkpoint_every": run.checkpoint_every,
        "threads": run.threads,
        "monitor": run.monitor,
    }
    on_gpu = detector.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= run.workers
    with tempfile.TemporaryDirectory() as temporary:
        trainer = TorchTrainer(
            train_worker,
            train_loop_config=task,
            scaling_config=ScalingConfig(num_workers=run.workers, use_gpu=on_gpu),
            run_config=RunConfig(
                name=f"recoslip-{run.identity}",
                storage_path=temporary if run.folder is None else str(run.folder.parent),
                failure_config=FailureConfig(max_failures=MAX_RETRIES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        result = trainer.fit()
        if problem := ray.get(run.monitor.problem.remote()):
            raise RecoslipError(problem)
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as folder:
            return load_detector(Path(folder) / "model", device=detector.device)


class RotationTasks:
    """Learns the rotations of a fit in tasks of a cluster, in place of `Detector._learn_rotations`.

    Args:
        run: the fit.
        graph: the graph.
        packed: its folder, if it is a packed one, which the tasks open themselves.
    """

    def __init__(self, run: Run, graph: NodeGraph, packed: str | None) -> None:
        self.run, self.graph, self.packed = run, graph, packed

    def __call__(
        self,
        detector: Detector,
        graph: NodeGraph,
        presented: Sequence[tuple[NodeGraph, Split]],
        seeds: Sequence[Sequence[int]],
        callbacks: Callbacks,
    ) -> list[list[dict[str, Any]]]:
        """Return what `Detector._learn_rotations` returns."""
        run, ray = self.run, self.run.ray
        on_disk = self.packed if graph is self.graph else None  # `fit` may have brought the nodes into another order
        shared = on_disk or ray.put(graph)
        learn = ray.remote(
            num_cpus=1,  # a task that asked for more might fit on no machine that is left
            num_gpus=int(detector.device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0),
            max_retries=MAX_RETRIES,
            scheduling_strategy="SPREAD",
        )(learn_rotation)
        tasks: list[Any] = []
        try:
            for k, ((shown, split), own_seeds) in enumerate(zip(presented, seeds, strict=True)):
                if k >= run.workers:
                    ray.wait(tasks, num_returns=k - run.workers + 1)
                task = {
                    "fingerprint": run.identity,
                    "detector": detector.name,
                    "settings": detector.get_params(),
                    "is_target": shown.is_target.numpy(),
                    "split": split,
                    "seeds": own_seeds,
                    "rotation": k,
                    "rotations": len(presented),
                    "folder": None if run.folder is None else run.folder / f"rotation-{k}",
                    "checkpoint_every": run.checkpoint_every,
                    "threads": run.threads,
                    "monitor": run.monitor,
                }
                tasks.append(learn.remote(shared, task))
            return [[_writeable(attributes) for attributes in learned] for learned in ray.get(tasks)]
        except ray.exceptions.RayTaskError as problem:
            if isinstance(problem.cause, RecoslipError):
                raise problem.cause from None
            raise
        except ray.exceptions.RayError as problem:
            raise RecoslipError(
                f"the cluster did not do the work ({type(problem).__name__}); if its processes died, memory may not "
                "have sufficed: begin again with fewer workers"
            ) from problem
        finally:
            for task in tasks:  # where one failed, or this process was interrupted, the others need not go on
                ray.cancel(task, force=True)


def _writeable(attributes: dict[str, Any]) -> dict[str, Any]:
    """Copy arrays out of Ray's object store, where they cannot be changed."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in attributes.items()}


def learn_rotation(graph: NodeGraph | str, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Learn one rotation, in a process of a cluster; return the learned attributes of each seed."""
    torch.set_num_threads(min(task["threads"], os.cpu_count() or 1))
    shown = (open_packed(graph) if isinstance(graph, str) else graph).with_target(task["is_target"])

    def report(done: int, total: int) -> None:
        task["monitor"].set_steps.remote(done, total, task["rotation"], task["rotations"])

    checkpointer = None
    if task["folder"] is not None:
        checkpointer = FolderCheckpointer(task["folder"], task["checkpoint_every"], task["fingerprint"])
    model = build_detector(task["detector"], **task["settings"])
    return model.learn_presented(shown, task["split"], task["seeds"], Callbacks(report, checkpointer))


def _with_batches(detector: Detector) -> NetworkDetector:
    """Return an unfitted copy that trains on batches, or raise if that cannot be."""
    from sklearn.base import clone

    if (
        not isinstance(detector, NetworkDetector)
        or not detector.supports_batches
        or not all(isinstance(encoder, str) for encoder in detector.encoders())
    ):
        raise SettingError(
            f"{detector.name} does not train in batches, so processes cannot share it; take one that does, such as "
            "the default"
        )
    copy: NetworkDetector = clone(detector).set_params(batch_size=detector.batch_size or BATCH_SIZE)
    copy.check_params()
    return copy


class TrainingMonitor:
    """A Ray actor that the workers report their progress and errors to, and that the caller asks for them."""

    def __init__(self) -> None:
        self._steps: dict[int, tuple[int, int]] = {}
        self._parts = 1
        self._problem = ""

    def set_steps(self, done: int, total: int, part: int = 0, parts: int = 1) -> None:
        """Store the steps done and the steps in all, of one of several parts that take about as many each."""
        self._steps[part], self._parts = (done, total), parts

    def steps(self) -> tuple[int, int]:
        """Return the steps done and the steps in all."""
        if not self._steps:
            return 0, 0
        done, total = map(sum, zip(*self._steps.values(), strict=True))
        return done, total * self._parts // len(self._steps)

    def set_problem(self, problem: str) -> None:
        """Store why the detector cannot be fitted."""
        self._problem = problem

    def problem(self) -> str:
        """Return why the detector cannot be fitted, or an empty text."""
        return self._problem


def _monitor(ray: Any) -> Any:
    """Start a `TrainingMonitor` on the machine of the caller, so that it is lost with no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(TrainingMonitor).remote()


@contextmanager
def _reporting(run: Run, progress: Progress) -> Iterator[None]:
    """Call `progress` twice a second while the block runs."""
    finished = threading.Event()

    def report() -> None:
        while not finished.wait(0.5):
            done, total = run.ray.get(run.monitor.steps.remote())
            if total:
                progress(done, total)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def train_worker(task: dict[str, Any]) -> None:
    """Run the fit in one of the processes; drawing batches and training on them is where the processes cooperate."""
    import ray

    torch.set_num_threads(min(task["threads"], os.cpu_count() or 1))
    monitor = task["monitor"]

    def report(done: int, total: int) -> None:
        if distributed.rank() == 0:
            monitor.set_steps.remote(done, total)

    try:
        checkpointer = RayCheckpointer(task["checkpoint_every"], task["fingerprint"])
        graph = open_packed(task["graph"]) if isinstance(task["graph"], str) else ray.get(task["graph"])
        model = build_detector(task["detector"], **task["settings"])
        model.fit(
            graph,
            task["split"],
            calibration=task["calibration"],
            progress=report,
            checkpointer=checkpointer,
        )
    except RecoslipError as problem:  # not raised, because a retry would only raise it again
        ray.get(monitor.set_problem.remote(str(problem)))
        return
    model.save(checkpointer.folder / "model")
    checkpointer.upload()
    shutil.rmtree(checkpointer.folder)


def fingerprint(
    detector: Detector,
    graph: NodeGraph | str | os.PathLike[str],
    split: Split | None,
    calibration: float,
    rotations: int = 1,
) -> str:
    """Hash all that the result of a fit depends on, so that checkpoints of different fits cannot be confused."""
    digest = hashlib.sha256()

    def add(*arrays: Any) -> None:
        for array in arrays:
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    settings = {name: value for name, value in detector.json_params().items() if name != "device"}
    digest.update(json.dumps([__version__, detector.name, settings, calibration, rotations], sort_keys=True).encode())
    if isinstance(graph, NodeGraph):
        x = graph.x
        add(*([x.numpy()] if x.layout == torch.strided else [to_scipy(x).data, *to_scipy(x).nonzero()]))
        add(graph.edge_index.numpy(), graph.is_target.numpy())
        if graph.edge_weight is not None:
            add(graph.edge_weight.numpy())
        digest.update("\0".join(map(repr, graph.ids.tolist())).encode("utf-8", "surrogatepass"))
    else:  # of a packed graph, this file has the checksums of all others
        digest.update((Path(graph) / INDEX).read_bytes() if (Path(graph) / INDEX).is_file() else b"")
    if split is not None:
        add(split.train, split.validation, split.test)
    return digest.hexdigest()[:16]


class FolderCheckpointer:
    """A `Checkpointer` that saves to a folder: one safetensors file per training of the fit.

    Args:
        folder: made if there is none.
        every: epochs between two checkpoints.
        identity: fingerprint of the fit; checkpoints of another are refused.
    """

    def __init__(self, folder: Path, every: int, identity: str) -> None:
        self.folder, self.every, self.identity = folder, every, identity
        self._training = -1  # index of the present training
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def _path(self) -> Path:
        return self.folder / f"training-{self._training:06d}.safetensors"

    def resume(self) -> Checkpoint | None:
        """Begin the next training of the fit; return its last checkpoint, if it has one."""
        self._training += 1
        if not self._path.exists():
            return None
        with safe_open(self._path, "pt") as file:
            metadata = file.metadata()
            if metadata.get("fingerprint") != self.identity:
                raise RecoslipError(
                    "the checkpoints there are of another graph, split or settings; give an empty folder as storage"
                )
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Checkpoint(int(metadata["epoch"]), metadata["finished"] == "True", state)

    def save(self, checkpoint: Checkpoint) -> None:
        """Save the state of the present training; a process that dies meanwhile leaves the one before."""
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.state.items()}
        metadata = {
            "epoch": str(checkpoint.epoch),
            "finished": str(checkpoint.finished),
            "fingerprint": self.identity,
        }
        partial = self._path.with_suffix(f".{os.getpid()}.partial")  # another process may be presumed dead and is not
        save_file(tensors, partial, metadata)
        partial.replace(self._path)


class RayCheckpointer(FolderCheckpointer):
    """The same in a folder of this process, which is handed to Ray Train after every checkpoint.

    Args:
        every: epochs between two checkpoints.
        identity: fingerprint of the fit; checkpoints of another are refused.
    """

    def __init__(self, every: int, identity: str) -> None:
        from ray import train

        super().__init__(Path(tempfile.mkdtemp(prefix="recoslip-")), every, identity)
        checkpoint = train.get_checkpoint()
        if checkpoint is not None:
            checkpoint.to_directory(str(self.folder))

    def save(self, checkpoint: Checkpoint) -> None:
        """Save the state of the present training."""
        super().save(checkpoint)
        self.upload()

    def upload(self) -> None:
        """Hand the files to Ray; it waits until every process has called this."""
        from ray import train

        is_first = distributed.rank() == 0
        train.report({}, checkpoint=train.Checkpoint.from_directory(str(self.folder)) if is_first else None)
