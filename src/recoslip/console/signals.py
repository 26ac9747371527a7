"""SIGINT and SIGTERM -> exceptions, and the codes that a process ends with after them."""

from __future__ import annotations

import signal
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM: a command ends as after Ctrl-C, with another code."""


def raise_on_sigterm() -> None:
    """Let SIGTERM raise Terminated in the main thread, as SIGINT raises KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: Any) -> None:
    raise Terminated


def exit_code(problem: KeyboardInterrupt) -> int:
    """Return the code that a process ends with after a signal."""
    return 128 + (signal.SIGTERM if isinstance(problem, Terminated) else signal.SIGINT)
