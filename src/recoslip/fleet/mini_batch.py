"""Fleet + batches of a graph + objective -> trained members: every epoch sees one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from recoslip.fleet.early_stopping import BestWeights
from recoslip.fleet.interfaces import BatchObjective, Propagation, Schedule
from recoslip.fleet.network import NetworkFleet

VALIDATE_EVERY = 10  # epochs

# Sets of nodes and steps -> the drawn nodes of each set, and the propagation of them all, for every step.
DrawBatches: TypeAlias = Callable[[Sequence[Tensor], int], Iterator[tuple[list[Tensor], Propagation]]]


def train(
    fleet: NetworkFleet, draw: DrawBatches, device: torch.device, objective: BatchObjective, schedule: Schedule
) -> Tensor:
    """Train all members with Adam; the weights are validated on one batch that stays the same.

    Args:
        fleet: the members; changed in place.
        draw: draws batches.
        device: where the fleet is.
        objective: losses and validation values.
        schedule: how long to train and which weights to keep.
    """
    learnable = [parameter for parameter in fleet.parameters() if parameter.requires_grad]
    adam = torch.optim.Adam(learnable, lr=schedule.learning_rate, fused=True)
    best = BestWeights(fleet, None if schedule.patience is None else max(schedule.patience, VALIDATE_EVERY))
    epoch, epochs_done = 0, torch.zeros((), dtype=torch.long, device=device)
    held_out = None
    if schedule.validate_after is not None:
        batch, propagation = next(draw(objective.node_sets(held_out=True), 1))
        held_out = objective.on_batch(batch, held_out=True), propagation

    def validate(epoch: int) -> None:
        if held_out is not None:
            with torch.no_grad():
                best.update(fleet, held_out[0].validation(fleet(held_out[1])), epoch)

    for batch, propagation in draw(objective.node_sets(held_out=False), schedule.epochs):
        estimate = objective.on_batch(batch, held_out=False)
        state = estimate.loss(fleet(propagation, epoch=schedule.first_epoch + epochs_done), epochs_done)
        adam.zero_grad()
        estimate.lagrangian(state).sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        estimate.dual_step(state, epochs_done)
        epochs_done.add_(1)
        epoch += 1
        if schedule.validate_after is not None and epoch > schedule.validate_after and epoch % VALIDATE_EVERY == 0:
            validate(epoch)
            if best.all_ended(epoch):
                break
        if schedule.progress is not None:
            schedule.progress(epoch)
    if epoch % VALIDATE_EVERY:
        validate(epoch)
    if held_out is None:
        return torch.full((fleet.members,), schedule.epochs)
    return best.restore_finite(fleet)
