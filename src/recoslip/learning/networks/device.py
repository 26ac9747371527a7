"""The device to compute on: its memory, how much at once, Triton's kernels; PyTorch's settings of process and threads.

Every kernel has a counterpart of PyTorch's operators beside its caller, which runs on CPUs, and on GPUs where Triton is
missing or finds no C compiler. Kernels add in a fixed order, so that the same seed gives the same bits
(docs/decisions/networks.md).

Networks of a small graph gain little from threads within each operation, and wait for every one of those threads, for
milliseconds where another program has a core. Threads that train different networks wait for each other once.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TypeAlias

import scipy.sparse as sp
import torch
from torch import Tensor

from recoslip.base.errors import RecoslipWarning, SettingError
from recoslip.base.memory import Memory, memory
from recoslip.data.graph import NodeGraph


def block_size(nodes: int, width: int, device: torch.device) -> int:
    """How many members to train at once: as many as keep one layer's activations small.

    On a CPU they should stay in the cache (docs/decisions/networks.md), on a GPU a dozen of them in its memory.
    """
    budget = torch.cuda.mem_get_info(device)[1] // 64 if device.type == "cuda" else 16 * 2**20  # bytes
    return max(1, int(budget) // (4 * nodes * width))


def device_memory(device: torch.device) -> Memory:
    """Return the total and the free memory of a device."""
    if device.type != "cuda":
        return memory()
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return Memory(total, free + cached)


BATCH_SIZE = 2048  # where a graph has to be trained in batches
_LAYERS = 12  # arrays of nodes x width that training holds: activations and gradients


def memory_needed(graph: NodeGraph, width: int) -> int:
    """Estimate the bytes that training on the whole graph takes besides the graph, for networks of this total width."""
    entries = int(4 * graph.x.nnz if sp.issparse(graph.x) else graph.x.size)
    return 4 * (graph.num_nodes * width * _LAYERS + 2 * entries) + 64 * graph.num_edges


def resolve_device(name: str) -> torch.device:
    """Turn a device setting into a device; "auto" takes a CUDA GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()  # which a device without memory, such as meta, cannot
    except (RuntimeError, AssertionError, TypeError) as problem:
        usable = "auto, cpu or cuda" if torch.cuda.is_available() else "auto or cpu"
        raise SettingError(f"device {name!r} cannot be used here; use {usable}") from problem
    return device


def can_take(tensor: Tensor) -> bool:
    """Return whether the kernels can compute with such a tensor: single precision, on a GPU."""
    return tensor.is_cuda and tensor.dtype == torch.float32 and compile_here()


@cache
def compile_here() -> bool:
    """Return whether Triton compiles kernels for the GPU here; warn once where it does not."""
    try:
        from recoslip.learning.networks.triton_kernels import derive_keys

        derive_keys(torch.zeros(1, dtype=torch.long, device="cuda"), 0)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # whatever an installation lacks: the package, a compiler, its cache folder
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        message = f"Triton compiles no kernels here ({reason}); training on the GPU takes longer without them"
        warnings.warn(message, RecoslipWarning, stacklevel=2)
        return False
    return True


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
