"""Several processes that train one fleet: each sees its share of a batch, and all have the same weights throughout.

Outside of `torch.distributed` there is one process, and nothing here does anything.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn


def place() -> tuple[int, int]:
    """Return which of the processes this is, and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def share(nodes: Tensor) -> Tensor:
    """Return this process's nodes of a batch: as many as every other's, so that a mean of means is the mean.

    Of fewer nodes than there are processes, each takes all.
    """
    rank, size = place()
    return nodes[: len(nodes) // size * size][rank::size] if len(nodes) >= size else nodes


def mean(value: Tensor) -> Tensor:
    """Average over the processes: of a rate, numerators and denominators are summed, for the latter are alike."""
    _, size = place()
    if size == 1:
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total / size


def gathered(parts: Tensor, device: torch.device) -> Tensor:
    """Sum over the processes what each filled its own part of, and left 0 elsewhere."""
    if place()[1] == 1:
        return parts
    total = parts.to(device)  # where the processes talk to each other
    dist.all_reduce(total)
    return total.cpu()


def with_mean_gradients(module: nn.Module) -> nn.Module:
    """Return a module that calls this one, and whose gradients are averaged over the processes."""
    if place()[1] == 1:
        return module
    return nn.parallel.DistributedDataParallel(module, broadcast_buffers=False)


def align(module: nn.Module) -> None:
    """Average what was learned from batches beside the gradients: the statistics of the normalisation."""
    if place()[1] > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.copy_(mean(buffer))


class Kept(NamedTuple):
    """Where a training was when it was last kept."""

    epoch: int
    ended: bool
    state: dict[str, Tensor]


class Keeper(Protocol):
    """Keeps how far the trainings of a fit have come, so that another process can go on from there.

    A fit is deterministic: done again, it calls for the same trainings in the same order, and those that have ended
    need not be done again.
    """

    every: int  # epochs between two times of keeping

    def begin(self) -> Kept | None:
        """Begin the next training; return where it was, if it had begun before."""

    def keep(self, kept: Kept) -> None:
        """Keep where the present training is."""


class _Present:
    keeper: Keeper | None = None


def set_keeper(keeper: Keeper | None) -> None:
    """Let the trainings in this process be kept, or no longer."""
    _Present.keeper = keeper


def keeper() -> Keeper | None:
    """Return who keeps the trainings in this process."""
    return _Present.keeper


def adam_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Flatten what an optimiser remembers."""
    remembered = optimiser.state_dict()["state"]
    return {f"{place}.{name}": value for place, own in remembered.items() for name, value in own.items()}


def load_adam_state(optimiser: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Give an optimiser back what `adam_state` took."""
    whole = optimiser.state_dict()
    for key, value in flat.items():
        place, _, name = key.partition(".")
        whole["state"].setdefault(int(place), {})[name] = value
    optimiser.load_state_dict(whole)
