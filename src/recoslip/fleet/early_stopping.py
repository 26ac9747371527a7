"""Validation values of every member, epoch by epoch -> each member's best weights, and when all have ended."""

from __future__ import annotations

import torch
from torch import Tensor

from recoslip.errors import Diverged
from recoslip.fleet.interfaces import Fleet


class BestWeights:
    """The best state of each member so far, kept on the device.

    Args:
        fleet: whose states these will be.
        patience: a member that has not improved for so many epochs has ended and keeps what it has.
    """

    def __init__(self, fleet: Fleet, patience: int | None) -> None:
        self.patience = patience
        self.state = {name: tensor.detach().clone() for name, tensor in fleet.state_dict().items()}
        device = next(fleet.parameters()).device
        self.value = torch.full((fleet.members,), torch.inf, device=device)
        self.epoch = torch.zeros(fleet.members, dtype=torch.long, device=device)

    def update(self, fleet: Fleet, value: Tensor, epoch: int | Tensor) -> None:
        """Keep the present state of the members whose value is lower than any before."""
        better = value < self.value
        if self.patience is not None:
            better &= (self.epoch == 0) | (epoch - self.epoch <= self.patience)
        self.value.copy_(torch.where(better, value, self.value))
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        for name, tensor in fleet.state_dict().items():
            torch.where(fleet.per_member(name, tensor, better), tensor, self.state[name], out=self.state[name])

    def all_ended(self, epoch: int) -> bool:
        """Whether no member can improve any more; waits for the device."""
        return self.patience is not None and bool((epoch - self.epoch > self.patience).all())

    def restore(self, fleet: Fleet) -> Tensor:
        """Load the best states into a fleet, and return the epoch each is from."""
        fleet.load_state_dict(self.state)
        return self.epoch

    def restore_finite(self, fleet: Fleet) -> Tensor:
        """Do the same, but raise Diverged if a member never had a finite validation value."""
        epochs = self.restore(fleet)
        if (epochs == 0).any():
            raise Diverged(
                "training diverged: a validation value never was a number; "
                "lower learning_rate, or look for extreme values among the features"
            )
        return epochs
