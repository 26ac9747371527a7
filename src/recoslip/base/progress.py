"""Steps of the phases of a long computation -> calls of progress(steps done, steps in all)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Progress: TypeAlias = Callable[[int, int], None]  # (steps done, steps in all)


class Phases:
    """Report consecutive phases as steps of the whole computation.

    Args:
        progress: called with the steps done and the steps in all; None: nothing is reported.
        total: the steps of all phases together.

    >>> phases = Phases(lambda done, total: print(f"{done}/{total}"), total=10)
    >>> first, second = phases.phase(4), phases.phase(6)
    >>> first(4)
    4/10
    >>> second(1)
    5/10
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self._next_start = progress, total, 0

    def phase(self, steps: int) -> Callable[[int], None]:
        """Begin the next phase, of `steps` steps; return the function to call with how many of them are done."""
        start, progress, total = self._next_start, self.progress, self.total
        self._next_start += steps

        def report(done: int) -> None:
            if progress is not None:
                progress(start + done, total)

        return report


class CombinedProgress:
    """Report computations that run side by side as one phase.

    Args:
        report: called with the steps that they have done together.

    >>> together = CombinedProgress(print)
    >>> first, second = together.task(), together.task()
    >>> first(2), second(1), first(3)
    2
    3
    4
    (None, None, None)
    """

    def __init__(self, report: Callable[[int], None]) -> None:
        self.report, self.done, self.lock = report, Counter[int](), threading.Lock()

    def task(self) -> Callable[[int], None]:
        """Return the function that one of them calls with how many steps it has done."""
        number = len(self.done)
        self.done[number] = 0

        def add(done: int) -> None:
            with self.lock:
                self.done[number] = done
                self.report(self.done.total())

        return add


@contextmanager
def shown(
    activity: str, unit: str, progress: Progress | bool, console: Console | None = None
) -> Iterator[Progress | None]:
    """Yield what to call with the steps done and the steps in all.

    Args:
        activity: what is done.
        unit: of its steps.
        progress: what is called; True: bars in a terminal or a notebook, where there is one; False: nothing.
        console: of rich, where bars go; by default standard error.
    """
    if not isinstance(progress, bool):
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = console or Console(stderr=True, emoji=False)
    if not progress or not (console.is_terminal or console.is_jupyter):
        yield None
        return
    columns = (TextColumn(activity), BarColumn(), MofNCompleteColumn(), TextColumn(f"{unit},"), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
