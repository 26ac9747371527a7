"""What surrounds a command: signals become exceptions, and printing fails without harm."""

import os
import signal
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, TextIO


class Terminated(KeyboardInterrupt):
    """A signal that asks the process to end: a command ends as after Ctrl-C, with the code of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_received: list[Terminated] = []


def raise_on_signals() -> None:
    """Let the first signal raise Terminated in the main thread; those after it do not disturb what it began."""
    _handle_signals(_terminate)


def ignore_signals() -> None:
    """Let no signal end the process: it is about to end by itself."""
    _handle_signals(lambda *_: None)  # first: Python prints an error if one is set to be ignored just when it arrives
    _handle_signals(signal.SIG_IGN)


def received() -> Terminated | None:
    """Return what the first signal raised; libraries may turn it into errors of their own while they are imported."""
    return _received[0] if _received else None


def exit_code(problem: KeyboardInterrupt) -> int:
    """Return the code that a process ends with after a signal."""
    return 128 + getattr(problem, "number", signal.SIGINT)


def _handle_signals(handler: Any) -> None:
    """Set what SIGINT, SIGTERM and SIGHUP do, unless the process was told to ignore them, as nohup does."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _terminate(number: int, frame: Any) -> None:
    _handle_signals(lambda *_: None)
    _received.append(Terminated(number))
    raise _received[-1]


class ForgivingStream:
    """Standard output or error as UTF-8; what cannot be printed, for it is closed, full or gone, is dropped."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        if isinstance(self.stream, TextIOWrapper):
            self.stream.reconfigure(encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write, or drop what cannot be written."""
        with suppress(OSError, ValueError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what cannot be flushed."""
        with suppress(OSError, ValueError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
