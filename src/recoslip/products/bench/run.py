"""Choices -> jobs -> records -> files: train what has no record, here or in several processes, and render all."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import psutil
from joblib import Parallel, delayed, parallel_config
from rich.console import Console
from rich.markup import escape

from recoslip.base.errors import RecoslipError, RecoslipWarning, SettingError, nearest, need
from recoslip.base.files import check_writable, output_lock, update
from recoslip.base.progress import Progress, shown
from recoslip.base.text import counted, duration
from recoslip.inference.calibrated import MAX_FPR
from recoslip.inference.metrics import all_metrics, listed_by_validation
from recoslip.learning.methods import DETECTORS, detector
from recoslip.products.bench.datasets import Sources, read_sources
from recoslip.products.bench.options import Choices
from recoslip.products.bench.plan import (
    choose,
    effective_settings,
    missing,
    parse_seeds,
    parse_settings,
    parse_splits,
    plan,
    recorded,
)
from recoslip.products.bench.records import Job, Records
from recoslip.products.bench.tables import Files, Page
from recoslip.products.cli.console import print_problem, resumable

Outcome: TypeAlias = tuple[Job, list[dict[str, Any]], str | None]  # a job, its records, and why it failed
NUMBERS = (int, float)  # types of what a detector learned that a record holds

log = logging.getLogger("recoslip")


@dataclass(frozen=True)
class Worker:
    """Trains jobs one after another."""

    sources: Sources
    device: str  # the setting of the detectors
    processes: int = 1  # how many train at the same time, which the records state

    def outcome(self, job: Job, progress: Progress | None = None) -> Outcome:
        """Train a job; a detector may be anybody's, so whatever it raises is why the job failed."""
        try:
            return job, self.train(job, progress), None
        except RecoslipError as problem:
            return job, [], str(problem)
        except Exception as problem:
            log.debug("%s on %s failed", job.method, job.dataset, exc_info=problem)
            return job, [], f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"

    def train(self, job: Job, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Train a job and return its records."""
        data = self.sources.load(job.dataset, job.split)
        model = detector(job.method, **job.settings, device=self.device)
        truth: dict[str, Any] = {"novel": data.novel} if model.requires_truth else {}
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoslipWarning)  # the metrics show what such a warning is about
            fitted = model.fit_seeds(data.graph, job.seeds, data.split, progress=progress, **truth)
        max_fpr = data.settings.max_fpr if DETECTORS[job.method].uses_paper_settings else MAX_FPR
        common = {
            "dataset": job.dataset,
            "split": job.split,
            "method": job.method,
            "settings": json.dumps(effective_settings(model)),  # text: records of all methods have the same columns
            "settings_hash": job.settings_hash,
            "code": job.code(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round((time.perf_counter() - start) / len(fitted), 4),  # of the fleet, divided by its size
            "fleet": len(fitted),
            "jobs": self.processes,
            "device": hardware(self.device),
            "torch": version("torch"),
        }
        return [
            {
                **common,
                "seed": copy.random_state,
                **all_metrics(data.novel, copy.scores_, listed_by_validation(copy, max_fpr), data.judged),
                "learned": json.dumps({k: v for k, v in vars(copy).items() if k[-1] == "_" and type(v) in NUMBERS}),
            }
            for copy in fitted
        ]


def hardware(setting: str, processes: int = 1) -> str:
    """Name what a time is measured on, for a device setting; that many processes are to share the cores."""
    torch = need("torch", "recoslip bench")
    from recoslip.learning.networks.device import resolve_device

    device = resolve_device(setting)
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{max(1, torch.get_num_threads() // processes)} CPU threads" if device.type == "cpu" else str(device)


def outcomes(jobs: Sequence[Job], worker: Worker, progress: Progress | None) -> Iterator[Outcome]:
    """Train jobs, in as many processes as the worker names, and yield each outcome as it comes.

    Args:
        jobs: what to train.
        worker: what trains, here or in processes of this machine, which end with this one.
        progress: called with the epochs of the job in training, where there is only one process.
    """
    if worker.processes == 1:
        yield from (worker.outcome(job, progress) for job in jobs)
        return
    threads = max(1, need("torch", "recoslip bench").get_num_threads() // worker.processes)
    settings = {"initializer": _set_up_process, "initargs": (os.getpid(), threads)}
    try:
        with parallel_config("loky", **settings):
            # Nothing is written for the processes: arrays that they need, they load themselves.
            pool = Parallel(worker.processes, batch_size=1, max_nbytes=None, return_as="generator_unordered")
            yield from pool(delayed(worker.outcome)(job) for job in jobs)
    except BrokenProcessPool as problem:
        raise RecoslipError(
            "a process of the bench died, perhaps for want of memory; what had ended is stored. "
            "Run it again with fewer --jobs"
        ) from problem


def _set_up_process(bench: int, threads: int) -> None:
    """Set up a process of the pool: its threads, and that it ends with the bench, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bench handles it and ends the pool
    need("torch", "recoslip bench").set_num_threads(threads)
    threading.Thread(target=_exit_with, args=(psutil.Process(bench),), daemon=True).start()


def _exit_with(bench: psutil.Process) -> None:
    bench.wait()
    os._exit(1)


class Session:
    """One call of the bench.

    Args:
        choices: what to compare, and how.
        console: where messages go.
    """

    def __init__(self, choices: Choices, console: Console) -> None:
        if choices.jobs < 1:
            raise SettingError(f"--jobs must be 1 or more; got {choices.jobs}")
        if (name := choices.reference) not in DETECTORS:
            raise SettingError(f"--reference: no method is called {name!r}{nearest(name, DETECTORS)}")
        self.choices, self.console, self.out = choices, console, choices.out
        self.seeds, self.splits = parse_seeds(choices.seeds), parse_splits(choices.splits)
        self.sources = read_sources(choices.config, choices.root)
        self.records = Records(choices.out / "records")

    def run(self, experiment: str) -> int:
        """Train what has no record, render all, and return how many jobs failed."""
        log.setLevel(logging.WARNING)  # what is logged about each graph is not wanted here
        with output_lock(self.out):
            datasets, methods = choose(experiment, self.choices, self.sources)
            settings = parse_settings(self.choices.settings or [], methods)
            jobs = plan(datasets, methods, self.splits, self.seeds, self.sources, settings)
            failed = 0 if self.choices.render_only else self._train(jobs)
            self._render(experiment, jobs, settings)
        return failed

    def _train(self, planned: Sequence[Job]) -> int:
        """Train what has no record yet; return how many jobs failed."""
        choices, console = self.choices, self.console
        device = hardware(choices.device, choices.jobs)
        check_writable(self.out)  # now, not after an hour of training
        jobs = missing(planned, self.records, any_version=choices.any_version)
        total, remaining = (sum(len(job.seeds) for job in listed) for listed in (planned, jobs))
        console.print(f"{total:,} runs planned, {total - remaining:,} have a record, {remaining:,} to do")
        if not jobs:
            return 0
        console.print(f"{len(jobs):,} fleets on {device}, {choices.jobs} at a time")
        failures: list[str] = []
        start = time.perf_counter()
        worker = Worker(self.sources, choices.device, choices.jobs)
        with resumable("what had ended is stored"), shown("training", "epochs", not choices.quiet) as progress:
            for number, (job, records, problem) in enumerate(outcomes(jobs, worker, progress), 1):
                try:
                    if records:
                        self.records.add(records)
                except RecoslipError as refused:
                    problem = str(refused)
                came = f"after {duration(time.perf_counter() - start)}" if problem is None else "failed"
                what = f"{job.dataset} split {job.split} {job.method} ({counted(len(job.seeds), 'seed')})"
                console.print(f"{number}/{len(jobs)} {what}, {came}", highlight=False)
                if problem is not None:
                    failures.append(f"{job.dataset}, split {job.split}, {job.method}: {problem}")
        console.print(f"trained {len(jobs) - len(failures):,} fleets in {duration(time.perf_counter() - start)}")
        for failure in failures:
            print_problem("failed", failure)
        return len(failures)

    def _render(self, name: str, jobs: Sequence[Job], settings: dict[str, Any]) -> None:
        """Write the document of an experiment."""
        found = recorded(jobs, self.records)
        if self.choices.render_only and not found:
            raise SettingError(
                f"{self.out} has no record of {name} with these choices; --render needs the --set, --seeds, "
                "--splits and --config of the run"
            )
        if self.choices.datasets is None:  # the user did not ask for datasets that have no records
            jobs = [job for job in jobs if any(key.dataset == job.dataset for key in found)] or jobs
        page = Page(name, jobs, found, reference=self.choices.reference, changed=settings)
        write_files(self.out, page.files(), self.console)


def write_files(folder: Path, files: Files, console: Console) -> None:
    """Write files by name into a folder."""
    update(folder, files, "bench")
    console.print(f"written to {escape(str(folder))}: {', '.join(sorted(files))}", soft_wrap=True)
