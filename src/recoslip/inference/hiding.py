"""NodeGraph -> parts of its source nodes to hide, which follow the edges as much as the domains do.

Where the domains follow the edges, known target nodes lie among target nodes, and source nodes that were hidden one by
one would lie among source nodes. So what is hidden then is the part of the source where random values are highest that
were averaged over neighbours a few times. The number of times is chosen so that the hidden parts are as correlated over
the edges as the domains are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recoslip.data.blocks import current
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import hashes_of
from recoslip.data.neighbours import mean_of_rows
from recoslip.data.partitions import Partitions
from recoslip.data.split import MIN_SOURCE, Mask, rotate

HOPS = (1, 2, 3, 5, 8)  # numbers of averages that are tried
WEAK = 0.25  # of the correlation that one average reaches; domains that reach less do not follow the edges
PART = 0.25  # of the source that is hidden at a time, where domains follow the edges
RANDOM_PARTS, MATCHED_PARTS = 5, 12  # that are hidden one after the other
MIN_SHARE = 0.3  # of source nodes in the bins of a node that is looked at: others may be novel
MAX_EDGES = 2_000_000  # that correlations are measured on
DRAWS, FEW_EDGES = 8, 100_000  # parts that they are averaged over, where edges are fewer than that


@dataclass(frozen=True)
class Hiding:
    """How the source nodes to hide are chosen."""

    hops: int = 0  # how many times random values are averaged over neighbours; 0: nodes are drawn one by one
    correlation: float = 0.0  # of the domains of joined nodes, beyond what similar nodes have in common

    @property
    def follows_edges(self) -> bool:
        """Whether the domains follow the edges."""
        return self.hops > 0

    def part(self, graph: NodeGraph, seed: int, number: int, fraction: float = PART) -> Mask:
        """Return a fraction of the source nodes, those where random values are highest: (nodes,)."""
        return _highest(graph, _averaged(graph, _random_values(graph, [seed, 5, number]), self.hops), fraction)

    def parts(self, graph: NodeGraph, count: int | None, seed: int) -> list[Mask]:
        """Return the parts of the source to hide one after the other.

        They divide the source if nodes are drawn one by one. Other parts overlap.

        Args:
            graph: the graph.
            count: of the parts; by default 5, or 12 that follow the edges.
            seed: of what is drawn.
        """
        if not self.follows_edges:
            return rotate(graph, RANDOM_PARTS if count is None else count, seed)
        return [self.part(graph, seed, number) for number in range(MATCHED_PARTS if count is None else count)]


ONE_BY_ONE = Hiding()


def match_domains(graph: NodeGraph, seed: int = 0) -> Hiding:
    """Choose the hiding that follows the edges of a graph as much as its domains do."""
    source = ~graph.is_target
    if graph.num_edges == 0 or source.sum() < MIN_SOURCE or source.all():
        return ONE_BY_ONE
    correlation, used = _correlations(graph, seed)
    draws = DRAWS if used < FEW_EDGES else 1
    wanted, chosen, nearest = correlation(graph.is_target, np.ones_like(source)), 0, np.inf
    fields, done = [_random_values(graph, [seed, 5, number]) for number in range(draws)], 0
    for hops in HOPS:
        fields, done = [_averaged(graph, field, hops - done) for field in fields], hops
        reached = float(np.mean([correlation(_highest(graph, field, PART), source) for field in fields]))
        if hops == HOPS[0] and wanted < max(WEAK * reached, 2 / np.sqrt(max(used, 1))):
            return Hiding(0, wanted)
        if abs(reached - wanted) < nearest:
            chosen, nearest = hops, abs(reached - wanted)
        if reached > wanted:
            break
    return Hiding(chosen, wanted)


def _random_values(graph: NodeGraph, seed: list[int]) -> NDArray[np.float64]:
    """Draw a value for each node, whatever the order of the nodes: (nodes,)."""
    values = np.empty(graph.num_nodes)
    values[np.argsort(hashes_of(graph), kind="stable")] = np.random.default_rng(seed).normal(size=graph.num_nodes)
    return values


def _averaged(graph: NodeGraph, values: NDArray[np.float64], hops: int) -> NDArray[np.float64]:
    """Average a value of each node over the node and its neighbours, so many times: (nodes,)."""
    degree = np.bincount(graph.edge_index[0], minlength=graph.num_nodes)
    for _ in range(hops):
        around = current().fill(
            values.shape, np.float64, mean_of_rows, graph.edge_index, graph.edge_weight, values, values
        )
        values = (values + degree * around) / (1 + degree)
    return values


def _highest(graph: NodeGraph, values: NDArray[np.float64], fraction: float) -> Mask:
    """Return a fraction of the source nodes, those with the highest values, (nodes,); two or more are left."""
    source = np.flatnonzero(~graph.is_target)
    count = min(max(1, int(fraction * len(source))), len(source) - 2)
    hidden = np.zeros(graph.num_nodes, dtype=bool)
    hidden[source[np.argsort(-values[source], kind="stable")[:count]]] = True
    return hidden


def _correlations(graph: NodeGraph, seed: int) -> tuple[Callable[[Mask, Mask], float], int]:
    """Return a function that measures how alike joined nodes are, and on how many edges it does.

    The function takes a property of nodes, (nodes,), and the nodes to look at. Of each it takes how much more often it
    has the property than the other nodes of its smallest bins do, and correlates the ends of edges.
    """
    partitions, is_target = Partitions.of(graph, seed), graph.is_target
    leaves = partitions.where(partitions.view == partitions.view.max()).leaf
    labels = [np.unique(leaf, return_inverse=True)[1] for leaf in leaves]
    edges = graph.edge_index[:, :: -(-graph.num_edges * 2 // MAX_EDGES)]

    def share(has: Mask, among: Mask) -> NDArray[np.float64]:
        """Return the share of other nodes in each node's bins that have a property."""
        count, total = np.zeros(len(has)), np.zeros(len(has))
        for label in labels:
            count += np.bincount(label[among], minlength=label.max() + 1)[label] - 1
            total += np.bincount(label[among], has[among], minlength=label.max() + 1)[label] - has
        return np.asarray(total / np.maximum(count, 1))

    mixed = share(~is_target, np.ones_like(is_target)) >= MIN_SHARE

    def correlation(has: Mask, among: Mask) -> float:
        used = mixed & among
        excess = np.where(used, has - share(has, among), 0.0)
        excess[used] -= excess[used].mean() if used.any() else 0.0
        left, right = excess[edges[:, used[edges].all(axis=0)]]
        return float((left * right).sum() / max((left**2).sum(), 1e-12))

    return correlation, int(mixed[edges].all(axis=0).sum())
