"""RECO-SLIP+: several recall-constrained proposals, then rounds of learning who is like the most novel of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Progress, Scores
from recoslip.detectors.constrained import RecallConstrained
from recoslip.detectors.networked import NetworkDetector
from recoslip.detectors.panel import (
    NO_FOLD,
    Examples,
    Folds,
    Opinion,
    choose_examples,
    example_weights,
    folds_of,
    is_grown,
    judge,
    may_speak,
    smooth,
)
from recoslip.detectors.risk import WeightedCrossEntropy, positions
from recoslip.detectors.selection import check_recall_targets, member_seed
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import ModuleFleet, gather
from recoslip.fleet.network import Fleet
from recoslip.fleet.training import Objective, evaluate, train
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import Neighbours, NodeGraph
from recoslip.shift import Mask, Split

ROUNDS_SCHEMA = {"round": pl.Int64, "novel": pl.Int64, "known": pl.Int64, "looks_novel": pl.Float64}


class RecoSlipPlus(NetworkDetector):
    """Propose novel nodes by recall-constrained optimisation, then learn from them. One setting for all graphs.

    First, networks with dropout of the input are trained under small recall targets, and their margins averaged. Then,
    in every round, the highest target nodes are examples of novel and the source, with the target nodes that look
    known, of known; the rest waits. Networks learn to tell them apart, each without one fold of the nodes, and a node
    is judged by the networks that did not learn from it. So a network does not repeat what it was told of a node: a
    known node that was among the highest by chance falls back, and a novel one that was not moves up. What is said of
    its neighbours, likewise by networks that did not learn from them, counts as well.

    If source nodes, too, come out among the highest, those are not novel but of a known kind that grew, and there is
    nothing to learn from them. Then the rounds end, and new proposals, by networks that see all of the features, stand.

    Args:
        recall_targets: of the proposals.
        rounds: of learning from the highest; 0 stops at the proposals.
        core: share of the target nodes that serve as examples of novel.
        known_below: target nodes with a lower score serve as examples of known (in the first round, the lower half).
        source_weight: how much a source node counts among the examples of known, where a target node counts 1.
        folds: parts the nodes are divided into; a network learns from all but one. 1 lets it learn from all nodes.
        smoothing: share of the neighbours in what is said of a node; 0 for none.
        restarts: networks for each recall target and fold.
        input_dropout: share of the feature entries dropped; none by the new proposals after refuted rounds, nor before
            a PyG module of your own.
        max_fpr: share of the source nodes that may score above the threshold.
        multiplier: of the recall constraint at the start.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        epochs: of the proposals.
        round_epochs: of each round.
        learning_rate: Adam's for the weights.
        dual_learning_rate: Adam's for the multiplier.
        batch_size: nodes of a batch, of which each epoch sees one; 0 for the whole graph, None to let memory decide.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout, folds and, without a split, the split.

    Attributes:
        scores_: novelty of each node, σ of its margin.
        uncertainty_: standard deviation of that score among the networks that judged the node.
        rounds_: a table of the rounds: target nodes that were examples of novel, of known, and the share of all target
            nodes that looked novel afterwards.
        grown_: whether the rounds ended because the highest turned out to be of a known kind.
    """

    name: ClassVar[str] = "reco-slip-plus"
    paper: ClassVar[str] = "this package"
    tuned: ClassVar[bool] = False
    validates: ClassVar[bool] = False

    uncertainty_: Scores
    rounds_: pl.DataFrame
    grown_: bool

    def __init__(
        self,
        *,
        recall_targets: Sequence[float] = (0.02, 0.05, 0.1),
        rounds: int = 3,
        core: float = 0.05,
        known_below: float = 0.4,
        source_weight: float = 0.3,
        folds: int = 3,
        smoothing: float = 0.5,
        restarts: int = 2,
        input_dropout: float = 0.5,
        max_fpr: float = 0.01,
        multiplier: float = 0.1,
        hidden_channels: int = 64,
        out_channels: int = 64,
        head_channels: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        epochs: int = 400,
        round_epochs: int = 120,
        learning_rate: float = 0.001,
        dual_learning_rate: float = 0.001,
        batch_size: int | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.recall_targets = recall_targets
        self.rounds = rounds
        self.core = core
        self.known_below = known_below
        self.source_weight = source_weight
        self.folds = folds
        self.smoothing = smoothing
        self.restarts = restarts
        self.input_dropout = input_dropout
        self.max_fpr = max_fpr
        self.multiplier = multiplier
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.head_channels = head_channels
        self.encoder = encoder
        self.dropout = dropout
        self.epochs = epochs
        self.round_epochs = round_epochs
        self.learning_rate = learning_rate
        self.dual_learning_rate = dual_learning_rate
        self.batch_size = batch_size
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        check_recall_targets(self.recall_targets)
        checks.whole("rounds", self.rounds, 0)
        checks.number("core", self.core, 0, 0.5, open_ends=True)
        checks.number("known_below", self.known_below, 0, 1)
        checks.number("source_weight", self.source_weight, 0, np.inf, open_ends=True)
        checks.whole("folds", self.folds, 1)
        checks.number("smoothing", self.smoothing, 0, 1)
        checks.whole("restarts", self.restarts, 1)
        checks.number("input_dropout", self.input_dropout, 0, 0.99)
        checks.number("multiplier", self.multiplier, 0, np.inf)
        checks.whole("round_epochs", self.round_epochs, 1)
        checks.number("dual_learning_rate", self.dual_learning_rate, 0, np.inf)
        self._check_network()

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        view = self._view(graph)
        blocks = self._blocks(seeds, view)
        steps = Steps(progress, len(blocks) * (self.epochs + self.rounds * self.round_epochs))
        learned = [own for block in blocks for own in self._learn_block(graph, view, split, block, steps)]
        progress(steps.total, steps.total)
        return learned

    def _together(self) -> int:
        return max(self._networks(stage) for stage in (0, 1))

    def _learn_block(
        self,
        graph: NodeGraph,
        view: GraphView | Batches,
        split: Split,
        seeds: Sequence[int],
        steps: Steps,
    ) -> list[dict[str, Any]]:
        """Learn for several seeds at once.

        Nothing is chosen by validation, so its nodes are learned from too, where they are judged by networks that did
        not. Networks that judge what they learned from do without them: without calibration, the threshold is theirs.
        """
        is_target, neighbours = graph.is_target.numpy(), Neighbours(graph)
        nodes = split.train | split.validation if self.rounds and self.folds > 1 else split.train
        learners = [Learner(seed, folds_of(graph.ids, self.folds, seed)) for seed in seeds]

        def learn(who: Sequence[Learner], stage: int, objective: Objective) -> None:
            """Train the networks of a stage and note what they say."""
            trained = self._train(graph, view, [learner.seed for learner in who], stage, objective, steps)
            for learner, (fleet, margins) in zip(who, trained, strict=True):
                learner.fleet, learner.opinion = fleet, self._judge(margins, neighbours, learner.folds, stage)

        learn(learners, 0, self._recall_constrained(graph, nodes, len(seeds), view.device))
        for stage in range(1, self.rounds + 1):
            going = [learner for learner in learners if not learner.grown]
            if not going:
                steps.total -= (self.rounds + 1 - stage) * self.round_epochs
                break
            examples = [self._examples(learner.opinion, stage, is_target, nodes) for learner in going]
            learn(going, stage, self._told(going, examples, stage, nodes, view.device))
            for learner, chosen in zip(going, examples, strict=True):
                learner.note(stage, chosen, is_target)
                if stage == 1 and self.folds > 1:  # later, what was told of the target has a part in what is said
                    learner.grown = is_grown(learner.opinion, is_target, nodes, self.core)
        if refuted := [learner for learner in learners if learner.grown]:
            steps.total += self.epochs
            learn(refuted, self.rounds + 1, self._recall_constrained(graph, split.train, len(refuted), view.device))
        return [learner.learned() for learner in learners]

    def _examples(self, opinion: Opinion, stage: int, is_target: Mask, nodes: Mask) -> Examples:
        """Choose whom a round learns from."""
        return choose_examples(
            opinion,
            is_target,
            nodes,
            core=self.core,
            known_below=self.known_below if stage > 1 else None,
            source_weight=self.source_weight,
        )

    def _told(
        self, learners: Sequence[Learner], examples: Sequence[Examples], stage: int, nodes: Mask, device: torch.device
    ) -> WeightedCrossEntropy:
        """Turn the examples of each seed into what its networks shall learn."""
        without = self._without(stage)
        novel, known = (
            torch.cat([example_weights(c, own.folds, without) for own, c in zip(learners, count, strict=True)], dim=1)
            for count in zip(*examples, strict=True)
        )
        learning = positions(nodes, device)
        return WeightedCrossEntropy(novel.to(device), known.to(device), learning, learning)

    def _judge(self, margins: Scores, neighbours: Neighbours, folds: Folds, stage: int) -> Opinion:
        """Sum up what the networks of a stage say, (nodes, networks).

        The neighbours have a say, but not in the first proposals: a round is to learn from what a node is itself.
        """
        opinion = judge(margins, folds, self._without(stage))
        if stage == 0:
            return opinion
        return opinion._replace(margin=smooth(opinion.margin, neighbours, self.smoothing))

    def _train(
        self,
        graph: NodeGraph,
        view: GraphView | Batches,
        seeds: Sequence[int],
        stage: int,
        objective: Objective,
        steps: Steps,
    ) -> list[tuple[Fleet | ModuleFleet, Scores]]:
        """Train the networks of one stage, of all seeds together; return each seed's, and their margins."""
        networks = self._networks(stage)
        keys = [member_seed(seed, stage, place) for seed in seeds for place in range(networks)]
        input_dropout = self.input_dropout if stage <= self.rounds else 0.0
        fleet = self._fleet(graph.num_features, keys, input_dropout=input_dropout).to(view.device)
        train(
            fleet,
            view,
            objective,
            epochs=self.epochs if self._proposes(stage) else self.round_epochs,
            learning_rate=self.learning_rate,
            keep_from=None,
            stage=stage,
            progress=steps.advance,
        )
        margins = _margins(evaluate(fleet, view))
        places = [range(k * networks, (k + 1) * networks) for k in range(len(seeds))]
        return [(gather([(fleet, member) for member in mine]), margins[:, mine]) for mine in places]

    def _recall_constrained(self, graph: NodeGraph, nodes: Mask, seeds: int, device: torch.device) -> RecallConstrained:
        nobody = np.zeros_like(nodes)
        return RecallConstrained(
            graph,
            Split(nodes, nobody, nobody),
            [*self.recall_targets] * self.restarts * seeds,
            device,
            epochs=self.epochs,
            multiplier=self.multiplier,
            dual_learning_rate=self.dual_learning_rate,
            links="none",
        )

    def _proposes(self, stage: int) -> bool:
        """Say whether a stage is one of proposals: the first, and the one after refuted rounds."""
        return stage in (0, self.rounds + 1)

    def _networks(self, stage: int) -> int:
        return self.restarts * (len(self.recall_targets) if self._proposes(stage) else self.folds)

    def _without(self, stage: int) -> Folds:
        """Return the fold that each network of a stage does without; the proposals learn from all."""
        if self._proposes(stage) or self.folds == 1:
            return np.full(self._networks(stage), NO_FOLD)
        return np.tile(np.arange(self.folds), self.restarts)

    def _opinion(self, graph: NodeGraph) -> Opinion:
        folds = folds_of(graph.ids, self.folds, self.seed_)
        return self._judge(_margins(self._logits(graph)), Neighbours(graph), folds, self.rounds + self.grown_)

    def _score(self, graph: NodeGraph) -> Scores:
        return self._opinion(graph).f

    def judges(self, name: Any) -> list[int]:
        """Return which networks of `fleet_` judge a node, given its name: those that did not learn from its fold."""
        self._check_fitted()
        fold = folds_of([name], self.folds, self.seed_)
        return np.flatnonzero(may_speak(fold, self._without(self.rounds + self.grown_))[0]).tolist()

    def uncertainty(self, graph: NodeGraph | None = None) -> Scores:
        """Return how much the networks that judge a node disagree: the standard deviation of its score among them."""
        self._check_fitted()
        return self.uncertainty_.copy() if graph is None else self._opinion(graph).disagreement

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors = self._fleet_tensors()
        tensors["uncertainty"] = torch.from_numpy(self.uncertainty_)
        return {"rounds": self.rounds_.to_dicts(), "grown": self.grown_}, tensors

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        grown = bool(values["grown"])
        return {
            "fleet_": self._restored(tensors, self._networks(self.rounds + grown)),
            "uncertainty_": tensors["uncertainty"].numpy(),
            "rounds_": pl.DataFrame(values["rounds"], schema=ROUNDS_SCHEMA),
            "grown_": grown,
        }


