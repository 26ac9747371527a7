"""Choices -> plan -> records -> files: one call of the bench."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from recoslip.base.errors import SettingError, nearest
from recoslip.base.files import check_writable, output_lock, update
from recoslip.base.progress import Progress
from recoslip.base.text import duration
from recoslip.learning.methods import DETECTORS
from recoslip.learning.networks.device import resolve_device
from recoslip.products.bench.datasets import read_sources
from recoslip.products.bench.options import Choices
from recoslip.products.bench.plan import (
    Cell,
    choose,
    missing,
    parse_seeds,
    parse_settings,
    parse_splits,
    plan,
    recorded,
)
from recoslip.products.bench.records import Records
from recoslip.products.bench.render import Files, Page
from recoslip.products.bench.run import OnFinished, Worker, device_name, run, threads_per_process
from recoslip.products.cli.messages import print_problem, resumable
from recoslip.products.cli.progress_bars import progress_bars


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

    def run(self, experiments: Sequence[str]) -> int:
        """Train what has no record, render all, and return how many cells failed."""
        with output_lock(self.out):
            return self._run(experiments)

    def _run(self, experiments: Sequence[str]) -> int:
        logging.getLogger("recoslip").setLevel(logging.WARNING)  # what is logged about each graph is not wanted here
        plans, settings = {}, {}
        for name in experiments:
            datasets, methods = choose(name, self.choices, self.sources)
            settings[name] = parse_settings(self.choices.settings or [], methods)
            plans[name] = plan(datasets, methods, self.splits, self.seeds, self.sources, settings[name])
        failed = 0
        if not self.choices.render_only:
            resolve_device(self.choices.device)
            check_writable(self.out)  # now, not after an hour of training
            failed = self._train(_distinct_cells(plans.values()))
        for name, cells in plans.items():
            found = recorded(cells, self.records)
            if self.choices.render_only and not found:
                raise SettingError(
                    f"{self.out} has no record of {name} with these choices; --render needs the --set, --seeds, "
                    "--splits and --config of the run"
                )
            if self.choices.datasets is None:  # the user did not ask for datasets that have no records
                cells = [c for c in cells if any(key.dataset == c.dataset for key in found)] or cells
            page = Page(name, cells, found, reference=self.choices.reference, changed=settings[name])
            write_files(self.out, page.files(), self.console)
        return failed

    def _train(self, planned: Sequence[Cell]) -> int:
        """Train what has no record yet; return how many cells failed."""
        choices, console = self.choices, self.console
        cells = missing(planned, self.records, any_version=choices.any_version)
        total, remaining = (sum(len(cell.seeds) for cell in listed) for listed in (planned, cells))
        console.print(f"{total:,} runs planned, {total - remaining:,} have a record, {remaining:,} to do")
        if not cells:
            return 0
        if choices.ray is not None and len(cells) < choices.jobs:  # fewer cells than processes: divide them by seed
            cells = [replace(cell, seeds=(seed,)) for cell in cells for seed in cell.seeds]
        device = device_name(resolve_device(choices.device), threads_per_process(choices.jobs))
        console.print(f"{len(cells):,} fleets on {device}, {choices.jobs} at a time")
        failures: list[str] = []
        start = time.perf_counter()
        worker = Worker(self.sources, choices.device, choices.jobs)
        with resumable("what had ended is stored"), _show_cells(len(cells), console) as (show_finished, show_epochs):

            def finish(cell: Cell, problem: str | None) -> None:
                show_finished(cell, problem)
                if problem is not None:
                    failures.append(f"{cell.dataset}, split {cell.split}, {cell.method}: {problem}")

            run(cells, worker, self.records, finish, show_epochs, ray_address=choices.ray)
        console.print(f"trained {len(cells) - len(failures):,} fleets in {duration(time.perf_counter() - start)}")
        for failure in failures:
            print_problem("failed", failure)
        return len(failures)


def _distinct_cells(plans: Iterable[Sequence[Cell]]) -> list[Cell]:
    """Merge plans; experiments share cells."""
    return list({cell.runs()[0]: cell for cells in plans for cell in cells}.values())


@contextmanager
def _show_cells(total: int, console: Console) -> Iterator[tuple[OnFinished, Progress]]:
    """Yield functions to call with each cell that has finished, and with the epochs of the cell in training.

    A line is printed for each finished cell; a terminal shows bars too.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    numbers, start = itertools.count(1), time.perf_counter()
    with progress_bars(console, TextColumn("{task.description}"), *columns) as bars:
        fleets, epochs = (bars.add_task(name, total=None) for name in ("fleets", "epochs")) if bars else (None, None)

        def finish(cell: Cell, problem: str | None) -> None:
            outcome = f"after {duration(time.perf_counter() - start)}" if problem is None else "failed"
            seeds = f"{len(cell.seeds)} seed{'s' if len(cell.seeds) > 1 else ''}"
            number = next(numbers)
            line = f"{number}/{total} {cell.dataset} split {cell.split} {cell.method} ({seeds}), {outcome}"
            console.print(line, highlight=False)
            if bars is not None and fleets is not None:
                bars.update(fleets, completed=number, total=total)

        def show_epochs(done: int, of: int) -> None:
            if bars is not None and epochs is not None:
                bars.update(epochs, completed=done, total=of)

        yield finish, show_epochs


def write_files(folder: Path, files: Files, console: Console) -> None:
    """Write files by name into a folder."""
    update(folder, files, "bench")
    console.print(f"written to {escape(str(folder))}: {', '.join(sorted(files))}", soft_wrap=True)
