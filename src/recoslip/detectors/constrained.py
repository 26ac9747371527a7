"""Scores of every member -> the Lagrangian it descends on and the multiplier it ascends with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.detectors.risk import first_places, parts
from recoslip.fleet import together
from recoslip.fleet.negatives import NonEdges
from recoslip.fleet.network import Output
from recoslip.fleet.training import Batchable
from recoslip.graph import NodeGraph
from recoslip.objectives.links import cut_score, first_of_each, inner_products, link_loss, undecided
from recoslip.objectives.rates import hard_rate, lagrangian, soft_rate
from recoslip.shift import Split

Links: TypeAlias = Literal["selective", "target", "all", "none"]
Dual: TypeAlias = Literal["hard", "soft"]


class RecallConstrained(Batchable):
    r"""$\hat\beta + \xi \mathcal{L}_{lp} + \lambda(\tilde\alpha - \hat\alpha)$ of every member, and its λ."""

    COLUMNS = ("fpr", "recall", "multiplier", "link_loss")
    REMEMBERED = 20  # batches at most: more would tell the multiplier of networks long gone

    def __init__(
        self,
        graph: NodeGraph,
        split: Split,
        recall_targets: Sequence[float],
        device: torch.device,
        *,
        epochs: int,
        multiplier: float,
        dual: Dual = "hard",
        dual_learning_rate: float = 0.001,
        links: Links = "selective",
        link_weight: float = 0.001,
    ) -> None:
        self.nodes, self.held_out = parts(graph, split, device)
        self.recall_target = torch.tensor(recall_targets, dtype=torch.float64, device=device)
        members = len(recall_targets)
        self.multiplier = torch.full((members,), float(multiplier), device=device, requires_grad=True)
        self.ascent = torch.optim.Adam(
            [self.multiplier], lr=dual_learning_rate, maximize=True, capturable=device.type == "cuda"
        )
        self.dual = dual
        self.link_weight = link_weight
        self.graph, self.links = graph, links
        self.history = torch.zeros(epochs, len(self.COLUMNS), members, device=device)
        self.recall = Running(torch.zeros(members, device=device))
        self.forgets = 1.0  # share of the nodes that an epoch sees, all of them unless it is a batch

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Eq. (7) of each member; the recall the dual step will see is noted on the way."""
        f = torch.sigmoid(output.margin)
        target = self.recall_target.to(f.dtype)
        fpr, recall = soft_rate(f, self.nodes.source), soft_rate(f, self.nodes.target)
        with torch.no_grad():
            hard_fpr, hard_recall = hard_rate(f, self.nodes.source), hard_rate(f, self.nodes.target)
            # D1: the dual step follows the hard recall, the primal step the soft one, see DEVIATIONS.md
            counted = together.mean(hard_recall if self.dual == "hard" else recall)
            seen = self.recall.update(counted, self.forgets)
            self.multiplier.grad = (target - seen).to(self.multiplier.dtype)
        links = torch.zeros_like(fpr)
        if self.link_pairs is not None:
            links = self.link_pairs.loss(output, self.recall_target, epoch)
        with torch.no_grad():
            self.epoch = epoch.view(1)
            row = torch.stack([hard_fpr, hard_recall, self.multiplier, links]).to(self.history.dtype)
            self.history.index_copy_(0, self.epoch, row[None])
        return lagrangian(fpr, recall, target, self.multiplier.detach()) + self.link_weight * links

    def after_step(self) -> None:
        """Dual step: gradient ascent, projected to λ ≥ 0."""
        self.ascent.step()
        with torch.no_grad():
            self.multiplier.clamp_(min=0)
            multipliers = self.history[:, self.COLUMNS.index("multiplier")]
            multipliers.index_copy_(0, self.epoch, self.multiplier[None])

    def validation(self, output: Output) -> Tensor:
        """Lagrangian of the validation nodes, without the link loss."""
        f = torch.sigmoid(output.margin)
        fpr, recall = soft_rate(f, self.held_out.source), soft_rate(f, self.held_out.target)
        return lagrangian(fpr, recall, self.recall_target.to(f.dtype), self.multiplier.detach())

    @cached_property
    def link_pairs(self) -> LinkPairs | None:
        """The pairs of the whole graph."""
        return LinkPairs.of(self.graph, self.links, self.history.device)

    @cached_property
    def cut(self) -> Cut:
        """What a batch knows of the selective set, which is chosen among all target nodes that train."""
        return Cut(self.nodes.target, self.recall_target)

    def parts(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Source and target nodes."""
        return self.held_out if held_out else self.nodes

    def on(self, chosen: Sequence[Tensor], *, held_out: bool) -> RecallConstrained:
        """Return the problem of a batch: its own rates, but the multiplier and the recall seen so far are shared."""
        batch = copy.copy(self)
        device = self.history.device
        batch.nodes = batch.held_out = first_places(chosen, device)
        share = len(chosen[1]) / len(self.parts(held_out=held_out)[1])
        batch.forgets = max(share, 1 / self.REMEMBERED)
        if self.links == "none" or held_out:
            batch.link_pairs = None
        else:
            batch.link_pairs = LinkPairs.inside(
                self.graph, chosen, self.links, batch.nodes.target, self.cut.of(chosen[1].to(device)), device
            )
        return batch

    def state(self) -> dict[str, Tensor]:
        """Return the multiplier, what its ascent remembers, and the rates seen so far."""
        own = {f"ascent.{name}": value for name, value in together.adam_state(self.ascent).items()}
        own |= {"multiplier": self.multiplier.detach(), "history": self.history}
        own |= {"recall.mean": self.recall.mean, "recall.weight": self.recall.weight}
        if self.links == "selective":
            batches = torch.tensor(self.cut.batches)
            own |= {"cut.margin": self.cut.margin, "cut.value": self.cut.value, "cut.batches": batches}
        return own

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take it back."""
        with torch.no_grad():
            self.multiplier.copy_(state["multiplier"])
            self.history.copy_(state["history"])
        self.recall.mean, self.recall.weight = state["recall.mean"], state["recall.weight"]
        remembered = {key.removeprefix("ascent."): value for key, value in state.items() if key.startswith("ascent.")}
        together.load_adam_state(self.ascent, remembered)
        if self.links == "selective":
            self.cut.margin, self.cut.value = state["cut.margin"], state["cut.value"]
            self.cut.batches = int(state["cut.batches"])

    def validation_rates(self, margin: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Hard FPR and recall of each member on the validation nodes."""
        f = torch.sigmoid(margin.double())
        return (
            hard_rate(f, self.held_out.source).cpu().numpy(),
            hard_rate(f, self.held_out.target).cpu().numpy(),
        )


class Running:
    """A mean over the nodes seen last: an epoch counts by its share of all nodes, and older ones fade.

    One that sees all nodes counts alone.
    """

    def __init__(self, nothing: Tensor) -> None:
        self.mean, self.weight = nothing, torch.zeros_like(nothing)

    def update(self, value: Tensor, share: float) -> Tensor:
        """Take in an epoch that saw a share of the nodes, and return the mean."""
        self.weight.mul_(1 - share).add_(share)
        self.mean.lerp_(value.to(self.mean.dtype), share / self.weight)
        return self.mean


class Cut:
    """z, below which a target node is undecided: a quantile of the margins that the target nodes had when last seen.

    Args:
        target: positions of all target nodes that batches are drawn from, ascending.
        recall_target: (members,) α̃.
    """

    EVERY = 10  # batches between two looks at all nodes

    def __init__(self, target: Tensor, recall_target: Tensor) -> None:
        self.target, self.recall_target = target, recall_target
        self.margin = torch.full((len(target), len(recall_target)), torch.nan, device=target.device)
        self.value = torch.zeros(len(recall_target), device=target.device)
        self.batches = 0

    def of(self, nodes: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function that takes the margins of a batch's target nodes in, and gives z of each member."""

        def update(margin: Tensor) -> Tensor:
            self.margin[torch.searchsorted(self.target, nodes)] = margin.to(self.margin.dtype)
            if self.batches % self.EVERY == 0:
                self.value = together.mean(cut_score(self.margin[~self.margin[:, 0].isnan()], self.recall_target))
            self.batches += 1
            return self.value

        return update


@dataclass(frozen=True, eq=False)
class LinkPairs:
    """The pairs the link loss may use: the same for all members, who each take those inside their own set."""

    POOL: ClassVar[float] = 4 / 3  # non-edges drawn per edge: for α̃ ≤ 1/4 most members find as many as they have edges

    target: Tensor  # positions of the target nodes
    left: Tensor  # one end of each edge among the nodes in question
    right: Tensor  # the other
    non_edges: NonEdges
    selective: bool
    update: Callable[[Tensor], Tensor] | None = None  # of a batch: margins of its target nodes -> z of each member

    @classmethod
    def inside(
        cls,
        graph: NodeGraph,
        chosen: Sequence[Tensor],
        links: Links,
        target: Tensor,
        update: Callable[[Tensor], Tensor],
        device: torch.device,
    ) -> LinkPairs | None:
        """Collect the edges inside a batch, by the places of their ends there."""
        seeds = torch.cat(list(chosen))
        first = 0 if links == "all" else len(chosen[0])
        inside, order = seeds[first:].sort()
        row, column = graph.edge_index
        begin, end = (torch.searchsorted(row, inside, right=right) for right in (False, True))
        owner = torch.repeat_interleave(torch.arange(len(inside)), end - begin)
        entry = torch.arange(len(owner)) + (begin - torch.cumsum(end - begin, 0) + (end - begin))[owner]
        place = torch.searchsorted(inside, column[entry]).clamp(max=len(inside) - 1)
        kept = (inside[place] == column[entry]) & (owner < place)
        left, right = ((first + order[ends[kept]]).to(device) for ends in (owner, place))
        if len(left) == 0:
            return None
        nodes = torch.arange(first, len(seeds), device=device)
        pool = NonEdges(nodes, left, right, int(cls.POOL * len(left)) + 1)
        return cls(target, left, right, pool, links == "selective", update)

    @classmethod
    def of(cls, graph: NodeGraph, links: Links, device: torch.device) -> LinkPairs | None:
        """Collect the edges and the non-edge sampler for a variant; None where there is no pair to learn from."""
        if links == "none":
            return None
        left, right = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        inside = torch.ones_like(graph.is_target) if links == "all" else graph.is_target
        kept = inside[left] & inside[right]
        left, right = left[kept].to(device), right[kept].to(device)
        if len(left) == 0:
            return None
        nodes = torch.nonzero(inside).flatten().to(device)
        pool = NonEdges(nodes, left, right, int(cls.POOL * len(left)) + 1)
        target = torch.nonzero(graph.is_target).flatten().to(device)
        return cls(target, left, right, pool, links == "selective")

    def loss(self, output: Output, recall_target: Tensor, epoch: Tensor) -> Tensor:
        """Eq. (6) of each member, on $E_+$ and as many draws from $E_-$."""
        drawn = self.non_edges.draw(epoch)
        if self.selective:
            below = torch.zeros_like(output.margin, dtype=torch.bool)
            # D3: ranked by the margin, which orders nodes as f does and does not saturate, see DEVIATIONS.md
            margin = output.margin.detach()[self.target]
            below[self.target] = (
                undecided(margin, recall_target) if self.update is None else margin < self.update(margin)
            )
            is_positive = below[self.left] & below[self.right]
            is_negative = below[drawn.left] & below[drawn.right] & drawn.valid[:, None]
        else:
            is_positive = torch.ones_like(self.left, dtype=torch.bool)[:, None]
            is_negative = drawn.valid[:, None]
        is_negative = first_of_each(is_negative, is_positive.sum(dim=0))
        positive = inner_products(output.representation, self.left, self.right)
        negative = inner_products(output.representation, drawn.left, drawn.right)
        return link_loss(positive, is_positive, negative, is_negative)
