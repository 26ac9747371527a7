"""A committee's opinion -> pseudo-labels to train the next networks on, and whether to believe them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recoslip.data.split import Mask
from recoslip.learning.base import Scores
from recoslip.learning.networks.ensemble import NO_FOLD, Folds, Prediction

MAX_SOURCE_RATIO = 0.075  # above it, the highest are taken for a known category that grew
MIN_SOURCE = 3  # fewer source nodes among the highest may be there by chance


class PseudoLabels(NamedTuple):
    """Weight of each label for each node, (nodes,); unlabelled nodes have weight 0 in both."""

    novel: Scores
    known: Scores


def core_size(core: float, target_nodes: int) -> int:
    """Return how many target nodes are the highest."""
    return max(1, round(core * target_nodes))


def choose_pseudo_labels(
    prediction: Prediction,
    is_target: Mask,
    nodes: Mask,
    *,
    isolation: Scores | float = 0.0,
    core: float,
    known_below: float | None,
    source_weight: float,
) -> PseudoLabels:
    """Label nodes for the next networks.

    The highest target nodes, by margin and isolation together, are labelled novel. The source nodes, and the target
    nodes with f below `known_below`, are labelled known.

    Args:
        prediction: of the networks so far.
        is_target: (nodes,).
        nodes: (nodes,) those that may be labelled.
        isolation: (nodes,) how far a node is from the source (see `source_isolation`).
        core: fraction of the target nodes that are labelled novel.
        known_below: in [0, 1]; None labels the lower half of the target known, for networks under a recall constraint,
            which predict novel hardly anywhere.
        source_weight: weight of a source node; that of a target node is 1.
    """
    target = np.flatnonzero(nodes & is_target)
    target = target[np.argsort(-prediction.margin[target], kind="stable")]
    rank = (prediction.margin + isolation)[target]
    highest = target[np.argsort(-rank, kind="stable")[: core_size(core, len(target))]]
    low = target[-(len(target) // 2) :] if known_below is None else target[prediction.f[target] < known_below]
    novel, known = np.zeros(len(nodes)), np.where(nodes & ~is_target, source_weight, 0.0)
    known[low] = 1
    known[highest] = 0
    novel[highest] = 1
    return PseudoLabels(novel, known)


def source_ratio(prediction: Prediction, is_target: Mask, nodes: Mask, core: float) -> float:
    """Return how many source nodes there are among the highest for each target node, were both domains equally large.

    The networks that predict a source node were not trained on it, so if the highest are novel, no source node is like
    them; if they are a known category that grew n times, there is one for n target nodes. A novel category may have
    fewer nodes than `core`, and known ones follow it. So the ratio is that among all of the highest or the median of
    those among the highest 1, 2, 3 and so on, whichever is less. One or two source nodes may be there by chance and
    count as none.

    Args:
        prediction: out of fold.
        is_target: (nodes,).
        nodes: (nodes,) those to compare.
        core: fraction of the target nodes that are the highest.

    >>> target = np.arange(12) < 6
    >>> source_ratio(Prediction(np.arange(12.0), np.zeros(12)), target, target | True, 0.5)
    2.0
    >>> source_ratio(Prediction(-np.arange(12.0), np.zeros(12)), target, target | True, 0.5)
    0.0
    """
    target, source = (np.sort(prediction.margin[nodes & side]) for side in (is_target, ~is_target))
    count = np.arange(1, core_size(core, len(target)) + 1)
    above = len(source) - np.searchsorted(source, target[::-1][: len(count)])
    if above[-1] < MIN_SOURCE:
        return 0.0
    ratios = above / len(source) * len(target) / count
    return float(min(ratios[-1], np.median(ratios)))


def label_weights(weight: Scores, folds: Folds, held_out: Folds) -> Tensor:
    """Normalise the weights of a label, (nodes, networks): those of each network sum to 1, and are 0 in its fold.

    A network whose held-out fold holds every node with this label is trained on all of them.

    Args:
        weight: (nodes,) of the label.
        folds: (nodes,) the fold of each node.
        held_out: (networks,) the fold that each network is not trained on, or NO_FOLD.
    """
    weights = weight[:, None] * ((held_out != folds[:, None]) | (held_out == NO_FOLD))
    weights = np.where(weights.any(axis=0), weights, weight[:, None])
    return torch.from_numpy((weights / weights.sum(axis=0)).astype(np.float32))
