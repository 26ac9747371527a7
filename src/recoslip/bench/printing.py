"""Cells and estimates -> the plan and the progress on the console."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from recoslip.bench.estimate import Estimate, device_name, threads_per_process
from recoslip.bench.plan import Cell
from recoslip.bench.run import OnFinished
from recoslip.console.progress import progress_bars
from recoslip.progress import Progress
from recoslip.wording import duration


def print_plan(
    cells: Sequence[Cell], estimates: Sequence[Estimate], device: torch.device, jobs: int, console: Console
) -> None:
    """Print what will be trained and how long that may take."""
    parallel = 1 if device.type == "cuda" else jobs  # processes take turns on a GPU
    table = Table("dataset", "splits", "methods", "fleets", "runs", "about", box=None, pad_edge=False)
    for name in dict.fromkeys(cell.dataset for cell in cells):
        rows = [(cell, each.seconds) for cell, each in zip(cells, estimates, strict=True) if cell.dataset == name]
        table.add_row(
            name,
            str(len({cell.split for cell, _ in rows})),
            str(len({cell.method for cell, _ in rows})),
            f"{len(rows):,}",
            f"{sum(len(cell.seeds) for cell, _ in rows):,}",
            duration(sum(seconds for _, seconds in rows) / parallel),
        )
    console.print(table)
    console.print(
        f"on {device_name(device, threads_per_process(jobs))}, {jobs} at a time: "
        f"about {duration(sum(each.seconds for each in estimates) / parallel)} "
        f"({sum(each.from_records for each in estimates)} of {len(cells)} fleets by earlier runs, the others by their "
        "size, which may be off by a factor of 3)"
    )


@contextmanager
def show_cells(
    cells: Sequence[Cell], expected: Sequence[float], console: Console
) -> Iterator[tuple[OnFinished, Progress]]:
    """Yield functions to call with each cell that has finished, and with the epochs of the cell in training.

    A line is printed for each finished cell; a terminal shows bars too.

    Args:
        cells: all cells that will be trained.
        expected: estimated seconds of each.
        console: where to print.
    """
    describe = _line_writer(len(cells))
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), TimeElapsedColumn())
    with progress_bars(console, *columns) as bars:
        if bars is None:
            yield lambda cell, problem: console.print(describe(cell, problem)), lambda done, total: None
            return
        weight = {id(cell): seconds for cell, seconds in zip(cells, expected, strict=True)}
        total_weight = sum(expected)
        fleets = bars.add_task(
            "fleets", total=total_weight, left=f"0/{len(cells)}, about {duration(total_weight)} left"
        )
        epochs = bars.add_task("epochs", total=None, left="")
        start = time.perf_counter()
        count, done_weight = 0, 0.0

        def finish(cell: Cell, problem: str | None) -> None:
            nonlocal count, done_weight
            bars.console.print(describe(cell, problem), highlight=False)
            count += 1
            done_weight += weight[id(cell)]
            seconds = (time.perf_counter() - start) * (total_weight - done_weight) / max(done_weight, 1e-9)
            bars.update(fleets, completed=done_weight, left=f"{count}/{len(cells)}, about {duration(seconds)} left")

        yield finish, lambda done, total: bars.update(epochs, completed=done, total=total)


def _line_writer(cells: int) -> Callable[[Cell, str | None], str]:
    """Return a function that describes each finished cell in a line and numbers them."""
    count = 0
    start = time.perf_counter()

    def describe(cell: Cell, problem: str | None) -> str:
        nonlocal count
        count += 1
        outcome = f"after {duration(time.perf_counter() - start)}" if problem is None else "failed"
        seeds = f"{len(cell.seeds)} seed{'s' if len(cell.seeds) > 1 else ''}"
        return f"{count}/{cells} {cell.dataset} split {cell.split} {cell.method} ({seeds}), {outcome}"

    return describe
