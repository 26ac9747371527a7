"""What a script has set in PyTorch -> PyTorch as it is by default, while a detector computes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from recoslip.learning.networks.side_by_side import SETTING


class _SinglePrecision:
    """The default type of the process, float32 as long as any thread computes."""

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, torch.float32

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.before = torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                torch.set_default_dtype(self.before)


_single_precision = _SinglePrecision()


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Compute with gradients, in single precision, without autocast, and on the CPU where no device is named.

    Scores are then the same under `torch.no_grad()`, `torch.inference_mode()` or another default type.
    """
    with SETTING:
        torch.get_num_threads()  # a thread gets its number of cores now, and not while another thread changes it
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_single_precision)
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":  # its context slows every operation
            stack.enter_context(torch.device("cpu"))
        yield
