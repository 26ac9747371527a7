"""A detector -> fitted by several processes or machines, a rotation each. Ray starts them and repeats lost work."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save
from sklearn.base import clone

from recoslip._version import __version__
from recoslip.base.errors import ModelFileError, RecoslipError, SettingError
from recoslip.base.files import MANIFEST, output_lock, printable, write_new
from recoslip.base.progress import Progress
from recoslip.base.settings import Integer, check_params, json_params
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import id_hashes
from recoslip.data.packed.reader import open_packed
from recoslip.data.split import Mask, Split
from recoslip.inference.calibrated import MAX_FPR, Calibrated, calibrate
from recoslip.learning import base
from recoslip.learning.base import Attributes, Detector, Presentation
from recoslip.learning.networks.device import BATCH_SIZE
from recoslip.learning.networks.network_detector import NetworkDetector, encoders_of
from recoslip.learning.saving import pack, unpack

LOCAL = "local"  # stands for an address: start a cluster on this machine, for this call only
MAX_RETRIES = 3  # how often work is done again after its process died
INTERVAL = 0.5  # seconds between two reports of progress


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
    rotations: int = 5,
    max_fpr: float = MAX_FPR,
    progress: Progress | None = None,
) -> Calibrated:
    """Do what `recoslip.calibrate` does, one process of a cluster for each of the fits.

    If a process or its machine dies, its rotation is fitted again elsewhere.

    Args:
        detector: not changed. Without a `batch_size`, it trains in batches, so that all machines do the same.
        graph: a graph; or the folder of a packed one, which every machine must then see under the same path.
        split: as for `recoslip.calibrate`.
        workers: how many processes at once.
        address: address of a Ray cluster; "auto" for the one that this machine belongs to, "local" to start one here,
            where this process has not joined one already.
        storage: folder for the rotations that have finished. If the same fit is started again with this folder, they
            are not fitted again. Other fits may use the same folder.
        rotations: as for `recoslip.calibrate`.
        max_fpr: as for `recoslip.calibrate`.
        progress: called with fits done and fits in all.
    """
    Integer(1)("workers", workers)
    if rotations == 1:
        raise SettingError("a cluster fits rotations, and rotations=1 is a single fit; use 2 or more, or detector.fit")
    packed = None if isinstance(graph, NodeGraph) else Path(graph).expanduser().absolute()
    opened = graph if isinstance(graph, NodeGraph) else open_packed(graph)
    tasks = RotationTasks(opened, packed, workers, address, None if storage is None else Path(storage).expanduser())
    model = _alike_everywhere(detector)
    return calibrate(model, opened, split, rotations=rotations, max_fpr=max_fpr, progress=progress, learn=tasks)


def _alike_everywhere(detector: Detector) -> Detector:
    """Return an unfitted copy that trains alike on machines with more and with less memory."""
    copy: Detector = clone(detector)
    check_params(copy)
    if isinstance(copy, NetworkDetector) and not all(isinstance(encoder, str) for encoder in encoders_of(copy)):
        raise SettingError("a cluster fits named encoders, not a module of your own; use one, or detector.fit")
    if getattr(copy, "batch_size", 0) is None:
        copy.set_params(batch_size=BATCH_SIZE)
    return copy


class Task(NamedTuple):
    """A rotation to learn."""

    number: int
    is_target: Mask  # as the graph is presented
    split: Split
    seed: int


@dataclass(frozen=True)
class RotationTasks:
    """Learns the rotations of a fit in tasks of a cluster, in place of `recoslip.learning.base.learn`."""

    graph: NodeGraph
    packed: Path | None  # the folder of the graph, if it is a packed one, which the tasks open themselves
    workers: int
    address: str
    storage: Path | None

    def __call__(self, detector: Detector, shown: Sequence[Presentation], progress: Progress) -> list[Attributes]:
        """Return what `recoslip.learning.base.learn` returns."""
        graph = shown[0].graph
        tasks = [Task(number, each.graph.is_target, each.split, each.seed) for number, each in enumerate(shown)]
        paths = []
        if self.storage is not None:
            digest = graph_digest(graph, self.packed)
            names = [fingerprint(detector, digest, task.is_target, task.split, task.seed) for task in tasks]
            paths = [self.storage / f"rotation-{name}.safetensors" for name in names]
        features = graph.num_features
        with output_lock(paths[0]) if paths else nullcontext():  # two that fit the same would do everything twice
            learned = {k: read_learned(detector, features, path) for k, path in enumerate(paths) if path.is_file()}
            left = [task for task in tasks if task.number not in learned]
            with closing(self._learn(detector, graph, left, progress)) as contents:
                for number, content in contents:
                    if paths:
                        write_new(paths[number], content)
                    learned[number] = unpack_learned(detector, features, content)
        return [learned[task.number] for task in tasks]

    def _learn(
        self, detector: Detector, graph: NodeGraph, left: Sequence[Task], progress: Progress
    ) -> Generator[tuple[int, bytes]]:
        """Yield the number of each rotation and what `learn_rotation` returned, as soon as it has finished."""
        if not left:
            return
        with cluster(self.address, self.workers) as ray:
            resources = ray.cluster_resources()
            cores = torch.get_num_threads() if self.address == LOCAL else int(resources.get("CPU", 1))
            threads = max(1, cores // self.workers)
            learn = ray.remote(
                num_cpus=1,  # a task that asked for more might fit on no machine that is left
                num_gpus=int(detector.device != "cpu" and resources.get("GPU", 0) > 0),
                max_retries=MAX_RETRIES,
                scheduling_strategy="SPREAD",
            )(learn_rotation)
            reordered = not np.shares_memory(graph.edge_index, self.graph.edge_index)  # by `calibrate`
            shared = ray.put(graph) if reordered or self.packed is None else str(self.packed)
            waiting = list(left)
            running: dict[Any, int] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < self.workers:
                        task = waiting.pop(0)
                        running[learn.remote(detector, shared, task, threads)] = task.number
                    for finished in ray.wait(list(running), timeout=INTERVAL)[0]:
                        yield running.pop(finished), ray.get(finished)
                    progress(len(left) - len(waiting) - len(running), len(left))
            except ray.exceptions.RayTaskError as problem:
                if isinstance(problem.cause, RecoslipError):
                    raise problem.cause from None
                raise
            except ray.exceptions.RayError as problem:
                raise RecoslipError(
                    f"the cluster did not do the work ({type(problem).__name__}); if its processes died, they may have "
                    "run out of memory: start again with fewer workers"
                ) from problem
            finally:
                for unfinished in running:  # one failed, or this process was interrupted
                    ray.cancel(unfinished, force=True)


def learn_rotation(detector: Detector, graph: NodeGraph | str, task: Task, threads: int) -> bytes:
    """Learn one rotation, in a process of a cluster; return what `pack_learned` makes of it."""
    torch.set_num_threads(min(threads, os.cpu_count() or 1))
    shown = (open_packed(graph) if isinstance(graph, str) else graph).with_target(task.is_target)
    (attributes,) = base.learn(detector, [Presentation(shown, task.split, task.seed)], lambda *_: None)
    return pack_learned(detector, attributes)


def graph_digest(graph: NodeGraph, packed: Path | None) -> bytes:
    """Hash features, edges and ids of a graph."""
    if packed is not None:
        return (packed / MANIFEST).read_bytes()  # it has the hashes of all other files
    digest = hashlib.sha256()
    x = graph.x
    features = [x.data, x.indices, x.indptr] if sp.issparse(x) else [x]
    weights = [] if graph.edge_weight is None else [graph.edge_weight]
    for array in (*features, graph.edge_index, *weights, id_hashes(graph.ids)):
        digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.digest()


def pack_learned(detector: Detector, attributes: dict[str, Any]) -> bytes:
    """Turn learned attributes into the content of a safetensors file, in which numbers are JSON."""
    fitted = clone(detector)
    fitted.__dict__.update(attributes)
    values, arrays = pack(fitted)
    own = {"json_": np.frombuffer(json.dumps(values).encode(), np.uint8)}
    return save({name: np.ascontiguousarray(array) for name, array in (own | arrays).items()})


def unpack_learned(detector: Detector, features: int, content: bytes) -> dict[str, Any]:
    """Turn what `pack_learned` returned back into the learned attributes, of a graph with so many features."""
    arrays = load(content)
    values = json.loads(arrays.pop("json_").tobytes())
    empty = clone(detector)
    empty.n_features_in_ = features
    return unpack(empty, values, arrays)


def read_learned(detector: Detector, features: int, path: Path) -> dict[str, Any]:
    """Read the learned attributes from a file."""
    try:
        return unpack_learned(detector, features, path.read_bytes())
    except (OSError, SafetensorError, LookupError, ValueError, RuntimeError) as problem:
        raise ModelFileError(
            f"{printable(path)} is damaged ({type(problem).__name__}: {problem}); delete it and start again"
        ) from problem


def fingerprint(detector: Detector, graph: bytes, is_target: Mask, split: Split, seed: int) -> str:
    """Hash what a training depends on: version, settings, graph (by a digest of it), domains, split and seed."""
    settings = {name: value for name, value in json_params(detector).items() if name != "device"}
    digest = hashlib.sha256(json.dumps([__version__, detector.name, settings, seed], sort_keys=True).encode())
    for part in (graph, is_target.tobytes(), split.train.tobytes(), split.validation.tobytes(), split.test.tobytes()):
        digest.update(part)
    return digest.hexdigest()[:16]
