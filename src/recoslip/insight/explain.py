"""Nodes -> why they look novel: features that set them apart, their neighbours, and what the network looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from recoslip.detectors.base import Detector
from recoslip.detectors.conoc import CoNoC
from recoslip.detectors.energy import neighbourhood_features
from recoslip.detectors.reco_slip_plus import RecoSlipPlus
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Fleet, MemberLayer
from recoslip.graph import NodeGraph, select_rows, to_scipy

MEASURED = 50_000  # source nodes at most that what is usual is measured on
LIKE = 20  # source nodes that a node is compared with
LARGEST = 3000  # nodes of a neighbourhood that the network's explanation is computed on


@dataclass(frozen=True)
class Trait:
    """A feature in which nodes differ from others."""

    feature: str
    value: float  # their mean
    usual: float  # the others' mean
    strength: float  # the difference in standard deviations of the source


@dataclass(frozen=True)
class Looked:
    """What a network's score of a node rests on, by a learned mask over features and edges (GNNExplainer)."""

    features: tuple[tuple[str, float], ...]  # name, weight in [0, 1]; the heaviest first
    neighbours: tuple[tuple[int, float], ...]  # node, the heaviest weight of an edge to it


class Features:
    """The feature matrix, asked for means of groups of nodes."""

    def __init__(self, graph: NodeGraph) -> None:
        self.x: Any = graph.x.numpy() if graph.x.layout == torch.strided else to_scipy(graph.x)
        self.names = names_of(graph)
        source = np.flatnonzero(~graph.is_target.numpy())
        source = source[:: -(-len(source) // MEASURED)]
        mean = self._mean(source)
        variance = self._mean(source, power=2) - mean**2
        # A feature that the source hardly has would make any difference infinitely strong.
        self.scale = np.sqrt(np.maximum(variance, 0) + max(1e-12, float(variance.mean())) / 10)
        self.source_mean = mean

    def traits(self, nodes: Sequence[int], others: Sequence[int] | None = None, count: int = 8) -> list[Trait]:
        """Return the features in which nodes differ most from others, or from the whole source."""
        mean = self._mean(nodes)
        usual = self.source_mean if others is None else self._mean(others)
        strength = (mean - usual) / self.scale
        order = np.argsort(-np.abs(strength), kind="stable")[:count]
        return [
            Trait(self.names[k], float(mean[k]), float(usual[k]), float(strength[k])) for k in order if strength[k] != 0
        ]

    def _mean(self, nodes: Sequence[int] | NDArray[np.int64], power: int = 1) -> NDArray[np.float64]:
        rows = self.x[list(nodes)].astype(np.float64)
        rows = rows.power(power) if sp.issparse(rows) else rows**power
        return np.asarray(rows.mean(axis=0)).ravel()


def names_of(graph: NodeGraph) -> tuple[str, ...]:
    """Return the features' names, or numbers where they have none."""
    return graph.feature_names or tuple(f"feature {k}" for k in range(graph.num_features))


def nearest_source(graph: NodeGraph, nodes: Sequence[int], count: int = LIKE) -> NDArray[np.int64]:
    """Return the source nodes whose neighbourhoods are most like those of the nodes: (nodes, count)."""
    x = neighbourhood_features(graph)
    source = np.flatnonzero(~graph.is_target.numpy())
    index = NearestNeighbors(n_neighbors=min(count, len(source))).fit(x[source])
    return np.asarray(source[index.kneighbors(x[list(nodes)], return_distance=False)])


def looked_at(detector: Detector, graph: NodeGraph, node: int, *, epochs: int = 60, seed: int = 0) -> Looked | None:
    """Explain one node's score through PyTorch Geometric's GNNExplainer.

    Of several networks, the first that judged the node is explained. None for a detector without a network that scores
    by two classes, for GraphSAGE with edge weights, which PyTorch Geometric's does not take, and where the
    neighbourhood is too large.
    """
    from torch_geometric.explain import Explainer, GNNExplainer
    from torch_geometric.utils import k_hop_subgraph

    judge = detector.judges(graph.ids[node])[0] if isinstance(detector, RecoSlipPlus) else 0
    model = as_module(detector, judge)
    if model is None or (graph.edge_weight is not None and getattr(model, "encoder", None) == "sage"):
        return None
    # Two layers see two hops, and normalise by the degrees there, which a third hop makes complete.
    for hops in (3, 2):
        kept, edges, place, mask = k_hop_subgraph(
            node, hops, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes
        )
        if len(kept) <= LARGEST:
            break
    else:
        return None
    x = select_rows(graph.x, kept)
    x = x if x.layout == torch.strided else x.to_dense()
    weight = None if graph.edge_weight is None else graph.edge_weight[mask]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        explainer = Explainer(
            model,
            GNNExplainer(epochs=epochs, lr=0.05),
            explanation_type="model",
            node_mask_type="attributes",
            edge_mask_type="object" if edges.numel() else None,
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        )
        found = explainer(x, edges, index=int(place), edge_weight=weight)
    own = found.node_mask.sum(dim=0) * (x != 0).any(dim=0)
    names = names_of(graph)
    heaviest = torch.argsort(own, descending=True, stable=True)[:8].tolist()
    top = float(own.max()) or 1.0
    weights: dict[int, float] = {}
    if edges.numel():
        for a, b, w in zip(*edges.tolist(), found.edge_mask.tolist(), strict=True):
            other = b if a == int(place) else a if b == int(place) else None
            if other is not None:
                weights[int(kept[other])] = max(w, weights.get(int(kept[other]), 0.0))
    order = sorted(weights.items(), key=lambda pair: -pair[1])[:10]
    return Looked(tuple((names[k], float(own[k]) / top) for k in heaviest if own[k] > 0), tuple(order))


def as_module(detector: Detector, member: int = 0) -> nn.Module | None:
    """Turn a network that scores into a plain PyTorch Geometric module: (x, edge_index) -> logits known, novel."""
    fleet = getattr(detector, "fleet_", None)
    if isinstance(fleet, ModuleFleet):
        return _Joined(fleet.encoders[member], fleet.heads[member], fleet.takes_weight).eval()
    if not isinstance(fleet, Fleet) or (fleet.architecture.classes != 2 and not isinstance(detector, CoNoC)):
        return None
    first = 2 * detector.head_ if isinstance(detector, CoNoC) else 0
    return _Member(fleet, member, slice(first, first + 2)).eval()


class _Member(nn.Module):
    """One member of a fleet, in the library's own layers."""

    def __init__(self, fleet: Fleet, member: int, classes: slice) -> None:
        from torch_geometric.nn import GCNConv, SAGEConv

        super().__init__()
        a = fleet.architecture
        self.encoder = a.encoder
        kind = {"gcn": GCNConv, "sage": SAGEConv, "mlp": nn.Linear}[a.encoder]
        sizes = ((a.in_channels, a.hidden_channels), (a.hidden_channels, a.out_channels))
        self.convolutions = nn.ModuleList(kind(*size) for size in sizes)
        self.linears = nn.ModuleList([nn.Linear(a.out_channels, a.head_channels), nn.Linear(a.head_channels, 2)])
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width) for width in (a.hidden_channels, a.out_channels, a.head_channels)
        )
        with torch.no_grad():
            for layer, own in zip(self.convolutions, (fleet.conv1, fleet.conv2), strict=True):
                _fill(layer, own, member, slice(None))
            _fill(self.linears[0], fleet.linear1, member, slice(None))
            _fill(self.linears[1], fleet.linear2, member, classes)
            for norm, theirs in zip(self.norms, (fleet.norm1, fleet.norm2, fleet.norm3), strict=True):
                for name in ("weight", "bias", "running_mean", "running_var"):
                    getattr(norm, name).copy_(getattr(theirs, name)[member])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=False):
            if self.encoder == "gcn":
                x = convolution(x, edge_index, edge_weight)
            else:
                x = convolution(x, edge_index) if self.encoder == "sage" else convolution(x)
            x = F.relu(norm(x))
        logits: Tensor = self.linears[1](F.relu(self.norms[2](self.linears[0](x))))
        return logits


class _Joined(nn.Module):
    """A user's encoder with its head."""

    def __init__(self, encoder: nn.Module, head: nn.Module, takes_weight: bool) -> None:
        super().__init__()
        self.encoder, self.head, self.takes_weight = encoder, head, takes_weight

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        more = {"edge_weight": edge_weight} if self.takes_weight else {}
        logits: Tensor = self.head(self.encoder(x, edge_index, **more))
        return logits


def _fill(layer: nn.Module, own: MemberLayer, member: int, columns: slice) -> None:
    """Copy a member's weights into a library layer."""
    matrices = [p for name, p in layer.named_parameters() if name.endswith("weight")]
    (bias,) = (p for name, p in layer.named_parameters() if name.endswith("bias"))
    for matrix, weight in zip(matrices, own.weights, strict=True):
        matrix.copy_(weight[member][:, columns].t())
    bias.copy_(own.bias[member][columns])
