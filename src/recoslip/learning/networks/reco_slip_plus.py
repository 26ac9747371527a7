"""RECO-SLIP+: networks of several encoders teach each other, in rounds of cross-fitted co-training after the scan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recoslip.base.progress import CombinedProgress, Phases, Progress
from recoslip.base.settings import Integer, Number, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.neighbours import Neighbours
from recoslip.data.partitions import TREES
from recoslip.learning.base import Attributes, Presentation, Scores, check_scores
from recoslip.learning.networks.batches import SampledGraph
from recoslip.learning.networks.committee import (
    Folds,
    Prediction,
    Round,
    SeedState,
    assign_folds,
    choose_pseudo_labels,
    cross_entropy,
    out_of_fold_prediction,
    smooth,
)
from recoslip.learning.networks.device import Check, side_by_side
from recoslip.learning.networks.interfaces import Fleet, GraphInput, Schedule
from recoslip.learning.networks.network_detector import (
    BATCHES,
    NetworkDetector,
    check_encoders,
    encoders_of,
    evaluated,
    with_weights,
)
from recoslip.learning.networks.objectives import WeightedCrossEntropy
from recoslip.learning.networks.training import Training, train_together
from recoslip.learning.scan import Ranks, ScanModel

ROUNDS_SCHEMA = {"round": pl.Int64, "novel": pl.Int64, "known": pl.Int64, "looks_novel": pl.Float64}
MAX_ROUNDS = 100  # far more than help
MEDIUM_GRAPH = 20_000  # nodes of a graph that needs no more steps in batches than it does whole


class RecoSlipPlus(NetworkDetector):
    """The scan names nodes that look novel, and a committee of networks learns to tell them apart. One setting for all.

    In every round the highest target nodes are pseudo-labelled novel, and the source and the target nodes that look
    known are pseudo-labelled known; the rest is unlabelled. In the first round the scan says which are high, afterwards
    the scan and the networks of the round before. Networks of all encoders learn to tell the labels apart, each without
    one fold of the nodes, and a node is predicted by the networks that were not trained on it. So no network repeats
    the label it was given: a known node that was among the highest by chance falls back, and a novel one that was not
    moves up. Predictions are smoothed over neighbours, and the score is their mean over encoders and rounds, of which
    the k-th counts k times.

    A graph of more than 20,000 nodes that is trained in batches takes more steps than the epochs below, by the fourth
    root of its size.
    """

    name: ClassVar[str] = "reco-slip-plus"
    uses_validation: ClassVar[bool] = False

    encoder: Any = param(
        check_encoders,
        '"gcn", "sage", "mlp", a PyG module called as `encoder(x, edge_index)`, or several of these',
        default=("gcn", "mlp"),
    )
    trees: int = param(
        Integer(1, 1000), "of the scan: how many times to divide the nodes, by each kind of vectors", default=TREES
    )
    rounds: int = param(Integer(1, MAX_ROUNDS), "of co-training", default=3)
    core: float = param(
        Number(0, 0.5, open_ends=True), "fraction of the target nodes that are pseudo-labelled novel", default=0.05
    )
    known_below: float = param(
        Number(0, 1),
        "target nodes with a lower score are pseudo-labelled known (in the first round, the lower half)",
        default=0.3,
    )
    source_weight: float = param(
        Number(0, np.inf, open_ends=True),
        "weight of a source node's label, where that of a target node is 1",
        default=0.3,
    )
    folds: int = param(Integer(2), "of which each network holds one out", default=3)
    smoothing: float = param(Number(0, 1), "weight of the neighbours in a node's prediction; 0 for none", default=0.5)
    input_dropout: float = param(
        Number(0, 0.99),
        "fraction of the feature entries that are dropped; none before a PyG module of your own",
        default=0.5,
    )
    out_channels: int = 64
    epochs: int = param(Integer(1), "of each round", default=120)
    batch_size: int | None = BATCHES

    fleet_: nn.ModuleList = learned("the networks that score, on the CPU: one fleet for each encoder")  # type: ignore[assignment]
    uncertainty_: Scores = learned(
        "standard deviation of a node's score among the networks that predict it", per_node=True
    )
    rounds_: pl.DataFrame = learned(
        "a table of the rounds: target nodes that were pseudo-labelled novel and known, and the fraction of all target "
        "nodes that looked novel afterwards"
    )

    def _learn(self, shown: Sequence[Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
        fitted = [ScanModel.fit(each.graph, each.seed, trees=self.trees) for each in shown]
        scans, opinions = [scan for scan, _ in fitted], [scores for _, scores in fitted]
        learned = self._co_train(shown, opinions, progress)
        return [self._with_scan(*each) for each in zip(learned, scans, opinions, strict=True)]

    def _with_scan(self, committee: Attributes, scan: ScanModel, opinion: Scores) -> Attributes:
        """Return what the committee learned, of which the scan is no part."""
        return committee

    def _co_train(
        self, shown: Sequence[Presentation], opinions: Sequence[Scores], progress: Progress
    ) -> list[Attributes]:
        """Return what the committee learns from each presentation, beginning at an opinion on its nodes."""
        training = CoTraining(self, shown[0].graph)
        members = list(zip(shown, opinions, strict=True))
        groups = [members]
        if training.in_batches:  # which would be drawn from the nodes of all presentations
            groups = [list(group) for _, group in groupby(members, lambda member: id(member[0].split))]
        blocks = [block for group in groups for block in self._blocks(group, training.inputs[0])]
        phases = Phases(progress, len(blocks) * self.rounds * training.epochs * len(training.inputs))
        learned = [attributes for block in blocks for attributes in training.run(block, phases)]
        progress(phases.total, phases.total)
        return learned

    def _networks_per_seed(self) -> int:
        return self.folds

    def _predict(self, margins: Sequence[Scores], neighbours: Neighbours, folds: Folds) -> Prediction:
        """Combine the margins of each encoder's networks in all rounds, (nodes, networks), into one prediction.

        The k-th round counts k times: it has learned from those before.
        """
        rounds = margins[0].shape[1] // self.folds
        held_out = np.tile(np.arange(self.folds), rounds * len(margins))
        weights = np.tile(np.arange(1, rounds + 1).repeat(self.folds), len(margins))
        prediction = out_of_fold_prediction(np.concatenate(margins, axis=1), folds, held_out, weights)
        return prediction._replace(margin=smooth(prediction.margin, neighbours, self.smoothing))

    def _score(self, graph: NodeGraph) -> Scores:
        margins = [
            margins_of(evaluated(fleet, self._graph_input(graph, encoder)))
            for encoder, fleet in zip(encoders_of(self), self._fleets(), strict=True)
        ]
        return self._predict(margins, Neighbours(graph), assign_folds(graph.ids, self.folds, self.seed_)).f

    def _fleets(self) -> Sequence[Fleet]:
        return list(self.fleet_)  # type: ignore[arg-type]

    def _rotation_params(self) -> dict[str, Any]:
        """Return the settings of each of several fits, which cost less, as their average is taken."""
        return {"rounds": min(self.rounds, 2)}

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
        seeds = [0] * (self.rounds_.height * self.folds)
        fleets = (self._build_fleet(self.n_features_in_, seeds, encoder=encoder) for encoder in encoders_of(self))
        return with_weights(nn.ModuleList(fleets), arrays)


class Thorough(RecoSlipPlus):
    """The mean rank of a node by the scan, by its student and by RECO-SLIP+.

    The scan compares groups of similar nodes, the networks learn which features and edges matter; each finds novel
    nodes that the other misses. It takes as long as RECO-SLIP+.
    """

    name: ClassVar[str] = "thorough"

    scan_: ScanModel = learned("bins, what was counted in them, and the student")
    ranks_: Ranks = learned("of the committee's scores")

    def _with_scan(self, committee: Attributes, scan: ScanModel, opinion: Scores) -> Attributes:
        """Return what was learned together with the scan, and the scores of both."""
        check_scores(self, committee["scores_"])  # ranks would hide what is no number
        ranks = Ranks.of(committee["scores_"])
        scores = _mean_rank(opinion, ranks(committee["scores_"]))
        return committee | {"scores_": scores, "scan_": scan, "ranks_": ranks}

    def _score(self, graph: NodeGraph) -> Scores:
        return _mean_rank(self.scan_.scores(graph), self.ranks_(super()._score(graph)))

    def _rescore(self, graph: NodeGraph) -> Scores:
        """Count the domains of the graph, as the scan does."""
        return _mean_rank(self.scan_.recounted(graph).scores(graph), self.ranks_(super()._score(graph)))

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
        if name == "scan_":
            return ScanModel.from_arrays(arrays)
        return Ranks(**arrays) if name == "ranks_" else super()._restored(name, arrays)


def _mean_rank(scan: Scores, committee: Scores) -> Scores:
    """Return the mean of three ranks, of which the first argument is the mean of two."""
    return np.asarray((2 * scan + committee) / 3)


@dataclass(frozen=True, eq=False)
class Job:
    """The networks of one encoder in a round, of some seeds, and what they are trained with."""

    encoder: int
    states: Sequence[SeedState]
    fleet: Fleet
    data: GraphInput
    objective: WeightedCrossEntropy
    schedule: Schedule

    def finish(self) -> None:
        """Keep the trained networks, and their margins, with the seeds that they are of."""
        margins = margins_of(self.data.evaluate(self.fleet))
        networks = self.fleet.members // len(self.states)
        for k, state in enumerate(self.states):
            own = range(k * networks, (k + 1) * networks)
            state.fleets[self.encoder].append(self.fleet.gather([(self.fleet, network) for network in own]))
            state.margins[self.encoder].append(margins[:, own])


class CoTraining:
    """The rounds of RECO-SLIP+, for blocks of seeds whose networks are trained together.

    Encoders train in the same steps on a GPU; on a CPU side by side, and some of the seeds apart where there are more
    cores; and in batches one after the other.

    Args:
        detector: its settings.
        graph: the graph, whose domains are not looked at.
    """

    def __init__(self, detector: RecoSlipPlus, graph: NodeGraph) -> None:
        self.detector, self.graph, self.encoders = detector, graph, encoders_of(detector)
        self.inputs: list[GraphInput] = [detector._graph_input(graph, encoder) for encoder in self.encoders]
        self.neighbours = Neighbours(graph)
        self.in_batches = any(isinstance(data, SampledGraph) for data in self.inputs)
        # Trainings can run at once: not in batches, nor with PyTorch's generator for all.
        self._independent = not self.in_batches and all(isinstance(encoder, str) for encoder in self.encoders)
        self._on_cpu = self.inputs[0].device.type == "cpu"

    @property
    def epochs(self) -> int:
        """How many steps a round has: as many on a whole graph as asked for, more in batches of a large one."""
        return round(self.detector.epochs * (steps_factor(self.graph.num_nodes) if self.in_batches else 1))

    def run(self, members: Sequence[tuple[Presentation, Scores]], phases: Phases) -> list[Attributes]:
        """Train all rounds for a block of presentations, each with the opinion that it begins at."""
        detector = self.detector
        states = [SeedState.of(*member, detector.folds, len(self.encoders)) for member in members]
        for of_round in map(Round, range(1, detector.rounds + 1)):
            for state in states:
                state.labels = choose_pseudo_labels(
                    state.margin,
                    state.is_target,
                    state.nodes,
                    scan=state.scan,
                    core=detector.core,
                    known_below=None if of_round.number == 1 else detector.known_below,
                    source_weight=detector.source_weight,
                )
            self._train(states, of_round, phases.phase(self.epochs * len(self.inputs)))
            for state in states:
                state.record(of_round, self._predict(state, slice(-1, None)))
        return [self._attributes(state) for state in states]

    def _predict(self, state: SeedState, rounds: slice) -> Prediction:
        margins = [np.concatenate(own[rounds], axis=1) for own in state.margins]
        return self.detector._predict(margins, self.neighbours, state.folds)

    def _attributes(self, state: SeedState) -> Attributes:
        prediction = self._predict(state, slice(None))
        return {
            "scores_": prediction.f,
            "uncertainty_": prediction.disagreement,
            "rounds_": pl.DataFrame(state.rounds, schema=ROUNDS_SCHEMA, orient="row"),
            "fleet_": nn.ModuleList(
                own[0].gather([(fleet, network) for fleet in own for network in range(fleet.members)])
                for own in state.fleets
            ),
        }

    def _train(self, states: Sequence[SeedState], of_round: Round, report: Callable[[int], None]) -> None:
        """Train the networks of a round, and keep them and their margins."""
        together = CombinedProgress(report)
        at_once = torch.get_num_threads() if self._independent and self._on_cpu else 1
        parts = min(-(-at_once // len(self.encoders)), len(states))  # of the seeds of an encoder
        reports = [together.task() if k == 0 else _nothing for _ in self.encoders for k in range(parts)]
        keys = [(encoder, states[k::parts]) for encoder in range(len(self.encoders)) for k in range(parts)]
        prepared = [partial(self._job, *key, of_round, own) for key, own in zip(keys, reports, strict=True)]
        if self._independent and not self._on_cpu:  # networks of one encoder leave much of a GPU idle
            jobs = [prepare(lambda: None) for prepare in prepared]
            train_together([Training(job.fleet, job.data, job.objective, job.schedule) for job in jobs])
            for job in jobs:
                job.finish()
            return

        def train(prepare: Callable[[Check], Job], check: Check) -> None:
            job = prepare(check)
            job.data.train(job.fleet, job.objective, job.schedule)
            job.finish()

        side_by_side([partial(train, prepare) for prepare in prepared], at_once)

    def _job(
        self,
        encoder: int,
        states: Sequence[SeedState],
        of_round: Round,
        report: Callable[[int], None],
        check: Check,
    ) -> Job:
        """Build what one encoder trains in a round, of some seeds together."""

        def progress(done: int) -> None:
            check()
            report(done)

        detector, data, networks = self.detector, self.inputs[encoder], self.detector.folds
        seeds = [of_round.seeds(state.seed, encoder, networks + 1) for state in states]
        fleet = detector._build_fleet(
            self.graph.num_features,
            [seed for own in seeds for seed in own[:-1]],
            encoder=self.encoders[encoder],
            input_dropout=detector.input_dropout,
            input_seeds=[own[-1] for own in seeds for _ in range(networks)],
        ).to(data.device)
        schedule = Schedule(
            self.epochs, detector.learning_rate, validate_after=None, stage=of_round.number, progress=progress
        )
        return Job(encoder, states, fleet, data, cross_entropy(states, networks, data.device), schedule)


def _nothing(done: int) -> None:
    """Report nothing: what another job does in the same steps is reported."""


def steps_factor(nodes: int) -> float:
    """Return how many times as many steps in batches a graph takes: the fourth root of its size in medium graphs.

    >>> steps_factor(10_000), steps_factor(320_000)
    (1.0, 2.0)
    """
    return float(max(1.0, nodes / MEDIUM_GRAPH) ** 0.25)


def margins_of(logits: Tensor) -> Scores:
    """Turn logits, (nodes, networks, 2), into margins."""
    margins: Scores = logits.diff(dim=-1)[..., 0].numpy()
    return margins
