"""Outputs of every member -> the Lagrangian that its weights descend on, and the multiplier that ascends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.data.graph import NodeGraph
from recoslip.data.split import Split
from recoslip.learning.networks.interfaces import BatchObjective, Output, ProblemState
from recoslip.learning.networks.links import NonEdges, cut_score, first_of_each, inner_products, link_loss
from recoslip.learning.networks.objectives import (
    DomainNodes,
    batch_nodes,
    domain_nodes,
    hard_rate,
    lagrangian,
    positions,
    soft_rate,
    soft_rates,
)
from recoslip.learning.networks.sparse_products import concatenated_ranges, to_tensor

Links: TypeAlias = Literal["selective", "target", "all", "none"]
Dual: TypeAlias = Literal["hard", "soft"]


class Observed(NamedTuple):
    """What the dual step records of a step, each (members,) unless noted."""

    fpr: Tensor  # hard, on training source nodes
    recall: Tensor  # hard, on training target nodes
    link_loss: Tensor
    running_recall: RunningMean  # with this step's recall taken in
    target_margin: Tensor | None  # (target nodes, members) where the link loss is selective
    cut: Tensor | None  # z, below which a target node is undecided


class DualAscent:
    """λ of every member, which ascends on the violation of its constraint, and what is remembered of the steps."""

    COLUMNS = ("fpr", "recall", "multiplier", "link_loss")

    def __init__(
        self, recall_target: Tensor, target: Tensor, *, epochs: int, multiplier: float, learning_rate: float
    ) -> None:
        members, device = len(recall_target), recall_target.device
        self.multiplier = torch.full((members,), float(multiplier), device=device, requires_grad=True)
        self.optimiser = torch.optim.Adam(
            [self.multiplier], lr=learning_rate, maximize=True, capturable=device.type == "cuda"
        )
        self.history = torch.zeros(epochs, len(self.COLUMNS), members, device=device)
        self.running_recall = RunningMean(torch.zeros(members, device=device), torch.zeros(members, device=device))
        self.running_cut = RunningCut(target, recall_target)

    def step(self, violation: Tensor, observed: Observed, epoch: Tensor) -> None:
        """Ascend on the violation, projected to λ ≥ 0, and record the epoch."""
        self.multiplier.grad = violation.to(self.multiplier.dtype)
        self.optimiser.step()
        with torch.no_grad():
            self.multiplier.clamp_(min=0)
            self.running_recall.assign(observed.running_recall)
            row = torch.stack([observed.fpr, observed.recall, self.multiplier, observed.link_loss])
            self.history.index_copy_(0, epoch.view(1), row[None].to(self.history.dtype))


@dataclass(eq=False)
class RecallConstrained(BatchObjective):
    r"""$\hat\beta + \xi \mathcal{L}_{lp} + \lambda(\tilde\alpha - \hat\alpha)$ of every member, and its λ."""

    MEMORY: ClassVar[int] = (
        20  # batches that the running recall covers at most: older ones tell of networks long changed
    )

    graph: NodeGraph
    nodes: DomainNodes
    held_out: DomainNodes
    recall_target: Tensor  # (members,) α̃
    ascent: DualAscent  # the problems of batches share it
    dual: Dual = "hard"
    links: Links = "selective"
    link_weight: float = 0.001
    batch: Sequence[Tensor] | None = None  # the nodes of either domain, where this is the problem of a batch
    decay: float = 1.0  # weight of the present step in the running recall; a step that sees all nodes counts alone

    @classmethod
    def of(
        cls,
        graph: NodeGraph,
        split: Split,
        recall_targets: Sequence[float],
        device: torch.device,
        *,
        epochs: int,
        multiplier: float,
        dual_learning_rate: float = 0.001,
        **settings: Any,
    ) -> Self:
        """Build the problem of a graph, with one member for each recall target."""
        nodes, held_out = domain_nodes(graph, split, device)
        recall_target = torch.tensor(recall_targets, dtype=torch.float64, device=device)
        ascent = DualAscent(
            recall_target, nodes.target, epochs=epochs, multiplier=multiplier, learning_rate=dual_learning_rate
        )
        return cls(graph, nodes, held_out, recall_target, ascent, **settings)

    def loss(self, output: Output, epoch: Tensor) -> ProblemState:
        """Compute β̂ + ξ L_lp and the violation α̃ - α̂ of each member (eq. 7)."""
        f = torch.sigmoid(output.margin)
        target = self.recall_target.to(f.dtype)
        fpr, recall = soft_rate(f, self.nodes.source), soft_rate(f, self.nodes.target)
        with torch.no_grad():
            hard_fpr, hard_recall = hard_rate(f, self.nodes.source), hard_rate(f, self.nodes.target)
            # D1: the dual step follows the hard recall, the primal step the soft one, see DEVIATIONS.md
            running = self.ascent.running_recall.updated(hard_recall if self.dual == "hard" else recall, self.decay)
        margin = cut = None
        links = torch.zeros_like(fpr)
        if self.link_pairs is not None:
            if self.links == "selective":
                # D3: ranked by the margin, which orders nodes as f does and does not saturate, see DEVIATIONS.md
                margin = output.margin.detach()[self.link_pairs.target]
                cut = self._cut(margin)
            links = self.link_pairs.loss(output, margin, cut, epoch)
        return ProblemState(
            loss=fpr + self.link_weight * links,
            violation=target - recall,
            strict_violation=target - running.mean,
            misc=Observed(hard_fpr, hard_recall, links.detach(), running, margin, cut),
        )

    def lagrangian(self, state: ProblemState) -> Tensor:
        """Add the violation to the loss, weighed by the multiplier."""
        assert state.violation is not None
        return state.loss + self.ascent.multiplier.detach() * state.violation

    def dual_step(self, state: ProblemState, epoch: Tensor) -> None:
        """Take a step of gradient ascent on the strict violation, and record the epoch."""
        assert state.strict_violation is not None
        observed: Observed = state.misc
        self.ascent.step(state.strict_violation, observed, epoch)
        if self.batch is not None and observed.target_margin is not None and observed.cut is not None:
            self.ascent.running_cut.update(self._batch_target(), observed.target_margin, observed.cut)

    def validation(self, output: Output) -> Tensor:
        """Compute the Lagrangian of the validation nodes, without the link loss."""
        fpr, recall = soft_rates(output, self.held_out)
        return lagrangian(fpr, recall, self.recall_target.to(fpr.dtype), self.ascent.multiplier.detach())

    @cached_property
    def link_pairs(self) -> LinkPairs | None:
        """The pairs of the graph, or those inside the batch."""
        if self.links == "none":
            return None
        if self.batch is None:
            return LinkPairs.of_graph(self.graph, self.links, self.recall_target.device)
        return LinkPairs.of_batch(self.graph, self.batch, self.links, self.nodes.target)

    def _cut(self, margin: Tensor) -> Tensor:
        if self.batch is None:
            return cut_score(margin, self.recall_target)
        return self.ascent.running_cut.with_batch(self._batch_target(), margin)

    def _batch_target(self) -> Tensor:
        """Return the target nodes of the batch, by their positions in the graph."""
        assert self.batch is not None
        return self.batch[1].to(self.recall_target.device)

    def node_sets(self, *, held_out: bool) -> tuple[Tensor, ...]:
        """Return source and target nodes."""
        return self.held_out if held_out else self.nodes

    def on_batch(self, batch: Sequence[Tensor], *, held_out: bool) -> RecallConstrained:
        """Return the problem of a batch: rates are its own, the ascent is shared."""
        nodes = batch_nodes(batch, self.recall_target.device)
        fraction = len(batch[1]) / len(self.node_sets(held_out=held_out)[1])
        return replace(self, nodes=nodes, held_out=nodes, batch=batch, decay=max(fraction, 1 / self.MEMORY))

    def validation_rates(self, margin: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Hard FPR and recall of each member on the validation nodes."""
        f = torch.sigmoid(margin.double())
        return (
            hard_rate(f, self.held_out.source).cpu().numpy(),
            hard_rate(f, self.held_out.target).cpu().numpy(),
        )


