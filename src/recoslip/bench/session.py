"""Choices -> plan -> records -> files: one call of the bench."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from recoslip.bench.choices import Choices, available, choose, parse_settings
from recoslip.bench.distributions import render_distributions
from recoslip.bench.document import Files
from recoslip.bench.estimate import Estimate, estimate, threads_per_process
from recoslip.bench.paper import SHIFTS
from recoslip.bench.plan import Cell, experiment, missing, plan, recorded
from recoslip.bench.printing import print_plan, show_cells
from recoslip.bench.records import Records
from recoslip.bench.render import render
from recoslip.bench.run import Worker, run
from recoslip.bench.sources import DEFAULT_SPLIT, Sources, read_sources
from recoslip.console.messages import print_problem, resumable
from recoslip.datasets.catalogue import GRAPHS
from recoslip.errors import SettingError
from recoslip.fleet.device import resolve_device
from recoslip.storage import atomic_write, output_lock
from recoslip.wording import duration


class Session:
    """One call of the bench.

    Args:
        choices: what to compare.
        out: folder of records, tables and figures.
        root: folder of the catalogue's files.
        config: TOML file of the user's datasets.
        console: where messages go.
    """

    def __init__(self, choices: Choices, out: Path, root: Path | None, config: Path | None, console: Console) -> None:
        self.choices, self.out, self.console = choices, out, console
        self.sources = read_sources(config, root)
        self.records = Records(out / "records")

    def run(self, experiments: Sequence[str]) -> int:
        """Train what has no record, render all, and return how many cells failed."""
        with output_lock(self.out):
            return self._run(experiments)

    def _run(self, experiments: Sequence[str]) -> int:
        logging.getLogger("recoslip").setLevel(logging.WARNING)  # what is logged about each graph is not wanted here
        plans, settings = {}, {}
        for name in experiments:
            datasets, methods = choose(experiment(name), self.choices, self.sources)
            settings[name] = parse_settings(self.choices.settings, methods)
            plans[name] = plan(datasets, methods, self.choices.splits, self.choices.seeds, self.sources, settings[name])
        failed = 0
        if not self.choices.render_only:
            resolve_device(self.choices.device)
            self._check_writable()
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
            files = render(name, cells, found, reference=self.choices.reference, changed=settings[name])
            write_files(self.out, files, self.console)
        if len(experiments) > 1:
            write_distributions(None, self.sources, self.out, self.console)
        return failed

    def _check_writable(self) -> None:
        """Raise now, not after an hour of training, if records cannot be written."""
        probe = self.records.folder / ".probe"
        atomic_write(probe, "")
        probe.unlink()

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
        estimates = self._estimate(cells)
        print_plan(cells, estimates, resolve_device(choices.device), choices.jobs, console)
        worker = Worker(self.sources, self.records, choices.device, choices.jobs)
        failures: list[tuple[Cell, str]] = []
        start = time.perf_counter()
        with (
            resumable("what had ended is stored"),
            show_cells(cells, [each.seconds for each in estimates], console) as (show_finished, show_epochs),
        ):

            def finish(cell: Cell, problem: str | None) -> None:
                show_finished(cell, problem)
                if problem is not None:
                    failures.append((cell, problem))

            run(cells, worker, finish, show_epochs, ray_address=choices.ray)
        console.print(f"trained {len(cells) - len(failures):,} fleets in {duration(time.perf_counter() - start)}")
        for cell, problem in failures:
            print_problem("failed", f"{cell.dataset}, split {cell.split}, {cell.method}: {problem}")
        return len(failures)

    def _estimate(self, cells: Sequence[Cell]) -> list[Estimate]:
        """Estimate how long each cell takes."""
        device, threads = resolve_device(self.choices.device), threads_per_process(self.choices.jobs)
        graphs = {
            name: self.sources.load(name, DEFAULT_SPLIT).graph for name in dict.fromkeys(c.dataset for c in cells)
        }
        records = list(self.records)
        return [estimate(cell, graphs[cell.dataset], device, threads, records) for cell in cells]


def _distinct_cells(plans: Iterable[Sequence[Cell]]) -> list[Cell]:
    """Merge plans; experiments share cells."""
    return list({cell.runs()[0]: cell for cells in plans for cell in cells}.values())


def write_distributions(datasets: Sequence[str] | None, sources: Sources, out: Path, console: Console) -> None:
    """Write the proportions of the categories of datasets; None: all versions of the paper's graphs that are here."""
    if datasets is None:
        versions = [f"{graph}-{shift}" for graph in GRAPHS for shift in reversed(SHIFTS)]
        datasets = available([*versions, "arxiv"], sources)
    for name in datasets:
        sources.check(name)
    write_files(out, render_distributions({name: sources.load(name, DEFAULT_SPLIT) for name in datasets}), console)


def write_files(folder: Path, files: Files, console: Console) -> None:
    """Write files by name into a folder."""
    for name, content in files.items():
        atomic_write(folder / name, content)
    console.print(f"written to {escape(str(folder))}: {', '.join(sorted(files))}", soft_wrap=True)
