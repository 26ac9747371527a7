"""Signals that ask a process to end -> exceptions, and the codes that it ends with after them."""

from __future__ import annotations

import signal
from typing import Any


class Terminated(KeyboardInterrupt):
    """A signal that asks the process to end: a command ends as after Ctrl-C, with the code of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def raise_on_signals() -> None:
    """Let the first signal raise Terminated in the main thread; those after it do not disturb what it began.

    A signal that the process was told to ignore, as nohup does with SIGHUP, stays ignored.
    """
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _terminate)


def ignore_signals() -> None:
    """Let no signal end the process: it is about to end by itself."""
    _disregard_signals()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _terminate(number: int, frame: Any) -> None:
    _disregard_signals()
    raise Terminated(number)


def _disregard_signals() -> None:
    """Handle signals by doing nothing; Python prints an error if one is set to be ignored just when it arrives."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


def exit_code(problem: KeyboardInterrupt) -> int:
    """Return the code that a process ends with after a signal."""
    return 128 + (problem.number if isinstance(problem, Terminated) else signal.SIGINT)
