"""RECO-SLIP (Algorithm 1 of the paper) and CoNoC: the false-positive rate is minimised under recall constraints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from torch import Tensor

from recoslip.base.errors import RecoslipWarning
from recoslip.base.progress import Phases, Progress
from recoslip.base.settings import Choice, Integer, Number, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Split
from recoslip.learning.base import Attributes, Scores
from recoslip.learning.networks.interfaces import GraphInput, Output, ProblemState, Schedule
from recoslip.learning.networks.network import seed_key
from recoslip.learning.networks.network_detector import BATCHES, NetworkDetector
from recoslip.learning.networks.recall_constrained import Dual, Links, RecallConstrained
from recoslip.learning.networks.selection import (
    DUAL,
    DUAL_LEARNING_RATE,
    MISSED_LIMIT,
    MULTIPLIER,
    RECALL_TARGETS,
    Solution,
    candidates_table,
    history_table,
    member_seed,
    select,
    solutions,
)


class RecoSlip(NetworkDetector):
    r"""Minimise the false-positive rate on the source while forcing a recall on the target.

    $$\min_{g,h} \hat\beta(h \circ g) + \xi \mathcal{L}_{lp}(g)
    \quad \text{s.t.} \quad \hat\alpha(h \circ g) \ge \tilde\alpha$$

    solved for several recall targets $\tilde\alpha$ at once by primal-dual updates of the Lagrangian. Of the
    solutions whose validation FPR is at most $\tilde\beta$, the one with the highest validation recall is kept.
    """

    name: ClassVar[str] = "reco-slip"

    recall_targets: Sequence[float] = RECALL_TARGETS
    max_fpr: float = param(0.01, Number(0, 1), r"$\tilde\beta$, the highest FPR of a solution and the threshold")
    multiplier: float = MULTIPLIER
    links: Links = param(
        "selective",
        Choice(Links),
        'the pairs of the link loss: "selective" takes those among undecided target nodes, "target" all target nodes, '
        '"all" all nodes, "none" leaves the loss out',
    )
    link_weight: float = param(0.001, Number(0, np.inf), r"$\xi$, its weight")
    dual: Dual = DUAL
    epochs: int = param(1000, Integer(1), "T")
    dual_learning_rate: float = DUAL_LEARNING_RATE
    batch_size: int | None = BATCHES

    candidates_: pl.DataFrame = learned(
        "a table of the solutions: recall target, validation FPR and recall, multiplier, the epoch its "
        "weights are from, and whether it was chosen"
    )
    history_: pl.DataFrame = learned("a table of every epoch: training FPR and recall (hard), multiplier and link loss")

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        members = [
            Member(member_seed(seed, 0, index), target)
            for seed in seeds
            for index, target in enumerate(self.recall_targets)
        ]
        data = self._graph_input(graph)
        blocks = self._blocks(members, data)
        phases = Phases(progress, len(blocks) * self.epochs)
        solved: list[Solution] = []
        for block in blocks:
            schedule = Schedule(
                self.epochs,
                self.learning_rate,
                validate_after=self.epochs // 2,  # D2: the best validated weights after T/2, see DEVIATIONS.md
                progress=phases.phase(self.epochs),
            )
            solved += self._solve(graph, data, split, block, schedule)
        count = len(self.recall_targets)
        return [self._select(solved[start : start + count]) for start in range(0, len(solved), count)]

    def _solve(
        self, graph: NodeGraph, data: GraphInput, split: Split, members: Sequence[Member], schedule: Schedule
    ) -> list[Solution]:
        """Solve the constrained problem for each member of a block."""
        fleet = self._build_fleet(graph.num_features, [member.seed for member in members]).to(data.device)
        problem = RecallConstrained(
            graph,
            split,
            [member.recall_target for member in members],
            data.device,
            epochs=self.epochs,
            multiplier=self.multiplier,
            dual=self.dual,
            dual_learning_rate=self.dual_learning_rate,
            links=self.links,
            link_weight=self.link_weight,
        )
        kept = data.train(fleet, problem, schedule)
        margin = data.evaluate(fleet).diff(dim=-1)[..., 0].to(data.device)
        return solutions(problem, fleet, margin, kept.tolist(), range(len(members)))

    def _select(self, solved: Sequence[Solution]) -> dict[str, Any]:
        """Choose the solution of one seed."""
        index = select(solved, self.max_fpr)
        chosen = solved[index]
        if chosen.fpr > self.max_fpr:
            message = MISSED_LIMIT.format(limit=self.max_fpr, lowest=chosen.fpr)
            warnings.warn(message, RecoslipWarning, stacklevel=5)
        return {
            "scores_": chosen.f,
            "candidates_": candidates_table(solved, index),
            "history_": history_table(solved),
            "fleet_": chosen.fleet.gather([(chosen.fleet, chosen.member)]),
        }


@dataclass(frozen=True)
class Member:
    """One network of the fleet: its seed and the recall it is held to."""

    seed: int
    recall_target: float


class CoNoC(NetworkDetector):
    r"""Minimise $\sum_k \hat\beta(f_k)$ subject to $\hat\alpha(f_k) \ge \tilde\alpha_k$ for heads $f_k$ on one network.

    The constrained novel-category detection that RECO-SLIP builds on, with the paper's graph network as backbone and no
    link loss. The heads share all but their last layer and are trained together; the chosen head is the one with the
    highest validation recall among those with a validation FPR of at most `max_fpr`. Weights are kept where the sum of
    the heads' validation Lagrangians is lowest, after half of the epochs.
    """

    name: ClassVar[str] = "conoc"
    supports_batches: ClassVar[bool] = False

    recall_targets: Sequence[float] = RECALL_TARGETS
    max_fpr: float = param(0.01, Number(0, 1), r"$\tilde\beta$, the highest FPR that a head and the threshold may have")
    multiplier: float = MULTIPLIER
    dual: Dual = DUAL
    epochs: int = param(1000, Integer(1), "how many")
    dual_learning_rate: float = DUAL_LEARNING_RATE

    candidates_: pl.DataFrame = learned(
        "a table of the heads: recall target, validation FPR and recall, multiplier, whether chosen"
    )
    head_: int = learned("the chosen head")

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        data = self._graph_input(graph)
        blocks = self._blocks([seed_key(seed) for seed in seeds], data)
        phases = Phases(progress, len(blocks) * self.epochs)
        per_seed: list[dict[str, Any]] = []
        for block in blocks:
            schedule = Schedule(
                self.epochs,
                self.learning_rate,
                validate_after=self.epochs // 2,
                progress=phases.phase(self.epochs),
            )
            per_seed += self._solve(graph, data, split, block, schedule)
        return per_seed

    def _solve(
        self, graph: NodeGraph, data: GraphInput, split: Split, keys: Sequence[int], schedule: Schedule
    ) -> list[dict[str, Any]]:
        """Train a block of networks; return the learned attributes of each."""
        heads = len(self.recall_targets)
        fleet = self._build_fleet(graph.num_features, keys, self._num_classes()).to(data.device)
        problem = SharedHeads(
            graph,
            split,
            list(self.recall_targets) * len(keys),
            data.device,
            epochs=self.epochs,
            multiplier=self.multiplier,
            dual=self.dual,
            dual_learning_rate=self.dual_learning_rate,
            links="none",
        )
        kept = data.train(fleet, problem, schedule)
        logits = data.evaluate(fleet).to(data.device, data.dtype)
        margin = by_head(logits).diff(dim=-1)[..., 0]
        owner = [member for member in range(len(keys)) for _ in range(heads)]
        solved = solutions(problem, fleet, margin, [int(kept[member]) for member in owner], owner)
        return [self._select(solved[member * heads : (member + 1) * heads]) for member in range(len(keys))]

    def _select(self, solved: Sequence[Solution]) -> dict[str, Any]:
        """Choose a head of one network."""
        head = select(solved, self.max_fpr)
        chosen = solved[head]
        if chosen.fpr > self.max_fpr:
            message = MISSED_LIMIT.format(limit=self.max_fpr, lowest=chosen.fpr)
            warnings.warn(message, RecoslipWarning, stacklevel=6)
        return {
            "scores_": chosen.f,
            "head_": head,
            "candidates_": candidates_table(solved, head),
            "fleet_": chosen.fleet.gather([(chosen.fleet, chosen.member)]),
        }

    def _num_classes(self) -> int:
        return 2 * len(self.recall_targets)

    def _from_logits(self, logits: Tensor, graph: NodeGraph, attributes: Mapping[str, Any]) -> Scores:
        head = attributes["head_"]
        scores: Scores = torch.sigmoid(logits[:, 2 * head + 1] - logits[:, 2 * head]).numpy()
        return scores


class SharedHeads(RecallConstrained):
    """The constrained problem of every head, each viewed as a network of its own."""

    def loss(self, output: Output, epoch: Tensor) -> ProblemState:
        """Compute loss and violation of every head, (members * heads,)."""
        return super().loss(Output(output.representation, by_head(output.logits)), epoch)

    def validation(self, output: Output) -> Tensor:
        """Sum the validation Lagrangians of a network's heads, (members,)."""
        per_head = super().validation(Output(output.representation, by_head(output.logits)))
        return per_head.view(output.logits.shape[1], -1).sum(dim=1)


def by_head(logits: Tensor) -> Tensor:
    """View each head as a network of its own: (nodes, members, 2 heads) -> (nodes, members * heads, 2)."""
    return logits.reshape(len(logits), -1, 2)
