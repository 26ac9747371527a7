"""What networks, graphs and objectives are to each other and to the training loops."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias

import torch
from torch import Tensor, nn

Product: TypeAlias = Callable[[Tensor], Tensor]  # (columns of a fixed matrix, any) -> (rows of it, any)
OutputName: TypeAlias = Literal["logits", "representation"]


class Output(NamedTuple):
    """What a forward pass returns, for every node and member."""

    representation: Tensor  # g(v): (nodes, members, out)
    logits: Tensor  # (nodes, members, classes); of two classes the second is novel

    @property
    def margin(self) -> Tensor:
        """Novel logit minus known logit, so that f = σ(margin): (nodes, members)."""
        return self.logits[..., 1] - self.logits[..., 0]


class Propagation(Protocol):
    """The fixed matrices that an encoder's two layers multiply by, of a graph or of a batch of it."""

    @property
    def first_layer(self) -> tuple[Product, ...]:
        """Products of the first layer, features included: (features, any) -> (nodes that the second needs, any)."""

    @property
    def second_layer(self) -> tuple[Product, ...]:
        """Products of the second layer: (those nodes, any) -> (nodes, any)."""

    def first_layer_dropped(self, key: Tensor, keep: float) -> tuple[Product, ...]:
        """Return the first layer's products with each feature of each node kept with probability `keep`."""


class Fleet(nn.Module, ABC):
    """Networks of one kind that are evaluated together; by default, tensors of the state have a leading member axis."""

    members: int  # how many networks
    recordable = True  # whether a step on a GPU may be recorded as a CUDA graph

    def prepare(self, graph: Any) -> None:
        """Initialise what depends on the graph, before training; by default nothing does."""
        return

    def first_layer(self, graph: Any) -> Tensor | None:
        """Compute what training and evaluation of the same weights have in common; by default nothing."""
        return None

    @abstractmethod
    def forward(self, graph: Any, *, epoch: int | Tensor | None = None, first_layer: Tensor | None = None) -> Any:
        """Evaluate all members; with `epoch`, in training mode with that epoch's random draws."""

    def per_member(self, name: str, tensor: Tensor, values: Tensor) -> Tensor:
        """Shape (members,) values so that they broadcast against the state tensor of this name."""
        return values.view(-1, *[1] * (tensor.ndim - 1))

    @abstractmethod
    def gather(self, chosen: Sequence[tuple[Self, int]]) -> Self:
        """Build a fleet, on the CPU, of members picked from fleets of this kind."""


@dataclass(frozen=True)
class Schedule:
    """How long to train and which weights to keep."""

    epochs: int
    learning_rate: float
    validate_after: int | None = 0  # epochs after which validation begins; None keeps the last weights unvalidated
    patience: int | None = None  # a member that has not improved for so many epochs has ended
    first_epoch: int = 0  # number of the first epoch for dropout, where another training went before
    stage: int = 0  # number of the training in a method that trains several times; each draws its own batches
    progress: Callable[[int], None] | None = None  # called with the number of finished epochs


class GraphInput(Protocol):
    """A graph as networks are trained and evaluated on it: whole, or in sampled batches."""

    @property
    def device(self) -> torch.device:
        """Where computations run."""

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the computations."""

    @property
    def num_nodes(self) -> int:
        """How many nodes the graph has."""

    @property
    def nodes_per_step(self) -> int:
        """About how many nodes one training step computes on."""

    def train(self, fleet: Any, objective: Any, schedule: Schedule) -> Tensor:
        """Train all members with Adam, leave each with its best weights, and return the epoch those are from."""

    def evaluate(self, fleet: Any, output: OutputName = "logits") -> Tensor:
        """Evaluate all nodes, (nodes, members, any), in double precision, on the CPU."""


class ProblemState(NamedTuple):
    """What an objective computes in one step, per member: Cooper's state of a constrained minimisation problem."""

    loss: Tensor  # (members,) the objective
    violation: Tensor | None = None  # (members,) differentiable; positive where the constraint is violated
    strict_violation: Tensor | None = None  # (members,) the violation that the multiplier ascends on
    misc: Any = None  # what the dual step records besides


class Objective(ABC):
    """What a method brings to the training loop. Members never influence each other.

    On a GPU a step is recorded and replayed every epoch, so these functions must not wait for the device, nor depend on
    anything that changes from epoch to epoch but tensors.
    """

    @abstractmethod
    def loss(self, output: Any, epoch: Tensor) -> ProblemState:
        """Compute loss and constraint violation of each member; nothing is changed. `epoch` is on the device."""

    def lagrangian(self, state: ProblemState) -> Tensor:
        """Return what the weights descend on, per member."""
        return state.loss

    def dual_step(self, state: ProblemState, epoch: Tensor) -> None:
        """Update what is learned besides the weights, after they have made their step; by default nothing."""
        return

    @abstractmethod
    def validation(self, output: Any) -> Tensor:
        """Compute the value of each member, (members,), that the kept weights minimise."""


class BatchObjective(Objective):
    """An objective that can also be estimated on a batch of its nodes."""

    @abstractmethod
    def node_sets(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Return training or validation nodes, in disjoint sets of which a batch has its proportion each."""

    @abstractmethod
    def on_batch(self, batch: Sequence[Tensor], *, held_out: bool) -> Objective:
        """Return the estimate on a batch, given as the drawn nodes of each set; what is learned is shared with it."""
