"""A user's own PyG module as encoder -> a fleet of copies, evaluated one after another."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from recoslip.base.errors import SettingError
from recoslip.learning.networks.interfaces import Fleet, Output
from recoslip.learning.networks.network import seed_key
from recoslip.learning.networks.whole_graph import WholeGraph


class ModuleFleet(Fleet):
    """Copies of `encoder`, freshly initialised, each with the paper's head on top.

    Args:
        encoder: a module called as `encoder(x, edge_index)`, or with `edge_weight` too if its forward has
            such an argument, that returns (nodes, out); it must have `reset_parameters`.
        head: width of the head's hidden layer.
        dropout: of the head.
        seeds: one per member.
        classes: outputs of the head.
    """

    recordable = False  # a module of the user's may do anything

    def __init__(self, encoder: nn.Module, head: int, dropout: float, seeds: Sequence[int], classes: int = 2) -> None:
        super().__init__()
        self.members, self.classes = len(seeds), classes
        self.keys = [seed_key(seed) for seed in seeds]
        self.takes_weight = "edge_weight" in inspect.signature(encoder.forward).parameters
        self.encoders = nn.ModuleList()
        self.heads = nn.ModuleList()
        for key in self.keys:
            with torch.random.fork_rng():
                torch.manual_seed(key)
                member = copy.deepcopy(encoder)
                _reset(member)
                self.encoders.append(member)
                self.heads.append(
                    nn.Sequential(
                        nn.LazyLinear(head),
                        nn.BatchNorm1d(head),
                        nn.ReLU(),
                        nn.Dropout(dropout),
                        nn.Linear(head, classes),
                    )
                )

    def prepare(self, graph: WholeGraph) -> None:
        """Find out the representation's width by one evaluation, and initialise the head's first layer."""
        for key, encoder, head in zip(self.keys, self.encoders, self.heads, strict=True):
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(key + 1)
                encoder.eval()
                head.eval()
                head(self._represent(encoder, graph))

    def per_member(self, name: str, tensor: Tensor, values: Tensor) -> Tensor:
        """Return the value of the member that a state tensor belongs to: "encoders.3.lin.weight" is member 3's."""
        return values[int(name.split(".")[1])]

    def gather(self, chosen: Sequence[tuple[Self, int]]) -> Self:
        """Build a fleet, on the CPU, of members picked from fleets of this encoder."""
        fleet = copy.copy(self)
        fleet._modules = {
            name: nn.ModuleList(copy.deepcopy(getattr(other, name)[member]).cpu() for other, member in chosen)
            for name in ("encoders", "heads")
        }
        fleet.members, fleet.keys = len(chosen), [0] * len(chosen)
        return fleet

    def forward(
        self, graph: WholeGraph, *, epoch: int | Tensor | None = None, first_layer: Tensor | None = None
    ) -> Output:
        """Evaluate all members; with `epoch`, in training mode with that epoch's own random state."""
        representations, logits = [], []
        for key, encoder, head in zip(self.keys, self.encoders, self.heads, strict=True):
            encoder.train(epoch is not None)
            head.train(epoch is not None)
            with torch.random.fork_rng(enabled=epoch is not None):
                if epoch is not None:
                    torch.manual_seed(key ^ (int(epoch) + 1))
                g = self._represent(encoder, graph)
                logits.append(head(g))
            representations.append(g)
        return Output(torch.stack(representations, dim=1), torch.stack(logits, dim=1))

    def _represent(self, encoder: Callable[..., Tensor], graph: WholeGraph) -> Tensor:
        more = {"edge_weight": graph.edge_weight} if self.takes_weight else {}
        g = encoder(graph.x, graph.edge_index, **more)
        if g.ndim != 2 or g.shape[0] != graph.num_nodes:
            raise SettingError(
                f"the encoder must return one row per node, ({graph.num_nodes}, width); it returned {tuple(g.shape)}"
            )
        return g


def _reset(module: nn.Module) -> None:
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
        return
    children = list(module.children())
    if not children and any(True for _ in module.parameters(recurse=False)):
        raise SettingError(
            f"the encoder's {type(module).__name__} has no reset_parameters(), so members would start from "
            "the same weights; add that method"
        )
    for child in children:
        _reset(child)
