"""A detector -> fitted by several processes or machines. Ray starts them and replaces those that die."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from recoslip._version import __version__
from recoslip.detectors.base import Detector
from recoslip.detectors.loading import load
from recoslip.detectors.network_detector import NetworkDetector
from recoslip.detectors.registry import detector as build_detector
from recoslip.errors import RecoslipError, SettingError
from recoslip.fleet import distributed
from recoslip.fleet.checkpoints import Checkpoint
from recoslip.fleet.device import BATCH_SIZE
from recoslip.graph import NodeGraph
from recoslip.graph.sparse import to_scipy
from recoslip.packed import open_packed
from recoslip.packed.format import INDEX
from recoslip.progress import Progress
from recoslip.shift import Split

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
    """Fit a detector with several processes, each on its shard of every batch; return the fitted detector.

    Gradients are averaged, and so are the rates that the multipliers follow: all processes have the same weights
    throughout. If one dies, all resume from the last checkpoint.

    Args:
        detector: one that trains on batches.
        graph: a graph; or the folder of a packed one, which every machine must then see under the same path.
        split: as for `Detector.fit`.
        workers: how many processes.
        address: address of a Ray cluster; "auto" for the one that this machine belongs to, "local" to start one here.
        storage: folder for checkpoints that all machines see; needed where there are several. A fit of the same graph,
            split and settings that was begun there is resumed; others there are left alone.
        calibration: as for `Detector.fit`.
        rotations: as for `Detector.fit`.
        progress: called with steps done and steps in all.
        checkpoint_every: epochs between two checkpoints.
    """
    detector = _with_batches(detector)
    with cluster(address, workers) as ray, tempfile.TemporaryDirectory() as temporary:
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        monitor = ray.remote(num_cpus=0)(TrainingMonitor).remote()
        identity = fingerprint(detector, graph, split, calibration, rotations)
        task = {
            "fingerprint": identity,
            "detector": detector.name,
            "settings": detector.get_params(),
            "graph": ray.put(graph) if isinstance(graph, NodeGraph) else str(Path(graph).absolute()),
            "split": split,
            "calibration": calibration,
            "rotations": rotations,
            "checkpoint_every": checkpoint_every,
            "monitor": monitor,
        }
        on_gpu = detector.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= workers
        trainer = TorchTrainer(
            train_worker,
            train_loop_config=task,
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=on_gpu),
            run_config=RunConfig(
                name=f"recoslip-{identity}",
                storage_path=str(storage or temporary),
                failure_config=FailureConfig(max_failures=MAX_RETRIES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        with _reporting(ray, monitor, progress):
            result = trainer.fit()
        if problem := ray.get(monitor.problem.remote()):
            raise RecoslipError(problem)
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as folder:
            return load(Path(folder) / "model", device=detector.device)


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
        self._steps = (0, 0)
        self._problem = ""

    def set_steps(self, done: int, total: int) -> None:
        """Store the steps done and the steps in all."""
        self._steps = (done, total)

    def steps(self) -> tuple[int, int]:
        """Return the steps done and the steps in all."""
        return self._steps

    def set_problem(self, problem: str) -> None:
        """Store why the detector cannot be fitted."""
        self._problem = problem

    def problem(self) -> str:
        """Return why the detector cannot be fitted, or an empty text."""
        return self._problem


@contextmanager
def _reporting(ray: Any, monitor: Any, progress: Progress | None) -> Iterator[None]:
    """Call `progress` twice a second while the block runs."""
    finished = threading.Event()

    def report() -> None:
        while not finished.wait(0.5):
            done, total = ray.get(monitor.steps.remote())
            if progress is not None and total:
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
            rotations=task["rotations"],
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


class RayCheckpointer:
    """A `Checkpointer` that saves to checkpoints of Ray Train: one safetensors file per training of the fit.

    Args:
        every: epochs between two checkpoints.
        identity: fingerprint of the fit; checkpoints of another are refused.
    """

    def __init__(self, every: int, identity: str) -> None:
        from ray import train

        self.every, self.identity = every, identity
        self.folder = Path(tempfile.mkdtemp(prefix="recoslip-"))
        self._training = -1  # index of the present training
        checkpoint = train.get_checkpoint()
        if checkpoint is not None:
            checkpoint.to_directory(str(self.folder))

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
        """Save the state of the present training."""
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.state.items()}
        metadata = {
            "epoch": str(checkpoint.epoch),
            "finished": str(checkpoint.finished),
            "fingerprint": self.identity,
        }
        save_file(tensors, self._path, metadata)
        self.upload()

    def upload(self) -> None:
        """Hand the files to Ray; it waits until every process has called this."""
        from ray import train

        is_first = distributed.rank() == 0
        train.report({}, checkpoint=train.Checkpoint.from_directory(str(self.folder)) if is_first else None)
