"""RECO-SLIP: recall-constrained optimisation with selective link prediction (Algorithm 1 of the paper)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Detector, Progress, Scores
from recoslip.errors import ModelFileError, RecoslipWarning, SettingError
from recoslip.fleet.bits import derive
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.negatives import NonEdges
from recoslip.fleet.network import Architecture, Fleet, Output
from recoslip.fleet.training import train
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import NodeGraph
from recoslip.objectives.links import first_of_each, inner_products, link_loss, undecided
from recoslip.objectives.rates import hard_rate, lagrangian, soft_rate
from recoslip.shift import Split

Links: TypeAlias = Literal["selective", "target", "all", "none"]
Dual: TypeAlias = Literal["hard", "soft"]


class RecoSlip(Detector):
    r"""Minimise the false-positive rate on the source while forcing a recall on the target.

    $$\min_{g,h} \hat\beta(h \circ g) + \xi \mathcal{L}_{lp}(g) \quad \text{s.t.}\quad \hat\alpha(h \circ g) \ge \tilde\alpha$$

    solved for several recall targets $\tilde\alpha$ at once by primal-dual updates of the Lagrangian. Of the
    solutions whose validation FPR is at most $\tilde\beta$, the one with the highest validation recall is kept.

    Args:
        recall_targets: $\tilde\alpha$, the recalls to try.
        max_fpr: $\tilde\beta$, the highest validation FPR a solution may have.
        multiplier: $\lambda^{(0)}$, the dual variable at the start.
        links: the pairs of the link loss: "selective" takes those among undecided target nodes, "target" all
            target nodes, "all" all nodes, "none" leaves the loss out.
        link_weight: $\xi$, its weight.
        dual: which recall the dual step sees: "hard" counts f > 1/2, "soft" averages f.
        hidden: width of the encoder's first layer.
        out: width of the encoder's second layer, the representation.
        head: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        epochs: T.
        learning_rate: Adam's for the weights.
        dual_learning_rate: Adam's for the multiplier.
        restarts: independent runs whose scores are averaged by rank; 1 is the paper's.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.

    Attributes:
        scores_: novelty of each node: f of the chosen solution, or the mean rank over restarts.
        threshold_: 1/2, or for restarts the rank that flags as many target nodes as they flag on average.
        candidates_: a table of the solutions: restart, recall target, validation FPR and recall, multiplier,
            the epoch its weights are from, and whether it was chosen.
        history_: a table of every epoch: training FPR and recall (hard), multiplier and link loss.
    """

    name: ClassVar[str] = "reco-slip"

    candidates_: pl.DataFrame
    history_: pl.DataFrame
    fleet_: Fleet | ModuleFleet  # the chosen solution of each restart
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
        hidden: int = 64,
        out: int = 32,
        head: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        epochs: int = 1000,
        learning_rate: float = 0.001,
        dual_learning_rate: float = 0.001,
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
        self.hidden = hidden
        self.out = out
        self.head = head
        self.encoder = encoder
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.dual_learning_rate = dual_learning_rate
        self.restarts = restarts
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        if isinstance(self.recall_targets, str) or not np.iterable(self.recall_targets) or not len(self.recall_targets):
            raise SettingError(f"recall_targets must be one or more numbers; got {self.recall_targets!r}")
        for target in self.recall_targets:
            checks.number("each of recall_targets", target, 0, 1, open_ends=True)
        checks.number("max_fpr", self.max_fpr, 0, 1)
        checks.number("multiplier", self.multiplier, 0, np.inf)
        checks.choice("links", self.links, Links)
        checks.number("link_weight", self.link_weight, 0, np.inf)
        checks.choice("dual", self.dual, Dual)
        for name in ("hidden", "out", "head", "epochs", "restarts"):
            checks.whole(name, getattr(self, name), 1)
        if not isinstance(self.encoder, nn.Module):
            checks.choice("encoder", self.encoder, Encoder)
        checks.number("dropout", self.dropout, 0, 0.99)
        checks.number("learning_rate", self.learning_rate, 0, np.inf, open_ends=True)
        checks.number("dual_learning_rate", self.dual_learning_rate, 0, np.inf)
        checks.whole("random_state", self.random_state, 0)
        resolve_device(self.device)

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress
    ) -> list[dict[str, Any]]:
        members = [
            Member(member_seed(seed, restart), target)
            for seed in seeds
            for restart in range(self.restarts)
            for target in self.recall_targets
        ]
        view = self._view(graph)
        size = block_size(graph, self.hidden, view.device)
        blocks = [members[start : start + size] for start in range(0, len(members), size)]
        solved: list[Solution] = []
        for place, block in enumerate(blocks):
            before, total = place * self.epochs, len(blocks) * self.epochs
            solved += self._solve(graph, view, split, block, lambda done: progress(before + done, total))  # noqa: B023
        per_seed = self.restarts * len(self.recall_targets)
        return [self._select(graph, solved[k * per_seed : (k + 1) * per_seed]) for k in range(len(seeds))]

    def _view(self, graph: NodeGraph) -> GraphView:
        encoder = None if isinstance(self.encoder, nn.Module) else self.encoder
        return GraphView.of(graph, encoder, resolve_device(self.device))

    def _fleet(self, features: int, seeds: Sequence[int], view: GraphView | None = None) -> Fleet | ModuleFleet:
        if isinstance(self.encoder, nn.Module):
            fleet = ModuleFleet(self.encoder, self.head, self.dropout, seeds)
            if view is not None:
                fleet.to(view.device)
                fleet.prepare(view)
            return fleet
        shape = Architecture(features, self.hidden, self.out, self.head, self.encoder, self.dropout)
        return Fleet(shape, seeds).to(None if view is None else view.device)

    def _solve(
        self, graph: NodeGraph, view: GraphView, split: Split, members: Sequence[Member], progress: Any
    ) -> list[Solution]:
        """Solve the constrained problem for each member of a block."""
        fleet = self._fleet(graph.num_features, [member.seed for member in members], view)
        problem = RecallConstrained(self, graph, split, [member.recall_target for member in members], view.device)
        kept = train(
            fleet,
            view,
            problem,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            keep_from=self.epochs // 2,  # D2: the best validated weights after T/2, see DEVIATIONS.md
            progress=progress,
        )
        with torch.no_grad():
            margin = fleet(view).margin
            fpr, recall = problem.validation_rates(margin)
        f = torch.sigmoid(margin.double()).cpu().numpy()  # double: f near 1 keeps its order
        history = problem.history.cpu().numpy()
        epoch = kept.cpu().numpy()
        return [
            Solution(
                recall_target=member.recall_target,
                fpr=float(fpr[m]),
                recall=float(recall[m]),
                multiplier=float(history[epoch[m] - 1, problem.COLUMNS.index("multiplier"), m]),
                epoch=int(epoch[m]),
                f=f[:, m],
                history=history[:, :, m],
                fleet=fleet,
                member=m,
            )
            for m, member in enumerate(members)
        ]

    def _select(self, graph: NodeGraph, solutions: Sequence[Solution]) -> dict[str, Any]:
        """Choose one solution per restart and put their scores together."""
        count = len(self.recall_targets)
        restarts = [solutions[start : start + count] for start in range(0, len(solutions), count)]
        chosen = [select(group, self.max_fpr) for group in restarts]
        picked = [group[index] for group, index in zip(restarts, chosen, strict=True)]
        if lax := [solution for solution in picked if solution.fpr > self.max_fpr]:
            warnings.warn(
                f"no recall target reached a validation FPR of {self.max_fpr:g} or less "
                f"({'in ' + str(len(lax)) + ' of ' + str(len(picked)) + ' restarts; ' if len(picked) > 1 else ''}"
                f"lowest: {min(s.fpr for s in lax):.4f}); the lowest was taken. Source and target may overlap "
                "too much, or max_fpr may be too strict for this graph",
                RecoslipWarning,
                stacklevel=5,
            )
        is_target = graph.is_target.numpy()
        ranks = np.sort(np.stack([solution.f[is_target] for solution in picked]), axis=1)
        scores = combine(np.stack([solution.f for solution in picked], axis=1), ranks)
        flagged = float(np.mean([(solution.f[is_target] > 0.5).mean() for solution in picked]))
        return {
            "scores_": scores,
            "threshold_": 0.5 if len(picked) == 1 else share_threshold(scores[is_target], flagged),
            "candidates_": candidates_table(restarts, chosen),
            "history_": history_table(restarts),
            "fleet_": self._pick(graph.num_features, picked),
            "ranks_": ranks,
        }

    def _pick(self, features: int, picked: Sequence[Solution]) -> Fleet | ModuleFleet:
        """Build a small fleet of the chosen members alone, on the CPU."""
        fleet = self._fleet(features, [0] * len(picked))
        state: dict[str, Tensor] = {}
        for place, solution in enumerate(picked):
            for name, tensor in solution.fleet.state_dict().items():
                if isinstance(fleet, Fleet):
                    own = tensor[solution.member].detach().cpu()
                    state[name] = torch.cat([state[name], own[None]]) if name in state else own[None].clone()
                elif name.split(".")[1] == str(solution.member):
                    kind, _, rest = name.split(".", 2)
                    state[f"{kind}.{place}.{rest}"] = tensor.detach().cpu().clone()
        fleet.load_state_dict(state)
        return fleet

    def _score(self, graph: NodeGraph) -> Scores:
        view = self._view(graph)
        fleet = self.fleet_.to(view.device)
        with torch.no_grad():
            f = torch.sigmoid(fleet(view).margin.double()).cpu().numpy()
        self.fleet_.to("cpu")
        return combine(f, self.ranks_)

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors = {f"fleet.{name}": tensor for name, tensor in self.fleet_.state_dict().items()}
        tensors["ranks"] = torch.from_numpy(self.ranks_)
        tensors |= {f"history.{c.name}": torch.from_numpy(c.to_numpy().copy()) for c in self.history_}
        return {"candidates": self.candidates_.to_dicts()}, tensors

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        fleet = self._fleet(self.n_features_in_, [0] * self.restarts)
        fleet.load_state_dict(_below("fleet.", tensors))
        return {
            "candidates_": pl.DataFrame(values["candidates"], schema=CANDIDATES_SCHEMA),
            "history_": pl.DataFrame({name: t.numpy() for name, t in _below("history.", tensors).items()}).select(
                HISTORY_COLUMNS
            ),
            "fleet_": fleet,
            "ranks_": tensors["ranks"].numpy(),
        }

    def _json_settings(self) -> dict[str, Any]:
        settings = super()._json_settings()
        if isinstance(self.encoder, nn.Module):
            settings["encoder"] = None  # code is not saved; `load(folder, encoder=...)` brings it back
        return settings


@dataclass(frozen=True)
class Member:
    """One network of the fleet: its seed and the recall it is held to."""

    seed: int
    recall_target: float


@dataclass(frozen=True, eq=False)
class Solution:
    """A member after training."""

    recall_target: float  # α̃
    fpr: float  # on validation source nodes, hard; lower is better
    recall: float  # on validation target nodes, hard; higher is better
    multiplier: float  # λ when its weights were kept
    epoch: int  # when its weights were kept
    f: Scores  # (nodes,) with those weights
    history: NDArray[np.float32]  # (epochs, columns)
    fleet: Fleet | ModuleFleet
    member: int  # its place in that fleet


class RecallConstrained:
    r"""The Lagrangian $\hat\beta + \xi \mathcal{L}_{lp} + \lambda(\tilde\alpha - \hat\alpha)$ of every member, and its λ."""

    COLUMNS = ("fpr", "recall", "multiplier", "link_loss")

    def __init__(
        self, detector: RecoSlip, graph: NodeGraph, split: Split, recall_targets: Sequence[float], device: torch.device
    ) -> None:
        def nodes(mask: NDArray[np.bool_]) -> Tensor:
            return torch.from_numpy(np.flatnonzero(mask)).to(device)

        target = graph.is_target.numpy()
        self.detector = detector
        self.source_train, self.target_train = nodes(split.train & ~target), nodes(split.train & target)
        self.source_validation = nodes(split.validation & ~target)
        self.target_validation = nodes(split.validation & target)
        self.recall_target = torch.tensor(recall_targets, dtype=torch.float64, device=device)
        members = len(recall_targets)
        self.multiplier = torch.full((members,), float(detector.multiplier), device=device, requires_grad=True)
        self.ascent = torch.optim.Adam([self.multiplier], lr=detector.dual_learning_rate, maximize=True)
        self.link_pairs = LinkPairs.of(graph, detector.links, device)
        self.history = torch.zeros(detector.epochs, len(self.COLUMNS), members, device=device)

    def loss(self, output: Output, epoch: int) -> Tensor:
        """Eq. (7) of each member; the recall the dual step will see is noted on the way."""
        f = torch.sigmoid(output.margin)
        target = self.recall_target.to(f.dtype)
        fpr, recall = soft_rate(f, self.source_train), soft_rate(f, self.target_train)
        with torch.no_grad():
            hard_fpr, hard_recall = hard_rate(f, self.source_train), hard_rate(f, self.target_train)
            # D1: the dual step follows the hard recall, the primal step the soft one, see DEVIATIONS.md
            seen = hard_recall if self.detector.dual == "hard" else recall
            self.multiplier.grad = (target - seen).to(self.multiplier.dtype)
        links = torch.zeros_like(fpr)
        if self.link_pairs is not None:
            links = self.link_pairs.loss(output, self.recall_target, epoch)
        with torch.no_grad():
            self.history[epoch] = torch.stack([hard_fpr, hard_recall, self.multiplier, links])
        return lagrangian(fpr, recall, target, self.multiplier.detach()) + self.detector.link_weight * links

    def after_step(self) -> None:
        """Dual step: gradient ascent, projected to λ ≥ 0."""
        self.ascent.step()
        with torch.no_grad():
            self.multiplier.clamp_(min=0)

    def validation(self, output: Output) -> Tensor:
        """Lagrangian of the validation nodes, without the link loss."""
        f = torch.sigmoid(output.margin)
        fpr, recall = soft_rate(f, self.source_validation), soft_rate(f, self.target_validation)
        return lagrangian(fpr, recall, self.recall_target.to(f.dtype), self.multiplier.detach())

    def validation_rates(self, margin: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Hard FPR and recall of each member on the validation nodes."""
        f = torch.sigmoid(margin.double())
        return (
            hard_rate(f, self.source_validation).cpu().numpy(),
            hard_rate(f, self.target_validation).cpu().numpy(),
        )


