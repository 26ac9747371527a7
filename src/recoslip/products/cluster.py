"""A detector -> fitted by several processes or machines. Ray starts them and repeats lost work."""

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from sklearn.base import clone

from recoslip._version import __version__
from recoslip.base.errors import ModelFileError, RecoslipError, SettingError
from recoslip.base.files import MANIFEST, output_lock, printable, write_new
from recoslip.base.progress import Progress
from recoslip.base.settings import Integer, check_params, json_params
from recoslip.data.blocks import Blocks, call, handle, reserve, using
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import hashes_of
from recoslip.data.packed.reader import open_packed
from recoslip.data.split import Mask, Split
from recoslip.inference.calibrated import MAX_FPR, Calibrated, calibrate
from recoslip.learning import base
from recoslip.learning.base import Attributes, Detector, Presentation
from recoslip.learning.saving import pack, unpack
from recoslip.learning.scan import Scan

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
        said = f"no Ray cluster answers at {address!r} ({problem}); use local, auto or the address of one"
        raise SettingError(said) from problem
    try:
        yield ray
    finally:
        ray.shutdown()


class Tasks(Blocks):
    """Calls functions as tasks of a cluster, which does those again whose process died; arrays lie in a folder.

    Args:
        ray: what `cluster` yields.
        folder: that all machines reach under this path; None if no arrays are made.
        workers: how many functions run at once.
        gpus: that each of them takes.
    """

    def __init__(self, ray: Any, folder: str | None, workers: int, gpus: int = 0) -> None:
        self.ray, self.folder, self.workers = ray, folder, workers
        self.call = ray.remote(  # a task that asked for more cores might fit on no machine that is left
            num_cpus=1, num_gpus=gpus, max_retries=MAX_RETRIES, scheduling_strategy="SPREAD"
        )(call)

    def create(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an array in a file of its own. Blocks of it begin at pages, so that no two machines write to one."""
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            reserve(file.fileno(), int(np.prod(shape)) * np.dtype(dtype).itemsize, str(self.folder))
        return np.memmap(file.name, dtype, "r+", shape=shape)

    def each(self, task: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return what a function returns for the arguments of each job."""
        results = dict(self.finished(task, jobs))
        return [results[number] for number in range(len(jobs))]

    def finished(
        self, task: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], progress: Progress = lambda *_: None
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number of each job and what the function returned, as soon as it has."""
        running: dict[Any, int] = {}
        ray, waiting = self.ray, list(enumerate(self._shared(jobs)))[::-1]
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    number, arguments = waiting.pop()
                    running[self.call.remote(task, *arguments)] = number
                for finished in ray.wait(list(running), timeout=INTERVAL)[0]:
                    yield running.pop(finished), ray.get(finished)
                progress(len(jobs) - len(waiting) - len(running), len(jobs))
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

    def _shared(self, jobs: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the jobs with handles in place of mapped arrays, and what all of them are given sent once."""
        jobs = [tuple(map(handle, job)) for job in jobs]
        first = jobs[0] if len(jobs) > 1 else ()
        sent = {
            k: self.ray.put(value)
            for k, value in enumerate(first)
            if (hasattr(value, "__dict__") or isinstance(value, np.ndarray)) and all(job[k] is value for job in jobs)
        }
        return [tuple(sent.get(k, value) for k, value in enumerate(job)) for job in jobs]


def fit(
    detector: Detector,
    graph: NodeGraph | str | os.PathLike[str],
    split: Split | None = None,
    *,
    workers: int = 2,
    address: str = LOCAL,
    storage: str | os.PathLike[str] | None = None,
    rotations: int | None = None,
    max_fpr: float = MAX_FPR,
    progress: Progress | None = None,
) -> Calibrated:
    """Do what `recoslip.calibrate` does, by several processes of a cluster.

    The scan of a packed graph is done a block of nodes at a time; one of a graph in memory is done here. Of other
    methods, each rotation is a task. If a process or its machine dies, what it did is done again elsewhere.

    Args:
        detector: not changed. Without a `batch_size`, it trains in batches, so that all machines do the same.
        graph: a graph; or the folder of a packed one, which every machine must then see under the same path.
        split: as for `recoslip.calibrate`.
        workers: how many processes at once.
        address: of a Ray cluster; "auto": the one that this machine belongs to, "local": start one, if none was joined.
        storage: folder for rotations that have finished, which the same fit does not repeat. Other fits may use it,
            too. Vectors and bins of the scan lie there until it has ended; every machine must see it under this path.
        rotations: as for `recoslip.calibrate`.
        max_fpr: as for `recoslip.calibrate`.
        progress: called with fits done and fits in all.
    """
    Integer(1)("workers", workers)
    if rotations == 1:
        raise SettingError("a cluster fits rotations, and rotations=1 is a single fit; use 2 or more, or detector.fit")
    packed = None if isinstance(graph, NodeGraph) else Path(graph).expanduser().absolute()
    opened = graph if isinstance(graph, NodeGraph) else open_packed(graph)
    place = None if storage is None else Path(storage).expanduser().absolute()
    calibrated = partial(calibrate, rotations=rotations, max_fpr=max_fpr, progress=progress)
    if not isinstance(detector, Scan):
        tasks = RotationTasks(opened, packed, workers, address, place)
        return calibrated(_alike_everywhere(detector), opened, split, learn=tasks)
    if packed is None:
        return calibrated(detector, opened, split)
    if place is None and address != LOCAL:
        raise SettingError("the scan keeps vectors where all machines reach them; give such a folder: storage=...")
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="scan-", dir=place, ignore_cleanup_errors=True) as folder,
        cluster(address, workers) as ray,
        using(Tasks(ray, folder, workers)),
    ):
        return calibrated(detector, opened, split)


