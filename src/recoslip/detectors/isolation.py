"""NodeGraph -> how far each target node is from the source, counted in target nodes that are nearer."""

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


def source_isolation(graph: NodeGraph, nodes: Mask, device: torch.device | str = "cpu") -> Scores:
    """Return log(1 + the number of target nodes that are nearer than the third source node), for every target node.

    A known category that grew still has source nodes among its own; a novel one has none. Nearness is the cosine of
    tf-idf weighted features, reduced by truncated SVD and averaged with those of the neighbours, two hops far.

    Args:
        graph: the graph.
        nodes: (nodes,) those to compare with, some of them where they are many; a node is not compared with itself.
        device: where to compare.

    Returns:
        (nodes,) 0 for source nodes.

    >>> x = np.array([[1.0, 0.0], [1, 0.1], [1, 0.2], [1, 0.3], [0, 1], [0.1, 1], [0.2, 1]])
    >>> graph = NodeGraph(x, np.empty((2, 0), dtype=int), [False, False, False, True, True, True, True])
    >>> np.expm1(source_isolation(graph, np.ones(7, dtype=bool))).round().tolist()
    [0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0]
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
    unit = torch.from_numpy((x / np.where(length > 0, length, 1)).astype(np.float32)).to(device)
    references = np.flatnonzero(nodes)
    references = references[:: -(-len(references) // MAX_REFERENCES)]
    is_target = graph.is_target.numpy()
    source, target = (torch.from_numpy(references[is_target[references] == side]).to(device) for side in (False, True))
    isolation = np.zeros(graph.num_nodes)
    if len(source) < NEAREST:
        return isolation
    for rows in torch.split(torch.from_numpy(np.flatnonzero(is_target)).to(device), BLOCK):
        third = (unit[rows] @ unit[source].T).topk(NEAREST, dim=1).values[:, -1:]
        nearer = (unit[rows] @ unit[target].T > third + TIE) & (rows[:, None] != target)
        isolation[rows.cpu()] = nearer.sum(dim=1).clamp_(max=MAX_RANK).log1p().cpu()
    return isolation
