"""Several processes that train one fleet: each computes on its shard of a batch, and all hold the same weights.

Outside of `torch.distributed` there is one process, and nothing here has an effect.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn


def rank() -> int:
    """Return the number of this process among those that train together."""
    return dist.get_rank() if _is_distributed() else 0


def world_size() -> int:
    """Return how many processes train together."""
    return dist.get_world_size() if _is_distributed() else 1


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def shard(nodes: Tensor) -> Tensor:
    """Return this process's nodes of a batch: as many as every other's, so that a mean of means is the mean.

    Where there are fewer nodes than processes, each takes all.
    """
    size = world_size()
    return nodes[: len(nodes) // size * size][rank() :: size] if len(nodes) >= size else nodes


def mean(value: Tensor) -> Tensor:
    """Average over the processes. Shards are equally large, so the mean of their rates is the rate of the batch."""
    if world_size() == 1:
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total / world_size()


def sum_disjoint(values: Tensor, device: torch.device) -> Tensor:
    """Sum over the processes a tensor of which each filled other entries and left the rest 0."""
    if world_size() == 1:
        return values
    total = values.to(device)  # the device that the processes communicate through
    dist.all_reduce(total)
    return total.cpu()


def with_mean_gradients(module: nn.Module) -> nn.Module:
    """Return a module that calls this one, and whose gradients are averaged over the processes."""
    if world_size() == 1:
        return module
    return nn.parallel.DistributedDataParallel(module, broadcast_buffers=False)


def average_buffers(module: nn.Module) -> None:
    """Average what is learned from batches other than by gradients: the statistics of batch normalisation."""
    if world_size() > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.copy_(mean(buffer))
