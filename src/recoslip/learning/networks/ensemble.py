"""Margins of many networks -> one out-of-fold prediction of every node."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recoslip.data.neighbours import Neighbours, diffuse
from recoslip.data.split import Mask
from recoslip.learning.base import Scores
from recoslip.learning.networks.random_bits import derive

Folds = NDArray[np.int64]
NO_FOLD = -1  # held-out fold of a network that was trained on all nodes
MARGIN_LIMIT = 8.0  # margins are clipped there, so that no node outweighs all of its neighbours
SMOOTHING_STEPS = 3


class Prediction(NamedTuple):
    """What an ensemble predicts for every node, each array (nodes,)."""

    margin: Scores  # above 0 it looks novel
    disagreement: Scores  # standard deviation of f among the networks

    @property
    def f(self) -> Scores:
        """σ(margin), in [0, 1]."""
        return np.asarray(1 / (1 + np.exp(-self.margin)))


def assign_folds(ids: Iterable[Any], folds: int, seed: int) -> Folds:
    """Assign nodes to folds by their ids, so that a node has the same fold in every graph and order.

    >>> assign_folds(np.array(["a", "b", "c", "d"]), 2, seed=0)
    array([0, 1, 0, 0])
    """
    word = torch.tensor([zlib.crc32(str(name).encode()) for name in ids], dtype=torch.long)
    return ((derive(torch.tensor(seed), 11) + derive(word, 0)) >> 1).remainder(folds).numpy()


def is_out_of_fold(folds: Folds, held_out: Folds) -> Mask:
    """Return which networks predict a node, (nodes, networks): those that held its fold out, or hold none out.

    Args:
        folds: (nodes,) the fold of each node.
        held_out: (networks,) the fold that each network was not trained on, or NO_FOLD.
    """
    return np.asarray((held_out == folds[:, None]) | (held_out == NO_FOLD))


def out_of_fold_prediction(margins: Scores, folds: Folds, held_out: Folds, weights: Scores | float = 1.0) -> Prediction:
    """Average margins, (nodes, networks), over each node's out-of-fold networks (see `is_out_of_fold`).

    Networks count by their `weights`, (networks,).
    """
    predicts = np.where(is_out_of_fold(folds, held_out), weights, 0.0)
    margins = margins.clip(-MARGIN_LIMIT, MARGIN_LIMIT)
    total = predicts.sum(axis=1)

    def mean(values: Scores) -> Scores:
        return np.asarray((values * predicts).sum(axis=1) / total)

    f = 1 / (1 + np.exp(-margins))
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