class RunningMean(NamedTuple):
    """An exponentially decaying mean over steps, each weighed by the fraction of all nodes that it saw."""

    mean: Tensor
    weight: Tensor  # total weight of the steps so far; approaches 1

    def updated(self, value: Tensor, decay: float) -> RunningMean:
        """Return the mean with one more step, which saw a fraction `decay` of the nodes; nothing is changed."""
        weight = self.weight * (1 - decay) + decay
        return RunningMean(torch.lerp(self.mean, value.to(self.mean.dtype), decay / weight), weight)

    def assign(self, other: RunningMean) -> None:
        """Take over another's values in place."""
        self.mean.copy_(other.mean)
        self.weight.copy_(other.weight)


class RunningCut:
    """z, below which a target node is undecided: a quantile of the margins that the target nodes had when last seen.

    Args:
        target: positions of all target nodes that batches are drawn from, ascending.
        recall_target: (members,) α̃.
    """

    EVERY = 10  # batches between two computations of the quantile

    def __init__(self, target: Tensor, recall_target: Tensor) -> None:
        self.target, self.recall_target = target, recall_target
        self.value = torch.zeros(len(recall_target), device=target.device)
        self.batches = 0

    @cached_property
    def margin(self) -> Tensor:
        """The last margins, (target nodes, members), NaN where there are none yet; made for batches alone."""
        return torch.full((len(self.target), len(self.recall_target)), torch.nan, device=self.target.device)

    def with_batch(self, nodes: Tensor, margin: Tensor) -> Tensor:
        """Compute z, (members,), with the margins of a batch's target nodes taken in; nothing is changed."""
        if self.batches % self.EVERY:
            return self.value
        margins = self.margin.index_copy(0, self._rows(nodes), margin.to(self.margin.dtype))
        return cut_score(margins[~margins[:, 0].isnan()], self.recall_target)

    def update(self, nodes: Tensor, margin: Tensor, value: Tensor) -> None:
        """Take in a batch, and the z that was computed with it."""
        self.margin.index_copy_(0, self._rows(nodes), margin.to(self.margin.dtype))
        self.value = value
        self.batches += 1

    def _rows(self, nodes: Tensor) -> Tensor:
        return torch.searchsorted(self.target, nodes)


