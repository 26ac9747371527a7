"""RECO-SLIP (Algorithm 1 of the paper) and CoNoC: the false-positive rate is minimised under recall constraints."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.base.errors import RecoslipWarning, SettingError
from recoslip.base.progress import Progress
from recoslip.base.settings import Choice, Integer, Number, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Split
from recoslip.learning.base import Attributes, Scores
from recoslip.learning.networks.interfaces import Fleet, Output, ProblemState, Schedule
from recoslip.learning.networks.network_detector import BATCHES, NetworkDetector, TrainingSet
from recoslip.learning.networks.random_bits import derive
from recoslip.learning.networks.recall_constrained import Dual, DualAscent, Links, RecallConstrained

MISSED_LIMIT = (
    "no recall target reached a validation FPR of {limit:g} or less, the lowest ({lowest:.4f}) was taken; "
    "source and target may overlap too much, or max_fpr may be too strict for this graph"
)


def check_recall_targets(name: str, targets: Any) -> None:
    """Raise unless these are one or more numbers between 0 and 1."""
    if isinstance(targets, str) or not np.iterable(targets) or not len(targets):  # type: ignore[arg-type]
        raise SettingError(f"{name} must be one or more numbers; got {targets!r}")
    for target in targets:
        Number(0, 1, open_ends=True)(f"each of {name}", target)


class ConstrainedDetector(NetworkDetector):
    """A detector that solves the constrained problem for several recall targets and keeps one of the solutions."""

    recall_targets: Sequence[float] = param(
        check_recall_targets, r"$\tilde\alpha$, the recalls to try", default=(0.05, 0.1, 0.15, 0.2, 0.25)
    )
    max_fpr: float = param(
        Number(0, 1), r"$\tilde\beta$, the highest validation FPR that a solution may have", default=0.01
    )
    multiplier: float = param(Number(0, np.inf), r"$\lambda^{(0)}$, the dual variable at the start", default=0.1)
    dual: Dual = param(
        Choice(Dual), 'which recall the dual step sees: "hard" counts f > 1/2, "soft" averages f', default="hard"
    )
    epochs: int = param(Integer(1), "T", default=1000)
    dual_learning_rate: float = param(Number(0, np.inf), "Adam's for the multiplier", default=0.001)

    candidates_: pl.DataFrame = learned(
        "a table of the solutions: recall target, validation FPR and recall, multiplier, the epoch its "
        "weights are from, and whether it was chosen"
    )

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        solved: list[Solution] = super()._learn_seeds(graph, split, seeds, progress)
        count = len(self.recall_targets)
        return [self._select(solved[start : start + count]) for start in range(0, len(solved), count)]

    def _schedule(self, report: Callable[[int], None]) -> Schedule:
        # D2: the best validated weights after T/2, see DEVIATIONS.md
        return Schedule(self.epochs, self.learning_rate, validate_after=self.epochs // 2, progress=report)

    def _problem_settings(self) -> dict[str, Any]:
        """Return the settings of the problem that both methods have."""
        return {name: getattr(self, name) for name in ("epochs", "multiplier", "dual", "dual_learning_rate")}

    def _select(self, solved: Sequence[Solution]) -> Attributes:
        """Choose the solution of one seed."""
        index = select(solved, self.max_fpr)
        chosen = solved[index]
        if chosen.fpr > self.max_fpr:
            message = MISSED_LIMIT.format(limit=self.max_fpr, lowest=chosen.fpr)
            warnings.warn(message, RecoslipWarning, stacklevel=5)
        return {
            "scores_": chosen.f,
            "candidates_": candidates_table(solved, index),
            "fleet_": chosen.fleet.gather([(chosen.fleet, chosen.member)]),
        }


class RecoSlip(ConstrainedDetector):
    r"""Minimise the false-positive rate on the source while forcing a recall on the target.

    $$\min_{g,h} \hat\beta(h \circ g) + \xi \mathcal{L}_{lp}(g)
    \quad \text{s.t.} \quad \hat\alpha(h \circ g) \ge \tilde\alpha$$

    solved for several recall targets $\tilde\alpha$ at once by primal-dual updates of the Lagrangian. Of the
    solutions whose validation FPR is at most $\tilde\beta$, the one with the highest validation recall is kept.
    """

    name: ClassVar[str] = "reco-slip"

    links: Links = param(
        Choice(Links),
        'the pairs of the link loss: "selective" takes those among undecided target nodes, "target" all target nodes, '
        '"all" all nodes, "none" leaves the loss out',
        default="selective",
    )
    link_weight: float = param(Number(0, np.inf), r"$\xi$, its weight", default=0.001)
    batch_size: int | None = BATCHES

    history_: pl.DataFrame = learned("a table of every epoch: training FPR and recall (hard), multiplier and link loss")

    def _members(self, seeds: Sequence[int]) -> list[Member]:
        return [
            Member(int(derive(torch.tensor(seed), 0, index)), target)  # Algorithm 1 initialises each anew
            for seed in seeds
            for index, target in enumerate(self.recall_targets)
        ]

    def _learn_block(
        self, given: TrainingSet, members: Sequence[Member], report: Callable[[int], None]
    ) -> list[Solution]:
        seeds, targets = zip(*members, strict=True)
        fleet = self._build_fleet(given.graph.num_features, seeds).to(given.data.device)
        settings = self._problem_settings() | {"links": self.links, "link_weight": self.link_weight}
        problem = RecallConstrained.of(given.graph, given.split, targets, given.data.device, **settings)
        kept = given.data.train(fleet, problem, self._schedule(report))
        margin = given.data.evaluate(fleet).diff(dim=-1)[..., 0].to(given.data.device)
        return solutions(problem, fleet, margin, kept.tolist(), range(len(members)))

    def _select(self, solved: Sequence[Solution]) -> Attributes:
        return super()._select(solved) | {"history_": history_table(solved)}


class Member(NamedTuple):
    """One network of the fleet: its seed and the recall it is held to."""

    seed: int
    recall_target: float


class CoNoC(ConstrainedDetector):
    r"""Minimise $\sum_k \hat\beta(f_k)$ subject to $\hat\alpha(f_k) \ge \tilde\alpha_k$ for heads $f_k$ on one network.

    The constrained novel-category detection that RECO-SLIP builds on, with the paper's graph network as backbone and no
    link loss. The heads share all but their last layer and are trained together; the chosen head is the one with the
    highest validation recall among those with a validation FPR of at most `max_fpr`. Weights are kept where the sum of
    the heads' validation Lagrangians is lowest, after half of the epochs.
    """

    name: ClassVar[str] = "conoc"
    supports_batches: ClassVar[bool] = False

    head_: int = learned("the chosen head")

    def _learn_block(self, given: TrainingSet, members: Sequence[int], report: Callable[[int], None]) -> list[Solution]:
        data, targets = given.data, list(self.recall_targets) * len(members)
        fleet = self._build_fleet(given.graph.num_features, members).to(data.device)
        problem = SharedHeads.of(
            given.graph, given.split, targets, data.device, links="none", **self._problem_settings()
        )
        kept = data.train(fleet, problem, self._schedule(report))
        margin = by_head(data.evaluate(fleet).to(data.device, data.dtype)).diff(dim=-1)[..., 0]
        owner = [member for member in range(len(members)) for _ in self.recall_targets]
        return solutions(problem, fleet, margin, [int(kept[member]) for member in owner], owner)

    def _select(self, solved: Sequence[Solution]) -> Attributes:
        return super()._select(solved) | {"head_": select(solved, self.max_fpr)}

    def _num_classes(self) -> int:
        return 2 * len(self.recall_targets)

    def _from_output(self, output: Tensor, graph: NodeGraph, numbers: Mapping[str, Any]) -> Scores:
        return super()._from_output(by_head(output[:, None])[:, numbers["head_"]], graph, numbers)


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


@dataclass(frozen=True, eq=False)
class Solution:
    """A member after training."""

    recall_target: float  # α̃
    fpr: float  # on validation source nodes, hard; lower is better
    recall: float  # on validation target nodes, hard; higher is better
    multiplier: float  # λ when its weights were kept
    epoch: int  # when its weights were kept
    f: Scores  # (nodes,) with those weights
    history: NDArray[np.float32]  # (epochs, columns of RecallConstrained)
    fleet: Fleet
    member: int  # its index in that fleet


def solutions(
    problem: RecallConstrained, fleet: Fleet, margin: Tensor, kept: Sequence[int], members: Sequence[int]
) -> list[Solution]:
    """Summarise a trained problem, one solution for each of its constraints.

    Args:
        problem: with its history.
        fleet: the trained networks.
        margin: (nodes, constraints) with the kept weights.
        kept: the epoch that the kept weights are from, of each constraint's network.
        members: the network that each constraint belongs to.
    """
    fpr, recall = problem.validation_rates(margin)
    f = torch.sigmoid(margin.double()).cpu().numpy()  # double: f near 1 keeps its order
    history = problem.ascent.history.cpu().numpy()
    multiplier = DualAscent.COLUMNS.index("multiplier")
    return [
        Solution(
            recall_target=target,
            fpr=float(fpr[k]),
            recall=float(recall[k]),
            multiplier=float(history[kept[k] - 1, multiplier, k]),
            epoch=kept[k],
            f=f[:, k],
            history=history[:, :, k],
            fleet=fleet,
            member=members[k],
        )
        for k, target in enumerate(problem.recall_target.tolist())
    ]


def select(solutions: Sequence[Solution], max_fpr: float) -> int:
    """Choose the highest recall among those with FPR ≤ β̃, else the lowest FPR; ties go to the other rate."""
    allowed = [k for k, solution in enumerate(solutions) if solution.fpr <= max_fpr]
    if allowed:
        return max(allowed, key=lambda k: (solutions[k].recall, -solutions[k].fpr, -k))
    return min(range(len(solutions)), key=lambda k: (solutions[k].fpr, -solutions[k].recall, k))


CANDIDATE = {
    "recall_target": pl.Float64,
    "fpr": pl.Float64,
    "recall": pl.Float64,
    "multiplier": pl.Float64,
    "epoch": pl.Int64,
}


def candidates_table(solutions: Sequence[Solution], chosen: int) -> pl.DataFrame:
    """List the solutions, a row each."""
    rows = [[getattr(solution, name) for name in CANDIDATE] for solution in solutions]
    return pl.DataFrame(rows, schema=CANDIDATE, orient="row").with_columns(chosen=pl.int_range(pl.len()) == chosen)


def history_table(solutions: Sequence[Solution]) -> pl.DataFrame:
    """List the epochs of every solution, a row each."""
    frames = [
        pl.DataFrame(s.history, schema=DualAscent.COLUMNS).select(
            pl.lit(s.recall_target).alias("recall_target"), pl.int_range(1, pl.len() + 1).alias("epoch"), pl.all()
        )
        for s in solutions
    ]
    return pl.concat(frames)
