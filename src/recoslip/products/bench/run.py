"""Cells -> records: train cells here, in several processes or on a cluster, and store what each gives at once."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import psutil
import torch
from joblib import Parallel, delayed, parallel_config

from recoslip.base.errors import RecoslipError, RecoslipWarning
from recoslip.base.progress import Progress
from recoslip.data.datasets.load import Dataset
from recoslip.inference.calibrated import MAX_FPR
from recoslip.inference.metrics import all_metrics, listed_by_validation
from recoslip.learning.base import Detector
from recoslip.learning.methods import detector
from recoslip.learning.networks.device import resolve_device
from recoslip.products.bench.datasets import Sources
from recoslip.products.bench.plan import Cell, effective_settings
from recoslip.products.bench.records import Records
from recoslip.products.cluster import MAX_RETRIES, cluster

OnFinished: TypeAlias = Callable[[Cell, str | None], None]  # a cell, and why it failed or None

log = logging.getLogger("recoslip")


class Outcome(NamedTuple):
    """What came of a cell."""

    cell: Cell
    records: list[dict[str, Any]]
    problem: str | None  # why it failed


class Worker:
    """Trains cells one after another. The dataset of the last cell stays loaded for the next.

    Args:
        sources: where datasets come from.
        device: the setting of the detectors.
        jobs: processes that train at the same time, which the records state.
    """

    def __init__(self, sources: Sources, device: str, jobs: int = 1) -> None:
        self.sources, self.device, self.jobs = sources, device, jobs
        self._loaded: tuple[str, str] | None = None  # dataset and split of `_dataset`
        self._dataset: Dataset | None = None

    def outcome(self, cell: Cell, progress: Progress | None = None) -> Outcome:
        """Train a cell; a detector may be anybody's, so whatever it raises is why the cell failed."""
        try:
            return Outcome(cell, self.train(cell, progress), None)
        except RecoslipError as problem:
            return Outcome(cell, [], str(problem))
        except Exception as problem:
            log.debug("%s on %s failed", cell.method, cell.dataset, exc_info=problem)
            return Outcome(cell, [], f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}")

    def train(self, cell: Cell, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Train a cell and return its records."""
        data = self._load(cell.dataset, cell.split)
        model = detector(cell.method, **cell.settings, device=self.device)
        truth: dict[str, Any] = {"novel": data.novel} if model.requires_truth else {}
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoslipWarning)  # the metrics show what such a warning is about
            fitted = model.fit_seeds(data.graph, cell.seeds, data.split, progress=progress, **truth)
        seconds = (time.perf_counter() - start) / len(fitted)
        return [
            {
                "dataset": cell.dataset,
                "split": cell.split,
                "method": cell.method,
                "seed": copy.random_state,
                # As text, so that the records of all methods have the same columns.
                "settings": json.dumps(effective_settings(model)),
                "settings_hash": cell.settings_hash,
                "code": cell.code(),
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(seconds, 4),  # of the fleet, divided by its size
                "fleet": len(fitted),
                "jobs": self.jobs,
                "device": device_name(resolve_device(self.device), torch.get_num_threads()),
                "torch": torch.__version__,
                **all_metrics(data.novel, copy.scores_, listed_by_validation(copy, MAX_FPR), data.judged),
                "learned": json.dumps(_learned_numbers(copy)),
            }
            for copy in fitted
        ]

    def _load(self, dataset: str, split: str) -> Dataset:
        if self._dataset is None or self._loaded != (dataset, split):
            self._dataset = self.sources.load(dataset, split)
            self._loaded = (dataset, split)
        return self._dataset


def _learned_numbers(fitted: Detector) -> dict[str, int | float]:
    """Return the plain numbers among the attributes that a detector learned."""
    return {name: value for name, value in vars(fitted).items() if name[-1] == "_" and type(value) in (int, float)}


def device_name(device: torch.device, threads: int) -> str:
    """Name the hardware that a time was measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{threads} CPU threads" if device.type == "cpu" else str(device)


def threads_per_process(processes: int) -> int:
    """Return how many threads each of several processes gets."""
    return max(1, torch.get_num_threads() // processes)


def run(
    cells: Sequence[Cell],
    worker: Worker,
    records: Records,
    on_finished: OnFinished,
    progress: Progress,
    *,
    ray_address: str | None = None,
) -> None:
    """Train cells and store their records.

    Args:
        cells: what to train.
        worker: trains here, or in as many processes as its `jobs`.
        records: where records go.
        on_finished: called with every cell that has ended, and the reason where it failed; the others go on.
        progress: called with the epochs of the cell in training, where there is only one process.
        ray_address: address of a Ray cluster whose processes train.
    """
    if ray_address is not None:
        outcomes = _on_ray(cells, worker, ray_address)
    elif worker.jobs > 1:
        outcomes = _in_processes(cells, worker)
    else:
        outcomes = (worker.outcome(cell, progress) for cell in cells)
    for cell, found, problem in outcomes:
        try:
            if found:
                records.add(found)
        except RecoslipError as refused:
            problem = str(refused)
        on_finished(cell, problem)


def _in_processes(cells: Sequence[Cell], worker: Worker) -> Iterator[Outcome]:
    """Train cells in processes of this machine, which end with this one."""
    settings = {"initializer": _initialise_process, "initargs": (os.getpid(), threads_per_process(worker.jobs))}
    with parallel_config("loky", **settings):
        # Nothing is written for the processes: arrays that they need, they load themselves.
        pool = Parallel(worker.jobs, batch_size=1, max_nbytes=None, return_as="generator_unordered")
        try:
            yield from pool(delayed(worker.outcome)(cell) for cell in cells)
        except BrokenProcessPool as problem:
            raise RecoslipError(
                "a process of the bench died, perhaps for want of memory; what had ended is stored. "
                "Run it again with fewer --jobs"
            ) from problem


def _initialise_process(bench: int, threads: int) -> None:
    """Set up a process of the pool: its threads, and that it ends with the bench, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bench handles it and ends the pool
    torch.set_num_threads(threads)
    threading.Thread(target=_exit_with, args=(psutil.Process(bench),), daemon=True).start()


def _exit_with(bench: psutil.Process) -> None:
    bench.wait()
    os._exit(1)


def _on_ray(cells: Sequence[Cell], worker: Worker, address: str) -> Iterator[Outcome]:
    """Train cells as tasks of a Ray cluster. A task whose process dies is retried.

    Records are returned to this process, so that the machines need not share a folder.
    """
    with cluster(address, worker.jobs) as ray:
        gpus = 1 if worker.device != "cpu" and ray.cluster_resources().get("GPU", 0) else 0
        train = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=MAX_RETRIES)(Worker.outcome)
        shared = ray.put(worker)
        tasks = {train.remote(shared, cell): cell for cell in cells}
        while tasks:
            (finished,), _ = ray.wait(list(tasks), num_returns=1)
            cell = tasks.pop(finished)
            try:
                yield ray.get(finished)
            except ray.exceptions.RayError as error:
                died = f"its process died {MAX_RETRIES + 1} times ({type(error).__name__})"
                yield Outcome(cell, [], died)