@dataclass(frozen=True, eq=False)
class LinkPairs:
    """The pairs the link loss may use: the same for all members, who each take those inside their own set."""

    POOL: ClassVar[float] = 4 / 3  # non-edges drawn per edge, so that every member finds as many as it has edges

    target: Tensor  # positions of the target nodes
    left: Tensor  # one end of each edge among the nodes in question
    right: Tensor  # the other
    non_edges: NonEdges
    selective: bool

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

    def loss(self, output: Output, recall_target: Tensor, epoch: int) -> Tensor:
        """Eq. (6) of each member, on $E_+$ and as many draws from $E_-$."""
        drawn = self.non_edges.draw(epoch)
        if self.selective:
            below = torch.zeros_like(output.margin, dtype=torch.bool)
            # D3: ranked by the margin, which orders nodes as f does and does not saturate, see DEVIATIONS.md
            below[self.target] = undecided(output.margin.detach()[self.target], recall_target)
            is_positive = below[self.left] & below[self.right]
            is_negative = below[drawn.left] & below[drawn.right] & drawn.valid[:, None]
        else:
            is_positive = torch.ones_like(self.left, dtype=torch.bool)[:, None]
            is_negative = drawn.valid[:, None]
        is_negative = first_of_each(is_negative, is_positive.sum(dim=0))
        positive = inner_products(output.representation, self.left, self.right)
        negative = inner_products(output.representation, drawn.left, drawn.right)
        return link_loss(positive, is_positive, negative, is_negative)


