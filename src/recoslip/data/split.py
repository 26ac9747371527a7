"""NodeGraph or categories -> which nodes are source, and which train, validate and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recoslip.base.errors import SettingError
from recoslip.base.randomness import Permutations
from recoslip.data.graph import NodeGraph

Mask = NDArray[np.bool_]
TRAIN, VALIDATION, TEST = range(3)  # subsets of a split
MIN_SOURCE = 3  # source nodes for calibration: one to hide and two to learn from


@dataclass(frozen=True, eq=False)
class Split:
    """Which nodes train, validate and test, as boolean arrays over nodes that do not overlap."""

    train: Mask
    validation: Mask
    test: Mask

    def __post_init__(self) -> None:
        masks = [np.asarray(mask) for mask in (self.train, self.validation, self.test)]
        if any(mask.dtype != bool or mask.shape != masks[0].shape or mask.ndim != 1 for mask in masks):
            found = ", ".join(f"{mask.dtype} {mask.shape}" for mask in masks)
            raise SettingError(f"a split is three boolean arrays of the same length; got {found}")
        if (np.sum(masks, axis=0) > 1).any():
            raise SettingError("a split's train, validation and test must not share nodes")
        for name, mask in zip(("train", "validation", "test"), masks, strict=True):
            mask = mask.copy()
            mask.setflags(write=False)
            object.__setattr__(self, name, mask)

    def permuted(self, order: ArrayLike) -> Split:
        """Return the split of the same nodes in another order: new node k is old node `order[k]`."""
        return Split(*(mask[np.asarray(order)] for mask in (self.train, self.validation, self.test)))

    def check_length(self, graph: NodeGraph) -> None:
        """Raise unless this split is for as many nodes as `graph` has."""
        if len(self.train) != graph.num_nodes:
            raise SettingError(f"the split is for {len(self.train)} nodes, the graph has {graph.num_nodes}")

    def check(self, graph: NodeGraph) -> None:
        """Raise unless this split fits `graph` and has source and target nodes to train and to validate on."""
        self.check_length(graph)
        target = graph.is_target
        for subset, mask in (("train", self.train), ("validation", self.validation)):
            for domain, members in (("source", ~target), ("target", target)):
                if not (mask & members).any():
                    raise SettingError(
                        f"the split has no {domain} node in {subset}; each domain needs at least one in both "
                        "train and validation (two nodes per domain at the least)"
                    )


def assign_source(categories: ArrayLike, ratios: Sequence[float], permutations: Permutations) -> Mask:
    """Category of each node and source ratio per category -> which nodes are source.

    Categories are 0..K-1. Each category's nodes, in ascending order, are permuted and the first
    `int(size * ratio)` become source. A ratio of 0 marks a novel category and draws nothing.
    """
    labels = np.asarray(categories)
    if len(ratios) <= int(labels.max()) or not all(0 <= r <= 1 for r in ratios):
        raise SettingError(
            f"expected one source ratio in [0, 1] for each of {int(labels.max()) + 1} categories; got {list(ratios)}"
        )
    is_source = np.zeros(len(labels), dtype=bool)
    for category, ratio in enumerate(ratios):
        if ratio > 0:
            nodes = np.flatnonzero(labels == category)
            is_source[nodes[permutations(len(nodes))[: int(len(nodes) * ratio)]]] = True
    return is_source


def random_split(
    is_target: ArrayLike,
    permutations: Permutations,
    *,
    source: tuple[float, float] = (0.8, 0.2),
    target: tuple[float, float] = (0.6, 0.2),
    test: Mask | None = None,
) -> Split:
    """Domains -> train/validation/test: the paper's protocol by default.

    Args:
        is_target: true for target nodes.
        permutations: where the two permutations come from, source first.
        source: fractions of train and validation among the source nodes.
        target: the same among the target nodes (less `test`); what is left over tests.
        test: nodes that test in any case; they take no part in the permutations.
    """
    target_nodes = np.asarray(is_target)
    fixed = np.zeros_like(target_nodes) if test is None else np.asarray(test)
    subset = np.full(len(target_nodes), TEST)
    for domain, (train, validation) in ((~target_nodes, source), (target_nodes, target)):
        nodes = np.flatnonzero(domain & ~fixed)
        nodes = nodes[permutations(len(nodes))]
        last_train = int(train * len(nodes))
        last_validation = len(nodes) if train + validation >= 1 else last_train + int(validation * len(nodes))
        subset[nodes[:last_train]] = TRAIN
        subset[nodes[last_train:last_validation]] = VALIDATION
    return Split(*(subset == number for number in (TRAIN, VALIDATION, TEST)))


def default_split(graph: NodeGraph, seed: int) -> Split:
    """Draw the split a detector makes when it is given none: 80 % train, 20 % validation in each domain."""
    fractions = (0.8, 0.2)
    return random_split(graph.is_target, Permutations(index(seed)), source=fractions, target=fractions)


def can_calibrate(graph: NodeGraph) -> bool:
    """Return whether there are source nodes to hide, and two to learn from."""
    return int((~graph.is_target).sum()) >= MIN_SOURCE


def hide(graph: NodeGraph, fraction: float, seed: int) -> tuple[NodeGraph, Split, Mask]:
    """Show a fraction of the source nodes as target; return the graph, its split, and which nodes those are."""
    hidden = np.zeros(graph.num_nodes, dtype=bool)
    rng = np.random.default_rng([seed, 1])
    source = _source_to_hide(graph)
    count = min(max(1, int(fraction * len(source))), len(source) - 2)
    hidden[rng.choice(source, count, replace=False)] = True
    return (*present(graph, None, hidden, rng, seed), hidden)


def rotate(graph: NodeGraph, rotations: int, seed: int) -> list[Mask]:
    """Divide the source nodes into parts, of which each is hidden in turn.

    >>> graph = NodeGraph(np.zeros((8, 1)), np.empty((2, 0), dtype=int), [False] * 6 + [True] * 2)
    >>> [int(part.sum()) for part in rotate(graph, 3, seed=0)]
    [2, 2, 2]
    """
    source = _source_to_hide(graph)
    if len(source) - -(-len(source) // rotations) < 2:
        raise SettingError(
            f"{len(source)} source nodes are too few for {rotations} rotations, each of which leaves two or more to "
            f"learn from; pass rotations={len(source)}"
        )
    shuffled = np.random.default_rng([seed, 2]).permutation(source)
    return [np.isin(np.arange(graph.num_nodes), shuffled[part::rotations]) for part in range(rotations)]


def _source_to_hide(graph: NodeGraph) -> NDArray[np.int64]:
    source = np.flatnonzero(~graph.is_target)
    if len(source) < MIN_SOURCE:
        raise SettingError(
            f"calibration needs {MIN_SOURCE} source nodes or more, two to learn from; there are {len(source)}: give "
            f"at least {MIN_SOURCE - len(source)} more"
        )
    return source


def present(
    graph: NodeGraph, split: Split | None, hidden: Mask, rng: np.random.Generator, seed: int
) -> tuple[NodeGraph, Split]:
    """Return the graph as a detector shall see it, hidden nodes among the target, and its split.

    Hidden nodes go to train, validation and test as the target's nodes do, so that nothing but the truth tells them
    from target nodes of the source's categories: that makes their scores comparable. (With a split that is given this
    holds if it was drawn at random.)
    """
    presented = graph.with_target(graph.is_target | hidden) if hidden.any() else graph
    if split is None:
        return presented, default_split(presented, seed)
    if not hidden.any():
        return presented, split
    unused = 3
    subset = np.select([split.train, split.validation, split.test], [TRAIN, VALIDATION, TEST], unused)
    subset[hidden] = rng.choice(subset[graph.is_target], int(hidden.sum()))
    return presented, Split(*(subset == number for number in (TRAIN, VALIDATION, TEST)))
