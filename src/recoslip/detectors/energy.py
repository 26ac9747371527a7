"""Energy-based out-of-distribution detection: novel is what a classifier of the source knows no class for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from recoslip.detectors import checks
from recoslip.detectors.base import Scores
from recoslip.detectors.networked import SingleNetworkDetector
from recoslip.detectors.risk import Nodes, RiskObjective, parts
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Fleet, Output
from recoslip.fleet.view import Encoder, GraphView
from recoslip.graph import Neighbours, NodeGraph, to_scipy
from recoslip.shift import Split

LEARN_FROM = 100_000  # nodes at most that a reduction of the features is learned from


class EnergyOOD(SingleNetworkDetector):
    r"""$E(v) = -\log \sum_c e^{l_c(v)}$ of a classifier's logits l, smoothed over the graph: high for the unfamiliar.

    Such detectors learn from category labels of the source, which nobody has here. They are replaced by clusters of the
    source nodes (k-means on features averaged over two hops). The target takes no part in training, so what it could
    tell is left unused. The score is $σ((E - m) / s)$ with mean and deviation of the validation source nodes' energy.

    Args:
        categories: clusters the classifier learns to tell apart.
        smoothing: steps of $E \leftarrow \alpha E + (1 - \alpha) D^{-1} A E$.
        alpha: α.
        max_fpr: share of the validation source nodes that may score above the threshold.
        hidden_channels: width of the encoder's first layer.
        out_channels: width of the encoder's second layer, the representation.
        head_channels: width of the head's hidden layer.
        encoder: "gcn", "sage", "mlp", or a PyG module called as `encoder(x, edge_index)`.
        dropout: share of units dropped in encoder and head.
        epochs: at most so many.
        patience: epochs without a lower validation loss after which training ends; the best weights are kept.
        learning_rate: Adam's.
        device: "auto", "cpu", "cuda", ...
        random_state: seed of initial weights, dropout and, without a split, the split.
    """

    name: ClassVar[str] = "energy"
    paper: ClassVar[str] = "Liu et al. 2020, Wu et al. 2023"
    divisible: ClassVar[bool] = False

    energy_mean_: float
    energy_deviation_: float

    def __init__(
        self,
        *,
        categories: int = 10,
        smoothing: int = 2,
        alpha: float = 0.5,
        max_fpr: float = 0.01,
        hidden_channels: int = 64,
        out_channels: int = 32,
        head_channels: int = 32,
        encoder: Encoder | nn.Module = "gcn",
        dropout: float = 0.5,
        epochs: int = 1000,
        patience: int = 50,
        learning_rate: float = 0.001,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        super().__init__(
            max_fpr=max_fpr,
            hidden_channels=hidden_channels,
            out_channels=out_channels,
            head_channels=head_channels,
            encoder=encoder,
            dropout=dropout,
            epochs=epochs,
            patience=patience,
            learning_rate=learning_rate,
            device=device,
            random_state=random_state,
        )
        self.categories = categories
        self.smoothing = smoothing
        self.alpha = alpha

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.whole("categories", self.categories, 2)
        checks.whole("smoothing", self.smoothing, 0)
        checks.number("alpha", self.alpha, 0, 1)

    def _classes(self) -> int:
        return self.categories

    def _train(
        self,
        fleet: Fleet | ModuleFleet,
        view: GraphView | Batches,
        graph: NodeGraph,
        split: Split,
        progress: Callable[[int], None],
        **given: Any,
    ) -> None:
        cluster = torch.from_numpy(source_clusters(graph, self.categories)).to(view.device)

        def risk(output: Output, nodes: Nodes) -> Tensor:
            log_p = F.log_softmax(output.logits[nodes.source], dim=-1)  # (nodes, members, clusters)
            wanted = cluster[nodes.source][:, None, None].expand(-1, fleet.members, 1)
            return -log_p.gather(2, wanted).mean(dim=(0, 2))

        self._minimise(fleet, view, RiskObjective(risk, *parts(graph, split, view.device)), progress)

    def _energy(self, logits: Tensor, graph: NodeGraph) -> NDArray[np.float64]:
        energy: NDArray[np.float64] = -torch.logsumexp(logits, dim=1).numpy()
        neighbours = Neighbours(graph, weighted=False)
        for _ in range(self.smoothing):
            smoothed = self.alpha * energy + (1 - self.alpha) * neighbours.mean(energy)
            energy = np.where(neighbours.degree > 0, smoothed, energy)
        return energy

    def _calibrate(self, logits: Tensor, graph: NodeGraph, split: Split) -> dict[str, float]:
        energy = self._energy(logits, graph)[split.validation & ~graph.is_target.numpy()]
        return {"energy_mean_": float(energy.mean()), "energy_deviation_": float(energy.std() + 1e-6)}

    def _from_logits(self, logits: Tensor, graph: NodeGraph, learned: Mapping[str, Any]) -> Scores:
        z = (self._energy(logits, graph) - learned["energy_mean_"]) / learned["energy_deviation_"]
        scores: Scores = torch.sigmoid(torch.from_numpy(z)).numpy()
        return scores


def source_clusters(graph: NodeGraph, clusters: int) -> NDArray[np.int64]:
    """Cluster the source nodes by their features averaged over two hops; target nodes get -1."""
    x = neighbourhood_features(graph)
    source = ~graph.is_target.numpy()
    found = np.full(graph.num_nodes, -1, dtype=np.int64)
    found[source] = k_means(x[source], clusters, n_init=3)
    return found


def k_means(x: NDArray[np.float64], clusters: int, seed: int = 0, n_init: int = 1) -> NDArray[np.int64]:
    """Cluster rows, into fewer than asked for where fewer differ."""
    count = min(clusters, len(np.unique(x, axis=0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows may differ by less than their distances are rounded
        return np.asarray(KMeans(count, n_init=n_init, random_state=seed).fit_predict(x), dtype=np.int64)


def neighbourhood_features(graph: NodeGraph, width: int = 64) -> NDArray[np.float64]:
    """Features, reduced to `width` where there are more, averaged over two hops: (nodes, at most width)."""
    neighbours = Neighbours(graph, weighted=False)
    whole: Any = graph.x.numpy() if graph.x.layout == torch.strided else to_scipy(graph.x)
    reduce = None
    if whole.shape[1] > width and min(whole.shape) > width:
        step = -(-len(neighbours.degree) // LEARN_FROM)
        with np.errstate(all="ignore"):  # of the explained variance, which nobody asks for
            reduce = TruncatedSVD(width, random_state=0).fit(whole[::step])
    x = np.empty((graph.num_nodes, width if reduce else whole.shape[1]))
    for block in neighbours.blocks():
        rows = whole[block]
        x[block] = reduce.transform(rows) if reduce else rows.toarray() if sp.issparse(rows) else rows
    degree = neighbours.degree[:, None]
    for _ in range(2):
        x = (x + degree * neighbours.mean(x)) / (degree + 1)
    return x
