"""RECO-SLIP+: a committee of encoders makes recall-constrained proposals, then rounds of cross-fitted co-training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.base.progress import CombinedProgress, Phases, Progress
from recoslip.base.settings import Integer, Number, learned, param
from recoslip.data.alignment import similarity_features
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.data.split import Mask, Split
from recoslip.learning import base
from recoslip.learning.base import Attributes, Scores, computes, each_graph
from recoslip.learning.networks.batches import SampledGraph
from recoslip.learning.networks.committee import (
    DOMAIN_STAGE,
    CommitteeMember,
    check_encoders,
    domain_auroc,
    encoder_weights,
)
from recoslip.learning.networks.ensemble import NO_FOLD, Folds, Prediction, assign_folds, out_of_fold_prediction, smooth
from recoslip.learning.networks.interfaces import Fleet, GraphInput, Objective, Schedule
from recoslip.learning.networks.nearness import Nearness, Presentation
from recoslip.learning.networks.network_detector import BATCHES, NetworkDetector
from recoslip.learning.networks.objectives import DomainNodes, WeightedCrossEntropy, positions
from recoslip.learning.networks.pseudo_labels import (
    MAX_SOURCE_RATIO,
    PseudoLabels,
    choose_pseudo_labels,
    core_size,
    label_weights,
    source_ratio,
)
from recoslip.learning.networks.recall_constrained import RecallConstrained
from recoslip.learning.networks.selection import DUAL_LEARNING_RATE, MULTIPLIER, check_recall_targets, member_seed
from recoslip.learning.networks.tensors import DeviceNeighbours
from recoslip.learning.networks.torch_state import Check, side_by_side
from recoslip.learning.networks.training import Training, train_together
from recoslip.learning.saving import below

FALLBACK_RECALL_TARGETS = (0.2, 0.35, 0.5)  # after a rejected proposal: what is novel is further down
NEAREST_OF_CORE = 25  # nodes near each of the highest that are looked at, for source nodes among them
MIN_EVENNESS = 0.8  # in a known category that grew, the higher half has hardly fewer source nodes near it
NEAREST_OF_HALF = 50  # nodes near each that are looked at for that
ROUNDS_SCHEMA = {"round": pl.Int64, "novel": pl.Int64, "known": pl.Int64, "looks_novel": pl.Float64}
ENCODERS_SCHEMA = {"encoder": pl.String, "domain_auroc": pl.Float64, "weight": pl.Float64}
MAX_ROUNDS = 100  # far more than help
MEDIUM_GRAPH = 20_000  # nodes of a graph that needs no more steps in batches than it does whole


class RecoSlipPlus(NetworkDetector):
    """A committee of encoders proposes novel nodes, and its members teach each other. One setting for all graphs.

    First, each encoder learns to tell the domains apart, without one fold of the nodes at a time. The better it tells
    the nodes that it did not see, the more weight it has: on some graphs edges help, on others they mislead.

    Then networks with dropout of the input are trained under small recall targets, and their margins averaged. In every
    round the highest target nodes, by that opinion and by how far from the source they are, are pseudo-labelled novel,
    and the source and the target nodes that look known are pseudo-labelled known; the rest is unlabelled. Networks of
    all encoders learn to tell them apart, each without one fold of the nodes, and a node is predicted by the networks
    that were not trained on it. So no network repeats the label it was given: a known node that was among the highest
    by chance falls back, and a novel one that was not moves up. Predictions are smoothed over neighbours, and the score
    is their weighted mean over encoders and rounds.

    If source nodes, too, come out among the highest, and not fewer towards the top, these are a known category that
    grew, and the proposal is rejected. Then the rounds end, and new proposals, by networks that see all of the features
    and look further down, give the scores.

    A graph of more than 20,000 nodes that is trained in batches takes more steps than the epochs below, by the fourth
    root of its size.
    """

    name: ClassVar[str] = "reco-slip-plus"
    uses_validation: ClassVar[bool] = False

    encoder: Any = param(
        ("gcn", "mlp"),
        check_encoders,
        '"gcn", "sage", "mlp", a PyG module called as `encoder(x, edge_index)`, or several of these',
    )
    recall_targets: Sequence[float] = param((0.02, 0.05, 0.1), check_recall_targets, "of the proposals")
    rounds: int = param(3, Integer(0, MAX_ROUNDS), "of co-training; 0 stops at the proposals")
    core: float = param(
        0.05, Number(0, 0.5, open_ends=True), "fraction of the target nodes that are pseudo-labelled novel"
    )
    known_below: float = param(
        0.3,
        Number(0, 1),
        "target nodes with a lower score are pseudo-labelled known (in the first round, the lower half)",
    )
    source_weight: float = param(
        0.3, Number(0, np.inf, open_ends=True), "weight of a source node's label, where that of a target node is 1"
    )
    folds: int = param(
        3, Integer(1), "of which each network holds one out; 1 trains all on all nodes, and weights encoders equally"
    )
    smoothing: float = param(0.5, Number(0, 1), "weight of the neighbours in a node's prediction; 0 for none")
    input_dropout: float = param(
        0.5,
        Number(0, 0.99),
        "fraction of the feature entries that are dropped; none for the new proposals after a rejected one, nor before "
        "a PyG module of your own",
    )
    multiplier: float = MULTIPLIER
    out_channels: int = 64
    domain_epochs: int = param(60, Integer(1), "of the networks that tell the domains apart")
    epochs: int = param(400, Integer(1), "of the proposals")
    round_epochs: int = param(120, Integer(1), "of each round")
    dual_learning_rate: float = DUAL_LEARNING_RATE
    batch_size: int | None = BATCHES

    fleet_: nn.ModuleList = learned("the networks that score, on the CPU: one fleet for each encoder that has weight")  # type: ignore[assignment]
    encoders_: pl.DataFrame = learned(
        "a table of the encoders: how well each tells the domains of unseen nodes apart (AU-ROC; unknown of a single "
        "one and without folds), and its weight"
    )
    uncertainty_: Scores = learned(
        "standard deviation of a node's score among the networks that predict it", per_node=True
    )
    rounds_: pl.DataFrame = learned(
        "a table of the rounds: target nodes that were pseudo-labelled novel and known, and the fraction of all target "
        "nodes that looked novel afterwards"
    )
    source_ratio_: float = learned(
        "source nodes among and near the highest after the first round, for each target node there, were both domains "
        "equally large; 0 without rounds"
    )
    proposal_rejected_: bool = learned(
        "whether the rounds ended because the highest seemed to be a known category that grew"
    )

    def members(self) -> tuple[CommitteeMember, ...]:
        """Return the encoders."""
        return tuple(CommitteeMember(index, encoder) for index, encoder in enumerate(self.encoders()))

    def _learn(self, shown: Sequence[base.Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
        groups = list(each_graph(shown, progress))
        together = [(graph, split) for graph, split, _, _ in groups]
        training = CoTraining(self, shown[0].graph, together, progress)
        if not training.in_batches or len(groups) == 1:
            return training.learn([seeds for _, _, seeds, _ in groups])
        del training  # with it, what it holds on a GPU
        learned = []
        for graph, split, seeds, report in groups:
            learned += CoTraining(self, graph, [(graph, split)], report).learn([seeds])
        return learned

    def networks_per_seed(self) -> int:
        """Return how many networks of one seed and encoder are trained at once, at most."""
        return max(self.stage_networks(stage) for stage in (0, 1, self.rounds + 1))

    def is_proposal(self, stage: int) -> bool:
        """Return whether a stage is one of proposals: the first, and the one after a rejected proposal."""
        return stage in (0, self.rounds + 1)

    def stage_networks(self, stage: int) -> int:
        """Return how many networks of each encoder a stage trains for each seed."""
        return len(self.stage_recall_targets(stage)) if self.is_proposal(stage) else self.folds

    def stage_recall_targets(self, stage: int) -> Sequence[float]:
        """Return the recall targets of a stage of proposals."""
        return self.recall_targets if stage == 0 else FALLBACK_RECALL_TARGETS

    def held_out_folds(self, stages: Sequence[int]) -> Folds:
        """Return the fold that each network of an encoder holds out; proposals are trained on all nodes."""
        return np.concatenate(
            [
                np.full(self.stage_networks(stage), NO_FOLD)
                if self.is_proposal(stage) or self.folds == 1
                else np.arange(self.folds)
                for stage in stages
            ]
        )

    def combine(
        self, margins: Sequence[Scores], weights: Scores, neighbours: Neighbours, folds: Folds, stages: Sequence[int]
    ) -> Prediction:
        """Combine the margins of each encoder's networks, (nodes, networks), into one prediction.

        Of several rounds the k-th counts k times: it has learned from those before. The first proposals are not
        smoothed over neighbours: a round is to learn from what a node is itself.
        """
        held_out = self.held_out_folds(stages)
        of_stages = np.concatenate([np.full(self.stage_networks(stage), max(stage, 1)) for stage in stages])
        prediction = out_of_fold_prediction(
            np.concatenate(margins, axis=1),
            folds,
            np.tile(held_out, len(margins)),
            np.outer(weights, of_stages).ravel(),
        )
        if tuple(stages) == (0,):
            return prediction
        return prediction._replace(margin=smooth(prediction.margin, neighbours, self.smoothing))

    def scoring_stages(self, rejected: bool) -> Sequence[int]:
        """Return the stages whose networks score: the rounds, the new proposals, or the first ones."""
        if rejected:
            return (self.rounds + 1,)
        return range(1, self.rounds + 1) if self.rounds else (0,)

    def _scoring(self) -> list[tuple[CommitteeMember, Fleet]]:
        """Return the encoders that have weight, and their networks."""
        has_weight = (self.encoders_["weight"] > 0).to_list()
        members = [member for member, used in zip(self.members(), has_weight, strict=True) if used]
        return list(zip(members, self.fleet_, strict=True))  # type: ignore[arg-type]

    def _weights(self) -> Scores:
        weights = self.encoders_["weight"].to_numpy()
        return np.asarray(weights[weights > 0])

    def _prediction(self, graph: NodeGraph) -> Prediction:
        margins = []
        for member, fleet in self._scoring():
            data = self.graph_input(graph, member.encoder)
            margins.append(margins_of(data.evaluate(fleet.to(data.device))))
            fleet.to("cpu")
        folds = assign_folds(graph.ids, self.folds, self.seed_)
        stages = self.scoring_stages(self.proposal_rejected_)
        return self.combine(margins, self._weights(), Neighbours(graph), folds, stages)

    def _score(self, graph: NodeGraph) -> Scores:
        return self._prediction(graph).f

    @computes
    def representation(self, graph: NodeGraph, nodes: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float64]:
        """Return the representations of all encoders' last networks, of one alone where the graph is large."""
        parts = []
        for member, fleet in self._scoring():
            data = self.graph_input(graph, member.encoder)
            count = 1 if data.nodes_per_step < data.num_nodes else min(fleet.members, self.folds)
            last = fleet.gather([(fleet, k) for k in range(fleet.members - count, fleet.members)])
            parts.append(data.evaluate(last.to(data.device), "representation")[nodes].flatten(1).numpy())
        return np.concatenate(parts, axis=1)

    def _rotation_params(self) -> dict[str, Any]:
        """Return the settings of each of several fits, which cost less, as their average is taken."""
        return {
            "recall_targets": (sorted(self.recall_targets)[len(self.recall_targets) // 2],),
            "rounds": min(self.rounds, 2),
        }

    def json_params(self) -> dict[str, Any]:
        """Return the settings as JSON values; modules of the user's are None, as code is not saved."""
        settings = super().json_params()
        if not isinstance(self.encoder, str | nn.Module):
            settings["encoder"] = [member.name for member in self.members()]
        return settings

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
        stages = self.scoring_stages(self.proposal_rejected_)
        networks = len(stages) * self.stage_networks(stages[0])
        has_weight = (self.encoders_["weight"] > 0).to_list()
        used = [member for member, weighs in zip(self.members(), has_weight, strict=True) if weighs]
        fleets = [
            self._restored_fleet(below(f"{k}.", arrays), networks, encoder=member.encoder)
            for k, member in enumerate(used)
        ]
        return nn.ModuleList(fleets)  # type: ignore[arg-type]


@dataclass(eq=False)
class SeedState:
    """How far the training of one seed has come."""

    seed: int
    folds: Folds
    shown: Presentation
    first: SeedState | None  # of the rotations of one fit, which weighs the encoders for all; None for that itself
    domain_auroc: Scores = field(init=False)  # (encoders,)
    weights: Scores = field(init=False)  # (encoders,) 0 for those that are not used
    rounds: list[tuple[int, int, int, float]] = field(default_factory=list)
    source_ratio: float = 0.0  # after the first round
    rejected: bool = False  # whether new proposals score instead of the rounds
    fleets: dict[int, dict[int, Fleet]] = field(default_factory=dict)  # by stage and encoder, on the CPU
    margins: dict[int, dict[int, Scores]] = field(default_factory=dict)  # of those, (nodes, networks)
    prediction: Prediction = field(init=False)  # of the last stage

    def record(self, stage: int, labels: PseudoLabels) -> None:
        """Add a round to the table."""
        known = (labels.known > 0) & self.shown.is_target
        looks_novel = float((self.prediction.f[self.shown.is_target] > 0.5).mean())
        self.rounds.append((stage, int((labels.novel > 0).sum()), int(known.sum()), looks_novel))


@dataclass(frozen=True, eq=False)
class StageTraining:
    """Networks of one stage and encoder, of some seeds, and what they are trained with."""

    states: Sequence[SeedState]
    stage: int
    index: int  # of the encoder
    fleet: Fleet
    data: GraphInput
    objective: Objective
    schedule: Schedule


class CoTraining:
    """The stages of RECO-SLIP+, for blocks of seeds whose networks are trained together.

    Encoders train in the same steps on a GPU; on a CPU side by side, and some of the seeds apart where there are more
    cores; and in batches one after the other.

    Nothing is chosen by validation, so validation nodes are trained on too, where they are predicted out of fold.
    Networks that predict what they were trained on do without them: without calibration, they set the threshold.

    Args:
        detector: its settings.
        graph: the graph, whose domains are not looked at.
        presented: the graph as it is presented, and who trains and who validates; several where hiding rotates.
        progress: called with steps done and steps in all.
    """

    def __init__(
        self,
        detector: RecoSlipPlus,
        graph: NodeGraph,
        presented: Sequence[tuple[NodeGraph, Split]],
        progress: Progress,
    ) -> None:
        self.detector, self.graph, self.progress = detector, graph, progress
        self.members = detector.members()
        self.inputs: list[GraphInput] = [detector.graph_input(graph, member.encoder) for member in self.members]
        self.presented, self.neighbours = presented, DeviceNeighbours(graph, device=self.inputs[0].device)
        self.weighs_encoders = len(self.members) > 1 and detector.folds > 1
        self.phases = Phases(progress, 0)

    @property
    def in_batches(self) -> bool:
        """Whether networks are trained on batches of the graph."""
        return any(isinstance(data, SampledGraph) for data in self.inputs)

    @property
    def _independent(self) -> bool:
        """Whether trainings can run at once: not in batches, nor with PyTorch's generator for all."""
        return not self.in_batches and all(isinstance(member.encoder, str) for member in self.members)

    @property
    def _shares_steps(self) -> bool:
        """Whether encoders train in the same steps: on a GPU, where networks of one leave much of it idle."""
        return self._independent and self.inputs[0].device.type == "cuda"

    def _presentation(self, graph: NodeGraph, split: Split, features: NDArray[np.float32] | None) -> Presentation:
        out_of_fold = self.detector.rounds and self.detector.folds > 1
        nodes = split.train | split.validation if out_of_fold else split.train
        nearness = None if features is None else Nearness(graph, nodes, features, self.inputs[0].device)
        return Presentation(graph, split.train, nodes, nearness)

    def learn(self, seeds: Sequence[Sequence[int]]) -> list[Attributes]:
        """Train all seeds of all presentations; return what each learned, one presentation after the other."""
        features = similarity_features(self.graph, self.neighbours) if self.detector.rounds else None
        states: list[SeedState] = []
        for rotation, (presented, own_seeds) in enumerate(zip(self.presented, seeds, strict=True)):
            shown = self._presentation(*presented, features)
            for k, seed in enumerate(own_seeds):
                folds = assign_folds(self.graph.ids, self.detector.folds, seed)
                states.append(SeedState(seed, folds, shown, first=states[k] if rotation else None))
        blocks = self.detector._blocks(states, self.inputs[0])
        self._expect(len(blocks))
        learned = [attributes for block in blocks for attributes in self._run(block)]
        self.progress(self.phases.total, self.phases.total)
        return learned

    def _expect(self, blocks: int) -> None:
        """Announce how many epochs there will be, if every encoder has weight."""
        detector = self.detector
        domain_epochs = self._epochs(DOMAIN_STAGE) if self.weighs_encoders else 0
        each = domain_epochs + self._epochs(0) + detector.rounds * self._epochs(1)
        self.phases.total = blocks * len(self.members) * each

    def _run(self, states: Sequence[SeedState]) -> list[dict[str, Any]]:
        """Train all stages for a block of seeds; return the learned attributes of each."""
        detector = self.detector
        self._weigh_encoders(states)
        self._train_stage(states, 0)
        for stage in range(1, detector.rounds + 1):
            active = [state for state in states if not state.rejected]
            if not active:
                self.phases.total -= (detector.rounds + 1 - stage) * self._epochs(stage) * encoders_used(states)
                break
            self._train_round(active, stage)
        if rejected := [state for state in states if state.rejected]:
            self.phases.total += self._epochs(0) * encoders_used(rejected)
            self._train_stage(rejected, detector.rounds + 1)
        learned = [self._attributes(state) for state in states]
        for state in states:
            state.fleets.clear()
            state.margins.clear()
        return learned

    def _weigh_encoders(self, states: Sequence[SeedState]) -> None:
        """Weigh each encoder by how well it tells the domains of nodes that it was not trained on apart."""
        firsts = [state for state in states if state.first is None]
        for state in firsts:
            state.domain_auroc = np.full(len(self.members), np.nan)
        if self.weighs_encoders and firsts:
            labels = [
                PseudoLabels(
                    novel=np.where(state.shown.nodes & state.shown.is_target, 1.0, 0.0),
                    known=np.where(state.shown.nodes & ~state.shown.is_target, 1.0, 0.0),
                )
                for state in firsts
            ]
            self._train_encoders(firsts, DOMAIN_STAGE, labels, [range(len(firsts))] * len(self.members))
            held_out = self.detector.held_out_folds([DOMAIN_STAGE])
            for state in firsts:
                margins = [state.margins[DOMAIN_STAGE][index] for index in range(len(self.members))]
                shown = state.shown
                state.domain_auroc = domain_auroc(margins, state.folds, held_out, shown.is_target, shown.nodes)
                del state.margins[DOMAIN_STAGE], state.fleets[DOMAIN_STAGE]
        elif self.weighs_encoders:
            self.phases.total -= len(self.members) * self._epochs(DOMAIN_STAGE)
        for state in states:
            if state.first is not None:
                state.domain_auroc = state.first.domain_auroc
            state.weights = encoder_weights(state.domain_auroc)
        unused = len(self.members) - encoders_used(states)
        self.phases.total -= unused * (self._epochs(0) + self.detector.rounds * self._epochs(1))

    def _train_round(self, states: Sequence[SeedState], stage: int) -> None:
        """Pseudo-label nodes by the last prediction, train on them, and predict anew."""
        detector = self.detector
        labels = [
            choose_pseudo_labels(
                state.prediction,
                state.shown.is_target,
                state.shown.nodes,
                isolation=state.shown.isolation,
                core=detector.core,
                known_below=detector.known_below if stage > 1 else None,
                source_weight=detector.source_weight,
            )
            for state in states
        ]
        self._train_stage(states, stage, labels)
        for state, chosen in zip(states, labels, strict=True):
            state.record(stage, chosen)
            if stage == 1 and detector.folds > 1:  # later predictions depend on the target's own pseudo-labels
                state.source_ratio = self._source_ratio(state)
                state.rejected = state.source_ratio > MAX_SOURCE_RATIO and self._is_even(state)

    def _source_ratio(self, state: SeedState) -> float:
        """Return the geometric mean of the source nodes that score like the highest, and of those that are near them.

        Either estimate of the same quantity rests on few source nodes. As a novel category may be smaller than the
        core, those near the higher half of it count, where they are fewer.
        """
        shown = state.shown
        higher, lower = self._highest(state)
        both = np.concatenate([higher, lower])
        near = min(shown.source_ratio(chosen, NEAREST_OF_CORE, len(higher)) for chosen in (both, higher))
        counted = source_ratio(state.prediction, shown.is_target, shown.nodes, self.detector.core)
        return float(np.sqrt(near * counted))

    def _is_even(self, state: SeedState) -> bool:
        """Return whether there are hardly fewer source nodes near the higher half of the highest than near the lower.

        It is so in a category. Where there are fewer the higher a node scores, the highest are no category of the
        source's, and known nodes follow them.
        """
        higher, lower = (state.shown.source_ratio(half, NEAREST_OF_HALF, len(half)) for half in self._highest(state))
        return higher >= MIN_EVENNESS * lower

    def _highest(self, state: SeedState) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the highest target nodes, their higher and their lower half."""
        target = np.flatnonzero(state.shown.nodes & state.shown.is_target)
        highest = target[np.argsort(-state.prediction.margin[target], kind="stable")]
        count = core_size(self.detector.core, len(target))
        half = max(1, count // 2)
        return highest[:half], highest[half:count]

    def _train_stage(
        self, states: Sequence[SeedState], stage: int, labels: Sequence[PseudoLabels] | None = None
    ) -> None:
        """Train one stage of each encoder, for the seeds in which it has weight, and predict."""
        chosen = [
            [k for k, state in enumerate(states) if state.weights[index] > 0] for index in range(len(self.members))
        ]
        self._train_encoders(states, stage, labels, chosen)
        for state in states:
            state.prediction = self._predict(state, [stage])

    def _train_encoders(
        self,
        states: Sequence[SeedState],
        stage: int,
        labels: Sequence[PseudoLabels] | None,
        chosen: Sequence[Sequence[int]],
    ) -> None:
        """Train one stage of every encoder for those of the seeds that are chosen for it, by index.

        On a CPU several encoders are trained side by side, and seeds where there are more cores than encoders. On a GPU
        they share every step.
        """
        used = [index for index, seeds in enumerate(chosen) if seeds]
        together = CombinedProgress(self.phases.phase(len(used) * self._epochs(stage)))
        on_cpu = self.inputs[0].device.type == "cpu"
        at_once = torch.get_num_threads() if self._independent and on_cpu else 1
        parts = -(-at_once // len(used))  # of the seeds of an encoder
        prepared = []
        for index in used:
            report = together.task()
            for k, part in enumerate(np.array_split(chosen[index], min(parts, len(chosen[index])))):
                own_labels = None if labels is None else [labels[j] for j in part]
                own_states = [states[j] for j in part]
                own_report = report if k == 0 else None
                prepared.append(partial(self._prepare, own_states, stage, index, own_labels, own_report))
        if self._shares_steps:
            jobs = [prepare(lambda: None) for prepare in prepared]
            train_together([Training(job.fleet, job.data, job.objective, job.schedule) for job in jobs])
            for job in jobs:
                self._keep(job)
            return

        def train(prepare: Callable[[Check], StageTraining], check: Check) -> None:
            job = prepare(check)
            job.data.train(job.fleet, job.objective, job.schedule)
            self._keep(job)

        side_by_side([partial(train, prepare) for prepare in prepared], at_once)

    def _epochs(self, stage: int) -> int:
        """Return how many epochs a stage has."""
        if stage == DOMAIN_STAGE:
            return self._scaled(self.detector.domain_epochs)
        return self._scaled(self.detector.epochs if self.detector.is_proposal(stage) else self.detector.round_epochs)

    def _scaled(self, epochs: int) -> int:
        """Return the steps that so many epochs are: as many on a whole graph, more in batches of a large one."""
        return round(epochs * steps_factor(self.graph.num_nodes)) if self.in_batches else epochs

    def _prepare(
        self,
        states: Sequence[SeedState],
        stage: int,
        index: int,
        labels: Sequence[PseudoLabels] | None,
        report: Callable[[int], None] | None,
        check: Check,
    ) -> StageTraining:
        """Build what one stage and encoder trains, of some seeds together.

        Without pseudo-labels they are proposals, under recall constraints.
        """

        def progress(done: int) -> None:
            check()
            if report is not None:
                report(done)

        detector, data, member = self.detector, self.inputs[index], self.members[index]
        networks, number = detector.stage_networks(stage), member.number(stage)
        seeds = [member_seed(state.seed, number, k) for state in states for k in range(networks)]
        input_seeds = [member_seed(state.seed, number, networks) for state in states for _ in range(networks)]
        fleet = detector.build_fleet(
            self.graph.num_features,
            seeds,
            encoder=member.encoder,
            input_dropout=0.0 if stage == detector.rounds + 1 else detector.input_dropout,
            input_seeds=input_seeds,
        ).to(data.device)
        objective: Objective = (
            self._recall_constrained(states, stage, data)
            if labels is None
            else self._cross_entropy(states, labels, stage, data.device)
        )
        schedule = Schedule(
            self._epochs(stage),
            detector.learning_rate,
            validate_after=None,
            stage=number,
            progress=progress,
        )
        return StageTraining(states, stage, index, fleet, data, objective, schedule)

    def _keep(self, trained: StageTraining) -> None:
        """Keep trained networks, and their margins."""
        stage, index, fleet = trained.stage, trained.index, trained.fleet
        networks = self.detector.stage_networks(stage)
        margins = margins_of(trained.data.evaluate(fleet))
        for k, state in enumerate(trained.states):
            own = range(k * networks, (k + 1) * networks)
            state.fleets.setdefault(stage, {})[index] = fleet.gather([(fleet, network) for network in own])
            state.margins.setdefault(stage, {})[index] = margins[:, own]

    def _predict(self, state: SeedState, stages: Sequence[int]) -> Prediction:
        used = np.flatnonzero(state.weights).tolist()
        margins = [np.concatenate([state.margins[stage][k] for stage in stages], axis=1) for k in used]
        return self.detector.combine(margins, state.weights[used], self.neighbours, state.folds, stages)

    def _attributes(self, state: SeedState) -> dict[str, Any]:
        """Return the learned attributes of a fitted detector."""
        stages = self.detector.scoring_stages(state.rejected)
        prediction = self._predict(state, stages)
        fleets = []
        for index in np.flatnonzero(state.weights).tolist():
            own = [state.fleets[stage][index] for stage in stages]
            fleets.append(own[0].gather([(fleet, k) for fleet in own for k in range(fleet.members)]))
        encoders = {
            "encoder": [member.label for member in self.members],
            "domain_auroc": state.domain_auroc,
            "weight": state.weights,
        }
        return {
            "scores_": prediction.f,
            "uncertainty_": prediction.disagreement,
            "encoders_": pl.DataFrame(encoders, schema=ENCODERS_SCHEMA).fill_nan(None),
            "rounds_": pl.DataFrame(state.rounds, schema=ROUNDS_SCHEMA, orient="row"),
            "source_ratio_": state.source_ratio,
            "proposal_rejected_": state.rejected,
            "fleet_": nn.ModuleList(fleets),  # type: ignore[arg-type]
        }

    def _cross_entropy(
        self, states: Sequence[SeedState], labels: Sequence[PseudoLabels], stage: int, device: torch.device
    ) -> WeightedCrossEntropy:
        """Turn the pseudo-labels of each seed into the objective of its networks."""
        held_out = self.detector.held_out_folds([stage])
        novel, known = (
            torch.cat([label_weights(w, s.folds, held_out) for s, w in zip(states, weights, strict=True)], dim=1)
            for weights in zip(*labels, strict=True)
        )
        nodes = positions(np.any([state.shown.nodes for state in states], axis=0), device)
        return WeightedCrossEntropy(novel.to(device), known.to(device), nodes, nodes)

    def _recall_constrained(self, states: Sequence[SeedState], stage: int, data: GraphInput) -> RecallConstrained:
        """Return the objective of proposals; its source and target are those that each seed is presented."""
        detector, shown = self.detector, states[0].shown
        trained = [state.shown.nodes if stage == 0 else state.shown.train for state in states]
        nobody = np.zeros_like(shown.train)
        of_members = None
        if any(state.shown is not shown for state in states):
            networks = detector.stage_networks(stage)
            pairs = list(zip(trained, states, strict=True))
            source, target = (
                torch.cat([_uniform(own & (state.shown.is_target == side), networks) for own, state in pairs], dim=1)
                for side in (False, True)
            )
            of_members = DomainNodes(source.to(data.device), target.to(data.device))
        return RecallConstrained(
            shown.graph,
            Split(trained[0], nobody, nobody),
            [*detector.stage_recall_targets(stage)] * len(states),
            data.device,
            epochs=self._epochs(stage),
            multiplier=detector.multiplier,
            dual_learning_rate=detector.dual_learning_rate,
            links="none",
            of_members=of_members,
        )


def _uniform(nodes: Mask, networks: int) -> Tensor:
    """Return weights with sum 1 that are equal for these nodes, (nodes, networks)."""
    weight = torch.from_numpy(nodes / nodes.sum()).float()
    return weight[:, None].expand(-1, networks)


def steps_factor(nodes: int) -> float:
    """Return how many times as many steps in batches a graph takes: the fourth root of its size in medium graphs.

    >>> steps_factor(10_000), steps_factor(320_000)
    (1.0, 2.0)
    """
    return float(max(1.0, nodes / MEDIUM_GRAPH) ** 0.25)


def encoders_used(states: Sequence[SeedState]) -> int:
    """Return how many encoders have weight for some of the seeds."""
    return int(np.any([state.weights > 0 for state in states], axis=0).sum())


def margins_of(logits: Tensor) -> Scores:
    """Turn logits, (nodes, networks, 2), into margins."""
    margins: Scores = logits.diff(dim=-1)[..., 0].numpy()
    return margins
