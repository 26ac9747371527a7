"""Margins of many networks -> one opinion of every node, by the networks that did not learn from it."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.detectors.base import Scores
from recoslip.fleet.bits import derive
from recoslip.shift import Mask

Folds = NDArray[np.int64]
NO_FOLD = -1  # of a network that learned from all nodes
QUANTILES = 257  # a rank is interpolated between them, so that rounding moves it by little


class Opinion(NamedTuple):
    """What networks say of every node, each array (nodes,)."""

    rank: Scores  # mean share of target nodes with a lower margin
    spread: Scores  # standard deviation of that share among the networks
    f: Scores  # mean σ(margin)


class Examples(NamedTuple):
    """Nodes to learn from, as masks; the others wait."""

    novel: Mask
    known: Mask


def folds_of(ids: NDArray[Any], folds: int, seed: int) -> Folds:
    """Divide nodes by their ids, so that a node has the same fold in every graph and order.

    >>> folds_of(np.array(["a", "b", "c", "d"]), 2, seed=0)
    array([0, 1, 0, 0])
    """
    word = torch.tensor([zlib.crc32(str(name).encode()) for name in ids], dtype=torch.long)
    return ((derive(torch.tensor(seed), 11) + derive(word, 0)) >> 1).remainder(folds).numpy()


def quantiles_of(margins: Scores, is_target: Mask) -> Scores:
    """Sum up each network's margins of target nodes by QUANTILES of them, (networks, quantiles), to rank nodes by."""
    return np.quantile(margins[is_target], np.linspace(0, 1, QUANTILES), axis=0).T


def judge(margins: Scores, quantiles: Scores, folds: Folds, without: Folds) -> Opinion:
    """Average over the networks that may speak of a node: those without its fold, and those that learned from all.

    Args:
        margins: (nodes, networks).
        quantiles: (networks, quantiles) of the margins of target nodes on the graph they learned from.
        folds: (nodes,) the fold of each node.
        without: (networks,) the fold that each network did not learn from, or NO_FOLD.
    """
    speaks = (without == folds[:, None]) | (without == NO_FOLD)  # (nodes, networks)
    at = np.linspace(0, 1, quantiles.shape[1])
    share = np.stack([np.interp(own, known, at) for own, known in zip(margins.T, quantiles, strict=True)], axis=1)
    count = speaks.sum(axis=1)
    mean = (share * speaks).sum(axis=1) / count
    spread = np.sqrt((((share - mean[:, None]) ** 2) * speaks).sum(axis=1) / count)
    f = (torch.sigmoid(torch.from_numpy(margins)).numpy() * speaks).sum(axis=1) / count
    return Opinion(mean, spread, f)


def choose_examples(opinion: Opinion, is_target: Mask, nodes: Mask, core: float, *, is_proposal: bool) -> Examples:
    """Choose whom the next networks learn from.

    Novel are the highest ranked target nodes. Known are the source nodes, and the target nodes that the networks call
    known; of proposals, whose networks call hardly anything novel, the lower half.

    Args:
        opinion: of the networks so far.
        is_target: (nodes,).
        nodes: (nodes,) those to choose from.
        core: share of the target nodes that are novel.
        is_proposal: whether the opinion is of networks under a recall constraint.
    """
    target = np.flatnonzero(nodes & is_target)
    target = target[np.argsort(-opinion.rank[target], kind="stable")]
    novel = np.zeros_like(nodes)
    novel[target[: max(1, round(core * len(target)))]] = True
    known = nodes & ~is_target
    if is_proposal:
        known[target[-(len(target) // 2) :]] = True
    else:
        known[target[opinion.f[target] < 0.5]] = True
    return Examples(novel, known & ~novel)


def example_weights(examples: Mask, folds: Folds, without: Folds) -> Tensor:
    """Weigh examples, (nodes, networks): those of each network sum to 1 and leave its fold out.

    A network that would be left without any learns from all.
    """
    weight = examples[:, None] & ((without != folds[:, None]) | (without == NO_FOLD))
    weight |= examples[:, None] & ~weight.any(axis=0)
    return torch.from_numpy((weight / weight.sum(axis=0)).astype(np.float32))
