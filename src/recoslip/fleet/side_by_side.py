"""Independent trainings -> all of them done, side by side on the cores of a CPU.

Networks of a small graph gain little from threads within each operation, and wait for every one of those threads, for
milliseconds where another program has a core. Threads that train different networks wait for each other once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeAlias

import torch

PATIENCE = 0.1  # seconds between looks whether the process was told to end

Check: TypeAlias = Callable[[], None]  # raises where the work has become pointless


class AbandonedError(Exception):
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
            raise AbandonedError

    cores = torch.get_num_threads()
    own_cores = partial(torch.set_num_threads, max(1, cores // threads))
    try:
        with ThreadPoolExecutor(threads, initializer=own_cores) as pool:
            try:
                pending = {pool.submit(training, check) for training in trainings}
                while pending:
                    done, pending = wait(pending, timeout=PATIENCE, return_when=FIRST_COMPLETED)
                    for training_done in done:
                        training_done.result()
            except BaseException:
                stop.set()
                raise
    finally:
        torch.set_num_threads(cores)  # threads to come would have as few as those above
