"""Fleet + batches of a graph + objective -> trained members: every epoch sees one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from recoslip.fleet import distributed
from recoslip.fleet.checkpoints import Checkpoint, load_optimiser_state, optimiser_state
from recoslip.fleet.early_stopping import BestWeights
from recoslip.fleet.interfaces import BatchObjective, Propagation, Schedule
from recoslip.fleet.network import NetworkFleet

VALIDATE_EVERY = 10  # epochs

# Sets of nodes, steps, steps to skip, whether processes divide each batch -> nodes of each set, and their propagation.
DrawBatches: TypeAlias = Callable[[Sequence[Tensor], int, int, bool], Iterator[tuple[list[Tensor], Propagation]]]


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
    trainer = TrainerState(fleet, adam, best, objective, schedule)
    epoch, finished = trainer.resume()
    epochs_done = torch.full((), epoch, dtype=torch.long, device=device)
    network = distributed.with_mean_gradients(fleet)
    held_out = None
    if schedule.validate_after is not None:
        batch, propagation = next(draw(objective.node_sets(held_out=True), 1, 0, False))
        held_out = objective.on_batch(batch, held_out=True), propagation

    def validate(epoch: int) -> None:
        if held_out is not None:
            distributed.average_buffers(fleet)
            with torch.no_grad():
                best.update(fleet, held_out[0].validation(fleet(held_out[1])), epoch)

    if not finished:
        for batch, propagation in draw(objective.node_sets(held_out=False), schedule.epochs, epoch, True):
            estimate = objective.on_batch(batch, held_out=False)
            # Processes that share a batch use different dropout masks.
            dropout_epoch = (schedule.first_epoch + epochs_done) * distributed.world_size() + distributed.rank()
            state = estimate.loss(network(propagation, epoch=dropout_epoch), epochs_done)
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
            trainer.save(epoch)
            if schedule.progress is not None:
                schedule.progress(epoch)
        if epoch % VALIDATE_EVERY:
            validate(epoch)
        distributed.average_buffers(fleet)
        trainer.save(epoch, finished=True)
    if held_out is None:
        return torch.full((fleet.members,), schedule.epochs)
    return best.restore_finite(fleet)


class TrainerState:
    """Everything that a training changes, as tensors for a checkpoint.

    Args:
        fleet: the networks.
        adam: their optimiser.
        best: the best of their weights so far.
        objective: learns multipliers and the like.
        schedule: names the checkpointer, if there is one.
    """

    def __init__(
        self,
        fleet: nn.Module,
        adam: torch.optim.Adam,
        best: BestWeights,
        objective: BatchObjective,
        schedule: Schedule,
    ) -> None:
        self.fleet, self.adam, self.best, self.objective = fleet, adam, best, objective
        self.checkpointer = schedule.checkpointer

    def resume(self) -> tuple[int, bool]:
        """Restore the last checkpoint, if there is one; return how many epochs are done, and whether it finished."""
        checkpoint = None if self.checkpointer is None else self.checkpointer.resume()
        if checkpoint is None:
            return 0, False
        groups: dict[str, dict[str, Tensor]] = {n: {} for n in ("fleet", "adam", "best", "values", "objective")}
        for key, tensor in checkpoint.state.items():
            group, _, name = key.partition(".")
            groups[group][name] = tensor.to(self.best.value.device)
        self.fleet.load_state_dict(groups["fleet"])
        load_optimiser_state(self.adam, groups["adam"])
        self.best.state = groups["best"]
        self.best.value, self.best.epoch = groups["values"]["value"], groups["values"]["epoch"]
        self.objective.load_state(groups["objective"])
        return checkpoint.epoch, checkpoint.finished

    def save(self, epoch: int, *, finished: bool = False) -> None:
        """Save a checkpoint, where there is a checkpointer and it is time."""
        if self.checkpointer is None or not (finished or epoch % self.checkpointer.every == 0):
            return
        groups = {
            "fleet": self.fleet.state_dict(),
            "adam": optimiser_state(self.adam),
            "best": self.best.state,
            "values": {"value": self.best.value, "epoch": self.best.epoch},
            "objective": self.objective.state(),
        }
        state = {f"{group}.{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}
        self.checkpointer.save(Checkpoint(epoch, finished, state))
