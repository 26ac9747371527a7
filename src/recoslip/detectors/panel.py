"""Margins of many networks -> one opinion of every node, by the networks that did not learn from it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.detectors.base import Scores
from recoslip.fleet.bits import derive
from recoslip.graph import Neighbours
from recoslip.shift import Mask

Folds = NDArray[np.int64]
NO_FOLD = -1  # of a network that learned from all nodes
LIMIT = 8.0  # of a margin: beyond it a network is as sure as can be, and no node shall drown out its neighbours
STEPS = 3  # of smoothing
TOP = 0.6  # share of the core that is its top
GROWN = 0.065  # more source nodes than that, for each target node if both were as many, are too many
FEWEST = 3  # source nodes: fewer prove nothing


class Opinion(NamedTuple):
    """What networks say of every node, each array (nodes,)."""

    margin: Scores  # above 0 it looks novel
    disagreement: Scores  # standard deviation of f among the networks

    @property
    def f(self) -> Scores:
        """σ(margin), in [0, 1]."""
        return np.asarray(1 / (1 + np.exp(-self.margin)))


class Examples(NamedTuple):
    """How much each node counts as an example of either kind, (nodes,); those that wait count nothing."""

    novel: Scores
    known: Scores


def folds_of(ids: Iterable[Any], folds: int, seed: int) -> Folds:
    """Divide nodes by their ids, so that a node has the same fold in every graph and order.

    >>> folds_of(np.array(["a", "b", "c", "d"]), 2, seed=0)
    array([0, 1, 0, 0])
    """
    word = torch.tensor([zlib.crc32(str(name).encode()) for name in ids], dtype=torch.long)
    return ((derive(torch.tensor(seed), 11) + derive(word, 0)) >> 1).remainder(folds).numpy()


def may_speak(folds: Folds, without: Folds) -> Mask:
    """Say which networks may judge a node, (nodes, networks): those without its fold, and those that learned from all.

    Args:
        folds: (nodes,) the fold of each node.
        without: (networks,) the fold that each network did not learn from, or NO_FOLD.
    """
    return np.asarray((without == folds[:, None]) | (without == NO_FOLD))


def judge(margins: Scores, folds: Folds, without: Folds) -> Opinion:
    """Average margins, (nodes, networks), over the networks that may speak of a node; folds as for `may_speak`."""
    speaks = may_speak(folds, without)
    margins = margins.clip(-LIMIT, LIMIT)
    mean, _ = _mean_and_deviation(margins, speaks)
    _, disagreement = _mean_and_deviation(1 / (1 + np.exp(-margins)), speaks)
    return Opinion(mean, disagreement)


def _mean_and_deviation(values: Scores, where: Mask) -> tuple[Scores, Scores]:
    count = where.sum(axis=1)
    mean = (values * where).sum(axis=1) / count
    return mean, np.sqrt(((values - mean[:, None]) ** 2 * where).sum(axis=1) / count)


def smooth(margin: Scores, neighbours: Neighbours, share: float) -> Scores:
    """Let the neighbours have a say: (1 - share) of a node's own margin, the rest their mean, a few steps far.

    A node without neighbours keeps its own.

    Args:
        margin: (nodes,).
        neighbours: of the graph's nodes.
        share: in [0, 1].

    >>> from recoslip.graph import NodeGraph
    >>> pair = NodeGraph([[0.0], [0.0], [0.0]], [[0], [1]], [False, False, True])
    >>> smooth(np.array([4.0, 0.0, 2.0]), Neighbours(pair), 0.5).tolist()
    [2.5, 1.5, 2.0]
    """
    result = margin
    for _ in range(STEPS):
        said = (1 - share) * margin + share * neighbours.mean(result)
        result = np.where(neighbours.degree == 0, margin, said)
    return result


def choose_examples(
    opinion: Opinion,
    is_target: Mask,
    nodes: Mask,
    *,
    core: float,
    known_below: float | None,
    source_weight: float,
) -> Examples:
    """Choose whom the next networks learn from.

    Novel are the highest target nodes. Known are the source nodes, and the target nodes with f below `known_below`;
    without that, the lower half.

    Args:
        opinion: of the networks so far.
        is_target: (nodes,).
        nodes: (nodes,) those to choose from.
        core: share of the target nodes that are novel.
        known_below: in [0, 1], or None for networks under a recall constraint, who call hardly anything novel.
        source_weight: how much a source node counts; a target node counts 1.
    """
    target = np.flatnonzero(nodes & is_target)
    target = target[np.argsort(-opinion.margin[target], kind="stable")]
    highest = target[: max(1, round(core * len(target)))]
    low = target[-(len(target) // 2) :] if known_below is None else target[opinion.f[target] < known_below]
    novel, known = np.zeros(len(nodes)), np.where(nodes & ~is_target, source_weight, 0.0)
    known[low] = 1
    known[highest] = 0
    novel[highest] = 1
    return Examples(novel, known)


def is_grown(opinion: Opinion, is_target: Mask, nodes: Mask, core: float) -> bool:
    """Say whether source nodes are among the highest: then those are of a known kind that grew, not of a novel one.

    The networks that judge a source node did not learn from it. If the highest are novel, no source node is like them;
    where the novel kind is smaller than the core, known nodes fill it up, but not its top.

    Args:
        opinion: of networks that judge the nodes they did not learn from.
        is_target: (nodes,).
        nodes: (nodes,) those to look at.
        core: share of the target nodes that are the highest.

    >>> target = np.arange(12) < 5
    >>> is_grown(Opinion(np.arange(12.0), np.zeros(12)), target, target | True, 0.5)
    True
    >>> is_grown(Opinion(-np.arange(12.0), np.zeros(12)), target, target | True, 0.5)
    False
    """
    target, source = np.sort(opinion.margin[nodes & is_target])[::-1], opinion.margin[nodes & ~is_target]
    above = {share: source >= target[max(1, round(share * len(target))) - 1] for share in (core, TOP * core)}
    too_many = all(found.mean() > GROWN * share for share, found in above.items())
    return bool(too_many and above[core].sum() >= FEWEST)


def example_weights(count: Scores, folds: Folds, without: Folds) -> Tensor:
    """Weigh examples, (nodes, networks): those of each network sum to 1 and leave its fold out.

    A network that would be left without any learns from all.

    Args:
        count: (nodes,) how much each counts, 0 for those that are no examples.
        folds: (nodes,) the fold of each node.
        without: (networks,) the fold that each network shall not learn from, or NO_FOLD.
    """
    weight = count[:, None] * ((without != folds[:, None]) | (without == NO_FOLD))
    weight = np.where(weight.any(axis=0), weight, count[:, None])
    return torch.from_numpy((weight / weight.sum(axis=0)).astype(np.float32))
