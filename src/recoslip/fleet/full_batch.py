"""Fleet + whole graph + objective -> trained members: every epoch sees all nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from recoslip.fleet.early_stopping import BestWeights
from recoslip.fleet.interfaces import Fleet, Objective, Schedule

CHECK_EVERY = 10  # epochs between checks whether all members have ended; a check waits for the device


def train(fleet: Fleet, graph: Any, objective: Objective, schedule: Schedule) -> Tensor:
    """Train all members with Adam and leave each with its best weights; return the epoch those are from.

    Args:
        fleet: the members; changed in place.
        graph: what the fleet is called with; its `device` is where everything is.
        objective: losses and validation values.
        schedule: how long to train and which weights to keep.
    """
    fleet.prepare(graph)
    on_gpu = graph.device.type == "cuda"
    learnable = [parameter for parameter in fleet.parameters() if parameter.requires_grad]
    adam = torch.optim.Adam(learnable, lr=schedule.learning_rate, fused=True, capturable=on_gpu)
    best = BestWeights(fleet, schedule.patience)
    epochs_done = torch.zeros((), dtype=torch.long, device=graph.device)

    def validate(first_layer: Tensor | None) -> None:
        with torch.no_grad():
            best.update(fleet, objective.validation(fleet(graph, first_layer=first_layer)), epochs_done)

    def step(validates: bool) -> None:
        # The first layer's output with the present weights serves their validation and their training step.
        first_layer = fleet.first_layer(graph)
        if validates:
            validate(first_layer)
        output = fleet(graph, epoch=schedule.first_epoch + epochs_done, first_layer=first_layer)
        state = objective.loss(output, epochs_done)
        adam.zero_grad()
        objective.lagrangian(state).sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        objective.dual_step(state, epochs_done)
        epochs_done.add_(1)

    steps: dict[bool, Callable[[], None]] = {validates: partial(step, validates) for validates in (False, True)}
    if on_gpu and fleet.recordable:
        steps = {validates: RecordedStep(function) for validates, function in steps.items()}
    for epoch in range(schedule.epochs):
        if schedule.patience is not None and epoch % CHECK_EVERY == 0 and best.all_ended(epoch):
            break
        steps[schedule.validate_after is not None and epoch > schedule.validate_after]()
        if schedule.progress is not None:
            schedule.progress(epoch + 1)
    if on_gpu:  # the recordings and the memory they use are freed on return, so they must have finished
        torch.cuda.synchronize(graph.device)
    if schedule.validate_after is None:
        return torch.full((fleet.members,), schedule.epochs)
    validate(None)
    return best.restore_finite(fleet)


class RecordedStep:
    """A function that launches the same work on the GPU at every call: recorded as a CUDA graph, then replayed.

    A small graph's kernels take less time than launching them one by one (docs/decisions/cuda-graphs.md).

    Args:
        function: takes nothing, returns nothing, and works on tensors that stay where they are.
    """

    WARM_UP = 3  # calls before the recording, in which libraries allocate what they need

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run it once."""
        if self.graph is None and self.calls < self.WARM_UP:
            current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(current)
            with torch.cuda.stream(side):
                self.function()
            current.wait_stream(side)
            self.calls += 1
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.function()
        self.graph.replay()
