"""RECO-SLIP: recall-constrained optimisation with selective link prediction (Algorithm 1 of the paper)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Progress, Scores
from recoslip.detectors.constrained import Dual, Links, RecallConstrained
from recoslip.detectors.networked import NetworkDetector, below, part_of
from recoslip.detectors.selection import (
    CANDIDATES_SCHEMA,
    HISTORY_COLUMNS,
    MISSED_LIMIT,
    Solution,
    candidates_table,
    check_recall_targets,
    combine,
    history_table,
    member_seed,
    select,
    solutions,
)
from recoslip.errors import RecoslipWarning
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import gather
from recoslip.fleet.training import evaluate, train
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import NodeGraph
from recoslip.shift import Split


class RecoSlip(NetworkDetector):
    r"""Minimise the false-positive rate on the source while forcing a recall on the target.

    $$\min_{g,h} \hat\beta(h \circ g) + \xi \mathcal{L}_{lp}(g)
    \quad \text{s.t.} \quad \hat\alpha(h \circ g) \ge \tilde\alpha$$

    solved for several recall targets $\tilde\alpha$ at once by primal-dual updates of the Lagrangian. Of the
    solutions whose validation FPR is at most $\tilde\beta$, the one with the highest validation recall is kept.

    Args:
        recall_targets: $\tilde\alpha$, the recalls to try.
        max_fpr: $\tilde\beta$, the highest validation FPR a solution and the threshold may have.
        multiplier: $\lambda^{(0)}$, the dual variable at the start.
        links: the pairs of the link loss: "selective" takes those among undecided target nodes, "target" all
            target nodes, "all" all nodes, "none" leaves the loss out.
        link_weight: $\xi$, its weight.
        dual: which recall the dual step sees: "hard" counts f > 1/2, "soft" averages f.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        epochs: T.
        learning_rate: Adam's for the weights.
        dual_learning_rate: Adam's for the multiplier.
        batch_size: nodes of a batch, of which each epoch sees one; 0 for the whole graph, None to let memory decide.
        restarts: independent runs whose scores are averaged by rank; 1 is the paper's.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.

    Attributes:
        scores_: novelty of each node: f of the chosen solution, or the mean rank over restarts.
        threshold_: the lowest score that at most `max_fpr` of the validation source nodes exceed.
        candidates_: a table of the solutions: restart, recall target, validation FPR and recall, multiplier,
            the epoch its weights are from, and whether it was chosen.
        history_: a table of every epoch: training FPR and recall (hard), multiplier and link loss.
    """

    name: ClassVar[str] = "reco-slip"
    paper: ClassVar[str] = "Chung et al. 2024"

    candidates_: pl.DataFrame
    history_: pl.DataFrame
    ranks_: NDArray[np.float64]  # (restarts, target nodes) their sorted scores, to rank others by

    def __init__(
        self,
        *,
        recall_targets: Sequence[float] = (0.05, 0.1, 0.15, 0.2, 0.25),
        max_fpr: float = 0.01,
        multiplier: float = 0.1,
        links: Links = "selective",
        link_weight: float = 0.001,
        dual: Dual = "hard",
        hidden_channels: int = 64,
        out_channels: int = 32,
        head_channels: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        epochs: int = 1000,
        learning_rate: float = 0.001,
        dual_learning_rate: float = 0.001,
        batch_size: int | None = None,
        restarts: int = 1,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.recall_targets = recall_targets
        self.max_fpr = max_fpr
        self.multiplier = multiplier
        self.links = links
        self.link_weight = link_weight
        self.dual = dual
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.head_channels = head_channels
        self.encoder = encoder
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.dual_learning_rate = dual_learning_rate
        self.batch_size = batch_size
        self.restarts = restarts
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        check_recall_targets(self.recall_targets)
        checks.number("multiplier", self.multiplier, 0, np.inf)
        checks.choice("links", self.links, Links)
        checks.number("link_weight", self.link_weight, 0, np.inf)
        checks.choice("dual", self.dual, Dual)
        checks.number("dual_learning_rate", self.dual_learning_rate, 0, np.inf)
        checks.whole("restarts", self.restarts, 1)
        self._check_network()

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        members = [
            Member(member_seed(seed, restart, place), target)
            for seed in seeds
            for restart in range(self.restarts)
            for place, target in enumerate(self.recall_targets)
        ]
        view = self._view(graph)
        blocks = self._blocks(members, view)
        solved: list[Solution] = []
        for place, block in enumerate(blocks):
            solved += self._solve(graph, view, split, block, part_of(progress, place, len(blocks), self.epochs))
        per_seed = self.restarts * len(self.recall_targets)
        return [self._select(graph, solved[k * per_seed : (k + 1) * per_seed]) for k in range(len(seeds))]

    def _solve(
        self,
        graph: NodeGraph,
        view: GraphView | Batches,
        split: Split,
        members: Sequence[Member],
        progress: Callable[[int], None],
    ) -> list[Solution]:
        """Solve the constrained problem for each member of a block."""
        fleet = self._fleet(graph.num_features, [member.seed for member in members]).to(view.device)
        problem = RecallConstrained(
            graph,
            split,
            [member.recall_target for member in members],
            view.device,
            epochs=self.epochs,
            multiplier=self.multiplier,
            dual=self.dual,
            dual_learning_rate=self.dual_learning_rate,
            links=self.links,
            link_weight=self.link_weight,
        )
        kept = train(
            fleet,
            view,
            problem,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            keep_from=self.epochs // 2,  # D2: the best validated weights after T/2, see DEVIATIONS.md
            progress=progress,
        )
        margin = evaluate(fleet, view).diff(dim=-1)[..., 0].to(view.device)
        return solutions(problem, fleet, margin, kept.tolist(), range(len(members)))

    def _select(self, graph: NodeGraph, solved: Sequence[Solution]) -> dict[str, Any]:
        """Choose one solution per restart and put their scores together."""
        count = len(self.recall_targets)
        restarts = [solved[start : start + count] for start in range(0, len(solved), count)]
        chosen = [select(group, self.max_fpr) for group in restarts]
        picked = [group[index] for group, index in zip(restarts, chosen, strict=True)]
        missed = [solution.fpr for solution in picked if solution.fpr > self.max_fpr]
        if missed:
            message = MISSED_LIMIT.format(limit=self.max_fpr, lowest=min(missed))
            where = f" (in {len(missed)} of {len(picked)} restarts)" if len(picked) > 1 else ""
            warnings.warn(message + where, RecoslipWarning, stacklevel=5)
        is_target = graph.is_target.numpy()
        ranks = np.sort(np.stack([solution.f[is_target] for solution in picked]), axis=1)
        scores = combine(np.stack([solution.f for solution in picked], axis=1), ranks)
        return {
            "scores_": scores,
            "candidates_": candidates_table(restarts, chosen),
            "history_": history_table(restarts),
            "fleet_": gather([(solution.fleet, solution.member) for solution in picked]),
            "ranks_": ranks,
        }

    def _score(self, graph: NodeGraph) -> Scores:
        logits = self._logits(graph)
        return combine(torch.sigmoid(logits[..., 1] - logits[..., 0]).numpy(), self.ranks_)

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors = self._fleet_tensors()
        tensors["ranks"] = torch.from_numpy(self.ranks_)
        tensors |= {f"history.{c.name}": torch.from_numpy(c.to_numpy().copy()) for c in self.history_}
        return {"candidates": self.candidates_.to_dicts()}, tensors

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            "candidates_": pl.DataFrame(values["candidates"], schema=CANDIDATES_SCHEMA),
            "history_": pl.DataFrame({name: t.numpy() for name, t in below("history.", tensors).items()}).select(
                HISTORY_COLUMNS
            ),
            "fleet_": self._restored(tensors, self.restarts),
            "ranks_": tensors["ranks"].numpy(),
        }


@dataclass(frozen=True)
class Member:
    """One network of the fleet: its seed and the recall it is held to."""

    seed: int
    recall_target: float
