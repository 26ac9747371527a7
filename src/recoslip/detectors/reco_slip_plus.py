"""RECO-SLIP+: several recall-constrained proposals, then rounds of cross-fitted self-training on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from recoslip.detectors.base import Callbacks, Scores
from recoslip.detectors.ensemble import (
    NO_FOLD,
    Folds,
    Prediction,
    assign_folds,
    is_out_of_fold,
    out_of_fold_prediction,
    smooth,
)
from recoslip.detectors.network_detector import BATCHES, KNOWN_AND_NOVEL, NetworkDetector
from recoslip.detectors.params import Number, Whole, learned, param
from recoslip.detectors.pseudo_labels import PseudoLabels, choose_pseudo_labels, is_grown_category, label_weights
from recoslip.detectors.recall_constrained import RecallConstrained
from recoslip.detectors.risk_objectives import WeightedCrossEntropy, positions
from recoslip.detectors.selection import DUAL_LEARNING_RATE, MULTIPLIER, check_recall_targets, member_seed
from recoslip.fleet.interfaces import Fleet, GraphInput, Objective, Schedule
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import Neighbours
from recoslip.progress import Phases
from recoslip.shift import Mask, Split

ROUNDS_SCHEMA = {"round": pl.Int64, "novel": pl.Int64, "known": pl.Int64, "looks_novel": pl.Float64}


class RecoSlipPlus(NetworkDetector):
    """Propose novel nodes by recall-constrained optimisation, then train on them. One setting for all graphs.

    First, networks with dropout of the input are trained under small recall targets, and their margins averaged. Then,
    in every round, the highest target nodes are pseudo-labelled novel, and the source and the target nodes that look
    known are pseudo-labelled known; the rest is unlabelled. Networks learn to tell them apart, each without one fold of
    the nodes, and a node is predicted by the networks that were not trained on it. So no network repeats the label it
    was given: a known node that was among the highest by chance falls back, and a novel one that was not moves up. The
    out-of-fold predictions are smoothed over neighbours.

    If source nodes, too, come out among the highest, these are a known category that grew, and the proposal is
    rejected. Then the rounds end, and new proposals, by networks that see all of the features, give the scores.
    """

    name: ClassVar[str] = "reco-slip-plus"
    uses_validation: ClassVar[bool] = False

    recall_targets: Sequence[float] = param((0.02, 0.05, 0.1), check_recall_targets, "of the proposals")
    rounds: int = param(3, Whole(0), "of self-training; 0 stops at the proposals")
    core: float = param(
        0.05, Number(0, 0.5, open_ends=True), "fraction of the target nodes that are pseudo-labelled novel"
    )
    known_below: float = param(
        0.4,
        Number(0, 1),
        "target nodes with a lower score are pseudo-labelled known (in the first round, the lower half)",
    )
    source_weight: float = param(
        0.3, Number(0, np.inf, open_ends=True), "weight of a source node's label, where that of a target node is 1"
    )
    folds: int = param(3, Whole(1), "of which each network holds one out; 1 trains every network on all nodes")
    smoothing: float = param(0.5, Number(0, 1), "weight of the neighbours in a node's prediction; 0 for none")
    restarts: int = param(2, Whole(1), "networks for each recall target and fold")
    input_dropout: float = param(
        0.5,
        Number(0, 0.99),
        "fraction of the feature entries that are dropped; none for the new proposals after a rejected one, nor before "
        "a PyG module of your own",
    )
    multiplier: float = MULTIPLIER
    out_channels: int = 64
    epochs: int = param(400, Whole(1), "of the proposals")
    round_epochs: int = param(120, Whole(1), "of each round")
    dual_learning_rate: float = DUAL_LEARNING_RATE
    batch_size: int | None = BATCHES

    uncertainty_: Scores = learned(
        "standard deviation of a node's score among the networks that predict it", per_node=True
    )
    rounds_: pl.DataFrame = learned(
        "a table of the rounds: target nodes that were pseudo-labelled novel and known, and the fraction of all target "
        "nodes that looked novel afterwards"
    )
    proposal_rejected_: bool = learned("whether the rounds ended because the highest were a known category that grew")

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], callbacks: Callbacks, **truth: Any
    ) -> list[dict[str, Any]]:
        data = self.graph_input(graph)
        blocks = self._blocks(seeds, data)
        phases = Phases(callbacks.progress, len(blocks) * (self.epochs + self.rounds * self.round_epochs))
        training = SelfTraining(self, graph, data, split, phases, callbacks)
        per_seed = [attributes for block in blocks for attributes in training.run(block)]
        callbacks.progress(phases.total, phases.total)
        return per_seed

    def networks_per_seed(self) -> int:
        """Return how many networks of one seed are trained at once, at most."""
        return max(self.stage_networks(stage) for stage in (0, 1))

    def is_proposal(self, stage: int) -> bool:
        """Return whether a stage is one of proposals: the first, and the one after a rejected proposal."""
        return stage in (0, self.rounds + 1)

    def stage_networks(self, stage: int) -> int:
        """Return how many networks a stage trains for each seed."""
        return self.restarts * (len(self.recall_targets) if self.is_proposal(stage) else self.folds)

    def held_out_folds(self, stage: int) -> Folds:
        """Return the fold that each network of a stage holds out; proposals are trained on all nodes."""
        if self.is_proposal(stage) or self.folds == 1:
            return np.full(self.stage_networks(stage), NO_FOLD)
        return np.tile(np.arange(self.folds), self.restarts)

    def combine(self, margins: Scores, neighbours: Neighbours, folds: Folds, stage: int) -> Prediction:
        """Combine the margins of a stage's networks, (nodes, networks), into one prediction.

        The first proposals are not smoothed over neighbours: a round is to learn from what a node is itself.
        """
        prediction = out_of_fold_prediction(margins, folds, self.held_out_folds(stage))
        if stage == 0:
            return prediction
        return prediction._replace(margin=smooth(prediction.margin, neighbours, self.smoothing))

    def _last_stage(self) -> int:
        return self.rounds + self.proposal_rejected_

    def _prediction(self, graph: NodeGraph) -> Prediction:
        folds = assign_folds(graph.ids, self.folds, self.seed_)
        return self.combine(margins_of(self._logits(graph)), Neighbours(graph), folds, self._last_stage())

    def _score(self, graph: NodeGraph) -> Scores:
        return self._prediction(graph).f

    def out_of_fold_networks(self, node_id: Any) -> list[int]:
        """Return which networks of `fleet_` predict a node, by its id: those that were not trained on its fold."""
        self.check_is_fitted()
        fold = assign_folds([node_id], self.folds, self.seed_)
        return np.flatnonzero(is_out_of_fold(fold, self.held_out_folds(self._last_stage()))[0]).tolist()

    def explainable_network(self, node_id: Any) -> nn.Module | None:
        """Return the first of the networks that predict the node."""
        return self.fleet_.as_module(self.out_of_fold_networks(node_id)[0], KNOWN_AND_NOVEL)

    def uncertainty(self, graph: NodeGraph | None = None) -> Scores:
        """Return the standard deviation of each node's score among the networks that predict it."""
        self.check_is_fitted()
        return self.uncertainty_.copy() if graph is None else self._prediction(graph).disagreement

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors = self._fleet_tensors()
        tensors["uncertainty"] = torch.from_numpy(self.uncertainty_)
        return {"rounds": self.rounds_.to_dicts(), "proposal_rejected": self.proposal_rejected_}, tensors

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        rejected = bool(values["proposal_rejected"])
        return {
            "fleet_": self._restored_fleet(tensors, self.stage_networks(self.rounds + rejected)),
            "uncertainty_": tensors["uncertainty"].numpy(),
            "rounds_": pl.DataFrame(values["rounds"], schema=ROUNDS_SCHEMA),
            "proposal_rejected_": rejected,
        }


