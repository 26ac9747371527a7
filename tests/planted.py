"""Small graphs whose truth is known: domains that follow the edges, or not; content that drifts, grows or is new."""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from recoslip import NodeGraph
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.panel import Case, Labelled, panel_case

NO_EDGES = np.empty((2, 0), dtype=int)
YEARS = 20  # of a graph with times
STEPS = 8  # of content that drifts, in these years


def panel(case: str, seed: int, nodes: int = 600, categories: int = 6) -> Case:
    """A case of the panel, drawn from a block model: a graph, and which of its nodes are novel."""
    graph = csbm(nodes=nodes, categories=categories, noise=0.7, homophily=0.85, degree=6, features=24, seed=seed)
    labelled = Labelled(graph.x, graph.edge_index, graph.categories.astype(np.int64))
    return panel_case(f"csbm-{seed}", labelled, case, seed)


def neighbourhood(case: str, seed: int, nodes: int = 500) -> Case:
    """A case of the panel on a map: edges join nodes that lie near each other, and features tell a little of where."""
    rng = np.random.default_rng(seed)
    place, category = rng.random((nodes, 2)), rng.integers(0, 5, nodes)
    near = cKDTree(place).query(place, 9)[1][:, 1:]
    x = np.column_stack([rng.normal(size=(5, 6))[category] + 0.3 * rng.normal(size=(nodes, 6)), place])
    edges = np.stack([np.repeat(np.arange(nodes), 8), near.ravel()])
    return panel_case(f"map-{seed}", Labelled(x.astype(np.float32), edges, category), case, seed)


def with_domains(graph: NodeGraph, source_share, seed: int) -> NodeGraph:
    """The same graph, the domain of each node drawn with the source share of its category."""
    rng = np.random.default_rng([seed, 1])
    return graph.with_target(rng.random(graph.num_nodes) > np.asarray(source_share)[graph.categories])


class Population(NamedTuple):
    """Nodes that more source nodes are drawn from; nothing is novel, and nothing grew."""

    graph: NodeGraph
    order: np.ndarray

    @classmethod
    def of(cls, seed: int, nodes: int = 2000, categories: int = 16):
        graph = csbm(
            nodes=nodes, categories=categories + 1, novel_share=0.0, shift=0.0,
            noise=0.4, homophily=0.9, degree=40, features=24, seed=seed,
        )  # fmt: skip
        return cls(graph, np.random.default_rng(seed).permutation(nodes))

    def sample(self, target: int, source: int) -> NodeGraph:
        """A graph of so many nodes; with the same seed, more source nodes are added to the same ones."""
        assert target + source <= len(self.order)
        nodes = np.sort(self.order[: target + source])
        return self.graph.subgraph(nodes).with_target(np.isin(nodes, self.order[:target]))


def with_times(seed: int, *, drifts: bool = False, novel: bool = False, nodes: int = 900) -> NodeGraph:
    """A graph with times, whose target are the last years.

    Args:
        seed: of what is drawn.
        drifts: whether a quarter of the nodes has other content every few years, in source and target alike.
        novel: whether a category of 30 % of the target appears with it.
        nodes: how many there are.
    """
    rng = np.random.default_rng(seed)
    age = np.sort(rng.random(nodes))
    is_target = age >= 0.7
    category = rng.integers(0, 4, nodes)
    centre = rng.normal(size=(5 + STEPS, 12))
    category = np.where(drifts & (category == 3), 5 + (age * STEPS).astype(int), category)
    category = np.where(novel & is_target & (rng.random(nodes) < 0.3), 4, category)
    x = centre[category] + rng.normal(size=(nodes, 12)) * 0.3
    ends = rng.integers(0, nodes, 3 * nodes)
    others = np.array([rng.choice(np.flatnonzero(category == category[end])) for end in ends])
    times = np.round(2000 + YEARS * age, 3)
    return NodeGraph(x, np.stack([ends, others]), is_target, categories=category, times=times)
