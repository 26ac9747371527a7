"""A detector or a bench -> done by several processes or machines at once. Ray does the scheduling and the rescuing."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone

from recoslip.detectors.base import Detector, Progress, load
from recoslip.detectors.networked import NetworkDetector
from recoslip.errors import RecoslipError, SettingError
from recoslip.fleet import together
from recoslip.fleet.device import BATCH_SIZE
from recoslip.graph import NodeGraph
from recoslip.packed import open_packed
from recoslip.shift import Split

LOCAL = "local"  # in place of an address: a cluster of this machine alone, for this call
RESCUES = 3  # times that a training goes on after a process died


@contextmanager
def cluster(address: str, workers: int) -> Iterator[Any]:
    """Join the Ray cluster at an address, or start one on this machine, and yield the library; leave it afterwards."""
    try:
        import ray
    except ImportError as problem:
        raise RecoslipError("this needs Ray: pip install 'recoslip[ray]'") from problem
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray 2.60 asks to be told
    where: dict[str, Any] = {"address": address}
    if address == LOCAL:
        where = {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
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
    progress: Progress | None = None,
    keep_every: int = 50,
) -> Detector:
    """Fit a detector with several processes, each on its share of every batch; return the fitted detector.

    Gradients are averaged, so are the rates that the multipliers follow, and all processes have the same weights
    throughout. If one dies, all go on from where the training was last kept.

    Args:
        detector: one that trains in batches.
        graph: a graph; or the folder of a packed one, which then every machine must see under the same name.
        split: as for `Detector.fit`.
        workers: how many processes.
        address: of a Ray cluster; "auto" for the one that this machine belongs to, "local" to start one here.
        storage: folder that all machines see, for what is kept; needed where there are several.
        calibration: as for `Detector.fit`.
        progress: called with steps done and steps in all.
        keep_every: epochs between two times of keeping.
    """
    if not isinstance(detector, NetworkDetector) or not detector.divisible or not isinstance(detector.encoder, str):
        raise SettingError(
            f"{detector.name} does not train in batches, so processes cannot share it; take one that does, such as "
            "the default"
        )
    detector = clone(detector).set_params(batch_size=detector.batch_size or BATCH_SIZE)
    detector._check_settings()
    with cluster(address, workers) as ray, tempfile.TemporaryDirectory() as here:
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        tally = ray.remote(num_cpus=0)(Tally).remote()
        task = {
            "detector": detector.name,
            "settings": detector.get_params(),
            "graph": str(Path(graph).absolute()) if not isinstance(graph, NodeGraph) else ray.put(graph),
            "split": split,
            "calibration": calibration,
            "every": keep_every,
            "tally": tally,
        }
        on_gpu = detector.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= workers
        trainer = TorchTrainer(
            _work,
            train_loop_config=task,
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=on_gpu),
            run_config=RunConfig(
                name="recoslip",
                storage_path=str(storage or here),
                failure_config=FailureConfig(max_failures=RESCUES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        with _watching(ray, tally, progress):
            result = trainer.fit()
        if problem := ray.get(tally.failed.remote()):
            raise RecoslipError(problem)
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as folder:
            return load(Path(folder) / "model", device=detector.device)


class Tally:
    """How far the work is; lives in the cluster, where the workers write to it and the caller reads."""

    def __init__(self) -> None:
        self.steps = (0, 0)
        self.problem = ""

    def put(self, done: int, total: int) -> None:
        """Note how far it is."""
        self.steps = (done, total)

    def get(self) -> tuple[int, int]:
        """Say how far it is."""
        return self.steps

    def fail(self, problem: str) -> None:
        """Note why it cannot be done."""
        self.problem = problem

    def failed(self) -> str:
        """Say why it cannot be done, or nothing."""
        return self.problem


@contextmanager
def _watching(ray: Any, tally: Any, progress: Progress | None) -> Iterator[None]:
    """Call `progress` now and then while the block runs."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            done, total = ray.get(tally.get.remote())
            if progress is not None and total:
                progress(done, total)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _work(task: dict[str, Any]) -> None:
    """Be one of the processes: fit as if alone. What is shared is shared where batches are drawn and trained on."""
    import ray

    from recoslip.detectors.registry import detector

    keeper = RayKeeper(task["every"])
    together.set_keeper(keeper)
    rank, _ = together.place()

    def report(done: int, total: int) -> None:
        if rank == 0:
            task["tally"].put.remote(done, total)

    try:
        graph = open_packed(task["graph"]) if isinstance(task["graph"], str) else ray.get(task["graph"])
        model = detector(task["detector"], **task["settings"])
        model.fit(graph, task["split"], calibration=task["calibration"], progress=report)
    except RecoslipError as problem:  # tried again, it would only come again
        ray.get(task["tally"].fail.remote(str(problem)))
        return
    finally:
        together.set_keeper(None)
    model.save(keeper.folder / "model")
    keeper.report()
    shutil.rmtree(keeper.folder)


class RayKeeper:
    """Keeps trainings as checkpoints of Ray Train, in files without code."""

    def __init__(self, every: int) -> None:
        from ray import train

        self.every, self.number = every, -1
        self.folder = Path(tempfile.mkdtemp(prefix="recoslip-"))
        checkpoint = train.get_checkpoint()
        if checkpoint is not None:
            checkpoint.to_directory(str(self.folder))

    @property
    def _path(self) -> Path:
        return self.folder / f"training-{self.number:06d}.safetensors"

    def begin(self) -> together.Kept | None:
        """Begin the next training; return where it was, if it had begun before."""
        self.number += 1
        if not self._path.exists():
            return None
        with safe_open(self._path, "pt") as file:
            about = file.metadata()
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return together.Kept(int(about["epoch"]), about["ended"] == "True", state)

    def keep(self, kept: together.Kept) -> None:
        """Keep where the present training is."""
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in kept.state.items()}
        save_file(tensors, self._path, {"epoch": str(kept.epoch), "ended": str(kept.ended)})
        self.report()

    def report(self) -> None:
        """Hand the files over to Ray; every process calls this as often as the others."""
        from ray import train

        first = together.place()[0] == 0
        train.report({}, checkpoint=train.Checkpoint.from_directory(str(self.folder)) if first else None)