def select(solutions: Sequence[Solution], max_fpr: float) -> int:
    """Choose the highest recall among those with FPR ≤ β̃, else the lowest FPR; ties go to the other rate."""
    allowed = [k for k, solution in enumerate(solutions) if solution.fpr <= max_fpr]
    if allowed:
        return max(allowed, key=lambda k: (solutions[k].recall, -solutions[k].fpr, -k))
    return min(range(len(solutions)), key=lambda k: (solutions[k].fpr, -solutions[k].recall, k))


def combine(f: NDArray[np.float64], ranks: NDArray[np.float64]) -> Scores:
    """Scores of one model are f itself; of several, the mean share of target nodes that score lower.

    Args:
        f: (nodes, models).
        ranks: (models, target nodes) sorted scores of the graph they were fitted on.
    """
    if f.shape[1] == 1:
        return f[:, 0]
    below = [np.searchsorted(known, f[:, k], side="left") for k, known in enumerate(ranks)]
    upto = [np.searchsorted(known, f[:, k], side="right") for k, known in enumerate(ranks)]
    result: Scores = (np.mean(below, axis=0) + np.mean(upto, axis=0)) / (2 * ranks.shape[1])
    return result


def share_threshold(scores: Scores, share: float) -> float:
    """Return a threshold that `share` of the scores lie above, halfway between two of them."""
    ordered = np.sort(scores)
    above = round(share * len(ordered))
    if above == 0:
        return float(ordered[-1])
    if above == len(ordered):
        return float(np.nextafter(ordered[0], -1))
    return float(ordered[-above - 1] + ordered[-above]) / 2