@dataclass(frozen=True, eq=False)
class LinkPairs:
    """The pairs the link loss may use: the same for all members, each of which takes those inside its own set."""

    POOL: ClassVar[float] = 4 / 3  # non-edges drawn per edge: for α̃ ≤ 1/4 most members find as many as they have edges

    target: Tensor  # positions of the target nodes
    left: Tensor  # one end of each edge among the nodes in question
    right: Tensor  # the other
    non_edges: NonEdges

    @classmethod
    def of_batch(cls, graph: NodeGraph, batch: Sequence[Tensor], links: Links, target: Tensor) -> LinkPairs | None:
        """Collect the edges inside a batch, by the positions of their ends there; None where there are none."""
        seeds = torch.cat(list(batch))
        skipped = 0 if links == "all" else len(batch[0])  # the source nodes come first
        nodes, order = seeds[skipped:].sort()
        row, column = to_tensor(graph.edge_index)
        begin, end = (torch.searchsorted(row, nodes, right=right) for right in (False, True))
        owner, offset = concatenated_ranges(end - begin)
        neighbour = column[begin[owner] + offset]
        index = torch.searchsorted(nodes, neighbour).clamp(max=len(nodes) - 1)
        inside = (nodes[index] == neighbour) & (owner < index)
        left, right = ((skipped + order[ends[inside]]).to(target.device) for ends in (owner, index))
        return cls._of_edges(torch.arange(skipped, len(seeds), device=target.device), left, right, target)

    @classmethod
    def of_graph(cls, graph: NodeGraph, links: Links, device: torch.device) -> LinkPairs | None:
        """Collect the edges and the non-edge sampler for a variant; None where there is no pair to learn from."""
        if links == "none":
            return None
        edges = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        inside = np.ones_like(graph.is_target) if links == "all" else graph.is_target
        left, right = torch.from_numpy(edges[:, inside[edges].all(axis=0)]).to(device)
        return cls._of_edges(positions(inside, device), left, right, positions(graph.is_target, device))

    @classmethod
    def _of_edges(cls, nodes: Tensor, left: Tensor, right: Tensor, target: Tensor) -> LinkPairs | None:
        if len(left) == 0:
            return None
        return cls(target, left, right, NonEdges(nodes, left, right, int(cls.POOL * len(left)) + 1))

    def loss(self, output: Output, target_margin: Tensor | None, cut: Tensor | None, epoch: Tensor) -> Tensor:
        """Compute eq. (6) of each member, on $E_+$ and as many draws from $E_-$.

        Args:
            output: of the networks.
            target_margin: (target nodes, members); None where all pairs count.
            cut: (members,) only nodes with a lower margin count.
            epoch: whose non-edges to draw.
        """
        drawn = self.non_edges.draw(epoch)
        if target_margin is not None and cut is not None:
            undecided = torch.zeros_like(output.margin, dtype=torch.bool)
            undecided[self.target] = target_margin < cut
            is_positive = undecided[self.left] & undecided[self.right]
            is_negative = undecided[drawn.left] & undecided[drawn.right] & drawn.valid[:, None]
        else:
            is_positive = torch.ones_like(self.left, dtype=torch.bool)[:, None]
            is_negative = drawn.valid[:, None]
        is_negative = first_of_each(is_negative, is_positive.sum(dim=0))
        positive = inner_products(output.representation, self.left, self.right)
        negative = inner_products(output.representation, drawn.left, drawn.right)
        return link_loss(positive, is_positive, negative, is_negative)
