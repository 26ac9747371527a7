"""Fleet + graph + objective -> trained members, each with its best weights: epochs see all nodes, or a batch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from recoslip.base.errors import Diverged
from recoslip.learning.networks.interfaces import BatchObjective, Fleet, Objective, Propagation, Schedule


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


VALIDATE_EVERY = 10  # epochs on batches
CHECK_EVERY = 10  # epochs between checks whether all members have ended; a check waits for the device


def train(fleet: Fleet, graph: Any, objective: Objective, schedule: Schedule) -> Tensor:
    """Train all members with Adam and leave each with its best weights; return the epoch those are from.

    Args:
        fleet: the members; changed in place.
        graph: what the fleet is called with; its `device` is where everything is.
        objective: losses and validation values.
        schedule: how long to train and which weights to keep.
    """
    return train_together([Training(fleet, graph, objective, schedule)])[0]


class Training:
    """A fleet on its way: its optimiser, its best weights so far, and the epochs that are done."""

    def __init__(self, fleet: Fleet, graph: Any, objective: Objective, schedule: Schedule) -> None:
        fleet.prepare(graph)
        self.fleet, self.graph, self.objective, self.schedule = fleet, graph, objective, schedule
        self.device: torch.device = graph.device
        self.adam = _adam(fleet, schedule, capturable=self.device.type == "cuda")
        self.best = BestWeights(fleet, schedule.patience)
        self.epochs_done = torch.zeros((), dtype=torch.long, device=self.device)

    def step(self, validates: bool) -> None:
        """Train one epoch, after a validation of the weights that it begins with where asked for."""
        fleet, graph, objective, done = self.fleet, self.graph, self.objective, self.epochs_done
        # The first layer's output with the present weights serves their validation and their training step.
        first_layer = fleet.first_layer(graph)
        if validates:
            self.validate(first_layer)
        output = fleet(graph, epoch=self.schedule.first_epoch + done, first_layer=first_layer)
        _descend(self.adam, objective, output, done)

    def validate(self, first_layer: Tensor | None = None) -> None:
        """Keep the weights of members that are better than before."""
        with torch.no_grad():
            value = self.objective.validation(self.fleet(self.graph, first_layer=first_layer))
            self.best.update(self.fleet, value, self.epochs_done)

    def finish(self) -> Tensor:
        """Restore the best weights and return the epochs they are from."""
        if self.schedule.validate_after is None:
            return torch.full((self.fleet.members,), self.schedule.epochs)
        self.validate()
        return self.best.restore_finite(self.fleet)


def _adam(fleet: Fleet, schedule: Schedule, *, capturable: bool = False) -> torch.optim.Adam:
    learnable = [parameter for parameter in fleet.parameters() if parameter.requires_grad]
    return torch.optim.Adam(learnable, lr=schedule.learning_rate, fused=True, capturable=capturable)


def _descend(adam: torch.optim.Adam, objective: Objective, output: Any, done: Tensor) -> None:
    """Take a step of the weights, and of what else is learned, from an output in training mode; count it."""
    state = objective.loss(output, done)
    adam.zero_grad()
    objective.lagrangian(state).sum().backward()  # type: ignore[no-untyped-call]
    adam.step()
    objective.dual_step(state, done)
    done.add_(1)


def train_together(trainings: Sequence[Training]) -> list[Tensor]:
    """Train several fleets on one device for as many epochs, all of them in every step; return what `train` does.

    On a GPU a step is recorded, and fleets that leave some of it idle share it.

    Args:
        trainings: on one device, with the same epochs, patience and beginning of validation.
    """
    schedule, device = trainings[0].schedule, trainings[0].device
    for other in (training.schedule for training in trainings):
        assert (other.epochs, other.patience) == (schedule.epochs, schedule.patience)
        assert other.validate_after == schedule.validate_after
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return _train_on_device(trainings, schedule, device)


def _train_on_device(trainings: Sequence[Training], schedule: Schedule, device: torch.device) -> list[Tensor]:
    steps: dict[bool, Callable[[], None]] = {
        validates: partial(_step_all, trainings, validates) for validates in (False, True)
    }
    if device.type == "cuda" and all(training.fleet.recordable for training in trainings):
        steps = {validates: RecordedStep(function) for validates, function in steps.items()}
    for epoch in range(schedule.epochs):
        checks = schedule.patience is not None and epoch % CHECK_EVERY == 0
        if checks and all(training.best.all_ended(epoch) for training in trainings):
            break
        steps[schedule.validate_after is not None and epoch > schedule.validate_after]()
        for training in trainings:
            if training.schedule.progress is not None:
                training.schedule.progress(epoch + 1)
    if device.type == "cuda":  # the recordings and the memory they use are freed on return, so they must have finished
        torch.cuda.synchronize(device)
    return [training.finish() for training in trainings]


def _step_all(trainings: Sequence[Training], validates: bool) -> None:
    """Train one epoch of each; on a GPU, of several at once."""
    if len(trainings) == 1 or trainings[0].device.type != "cuda":
        for training in trainings:
            training.step(validates)
        return
    current = torch.cuda.current_stream()
    streams = [_stream(torch.cuda.current_device(), number) for number in range(1, len(trainings) + 1)]
    for training, stream in zip(trainings, streams, strict=True):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            training.step(validates)
    for stream in streams:
        current.wait_stream(stream)


@cache
def _stream(device: int, number: int) -> torch.cuda.Stream:
    """Return always the same streams: libraries keep memory for each that there is."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class RecordedStep:
    """A function that launches the same work on the GPU at every call: recorded as a CUDA graph, then replayed.

    A small graph's kernels take less time than launching them one by one (docs/decisions/networks.md).

    Args:
        function: takes nothing, returns nothing, and works on tensors that stay where they are.
    """

    WARM_UP = 1  # calls before the recording, in which kernels are compiled and libraries allocate what they need

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run it once."""
        if self.graph is None:
            current, side = torch.cuda.current_stream(), _stream(torch.cuda.current_device(), 0)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                if self.calls < self.WARM_UP:
                    self.function()
                else:
                    self.graph = self._recorded()
            current.wait_stream(side)
            self.calls += 1
            if self.graph is None:
                return
        self.graph.replay()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """Record the function; `torch.cuda.graph` would empty the allocator's cache before, for every training."""
        free, total = torch.cuda.mem_get_info()
        if free < total / 2:  # a recording has memory of its own, beside what the warm-up left
            torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            self.function()
        except BaseException:
            with suppress(RuntimeError):  # that streams were not joined, where the first error counts
                graph.capture_end()
            raise
        graph.capture_end()
        return graph


# Sets of nodes and steps -> the drawn nodes of each set, and the propagation of them all, for every step.
DrawBatches: TypeAlias = Callable[[Sequence[Tensor], int], Iterator[tuple[list[Tensor], Propagation]]]


def train_on_batches(fleet: Fleet, draw: DrawBatches, objective: BatchObjective, schedule: Schedule) -> Tensor:
    """Train as `train` does, on a batch in each epoch; weights are validated on one that stays the same."""
    adam = _adam(fleet, schedule)
    best = BestWeights(fleet, None if schedule.patience is None else max(schedule.patience, VALIDATE_EVERY))
    epoch, epochs_done = 0, torch.zeros_like(best.epoch[0])
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
        _descend(adam, estimate, fleet(propagation, epoch=schedule.first_epoch + epochs_done), epochs_done)
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
