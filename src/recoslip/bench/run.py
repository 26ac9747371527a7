"""Cells -> records: train cells here or in several processes, and store the records of each as soon as it is done."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from typing import Any, TypeAlias

import torch

from recoslip.bench.estimate import device_name, threads_per_process
from recoslip.bench.plan import Cell, effective_settings
from recoslip.bench.records import Records
from recoslip.bench.sources import Sources
from recoslip.cluster import MAX_RETRIES, cluster
from recoslip.datasets.load import Dataset
from recoslip.detectors.base import Detector
from recoslip.detectors.registry import detector
from recoslip.errors import RecoslipError, RecoslipWarning
from recoslip.fleet.device import resolve_device
from recoslip.metrics import all_metrics
from recoslip.progress import Progress

OnFinished: TypeAlias = Callable[[Cell, str | None], None]  # a cell, and why it failed or None

log = logging.getLogger("recoslip")


class Worker:
    """Trains cells one after another. The dataset of the last cell stays loaded for the next.

    Args:
        sources: where datasets come from.
        records: where records go.
        device: the setting of the detectors.
        jobs: processes that train at the same time, which the records state.
    """

    def __init__(self, sources: Sources, records: Records, device: str, jobs: int = 1) -> None:
        self.sources, self.records, self.device, self.jobs = sources, records, device, jobs
        self._loaded: tuple[str, str] | None = None  # dataset and split of `_dataset`
        self._dataset: Dataset | None = None

    def train_and_store(self, cell: Cell, progress: Progress | None = None) -> None:
        """Train a cell and store its records."""
        self.records.add(self.train(cell, progress))

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
                **all_metrics(data.novel, copy.scores_, copy.predict(), data.judged),
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


def run(
    cells: Sequence[Cell],
    worker: Worker,
    on_finished: OnFinished,
    progress: Progress,
    *,
    ray_address: str | None = None,
) -> None:
    """Train cells and store their records.

    Args:
        cells: what to train.
        worker: trains here, or in as many processes as its `jobs`.
        on_finished: called with every cell that has ended, and the reason where it failed; the others go on.
        progress: called with the epochs of the cell in training, where there is only one process.
        ray_address: address of a Ray cluster whose processes train.
    """
    if ray_address is not None:
        _run_on_ray(cells, worker, on_finished, ray_address)
    elif worker.jobs > 1:
        _run_in_processes(cells, worker, on_finished)
    else:
        for cell in cells:
            on_finished(cell, _train_and_store(worker, cell, progress))


def _run_in_processes(cells: Sequence[Cell], worker: Worker, on_finished: OnFinished) -> None:
    """Train cells in processes of this machine, which end with this one."""
    pool = ProcessPoolExecutor(
        worker.jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_initialise_process,
        initargs=(threads_per_process(worker.jobs),),
    )
    try:
        running = {pool.submit(_train_and_store, worker, cell): cell for cell in cells}
        while running:
            # The timeout is there because an interrupt does not end a wait once polars is imported (polars#21739).
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                on_finished(running.pop(future), future.result())
        pool.shutdown()
    except BaseException as problem:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        if isinstance(problem, BrokenProcessPool):
            raise RecoslipError(
                "a process of the bench died, perhaps for want of memory; what had ended is stored. "
                "Run it again with fewer --jobs"
            ) from problem
        raise


def _run_on_ray(cells: Sequence[Cell], worker: Worker, on_finished: OnFinished, address: str) -> None:
    """Train cells as tasks of a Ray cluster. A task whose process dies is retried.

    Records are returned to this process, so that the machines need not share a folder.
    """
    with cluster(address, worker.jobs) as ray:
        gpus = 1 if worker.device != "cpu" and ray.cluster_resources().get("GPU", 0) else 0
        train = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=MAX_RETRIES)(_train)
        shared = ray.put(worker)
        tasks = {train.remote(shared, cell): cell for cell in cells}
        while tasks:
            (finished,), _ = ray.wait(list(tasks), num_returns=1)
            cell = tasks.pop(finished)
            try:
                records, problem = ray.get(finished)
            except ray.exceptions.RayError as error:
                records, problem = [], f"its process died {MAX_RETRIES + 1} times ({type(error).__name__})"
            if records:
                worker.records.add(records)
            on_finished(cell, problem)


def _train(worker: Worker, cell: Cell) -> tuple[list[dict[str, Any]], str | None]:
    """Train a cell; return its records and None, or no records and why it failed."""
    try:
        return worker.train(cell), None
    except Exception as problem:  # a detector may be anybody's, and the other cells shall go on
        return [], _describe(problem, cell)


def _train_and_store(worker: Worker, cell: Cell, progress: Progress | None = None) -> str | None:
    """Train a cell and store its records; return why that failed, or None."""
    try:
        worker.train_and_store(cell, progress)
    except Exception as problem:  # as above
        return _describe(problem, cell)
    return None


def _describe(problem: Exception, cell: Cell) -> str:
    if isinstance(problem, RecoslipError):
        return str(problem)
    log.debug("%s on %s failed", cell.method, cell.dataset, exc_info=problem)
    return f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"


def _initialise_process(threads: int) -> None:
    """Set up a process of the pool: its threads, and that it ends with the bench, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bench handles it and ends the pool
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
