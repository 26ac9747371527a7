"""Solutions of several recall targets -> the chosen one, and tables of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.base.errors import SettingError
from recoslip.base.settings import Choice, Number, param
from recoslip.learning.base import Scores
from recoslip.learning.networks.interfaces import Fleet
from recoslip.learning.networks.random_bits import derive
from recoslip.learning.networks.recall_constrained import Dual, RecallConstrained


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
    history = problem.history.cpu().numpy()
    multiplier = problem.COLUMNS.index("multiplier")
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


RECALL_TARGETS = param((0.05, 0.1, 0.15, 0.2, 0.25), check_recall_targets, r"$\tilde\alpha$, the recalls to try")
MULTIPLIER = param(0.1, Number(0, np.inf), r"$\lambda^{(0)}$, the dual variable at the start")
DUAL_LEARNING_RATE = param(0.001, Number(0, np.inf), "Adam's for the multiplier")
DUAL = param("hard", Choice(Dual), 'which recall the dual step sees: "hard" counts f > 1/2, "soft" averages f')


def select(solutions: Sequence[Solution], max_fpr: float) -> int:
    """Choose the highest recall among those with FPR ≤ β̃, else the lowest FPR; ties go to the other rate."""
    allowed = [k for k, solution in enumerate(solutions) if solution.fpr <= max_fpr]
    if allowed:
        return max(allowed, key=lambda k: (solutions[k].recall, -solutions[k].fpr, -k))
    return min(range(len(solutions)), key=lambda k: (solutions[k].fpr, -solutions[k].recall, k))


CANDIDATES_SCHEMA = {
    "recall_target": pl.Float64,
    "fpr": pl.Float64,
    "recall": pl.Float64,
    "multiplier": pl.Float64,
    "epoch": pl.Int64,
    "chosen": pl.Boolean,
}
HISTORY_COLUMNS = ("recall_target", "epoch", *RecallConstrained.COLUMNS)


def candidates_table(solutions: Sequence[Solution], chosen: int) -> pl.DataFrame:
    """List the solutions, a row each."""
    rows = [(s.recall_target, s.fpr, s.recall, s.multiplier, s.epoch, k == chosen) for k, s in enumerate(solutions)]
    return pl.DataFrame(rows, schema=CANDIDATES_SCHEMA, orient="row")


def history_table(solutions: Sequence[Solution]) -> pl.DataFrame:
    """List the epochs of every solution, a row each."""
    frames = [
        pl.DataFrame(
            {
                "recall_target": np.full(len(s.history), s.recall_target),
                "epoch": np.arange(1, len(s.history) + 1),
                **{name: s.history[:, k] for k, name in enumerate(RecallConstrained.COLUMNS)},
            }
        )
        for s in solutions
    ]
    return pl.concat(frames).select(HISTORY_COLUMNS)


def member_seed(seed: int, stage: int, index: int) -> int:
    """Return the seed of the network of one recall target: Algorithm 1 initialises each anew."""
    return int(derive(torch.tensor(seed), stage, index))
