"""Fleet + objective -> trained members, each with the weights it validated best with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor

from recoslip.errors import Diverged
from recoslip.fleet import together
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Fleet, Output, Part
from recoslip.fleet.view import GraphView

ASK_EVERY = 10  # epochs between looks at whether all members have ended; a look waits for the device


class Objective(Protocol):
    """What a method brings to the training loop. Members never influence each other.

    On a GPU the loop records what these functions launch and launches it again every epoch, so they must not wait for
    the device, nor depend on anything that changes from epoch to epoch but tensors.
    """

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Loss of each member, (members,), to descend on; the epoch's number is on the device."""

    def after_step(self) -> None:
        """Update whatever the method learns beside the weights."""

    def validation(self, output: Output) -> Tensor:
        """Value of each member, (members,), that the kept weights minimise."""


class Batchable(Objective, Protocol):
    """An objective that can also be estimated on some of its nodes."""

    def parts(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Training or validation nodes, in groups of which a batch shall have its share."""

    def on(self, chosen: Sequence[Tensor], *, held_out: bool) -> Objective:
        """Return the estimate for a batch of the chosen nodes of each part, one part after the other.

        What is learned beside the weights is shared with it.
        """

    def state(self) -> dict[str, Tensor]:
        """Return what is learned beside the weights, by default nothing."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take it back."""
        return


def train(
    fleet: Fleet | ModuleFleet,
    view: GraphView | Batches,
    objective: Objective,
    *,
    epochs: int,
    learning_rate: float,
    keep_from: int | None = 0,
    patience: int | None = None,
    first_epoch: int = 0,
    stage: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Train all members with Adam and leave each with its best weights; return the epoch those are from.

    Args:
        fleet: the members; changed in place.
        view: the graph. Of one that comes in batches, each epoch sees one.
        objective: losses and validation values.
        epochs: how many steps.
        learning_rate: Adam's.
        keep_from: validate after this many epochs and later; None keeps the last weights and never validates.
        patience: a member that has not improved for this many epochs has ended; when all have, training ends.
        first_epoch: number of the first epoch for dropout, where earlier training went before.
        stage: of a method that trains several times; each draws batches of its own.
        progress: called with the number of finished epochs.
    """
    if isinstance(view, Batches):
        assert isinstance(fleet, Fleet)  # a user's module is given the whole graph
        return _train_on_batches(
            fleet, view, objective, epochs, learning_rate, keep_from, patience, first_epoch, stage, progress
        )
    fleet.prepare(view)
    learned = [parameter for parameter in fleet.parameters() if parameter.requires_grad]
    adam = torch.optim.Adam(learned, lr=learning_rate, fused=True, capturable=view.device.type == "cuda")
    best = Best(fleet, patience)
    clock = torch.zeros((), dtype=torch.long, device=view.device)  # epochs done

    def validate(first: Tensor | None) -> None:
        with torch.no_grad():
            best.offer(fleet, objective.validation(fleet(view, first=first)), clock)

    def step(validated: bool) -> None:
        # The first convolution of the weights that this epoch trains serves their validation too.
        first = fleet.first(view)
        if validated:
            validate(first)
        loss = objective.loss(fleet(view, epoch=first_epoch + clock, first=first), clock)
        adam.zero_grad()
        loss.sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        objective.after_step()
        clock.add_(1)

    steps: dict[bool, Callable[[], None]] = {validated: partial(step, validated) for validated in (False, True)}
    if view.device.type == "cuda" and not isinstance(fleet, ModuleFleet):
        steps = {validated: Recorded(function) for validated, function in steps.items()}
    for epoch in range(epochs):
        if patience is not None and epoch % ASK_EVERY == 0 and best.all_ended(epoch):
            break
        steps[keep_from is not None and epoch > keep_from]()
        if progress is not None:
            progress(epoch + 1)
    if view.device.type == "cuda":  # the recordings and the memory they work in go with this call: let them end first
        torch.cuda.synchronize(view.device)
    if keep_from is None:
        return torch.full((fleet.members,), epochs)
    validate(None)
    return _best_of(best, fleet)


def _best_of(best: Best, fleet: Fleet | ModuleFleet) -> Tensor:
    kept = best.restore(fleet)
    if (kept == 0).any():
        raise Diverged(
            "training diverged: a validation value never was a number; "
            "lower learning_rate, or look for extreme values among the features"
        )
    return kept


def _train_on_batches(
    fleet: Fleet,
    batches: Batches,
    objective: Objective,
    epochs: int,
    learning_rate: float,
    keep_from: int | None,
    patience: int | None,
    first_epoch: int,
    stage: int,
    progress: Callable[[int], None] | None,
) -> Tensor:
    """Train on one batch after the other; the weights are validated on one batch that stays the same."""
    problem = cast(Batchable, objective)
    adam = torch.optim.Adam([p for p in fleet.parameters() if p.requires_grad], lr=learning_rate, fused=True)
    best = Best(fleet, None if patience is None else max(patience, ASK_EVERY))
    course = Course(fleet, adam, best, problem)
    begun, ended = course.resume()
    clock = torch.full((), begun, dtype=torch.long, device=batches.device)
    rank, size = together.place()
    network = together.with_mean_gradients(fleet)
    held_out = None
    if keep_from is not None:
        chosen, view = next(batches.draw(problem.parts(held_out=True), 1, stage, shared=False))
        held_out = problem.on(chosen, held_out=True), view

    def validate(epoch: int) -> None:
        if held_out is not None:
            together.align(fleet)
            with torch.no_grad():
                best.offer(fleet, held_out[0].validation(fleet(held_out[1])), epoch)

    epoch = begun
    if not ended:
        for chosen, view in batches.draw(problem.parts(held_out=False), epochs, stage, first=begun):
            estimate = problem.on(chosen, held_out=False)
            # Processes that share a batch drop other units.
            loss = estimate.loss(network(view, epoch=(first_epoch + clock) * size + rank), clock)
            adam.zero_grad()
            loss.sum().backward()  # type: ignore[no-untyped-call]
            adam.step()
            estimate.after_step()
            clock.add_(1)
            epoch += 1
            if keep_from is not None and epoch > keep_from and epoch % ASK_EVERY == 0:
                validate(epoch)
                if best.all_ended(epoch):
                    break
            course.keep(epoch)
            if progress is not None:
                progress(epoch)
        if epoch % ASK_EVERY:
            validate(epoch)
        together.align(fleet)
        course.keep(epoch, ended=True)
    if held_out is None:
        return torch.full((fleet.members,), epochs)
    return _best_of(best, fleet)


class Course:
    """Where a training is, as tensors that another process can go on from.

    Args:
        fleet: its networks.
        adam: what moves them.
        best: the best of them so far.
        problem: what else is learned.
    """

    def __init__(self, fleet: Fleet, adam: torch.optim.Adam, best: Best, problem: Batchable) -> None:
        self.fleet, self.adam, self.best, self.problem = fleet, adam, best, problem
        self.keeper = together.keeper()

    def resume(self) -> tuple[int, bool]:
        """Go to where this training was kept, if it was; return how many epochs are done, and whether it had ended."""
        kept = None if self.keeper is None else self.keeper.begin()
        if kept is None:
            return 0, False
        own: dict[str, dict[str, Tensor]] = {name: {} for name in ("fleet", "adam", "best", "values", "problem")}
        for name, tensor in kept.state.items():
            whose, _, rest = name.partition(".")
            own[whose][rest] = tensor.to(self.best.value.device)
        self.fleet.load_state_dict(own["fleet"])
        together.load_adam_state(self.adam, own["adam"])
        self.best.state = own["best"]
        self.best.value, self.best.epoch = own["values"]["value"], own["values"]["epoch"]
        self.problem.load_state(own["problem"])
        return kept.epoch, kept.ended

    def keep(self, epoch: int, *, ended: bool = False) -> None:
        """Keep where it is, where someone wants to and it is time."""
        if self.keeper is None or not (ended or epoch % self.keeper.every == 0):
            return
        own = {
            "fleet": self.fleet.state_dict(),
            "adam": together.adam_state(self.adam),
            "best": self.best.state,
            "values": {"value": self.best.value, "epoch": self.best.epoch},
            "problem": self.problem.state(),
        }
        state = {f"{whose}.{name}": tensor for whose, part in own.items() for name, tensor in part.items()}
        self.keeper.keep(together.Kept(epoch, ended, state))


def evaluate(fleet: Fleet | ModuleFleet, view: GraphView | Batches, part: Part = "logits") -> Tensor:
    """Logits or representation of all nodes, (nodes, members, any), in double precision, on the CPU."""
    with torch.no_grad():
        if isinstance(view, Batches):
            assert isinstance(fleet, Fleet)
            return view.evaluate(fleet, part).double()
        result: Tensor = getattr(fleet(view), part)
        return result.double().cpu()


class Recorded:
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
        """Do it once."""
        if self.graph is None and self.calls < self.WARM_UP:
            here, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                self.function()
            here.wait_stream(aside)
            self.calls += 1
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.function()
        self.graph.replay()


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

    def offer(self, fleet: Fleet | ModuleFleet, value: Tensor, epoch: int | Tensor) -> None:
        """Take over the state of the members whose value is lower than any before."""
        better = value < self.value
        if self.patience is not None:
            better &= (self.epoch == 0) | (epoch - self.epoch <= self.patience)
        self.value.copy_(torch.where(better, value, self.value))
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        for name, tensor in fleet.state_dict().items():
            torch.where(fleet.whose(name, tensor, better), tensor, self.state[name], out=self.state[name])

    def all_ended(self, epoch: int) -> bool:
        """Whether no member can improve any more; waits for the device."""
        return self.patience is not None and bool((epoch - self.epoch > self.patience).all())

    def restore(self, fleet: Fleet | ModuleFleet) -> Tensor:
        """Give a fleet the best states, and return the epoch each is from."""
        fleet.load_state_dict(self.state)
        return self.epoch