@dataclass(eq=False)
class SeedState:
    """How far the training of one seed has come."""

    seed: int
    folds: Folds
    rounds: list[tuple[int, int, int, float]] = field(default_factory=list)
    rejected: bool = False  # whether its proposal was
    fleet: Fleet = field(init=False)  # the newest networks, on the CPU
    prediction: Prediction = field(init=False)  # of those

    def record(self, stage: int, labels: PseudoLabels, is_target: Mask) -> None:
        """Add a round to the table."""
        known = (labels.known > 0) & is_target
        looks_novel = float((self.prediction.f[is_target] > 0.5).mean())
        self.rounds.append((stage, int((labels.novel > 0).sum()), int(known.sum()), looks_novel))

    def attributes(self) -> dict[str, Any]:
        """Return the learned attributes of a fitted detector."""
        return {
            "scores_": self.prediction.f,
            "uncertainty_": self.prediction.disagreement,
            "rounds_": pl.DataFrame(self.rounds, schema=ROUNDS_SCHEMA, orient="row"),
            "proposal_rejected_": self.rejected,
            "fleet_": self.fleet,
        }


class SelfTraining:
    """The stages of RECO-SLIP+, for blocks of seeds whose networks are trained together.

    Nothing is chosen by validation, so validation nodes are trained on too, where they are predicted out of fold.
    Networks that predict what they were trained on do without them: without calibration, they set the threshold.

    Args:
        detector: its settings.
        graph: the graph.
        data: the graph as networks are trained on it.
        split: who trains and who validates.
        phases: to report progress to.
        callbacks: of the fit.
    """

    def __init__(
        self,
        detector: RecoSlipPlus,
        graph: NodeGraph,
        data: GraphInput,
        split: Split,
        phases: Phases,
        callbacks: Callbacks,
    ) -> None:
        self.detector, self.graph, self.data, self.split = detector, graph, data, split
        self.phases, self.callbacks = phases, callbacks
        self.is_target, self.neighbours = graph.is_target.numpy(), Neighbours(graph)
        out_of_fold = detector.rounds and detector.folds > 1
        self.nodes = split.train | split.validation if out_of_fold else split.train

    def run(self, seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Train all stages for a block of seeds; return the learned attributes of each."""
        detector = self.detector
        states = [SeedState(seed, assign_folds(self.graph.ids, detector.folds, seed)) for seed in seeds]
        self._train_stage(states, 0, self._recall_constrained(self.nodes, len(seeds)))
        for stage in range(1, detector.rounds + 1):
            active = [state for state in states if not state.rejected]
            if not active:
                self.phases.total -= (detector.rounds + 1 - stage) * detector.round_epochs
                break
            self._train_round(active, stage)
        if rejected := [state for state in states if state.rejected]:
            self.phases.total += detector.epochs
            objective = self._recall_constrained(self.split.train, len(rejected))
            self._train_stage(rejected, detector.rounds + 1, objective)
        return [state.attributes() for state in states]

    def _train_round(self, states: Sequence[SeedState], stage: int) -> None:
        """Pseudo-label nodes by the last prediction, train on them, and predict anew."""
        detector, is_target = self.detector, self.is_target
        labels = [
            choose_pseudo_labels(
                state.prediction,
                is_target,
                self.nodes,
                core=detector.core,
                known_below=detector.known_below if stage > 1 else None,
                source_weight=detector.source_weight,
            )
            for state in states
        ]
        self._train_stage(states, stage, self._cross_entropy(states, labels, stage))
        for state, chosen in zip(states, labels, strict=True):
            state.record(stage, chosen, is_target)
            if stage == 1 and detector.folds > 1:  # later predictions depend on the target's own pseudo-labels
                state.rejected = is_grown_category(state.prediction, is_target, self.nodes, detector.core)

    def _train_stage(self, states: Sequence[SeedState], stage: int, objective: Objective) -> None:
        """Train the networks of one stage, of all seeds together, and keep networks and prediction of each seed."""
        detector, data = self.detector, self.data
        networks = detector.stage_networks(stage)
        seeds = [member_seed(state.seed, stage, index) for state in states for index in range(networks)]
        input_dropout = detector.input_dropout if stage <= detector.rounds else 0.0
        fleet = detector.build_fleet(self.graph.num_features, seeds, input_dropout=input_dropout).to(data.device)
        epochs = detector.epochs if detector.is_proposal(stage) else detector.round_epochs
        schedule = Schedule(
            epochs,
            detector.learning_rate,
            validate_after=None,
            stage=stage,
            progress=self.phases.phase(epochs),
            checkpointer=self.callbacks.checkpointer,
        )
        data.train(fleet, objective, schedule)
        margins = margins_of(data.evaluate(fleet))
        for k, state in enumerate(states):
            members = range(k * networks, (k + 1) * networks)
            state.fleet = fleet.gather([(fleet, member) for member in members])
            state.prediction = detector.combine(margins[:, members], self.neighbours, state.folds, stage)

    def _cross_entropy(
        self, states: Sequence[SeedState], labels: Sequence[PseudoLabels], stage: int
    ) -> WeightedCrossEntropy:
        """Turn the pseudo-labels of each seed into the objective of its networks."""
        held_out, device = self.detector.held_out_folds(stage), self.data.device
        novel, known = (
            torch.cat([label_weights(w, s.folds, held_out) for s, w in zip(states, weights, strict=True)], dim=1)
            for weights in zip(*labels, strict=True)
        )
        nodes = positions(self.nodes, device)
        return WeightedCrossEntropy(novel.to(device), known.to(device), nodes, nodes)

    def _recall_constrained(self, nodes: Mask, seeds: int) -> RecallConstrained:
        nobody = np.zeros_like(nodes)
        detector = self.detector
        return RecallConstrained(
            self.graph,
            Split(nodes, nobody, nobody),
            [*detector.recall_targets] * detector.restarts * seeds,
            self.data.device,
            epochs=detector.epochs,
            multiplier=detector.multiplier,
            dual_learning_rate=detector.dual_learning_rate,
            links="none",
        )


def margins_of(logits: Tensor) -> Scores:
    """Turn logits, (nodes, networks, 2), into margins."""
    margins: Scores = logits.diff(dim=-1)[..., 0].numpy()
    return margins