@dataclass(eq=False)
class Steps:
    """Epochs that one fleet after another has done, and how many there will be."""

    progress: Progress
    total: int
    done: int = 0

    def advance(self, epoch: int) -> None:
        """Count one more, whatever its number in its own fleet."""
        self.done += 1
        self.progress(self.done, self.total)


@dataclass(eq=False)
class Learner:
    """How far one seed has come: its newest networks, what they say, and the rounds behind it."""

    seed: int
    folds: Folds
    rounds: list[tuple[int, int, int, float]] = field(default_factory=list)
    grown: bool = False
    fleet: Fleet | ModuleFleet = field(init=False)  # on the CPU
    opinion: Opinion = field(init=False)

    def note(self, stage: int, examples: Examples, is_target: Mask) -> None:
        """Put a round into the table."""
        known = (examples.known > 0) & is_target
        looks_novel = float((self.opinion.f[is_target] > 0.5).mean())
        self.rounds.append((stage, int((examples.novel > 0).sum()), int(known.sum()), looks_novel))

    def learned(self) -> dict[str, Any]:
        """Return the attributes of a fitted detector."""
        return {
            "scores_": self.opinion.f,
            "uncertainty_": self.opinion.disagreement,
            "rounds_": pl.DataFrame(self.rounds, schema=ROUNDS_SCHEMA, orient="row"),
            "grown_": self.grown,
            "fleet_": self.fleet,
        }


def _margins(logits: Tensor) -> Scores:
    """Turn logits, (nodes, networks, 2), into margins."""
    margins: Scores = logits.diff(dim=-1)[..., 0].numpy()
    return margins
