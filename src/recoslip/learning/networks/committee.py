"""Opinions on nodes -> pseudo-labels that networks learn; margins of many networks -> one out-of-fold prediction."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.data.neighbours import Neighbours, diffuse
from recoslip.data.split import Mask
from recoslip.learning.base import Presentation, Scores
from recoslip.learning.networks.interfaces import Fleet
from recoslip.learning.networks.objectives import WeightedCrossEntropy, positions
from recoslip.learning.networks.random_bits import derive

Folds = NDArray[np.int64]
MARGIN_LIMIT = 8.0  # margins are clipped there, so that no node outweighs all of its neighbours
SMOOTHING_STEPS = 3
LEAST_SCORE = 1e-4  # of the scan, and the distance of the highest from 1, so that log-odds are finite


class Prediction(NamedTuple):
    """What an ensemble predicts for every node, each array (nodes,)."""

    margin: Scores  # above 0 it looks novel
    disagreement: Scores  # standard deviation of f among the networks

    @property
    def f(self) -> Scores:
        """σ(margin), in [0, 1]."""
        return _sigmoid(self.margin)


def _sigmoid(margin: Scores) -> Scores:
    return np.asarray(1 / (1 + np.exp(-margin)))


def assign_folds(ids: Iterable[Any], folds: int, seed: int) -> Folds:
    """Assign nodes to folds by their ids, so that a node has the same fold in every graph and order.

    >>> assign_folds(np.array(["a", "b", "c", "d"]), 2, seed=0)
    array([0, 1, 0, 0])
    """
    word = torch.tensor([zlib.crc32(str(name).encode()) for name in ids], dtype=torch.long)
    return ((derive(torch.tensor(seed), 11) + derive(word, 0)) >> 1).remainder(folds).numpy()


def out_of_fold_prediction(margins: Scores, folds: Folds, held_out: Folds, weights: Scores | float = 1.0) -> Prediction:
    """Average margins, (nodes, networks), over the networks that held out a node's fold.

    Args:
        margins: (nodes, networks).
        folds: (nodes,) the fold of each node.
        held_out: (networks,) the fold that each network was not trained on.
        weights: (networks,) how much each counts.
    """
    predicts = np.where(held_out == folds[:, None], weights, 0.0)
    margins = margins.clip(-MARGIN_LIMIT, MARGIN_LIMIT)
    total = predicts.sum(axis=1)

    def mean(values: Scores) -> Scores:
        return np.asarray((values * predicts).sum(axis=1) / total)

    f = _sigmoid(margins)
    return Prediction(mean(margins), np.sqrt(mean((f - mean(f)[:, None]) ** 2)))


def smooth(margin: Scores, neighbours: Neighbours, alpha: float) -> Scores:
    """Mix a node's margin with its neighbours' mean, which counts `alpha`, several steps far.

    A node without neighbours keeps its own.

    >>> from recoslip import NodeGraph
    >>> pair = NodeGraph([[0.0], [0.0], [0.0]], [[0], [1]], [False, False, True])
    >>> smooth(np.array([4.0, 0.0, 2.0]), Neighbours(pair), 0.5).tolist()
    [2.5, 1.5, 2.0]
    """
    return diffuse(margin, neighbours.mean, alpha, SMOOTHING_STEPS, isolated=neighbours.degree == 0)


class PseudoLabels(NamedTuple):
    """Weight of each label for each node, (nodes,); unlabelled nodes have weight 0 in both."""

    novel: Scores
    known: Scores


def choose_pseudo_labels(
    margin: Scores,
    is_target: Mask,
    nodes: Mask,
    *,
    scan: Scores | float = 0.0,
    core: float,
    known_below: float | None,
    source_weight: float,
) -> PseudoLabels:
    """Label nodes for the next networks.

    The highest target nodes, by the margin and the scan together, are labelled novel. The source nodes, and the target
    nodes with σ(margin) below `known_below`, are labelled known.

    Args:
        margin: (nodes,) of the networks so far, or of the scan.
        is_target: (nodes,).
        nodes: (nodes,) those that may be labelled.
        scan: (nodes,) the log-odds of the scan's scores.
        core: fraction of the target nodes that are labelled novel.
        known_below: in [0, 1]; None labels the lower half of the target known, for opinions that only rank nodes.
        source_weight: weight of a source node; that of a target node is 1.
    """
    target = np.flatnonzero(nodes & is_target)
    target = target[np.argsort(-margin[target], kind="stable")]
    low = target[-(len(target) // 2) :] if known_below is None else target[_sigmoid(margin[target]) < known_below]
    order = np.argsort(-(margin + scan)[target], kind="stable")
    highest = target[order[: max(1, round(core * len(target)))]]
    novel, known = np.zeros(len(nodes)), np.where(nodes & ~is_target, source_weight, 0.0)
    known[low] = 1
    known[highest] = 0
    novel[highest] = 1
    return PseudoLabels(novel, known)


def label_weights(weight: Scores, folds: Folds, held_out: Folds) -> Tensor:
    """Normalise the weights of a label, (nodes, networks): those of each network sum to 1, and are 0 in its fold.

    A network whose held-out fold holds every node with this label is trained on all of them.

    Args:
        weight: (nodes,) of the label.
        folds: (nodes,) the fold of each node.
        held_out: (networks,) the fold that each network is not trained on.
    """
    weights = weight[:, None] * (held_out != folds[:, None])
    weights = np.where(weights.any(axis=0), weights, weight[:, None])
    return torch.from_numpy((weights / weights.sum(axis=0)).astype(np.float32))


@dataclass(frozen=True)
class Round:
    """A round of co-training."""

    number: int  # from 1

    def seeds(self, seed: int, encoder: int, count: int) -> list[int]:
        """Return seeds of networks of an encoder, the same ones whoever else is trained."""
        key = derive(torch.tensor(seed), self.number, encoder)
        return [int(derive(key, network)) for network in range(count)]


@dataclass(eq=False)
class SeedState:
    """How far the training of one seed has come."""

    seed: int
    is_target: Mask
    nodes: Mask  # that train, or are predicted out of fold
    folds: Folds
    scan: Scores  # log-odds of the scan's scores
    margin: Scores  # by which pseudo-labels are chosen: that of the scan, then of networks
    fleets: list[list[Fleet]]  # of each encoder, those of each round, on the CPU
    margins: list[list[Scores]]  # of those, (nodes, networks)
    labels: PseudoLabels = field(init=False)  # of the present round
    rounds: list[tuple[int, int, int, float]] = field(default_factory=list)

    @classmethod
    def of(cls, shown: Presentation, scores: Scores, folds: int, encoders: int) -> Self:
        """Begin the training of the seed of a presentation at the scores of the scan.

        Nothing is chosen by validation, and nodes are predicted out of fold, so validation nodes are trained on, too.
        """
        graph, split, seed = shown
        own_folds = assign_folds(graph.ids, folds, seed)
        scores = scores.clip(LEAST_SCORE, 1 - LEAST_SCORE)
        scan, nodes = np.log(scores / (1 - scores)), split.train | split.validation
        empty: list[list[Any]] = [[] for _ in range(2 * encoders)]
        return cls(seed, graph.is_target, nodes, own_folds, scan, scan, empty[:encoders], empty[encoders:])

    def record(self, of_round: Round, prediction: Prediction) -> None:
        """Add a round to the table, and take over its margins."""
        novel, known = (int(((label > 0) & self.is_target).sum()) for label in self.labels)
        looks_novel = float((prediction.f[self.is_target] > 0.5).mean())
        self.rounds.append((of_round.number, novel, known, looks_novel))
        self.margin = prediction.margin


def cross_entropy(states: Sequence[SeedState], folds: int, device: torch.device) -> WeightedCrossEntropy:
    """Turn the pseudo-labels of each seed into the objective of its networks, of which each holds out a fold."""
    held_out = np.arange(folds)
    novel, known = (
        torch.cat([label_weights(getattr(s.labels, kind), s.folds, held_out) for s in states], dim=1)
        for kind in PseudoLabels._fields
    )
    nodes = positions(np.any([state.nodes for state in states], axis=0), device)
    return WeightedCrossEntropy(novel.to(device), known.to(device), nodes, nodes)
