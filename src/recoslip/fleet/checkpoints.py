"""Where a training is <-> tensors that another process can resume it from."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Checkpoint(NamedTuple):
    """The state of a training."""

    epoch: int
    finished: bool
    state: dict[str, Tensor]


class Checkpointer(Protocol):
    """Saves how far the trainings of a fit have come.

    A fit is deterministic: repeated, it runs the same trainings in the same order, and those that had finished are
    restored instead of run again.
    """

    every: int  # epochs between two checkpoints

    def resume(self) -> Checkpoint | None:
        """Begin the next training of the fit; return its last checkpoint, if it has one."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Save the state of the present training."""


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Flatten an optimiser's state into tensors by name."""
    by_parameter = optimiser.state_dict()["state"]
    return {f"{index}.{name}": value for index, state in by_parameter.items() for name, value in state.items()}


def load_optimiser_state(optimiser: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Restore what `optimiser_state` returned."""
    state = optimiser.state_dict()
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for key, value in flat.items():
        index, _, name = key.partition(".")
        parameter = parameters[int(index)]
        if value.shape == parameter.shape:  # a fused optimiser takes for granted that it lies in memory as they do
            value = torch.empty_like(parameter).copy_(value)
        state["state"].setdefault(int(index), {})[name] = value
    optimiser.load_state_dict(state)
