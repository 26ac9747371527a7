"""NodeGraph -> how far each node is from the source, counted in target nodes that are nearer."""

from __future__ import annotations

import numpy as np
import torch

from recoslip.detectors.base import Scores
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import Neighbours, diffuse
from recoslip.graph.neighbourhood import HOPS, reduced_features
from recoslip.shift import Mask

NEAREST = 3  # which of the nearest source nodes counts: one may be there by chance
MAX_RANK = 400  # more target nodes than these say no more
MAX_REFERENCES = 20_000  # nodes that each node is compared with, at most
BLOCK = 1024  # nodes compared at a time
TIE = 1e-6  # cosines that differ by less are equal: rounding would rank nodes with the same features


def source_isolation(graph: NodeGraph, nodes: Mask) -> Scores:
    """Return log(1 + the number of target nodes that are nearer than the third source node), for every node.

    A known category that grew still has source nodes among its own; a novel one has none. Nearness is the cosine of
    tf-idf weighted features, reduced by truncated SVD and averaged with those of the neighbours, two hops far.

    Args:
        graph: the graph.
        nodes: (nodes,) those to compare with, some of them where they are many; a node is not compared with itself.

    >>> x = np.array([[1.0, 0.0], [1, 0.1], [1, 0.2], [1, 0.3], [0, 1], [0.1, 1], [0.2, 1]])
    >>> graph = NodeGraph(x, np.empty((2, 0), dtype=int), [False, False, False, True, True, True, True])
    >>> np.expm1(source_isolation(graph, np.ones(7, dtype=bool))).round().tolist()
    [4.0, 4.0, 4.0, 0.0, 2.0, 2.0, 2.0]
    """
    neighbours = Neighbours(graph)
    x = diffuse(
        reduced_features(graph, tf_idf=True),
        neighbours.mean,
        0.5,
        HOPS,
        restart=False,
        isolated=neighbours.degree[:, None] == 0,
    )
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit = torch.from_numpy((x / np.where(length > 0, length, 1)).astype(np.float32))
    references = np.flatnonzero(nodes)
    references = references[:: -(-len(references) // MAX_REFERENCES)]
    is_target = graph.is_target.numpy()
    source, target = (torch.from_numpy(references[is_target[references] == side]) for side in (False, True))
    nearer = np.empty(graph.num_nodes)
    for begin in range(0, graph.num_nodes, BLOCK):
        rows = torch.arange(begin, min(begin + BLOCK, graph.num_nodes))
        to_source, to_target = (
            (unit[rows] @ unit[side].T).masked_fill_(rows[:, None] == side, -2.0) for side in (source, target)
        )
        if len(source) < NEAREST:
            nearer[rows] = MAX_RANK
            continue
        third = to_source.topk(NEAREST, dim=1).values[:, -1:]
        nearer[rows] = (to_target > third + TIE).sum(dim=1).numpy()
    return np.asarray(np.log1p(nearer.clip(max=MAX_RANK)))
