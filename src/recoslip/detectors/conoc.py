"""CoNoC: one network with a head for every recall target."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Progress, Scores
from recoslip.detectors.constrained import Dual, RecallConstrained
from recoslip.detectors.networked import NetworkDetector, part_of
from recoslip.detectors.selection import (
    CANDIDATES_SCHEMA,
    MISSED_LIMIT,
    candidates_table,
    check_recall_targets,
    select,
    solutions,
)
from recoslip.errors import RecoslipWarning
from recoslip.fleet.modules import gather
from recoslip.fleet.network import Output, seed_key
from recoslip.fleet.training import train
from recoslip.fleet.view import Encoder
from recoslip.graph import NodeGraph
from recoslip.shift import Split


class CoNoC(NetworkDetector):
    r"""Minimise $\sum_k \hat\beta(f_k)$ subject to $\hat\alpha(f_k) \ge \tilde\alpha_k$ for heads $f_k$ on one network.

    The constrained novel-category detection that RECO-SLIP builds on, with the paper's graph network as backbone and no
    link loss. The heads share all but their last layer and are trained together; the chosen head is the one with the
    highest validation recall among those with a validation FPR of at most `max_fpr`. Weights are kept where the sum of
    the heads' validation Lagrangians is lowest, after half of the epochs.

    Args:
        recall_targets: $\tilde\alpha_k$.
        max_fpr: $\tilde\beta$, the highest validation FPR a head and the threshold may have.
        multiplier: the dual variables at the start.
        dual: which recall the dual step sees, "hard" or "soft".
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the heads' common hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        epochs: how many.
        learning_rate: Adam's for the weights.
        dual_learning_rate: Adam's for the multipliers.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.

    Attributes:
        candidates_: a table of the heads: recall target, validation FPR and recall, multiplier, whether chosen.
    """

    name: ClassVar[str] = "conoc"
    paper: ClassVar[str] = "Wald & Saria 2023"
    divisible: ClassVar[bool] = False

    candidates_: pl.DataFrame
    head_: int  # the chosen one

    def __init__(
        self,
        *,
        recall_targets: Sequence[float] = (0.05, 0.1, 0.15, 0.2, 0.25),
        max_fpr: float = 0.01,
        multiplier: float = 0.1,
        dual: Dual = "hard",
        hidden_channels: int = 64,
        out_channels: int = 32,
        head_channels: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        epochs: int = 1000,
        learning_rate: float = 0.001,
        dual_learning_rate: float = 0.001,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.recall_targets = recall_targets
        self.max_fpr = max_fpr
        self.multiplier = multiplier
        self.dual = dual
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.head_channels = head_channels
        self.encoder = encoder
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.dual_learning_rate = dual_learning_rate
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        check_recall_targets(self.recall_targets)
        checks.number("multiplier", self.multiplier, 0, np.inf)
        checks.choice("dual", self.dual, Dual)
        checks.number("dual_learning_rate", self.dual_learning_rate, 0, np.inf)
        self._check_network()

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        view = self._view(graph)
        heads = len(self.recall_targets)
        blocks = self._blocks([seed_key(seed) for seed in seeds], view)
        learned = []
        for place, block in enumerate(blocks):
            fleet = self._fleet(graph.num_features, block, 2 * heads).to(view.device)
            problem = SharedHeads(
                graph,
                split,
                list(self.recall_targets) * len(block),
                view.device,
                epochs=self.epochs,
                multiplier=self.multiplier,
                dual=self.dual,
                dual_learning_rate=self.dual_learning_rate,
                links="none",
            )
            kept = train(
                fleet,
                view,
                problem,
                epochs=self.epochs,
                learning_rate=self.learning_rate,
                keep_from=self.epochs // 2,
                progress=part_of(progress, place, len(blocks), self.epochs),
            )
            with torch.no_grad():
                output = problem.by_head(fleet(view))
            owner = [member for member in range(len(block)) for _ in range(heads)]
            solved = solutions(problem, fleet, output.margin, [int(kept[member]) for member in owner], owner)
            for member in range(len(block)):
                own = solved[member * heads : (member + 1) * heads]
                chosen = select(own, self.max_fpr)
                if own[chosen].fpr > self.max_fpr:
                    message = MISSED_LIMIT.format(limit=self.max_fpr, lowest=own[chosen].fpr)
                    warnings.warn(message, RecoslipWarning, stacklevel=4)
                learned.append(
                    {
                        "scores_": own[chosen].f,
                        "head_": chosen,
                        "candidates_": candidates_table([own], [chosen]),
                        "fleet_": gather([(fleet, member)]),
                    }
                )
        return learned

    def _score(self, graph: NodeGraph) -> Scores:
        logits = self._logits(graph)[:, 0]
        scores: Scores = torch.sigmoid(logits[:, 2 * self.head_ + 1] - logits[:, 2 * self.head_]).numpy()
        return scores

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {"candidates": self.candidates_.to_dicts(), "head": self.head_}, self._fleet_tensors()

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        fleet = self._restored(tensors, classes=2 * len(self.recall_targets))
        checks.whole("head", values["head"], 0, len(self.recall_targets) - 1)
        candidates = pl.DataFrame(values["candidates"], schema=CANDIDATES_SCHEMA)
        return {"candidates_": candidates, "head_": values["head"], "fleet_": fleet}


class SharedHeads(RecallConstrained):
    """The constrained problem of every head, added up over the heads of a network."""

    def by_head(self, output: Output) -> Output:
        """View each head as a network of its own: (nodes, members, 2 heads) -> (nodes, members * heads, 2)."""
        return Output(output.representation, output.logits.reshape(len(output.logits), -1, 2))

    def loss(self, output: Output, epoch: Tensor) -> Tensor:
        """Sum the Lagrangians of a network's heads."""
        return super().loss(self.by_head(output), epoch).view(output.logits.shape[1], -1).sum(dim=1)

    def validation(self, output: Output) -> Tensor:
        """Sum the validation Lagrangians of a network's heads."""
        return super().validation(self.by_head(output)).view(output.logits.shape[1], -1).sum(dim=1)
