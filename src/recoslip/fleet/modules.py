"""A user's own PyG module as encoder -> the same interface as a fleet, members one after another."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from recoslip.errors import SettingError
from recoslip.fleet.network import Fleet, Output, seed_key
from recoslip.fleet.view import GraphView


class ModuleFleet(nn.Module):
    """Copies of `encoder`, freshly initialised, each with the paper's head on top.

    Args:
        encoder: a module called as `encoder(x, edge_index)`, or with `edge_weight` too if its forward has
            such an argument, that returns (nodes, out); it must have `reset_parameters`.
        head: width of the head's hidden layer.
        dropout: of the head.
        seeds: one per member.
        classes: outputs of the head.
    """

    def __init__(self, encoder: nn.Module, head: int, dropout: float, seeds: Sequence[int], classes: int = 2) -> None:
        super().__init__()
        self.members = len(seeds)
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

    def prepare(self, view: GraphView) -> None:
        """Learn the representation's width from one evaluation, and draw the head's first layer."""
        for key, encoder, head in zip(self.keys, self.encoders, self.heads, strict=True):
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(key + 1)
                encoder.eval()
                head.eval()
                head(self._represent(encoder, view))

    def whose(self, name: str, tensor: Tensor, per_member: Tensor) -> Tensor:
        """Pick the value of the member a state tensor belongs to: "encoders.3.lin.weight" is member 3's."""
        return per_member[int(name.split(".")[1])]

    def first(self, view: GraphView) -> None:
        """Nothing to share between training and evaluation here."""

    def forward(self, view: GraphView, *, epoch: int | Tensor | None = None, first: Tensor | None = None) -> Output:
        """Evaluate all members; with `epoch`, in training mode with that epoch's own random state."""
        representations, logits = [], []
        for key, encoder, head in zip(self.keys, self.encoders, self.heads, strict=True):
            encoder.train(epoch is not None)
            head.train(epoch is not None)
            with torch.random.fork_rng(enabled=epoch is not None):
                if epoch is not None:
                    torch.manual_seed(key ^ (int(epoch) + 1))
                g = self._represent(encoder, view)
                logits.append(head(g))
            representations.append(g)
        return Output(torch.stack(representations, dim=1), torch.stack(logits, dim=1))

    def _represent(self, encoder: Callable[..., Tensor], view: GraphView) -> Tensor:
        more = {"edge_weight": view.edge_weight} if self.takes_weight else {}
        g = encoder(view.x, view.edge_index, **more)
        if g.ndim != 2 or g.shape[0] != view.nodes:
            raise SettingError(
                f"the encoder must return one row per node, ({view.nodes}, width); it returned {tuple(g.shape)}"
            )
        return g


def gather(chosen: Sequence[tuple[Fleet | ModuleFleet, int]]) -> Fleet | ModuleFleet:
    """Members picked from one or more fleets of a kind -> a fleet of them alone, on the CPU."""
    template = chosen[0][0]
    if isinstance(template, Fleet):
        states = [{name: t[member].cpu() for name, t in fleet.state_dict().items()} for fleet, member in chosen]
        fleet = Fleet(template.architecture, [0] * len(chosen))
        fleet.load_state_dict({name: torch.stack([state[name] for state in states]) for name in states[0]})
        return fleet
    alone = copy.copy(template)
    alone._modules = {
        part: nn.ModuleList(copy.deepcopy(getattr(fleet, part)[member]).cpu() for fleet, member in chosen)
        for part in ("encoders", "heads")
    }
    alone.members, alone.keys = len(chosen), [0] * len(chosen)
    return alone


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
