"""Energy-based out-of-distribution detection: novel is what a classifier of the source knows no class for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from recoslip.detectors.base import Scores
from recoslip.detectors.network_detector import PATIENCE, NetworkDetector
from recoslip.detectors.params import Integer, Number, learned, param
from recoslip.detectors.risk_objectives import DomainNodes, RiskObjective, domain_nodes
from recoslip.fleet.interfaces import Fleet, GraphInput, Objective, Output
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import Neighbours, diffuse
from recoslip.graph.neighbourhood import k_means, neighbourhood_features
from recoslip.graph.split import Split


class EnergyOOD(NetworkDetector):
    r"""$E(v) = -\log \sum_c e^{l_c(v)}$ of a classifier's logits l, smoothed over the graph: high for the unfamiliar.

    Such detectors learn from category labels of the source, which nobody has here. They are replaced by clusters of the
    source nodes (k-means on features averaged over two hops). The target takes no part in training, so what it could
    tell is left unused. The score is $σ((E - m) / s)$ with mean and deviation of the validation source nodes' energy.
    """

    name: ClassVar[str] = "energy"
    supports_batches: ClassVar[bool] = False

    categories: int = param(10, Integer(2), "clusters that the classifier learns to tell apart")
    smoothing: int = param(2, Integer(0), r"steps of $E \leftarrow \alpha E + (1 - \alpha) D^{-1} A E$")
    alpha: float = param(0.5, Number(0, 1), "α")
    epochs: int = 1000
    patience: int = PATIENCE

    energy_mean_: float = learned("mean energy of the validation source nodes")
    energy_deviation_: float = learned("its standard deviation")

    def _num_classes(self) -> int:
        return self.categories

    def _objective(self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, **truth: Any) -> Objective:
        cluster = torch.from_numpy(source_clusters(graph, self.categories)).to(data.device)

        def risk(output: Output, nodes: DomainNodes) -> Tensor:
            log_p = F.log_softmax(output.logits[nodes.source], dim=-1)  # (nodes, members, clusters)
            label = cluster[nodes.source][:, None, None].expand(-1, fleet.members, 1)
            return -log_p.gather(2, label).mean(dim=(0, 2))

        return RiskObjective(risk, *domain_nodes(graph, split, data.device))

    def _energy(self, logits: Tensor, graph: NodeGraph) -> NDArray[np.float64]:
        energy: NDArray[np.float64] = -torch.logsumexp(logits, dim=1).numpy()
        neighbours = Neighbours(graph, weighted=False)
        isolated = neighbours.degree == 0
        return diffuse(energy, neighbours.mean, 1 - self.alpha, self.smoothing, restart=False, isolated=isolated)

    def _learn_from_logits(self, logits: Tensor, graph: NodeGraph, split: Split) -> dict[str, float]:
        energy = self._energy(logits, graph)[split.validation & ~graph.is_target.numpy()]
        return {"energy_mean_": float(energy.mean()), "energy_deviation_": float(energy.std() + 1e-6)}

    def _from_logits(self, logits: Tensor, graph: NodeGraph, attributes: Mapping[str, Any]) -> Scores:
        z = (self._energy(logits, graph) - attributes["energy_mean_"]) / attributes["energy_deviation_"]
        scores: Scores = torch.sigmoid(torch.from_numpy(z)).numpy()
        return scores


def source_clusters(graph: NodeGraph, clusters: int) -> NDArray[np.int64]:
    """Cluster the source nodes by their features averaged over two hops; target nodes get -1."""
    x = neighbourhood_features(graph)
    source = ~graph.is_target.numpy()
    found = np.full(graph.num_nodes, -1, dtype=np.int64)
    found[source] = k_means(x[source], clusters, n_init=3)
    return found
