"""PyTorch's settings of a process and of its threads: as they are by default; and several trainings at once on a CPU.

Networks of a small graph gain little from threads within each operation, and wait for every one of those threads, for
milliseconds where another program has a core. Threads that train different networks wait for each other once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

import torch

PATIENCE = 0.1  # seconds between looks whether the process was told to end

SETTING = threading.Lock()  # held while PyTorch gives new threads another number of cores than before

Check: TypeAlias = Callable[[], None]  # raises where the work has become pointless


class CancelledError(Exception):
    """Ends a training beside which another has failed, or that was interrupted."""


def side_by_side(trainings: Sequence[Callable[[Check], None]], at_once: int) -> None:
    """Run trainings, several at once, each in a thread of its own with its share of the cores.

    Args:
        trainings: each calls what it is given after every epoch, and lets the exception through that it may raise.
        at_once: how many; with 1 they run one after the other in this thread, and each may use all cores.
    """
    threads = min(len(trainings), at_once)
    if threads <= 1:
        for training in trainings:
            training(lambda: None)
        return
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise CancelledError

    share = max(1, torch.get_num_threads() // threads)
    with ThreadPoolExecutor(threads, initializer=use_cores, initargs=(share,)) as pool:
        try:
            pending = {pool.submit(training, check) for training in trainings}
            while pending:
                done, pending = wait(pending, timeout=PATIENCE, return_when=FIRST_COMPLETED)
                for training_done in done:
                    training_done.result()
        except BaseException:
            stop.set()
            raise


def use_cores(count: int) -> None:
    """Let this thread use so many cores, and threads to come as many as they would have.

    PyTorch gives the number to the threads to come, too: they would sum in another order, to other last bits.
    """
    with SETTING:
        before = torch.get_num_threads()  # of a new thread; asked now, PyTorch does not set it later
        torch.set_num_threads(count)
        restoring = threading.Thread(target=torch.set_num_threads, args=(before,))
        restoring.start()
        restoring.join()


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