def _alike_everywhere(detector: Detector) -> Detector:
    """Return an unfitted copy that trains alike on machines with more and with less memory."""
    copy: Detector = clone(detector)
    check_params(copy)
    encoder = getattr(copy, "encoder", "none is trained")
    if not all(isinstance(each, str) for each in (encoder if isinstance(encoder, list | tuple) else [encoder])):
        raise SettingError("a cluster fits named encoders, not a module of your own; use one, or detector.fit")
    if getattr(copy, "batch_size", 0) is None:
        from recoslip.learning.networks.device import BATCH_SIZE

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
            names = fingerprints(detector, graph, self.packed, tasks)
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

    def _learn(self, detector: Detector, graph: NodeGraph, left: list[Task], progress: Progress) -> Generator[Any]:
        """Yield the number of each rotation and what `learn_rotation` returned, as soon as it has finished."""
        if not left:
            return
        with cluster(self.address, self.workers) as ray:
            resources, torch = ray.cluster_resources(), sys.modules.get("torch")
            cores = resources.get("CPU", 1) if self.address != LOCAL else torch.get_num_threads() if torch else 1
            gpus = int(detector.device != "cpu" and resources.get("GPU", 0) > 0)
            reordered = not np.shares_memory(graph.edge_index, self.graph.edge_index)  # by `calibrate`
            place = ray.put(graph if reordered or self.packed is None else str(self.packed))
            jobs = [(detector, place, task, max(1, int(cores) // self.workers)) for task in left]
            tasks = Tasks(ray, None, self.workers, gpus)
            for k, content in tasks.finished(learn_rotation, jobs, progress):
                yield left[k].number, content


def learn_rotation(detector: Detector, graph: NodeGraph | str, task: Task, threads: int) -> bytes:
    """Learn one rotation, in a process of a cluster; return what `pack_learned` makes of it."""
    if torch := sys.modules.get("torch"):  # imported by methods that need it, and by no others
        torch.set_num_threads(min(threads, os.cpu_count() or 1))
    shown = (open_packed(graph) if isinstance(graph, str) else graph).with_target(task.is_target)
    (attributes,) = base.learn(detector, [Presentation(shown, task.split, task.seed)], lambda *_: None)
    return pack_learned(detector, attributes)


def fingerprints(detector: Detector, graph: NodeGraph, packed: Path | None, tasks: Sequence[Task]) -> list[str]:
    """Hash what each training depends on: version, settings, graph, domains, split and seed."""
    settings = {name: value for name, value in json_params(detector).items() if name != "device"}
    content: Any = (graph.x, graph.edge_index, graph.edge_weight, hashes_of(graph))
    if packed is not None:
        content = (packed / MANIFEST).read_bytes()  # it has the hashes of all other files
    whole = joblib.hash((__version__, detector.name, settings, content))
    return [joblib.hash((whole, task.is_target, task.split, task.seed))[:16] for task in tasks]


def pack_learned(detector: Detector, attributes: Attributes) -> bytes:
    """Turn learned attributes into the content of a safetensors file, in which numbers are JSON."""
    fitted = clone(detector)
    for name, value in attributes.items():
        setattr(fitted, name, value)
    values, arrays = pack(fitted)
    own = {"json_": np.frombuffer(json.dumps(values).encode(), np.uint8)}
    return save({name: np.ascontiguousarray(array) for name, array in (own | arrays).items()})


def unpack_learned(detector: Detector, features: int, content: bytes) -> Attributes:
    """Turn what `pack_learned` returned back into the learned attributes, of a graph with so many features."""
    arrays, empty = load(content), clone(detector)
    empty.n_features_in_ = features
    return unpack(empty, json.loads(arrays.pop("json_").tobytes()), arrays)


def read_learned(detector: Detector, features: int, path: Path) -> Attributes:
    """Read the learned attributes from a file."""
    try:
        return unpack_learned(detector, features, path.read_bytes())
    except (OSError, SafetensorError, LookupError, ValueError, RuntimeError) as problem:
        said = f"{printable(path)} is damaged ({type(problem).__name__}: {problem}); delete it and start again"
        raise ModelFileError(said) from problem
