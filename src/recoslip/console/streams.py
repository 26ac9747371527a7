"""Standard output and error -> streams whose failures stop nothing."""

from __future__ import annotations

import os
from typing import Any, TextIO


class ForgivingStream:
    """A standard stream that may be closed, full or gone: what cannot be printed is dropped, and nothing else happens.

    What is printed never decides over what is written to the output folder.
    """

    def __init__(self, stream: TextIO | None, number: int) -> None:
        self.number = number
        self.stream: TextIO = stream if stream is not None else open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        reconfigure = getattr(self.stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write, or drop what cannot be written."""
        try:
            return self.stream.write(text)
        except (OSError, ValueError):
            self._give_up()
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what cannot be flushed."""
        try:
            self.stream.flush()
        except (OSError, ValueError):
            self._give_up()

    def _give_up(self) -> None:
        """Let what is left in buffers go nowhere, so that Python does not stumble over it when it ends."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.number)
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
