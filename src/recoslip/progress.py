"""Steps of the phases of a long computation -> calls of progress(steps done, steps in all)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

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
