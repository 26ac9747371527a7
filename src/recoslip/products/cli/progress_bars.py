"""Steps of a long computation -> progress bars on a terminal, lines of text elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBars

from recoslip.base.progress import Progress


class RateColumn(ProgressColumn):
    """The number of steps per second."""

    def render(self, task: Task) -> str:
        """Write the rate, once it is known."""
        return f"{task.speed:,.0f}/s," if task.speed else ""


@contextmanager
def progress_bars(console: Console, *columns: ProgressColumn) -> Iterator[ProgressBars | None]:
    """Yield progress bars that disappear after the block; None where there is no terminal to draw them on."""
    if not console.is_terminal or console.quiet:
        yield None
        return
    with ProgressBars(*columns, console=console, transient=True) as bars:
        yield bars


@contextmanager
def show_steps(console: Console, activity: str, unit: str) -> Iterator[Progress]:
    """Yield a function to call with the steps done and the steps in all.

    A terminal shows a bar with the rate and the time left; elsewhere a line is printed for every tenth of the steps.
    """
    columns = (
        TextColumn(activity),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit},"),
        RateColumn(),
        TimeRemainingColumn(),
    )
    tenths = 0

    def print_tenth(done: int, total: int) -> None:
        nonlocal tenths
        if 10 * done // total > tenths:
            tenths = 10 * done // total
            console.print(f"{activity}: {done:,} of {total:,} {unit}")

    with progress_bars(console, *columns) as bars:
        if bars is None:
            yield print_tenth
        else:
            task = bars.add_task("", total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)