CANDIDATES_SCHEMA = {
    "restart": pl.Int64,
    "recall_target": pl.Float64,
    "fpr": pl.Float64,
    "recall": pl.Float64,
    "multiplier": pl.Float64,
    "epoch": pl.Int64,
    "chosen": pl.Boolean,
}
HISTORY_COLUMNS = ("restart", "recall_target", "epoch", *RecallConstrained.COLUMNS)


def candidates_table(restarts: Sequence[Sequence[Solution]], chosen: Sequence[int]) -> pl.DataFrame:
    """List the solutions of every restart, a row each."""
    rows = [
        (restart, s.recall_target, s.fpr, s.recall, s.multiplier, s.epoch, k == chosen[restart])
        for restart, group in enumerate(restarts)
        for k, s in enumerate(group)
    ]
    return pl.DataFrame(rows, schema=CANDIDATES_SCHEMA, orient="row")


def history_table(restarts: Sequence[Sequence[Solution]]) -> pl.DataFrame:
    """List the epochs of every solution, a row each."""
    frames = [
        pl.DataFrame(
            {
                "restart": np.full(len(s.history), restart),
                "recall_target": np.full(len(s.history), s.recall_target),
                "epoch": np.arange(1, len(s.history) + 1),
                **{name: s.history[:, k] for k, name in enumerate(RecallConstrained.COLUMNS)},
            }
        )
        for restart, group in enumerate(restarts)
        for s in group
    ]
    return pl.concat(frames).select(HISTORY_COLUMNS)


def member_seed(seed: int, restart: int) -> int:
    """Seed of a network: the recall targets of one restart start from the same weights."""
    return int(derive(torch.tensor(seed), restart))


def block_size(graph: NodeGraph, width: int, device: torch.device) -> int:
    """How many members to train at once: as many as keep one layer's activations in the cache, or in GPU memory."""
    budget = 8 * 2**20 if device.type == "cpu" else 512 * 2**20  # bytes
    return max(1, budget // (4 * graph.num_nodes * width))


def resolve_device(name: str) -> torch.device:
    """Turn a device setting into a device; "auto" takes a CUDA GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise SettingError(f"device {name!r} cannot be used here ({reason}); use auto, cpu or cuda") from problem
    return device


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not found:
        raise ModelFileError(f"no tensors named {prefix}*")
    return found


__all__ = ["Dual", "Links", "RecoSlip", "get_args"]
