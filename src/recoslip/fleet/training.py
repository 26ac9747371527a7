"""Fleet + objective -> trained members, each with the weights it validated best with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from recoslip.errors import SettingError
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Fleet, Output
from recoslip.fleet.view import GraphView

ASK_EVERY = 10  # epochs between looks at whether all members have ended; a look waits for the device


class Objective(Protocol):
    """What a method brings to the training loop. Members never influence each other."""

    def loss(self, output: Output, epoch: int) -> Tensor:
        """Loss of each member, (members,), to descend on."""

    def after_step(self) -> None:
        """Update whatever the method learns beside the weights."""

    def validation(self, output: Output) -> Tensor:
        """Value of each member, (members,), that the kept weights minimise."""


def train(
    fleet: Fleet | ModuleFleet,
    view: GraphView,
    objective: Objective,
    *,
    epochs: int,
    learning_rate: float,
    keep_from: int = 0,
    patience: int | None = None,
    first_epoch: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Train all members with Adam and leave each with its best weights; return the epoch those are from.

    Args:
        fleet: the members; changed in place.
        view: the graph.
        objective: losses and validation values.
        epochs: how many steps.
        learning_rate: Adam's.
        keep_from: validate after this many epochs and later.
        patience: a member that has not improved for this many epochs has ended; when all have, training ends.
        first_epoch: number of the first epoch for dropout, where earlier training went before.
        progress: called with the number of finished epochs.
    """
    fleet.prepare(view)
    learned = [parameter for parameter in fleet.parameters() if parameter.requires_grad]
    adam = torch.optim.Adam(learned, lr=learning_rate, fused=True)
    best = Best(fleet, patience)
    for epoch in range(epochs + 1):
        # The first convolution of the weights that this epoch trains serves their validation too.
        first = fleet.first(view)
        if epoch > keep_from or epoch == epochs:
            with torch.no_grad():
                best.offer(fleet, objective.validation(fleet(view, first=first)), epoch)
        if epoch == epochs or (patience is not None and epoch % ASK_EVERY == 0 and best.all_ended(epoch)):
            break
        loss = objective.loss(fleet(view, epoch=first_epoch + epoch, first=first), epoch)
        adam.zero_grad()
        loss.sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        objective.after_step()
        if progress is not None:
            progress(epoch + 1)
    kept = best.restore(fleet)
    if (kept == 0).any():
        raise SettingError(
            "training diverged: a validation value never was a number; "
            "lower learning_rate, or look for extreme values among the features"
        )
    return kept


class Best:
    """The best state of each member so far, kept on the device.

    Args:
        fleet: whose states these will be.
        patience: a member that has not improved for so many epochs has ended and keeps what it has.
    """

    def __init__(self, fleet: Fleet | ModuleFleet, patience: int | None) -> None:
        self.patience = patience
        self.state = {name: tensor.detach().clone() for name, tensor in fleet.state_dict().items()}
        device = next(fleet.parameters()).device
        self.value = torch.full((fleet.members,), torch.inf, device=device)
        self.epoch = torch.zeros(fleet.members, dtype=torch.long, device=device)

    def offer(self, fleet: Fleet | ModuleFleet, value: Tensor, epoch: int) -> None:
        """Take over the state of the members whose value is lower than any before."""
        better = value < self.value
        if self.patience is not None:
            better &= epoch - self.epoch <= self.patience
        self.value = torch.where(better, value, self.value)
        self.epoch = torch.where(better, epoch, self.epoch)
        for name, tensor in fleet.state_dict().items():
            torch.where(fleet.whose(name, tensor, better), tensor, self.state[name], out=self.state[name])

    def all_ended(self, epoch: int) -> bool:
        """Whether no member can improve any more; waits for the device."""
        return self.patience is not None and bool((epoch - self.epoch > self.patience).all())

    def restore(self, fleet: Fleet | ModuleFleet) -> Tensor:
        """Give a fleet the best states, and return the epoch each is from."""
        fleet.load_state_dict(self.state)
        return self.epoch
