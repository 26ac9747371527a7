"""Cells -> records: train what is missing, here or in several processes, and store each fleet as soon as it is done."""

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
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import torch

from recoslip.bench.plan import Cell, device_name, settings_of, threads_each
from recoslip.bench.records import Records
from recoslip.bench.sources import Sources
from recoslip.cluster import RESCUES, cluster
from recoslip.datasets import Dataset
from recoslip.detectors import Detector, detector
from recoslip.errors import RecoslipError, RecoslipWarning
from recoslip.fleet.device import resolve_device
from recoslip.insight.metrics import all_metrics

Epochs: TypeAlias = Callable[[int, int], None]  # (steps done, steps in all) of the cell in hand
Done: TypeAlias = Callable[[Cell, str | None], None]  # a cell, and what went wrong with it


log = logging.getLogger("recoslip")


@dataclass(frozen=True)
class Worker:
    """Trains cells, one after another, and keeps the dataset in hand for the next."""

    sources: Sources
    records: Records
    device: str
    jobs: int = 1  # processes that train at the same time
    ray: str | None = None  # address of a Ray cluster whose processes they shall be
    last: dict[str, Any] = field(default_factory=dict, repr=False)  # the dataset in hand

    def __call__(self, cell: Cell, progress: Epochs | None = None) -> None:
        """Train a cell and store its records."""
        self.records.add(self.train(cell, progress))

    def train(self, cell: Cell, progress: Epochs | None = None) -> list[dict[str, Any]]:
        """Train a cell and return its records."""
        data = self.load(cell.dataset, cell.split)
        model = detector(cell.method, **cell.settings, device=self.device)
        truth: dict[str, Any] = {"novel": data.novel} if "truth" in model.needs else {}
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoslipWarning)  # a limit that was missed shows in the figures
            fitted = model.fit_seeds(data.graph, cell.seeds, data.split, progress=progress, **truth)
        seconds = (time.perf_counter() - begin) / len(fitted)
        return [
            {
                "dataset": cell.dataset,
                "split": cell.split,
                "method": cell.method,
                "seed": copy.random_state,
                "settings": json.dumps(
                    settings_of(model)
                ),  # text, so that the records of all methods have the same columns
                "settings_hash": cell.settings_hash,
                "code": cell.code(),
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(seconds, 4),  # of the fleet, divided by its size
                "fleet": len(fitted),
                "jobs": self.jobs,
                "device": device_name(resolve_device(self.device), torch.get_num_threads()),
                "torch": torch.__version__,
                **all_metrics(data.novel, copy.scores_, copy.predict(), data.split.test),
                "learned": json.dumps(_learned(copy)),
            }
            for copy in fitted
        ]

    def load(self, dataset: str, split: str) -> Dataset:
        """Load a dataset, or take the one that was loaded last."""
        if self.last.get("name") != (dataset, split):
            self.last.update(name=(dataset, split), data=self.sources.load(dataset, split))
        data: Dataset = self.last["data"]
        return data


def _learned(fitted: Detector) -> dict[str, int | float]:
    """Return the plain numbers among what a detector learned."""
    return {name: value for name, value in vars(fitted).items() if name[-1] == "_" and type(value) in (int, float)}


def run(cells: Sequence[Cell], worker: Worker, done: Done, epochs: Epochs) -> None:
    """Train cells and store their records.

    Args:
        cells: what to train.
        worker: who trains, here or in as many processes as it says.
        done: called with every cell that has ended, and the reason where it failed; the others go on.
        epochs: called with the progress of the cell in hand, where there is only one process.
    """
    if worker.ray is not None:
        _run_on_ray(cells, worker, done)
        return
    if worker.jobs == 1:
        for cell in cells:
            done(cell, _reason(worker, cell, epochs))
        return
    pool = ProcessPoolExecutor(
        worker.jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(threads_each(worker.jobs),),
    )
    try:
        futures = {pool.submit(_reason, worker, cell): cell for cell in cells}
        for future in as_completed(futures):
            done(futures[future], future.result())
        pool.shutdown()
    except BaseException as problem:
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in workers:
            process.terminate()
        if isinstance(problem, BrokenProcessPool):
            raise RecoslipError(
                "a process of the bench died, perhaps for want of memory; what had ended is stored. "
                "Run it again with fewer --jobs"
            ) from problem
        raise


def _run_on_ray(cells: Sequence[Cell], worker: Worker, done: Done) -> None:
    """Spread cells over a Ray cluster.

    Records come back here, so that the machines need not share a folder. A cell whose process dies is tried again.
    """
    assert worker.ray is not None
    with cluster(worker.ray, worker.jobs) as ray:
        gpus = 1 if worker.device != "cpu" and ray.cluster_resources().get("GPU", 0) else 0
        train = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RESCUES)(_records_or_reason)
        shared = ray.put(worker)
        running = {train.remote(shared, cell): cell for cell in cells}
        while running:
            (ended,), _ = ray.wait(list(running), num_returns=1)
            cell = running.pop(ended)
            try:
                records, reason = ray.get(ended)
            except ray.exceptions.RayError as problem:
                records, reason = [], f"its process died {RESCUES + 1} times ({type(problem).__name__})"
            if records:
                worker.records.add(records)
            done(cell, reason)


def _records_or_reason(worker: Worker, cell: Cell) -> tuple[list[dict[str, Any]], str | None]:
    """Train a cell; return its records, or none and why it could not be trained."""
    try:
        return worker.train(cell), None
    except Exception as problem:
        return [], _why(problem, cell)


def _reason(worker: Worker, cell: Cell, epochs: Epochs | None = None) -> str | None:
    """Train a cell and store its records; return why that failed, or None."""
    try:
        worker(cell, epochs)
    except Exception as problem:  # a detector may be anybody's, and the other cells shall go on
        return _why(problem, cell)
    return None


def _why(problem: Exception, cell: Cell) -> str:
    if isinstance(problem, RecoslipError):
        return str(problem)
    log.debug("%s on %s failed", cell.method, cell.dataset, exc_info=problem)
    return f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"


def _begin(threads: int) -> None:
    """Set up a process of the pool: its share of the cores, and an end when the bench ends, however that does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bench itself hears it, and ends the pool
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
