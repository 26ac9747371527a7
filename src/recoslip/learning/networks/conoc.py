"""CoNoC: one network with a head for every recall target."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
import torch
from torch import Tensor

from recoslip.base.errors import RecoslipWarning
from recoslip.base.progress import Phases, Progress
from recoslip.base.settings import Integer, Number, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Split
from recoslip.learning.base import Attributes, Scores
from recoslip.learning.networks.interfaces import GraphInput, Output, ProblemState, Schedule
from recoslip.learning.networks.network import seed_key
from recoslip.learning.networks.network_detector import NetworkDetector
from recoslip.learning.networks.recall_constrained import Dual, RecallConstrained
from recoslip.learning.networks.selection import (
    DUAL,
    DUAL_LEARNING_RATE,
    MISSED_LIMIT,
    MULTIPLIER,
    RECALL_TARGETS,
    Solution,
    candidates_table,
    select,
    solutions,
)


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
        data = self.graph_input(graph)
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
        fleet = self.build_fleet(graph.num_features, keys, self._num_classes()).to(data.device)
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
