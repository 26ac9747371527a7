"""Choices -> jobs -> records -> files: train what has no record, here or in several processes, and render all."""

import json
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import psutil
from joblib import Parallel, delayed, parallel_config
from rich.console import Console

from recoslip.base.errors import DatasetError, RecoslipError, RecoslipWarning, SettingError, nearest, need
from recoslip.base.files import check_writable, output_lock, update
from recoslip.base.progress import Progress, shown
from recoslip.base.text import counted, duration
from recoslip.data.datasets.catalogue import GRAPHS
from recoslip.data.datasets.load import check_arxiv, data_root
from recoslip.data.datasets.panel import CASES, supported_cases
from recoslip.inference.calibrated import MAX_FPR
from recoslip.inference.metrics import all_metrics, listed_by_validation
from recoslip.learning.base import learned_attributes
from recoslip.learning.methods import DETECTORS, detector
from recoslip.products.bench import Choices
from recoslip.products.bench.datasets import DEFAULT_SPLIT, Sources, read_sources
from recoslip.products.bench.records import Job, Records, effective_settings, missing, plan, recorded
from recoslip.products.bench.tables import Files, Page
from recoslip.products.cli.console import print_problem, resumable, say
from recoslip.products.cli.options import NOT_LISTED, parse_value, split_names

Outcome: TypeAlias = tuple[Job, list[dict[str, Any]], str | None]  # a job, its records, and why it failed
DATASETS = (*(f"{graph}-s" for graph in GRAPHS), "arxiv")  # by default; those of the panel are the graphs that are here
VARIANTS = ("reco-slip-none", "reco-slip-all", "reco-slip-target")  # which take part where they are named
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
        key = {"dataset": job.dataset, "split": job.split, "method": job.method, "settings_hash": job.settings_hash}
        common = key | {
            "settings": json.dumps(effective_settings(model)),  # text: records of all methods have the same columns
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
                "learned": json.dumps({k: v for k, v in learned_attributes(copy).items() if type(v) in NUMBERS}),
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


def choose(experiment: str, choices: Choices, sources: Sources) -> tuple[list[str], list[str]]:
    """Return the datasets and the methods to compare: those that the user names, else those of the experiment."""
    every = [method for method in DETECTORS if method not in VARIANTS]
    methods = every if choices.methods is None else split_names(choices.methods)
    without = split_names(choices.without)
    for method in (*methods, *without):
        if method not in DETECTORS:
            raise SettingError(f"no method is called {method!r}{nearest(method, DETECTORS)}; see recoslip methods")
    named = None if choices.datasets is None else split_names(choices.datasets)
    if experiment == "panel":
        datasets = _panel_cases(named, sources, check=not choices.render_only)
    else:
        datasets = _available(sources, check=not choices.render_only) if named is None else named
    methods = [method for method in dict.fromkeys(methods) if method not in without]
    if not methods or not datasets:
        raise SettingError("nothing to compare: choose at least one dataset and one method")
    return list(dict.fromkeys(datasets)), methods


def _panel_cases(names: Sequence[str] | None, sources: Sources, *, check: bool) -> list[str]:
    """List the panel's datasets: those that are named, and for the name of a graph all of its cases.

    With `check`, cases that a graph has too few categories for are left out, and so are, with a message, graphs whose
    files are not here, unless they are named.
    """
    datasets: list[str] = []
    for name in sources.panel_graphs() if names is None else names:
        if sources.panel_case(name) is not None:
            datasets.append(name)
            continue
        with nullcontext() if names is not None else _left_out(name):
            cases = supported_cases(name, sources.labelled(name)) if check else list(CASES)
            datasets += [f"{name}-{case}" for case in cases]
    return datasets


def _available(sources: Sources, *, check: bool) -> list[str]:
    """List the datasets by default, without arxiv where its files are not here: those of all others are downloaded."""
    with _left_out("arxiv"):
        if check:
            check_arxiv(data_root(sources.root))
        return list(DATASETS)
    return [name for name in DATASETS if name != "arxiv"]


@contextmanager
def _left_out(name: str) -> Iterator[None]:
    """Leave a dataset out with a message, if it cannot be loaded."""
    try:
        yield
    except DatasetError as problem:
        print_problem(f"{name} is left out", str(problem), "bold yellow")


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read --seeds: a number means so many of the paper's seeds, a list means itself.

    >>> parse_seeds("2"), parse_seeds("7,8"), parse_seeds("7,")
    ((10, 20), (7, 8), (7,))
    """
    numbers = [_parse_whole("--seeds", item) for item in split_names(text)]
    if not numbers or ("," not in text and numbers[0] == 0):
        raise SettingError(f"--seeds must be a number of seeds, or a list of them such as 1,2,3; got {text!r}")
    return tuple(dict.fromkeys(numbers)) if "," in text else tuple(range(10, 10 * numbers[0] + 1, 10))


def parse_splits(text: str) -> list[str]:
    """Read --splits: own, a number of split seeds, or a list.

    >>> parse_splits("own"), parse_splits("3"), parse_splits("own,7")
    (['own'], ['0', '1', '2'], ['own', '7'])
    """
    splits = [s if s == DEFAULT_SPLIT else str(_parse_whole("--splits", s)) for s in split_names(text)]
    if "," not in text and splits != [DEFAULT_SPLIT]:
        splits = [str(seed) for seed in range(int(*splits))]
    if not splits:
        raise SettingError(f"--splits must be own, 1 or more, or a list such as own,0,1; got {text!r}")
    return list(dict.fromkeys(splits))


def _parse_whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise SettingError(f"{name}: expected a whole number, not negative; got {text!r}")
    return int(text)


def parse_settings(texts: Sequence[str], methods: Sequence[str]) -> dict[str, Any]:
    """Read --set NAME=VALUE; a value has the type of the setting's default in the first method that has it."""
    defaults: dict[str, Any] = {}
    for method in methods:
        defaults = detector(method).get_params() | defaults
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in defaults or name in NOT_LISTED:
            said = f"expected NAME=VALUE with a setting of the methods{nearest(name, defaults)}"
            raise SettingError(f"--set {text}: {said}")
        settings[name] = parse_value(value, defaults[name])
    return settings


class Session:
    """One call of the bench.

    Args:
        choices: what to compare, and how.
        console: where messages go.
    """

    def __init__(self, choices: Choices, console: Console) -> None:
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
    say(console, f"written to {folder}: {', '.join(sorted(files))}")
