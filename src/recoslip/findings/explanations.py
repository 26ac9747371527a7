"""Listed nodes -> why: the features that set them apart, and a learned mask over a network's inputs (GNNExplainer)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from recoslip.detectors.base import Detector
from recoslip.findings.units import Unit, feature_units, numbers_in_words, shares_in_words
from recoslip.graph import NodeGraph
from recoslip.graph.adjacency import Neighbours
from recoslip.graph.sparse import select_rows, to_scipy

MAX_MEASURED = 50_000  # source nodes at most that means and variances are taken from
REFERENCES = 20  # source nodes that a node is compared with
EDGE_SIZE = 0.005  # weight of the size of an edge mask in GNNExplainer's loss, its default
MAX_SUBGRAPH = 3000  # nodes at most of the neighbourhood that a mask is learned on
MAX_MASK = 4_500_000  # features of these nodes at most, each of which has its place in the mask
MIN_SUBGRAPH = 100  # nodes that are allowed however many features there are
MAX_FEATURES = 8  # of an explanation
MAX_NEIGHBOURS = 10  # of an explanation
NAME_LENGTH = 3  # features that a set of nodes is named by
MIN_NAME_STRENGTH = 0.3  # standard deviations by which such a feature exceeds the source's mean


@dataclass(frozen=True)
class Trait:
    """A feature in which nodes differ from reference nodes."""

    feature: str
    mean: float  # of the feature, as detectors see it
    reference: float  # mean of the reference nodes
    strength: float  # the difference in standard deviations of the source
    here: str  # in the units of the user's table: the mean of a number, the share of nodes with a category or a word
    there: str  # the same of the reference nodes
    in_source: str  # the same of the source


@dataclass(frozen=True)
class MaskExplanation:
    """The inputs that a network's prediction for a node rests on, by a learned mask over features and edges."""

    features: tuple[tuple[str, float], ...]  # name and weight relative to the highest, in descending order
    neighbours: tuple[tuple[int, float], ...]  # node and highest weight of an edge to it, in descending order


class FeatureStatistics:
    """The feature matrix with the mean and the deviation of each feature over the source nodes."""

    def __init__(self, graph: NodeGraph) -> None:
        self.graph = graph
        self.x: Any = graph.x.numpy() if graph.x.layout == torch.strided else to_scipy(graph.x)
        self.names = feature_names(graph)
        self.has_names = graph.feature_names is not None
        source = np.flatnonzero(~graph.is_target.numpy())
        source = self.source = source[:: -(-len(source) // MAX_MEASURED)]
        self.source_mean = self._mean(source)
        variance = self._mean(source, power=2) - self.source_mean**2
        # Without the second term, a feature that the source hardly has would make any difference infinitely strong.
        self.scale = np.sqrt(np.maximum(variance, 0) + max(1e-12, float(variance.mean())) / 10)

    def traits(self, nodes: Sequence[int], references: Sequence[int] | None = None, count: int = 8) -> list[Trait]:
        """Return the features in which nodes differ most from reference nodes, by default the whole source."""
        mean = self._mean(nodes)
        reference = self.source_mean if references is None else self._mean(references)
        strength = (mean - reference) / self.scale
        strongest = np.argsort(-np.abs(strength), kind="stable")[:count]
        shares = [self._share(nodes), self.source_share if references is None else self._share(references)]
        means, shares = [mean, reference, self.source_mean], [*shares, self.source_share]
        return [
            Trait(
                self.names[k],
                float(mean[k]),
                float(reference[k]),
                float(strength[k]),
                *self._in_words(k, means, shares, of_one=len(nodes) == 1),
            )
            for k in strongest.tolist()
            if strength[k] != 0
        ]

    @cached_property
    def units(self) -> list[Unit]:
        """How to read each feature."""
        return feature_units(self.graph)

    @cached_property
    def source_share(self) -> NDArray[np.float64]:
        """Share of the source nodes in which each feature is not zero."""
        return self._share(self.source)

    def _in_words(
        self, k: int, means: Sequence[NDArray[np.float64]], shares: Sequence[NDArray[np.float64]], *, of_one: bool
    ) -> list[str]:
        """Write what several sets of nodes have of a feature, in the user's units."""
        unit = self.units[k]
        if unit.is_share:
            return shares_in_words([float(share[k]) for share in shares], of_one=of_one)
        return numbers_in_words([unit.factor * float(mean[k]) + unit.offset for mean in means])

    def name(self, nodes: NDArray[np.int64]) -> str | None:
        """Name nodes by the features that they have most more of than the source; None where features have no names."""
        if not self.has_names or not len(nodes):
            return None
        nodes = nodes[:: -(-len(nodes) // MAX_MEASURED)]
        strength = (self._mean(nodes) - self.source_mean) / self.scale
        strongest = np.argsort(-strength, kind="stable")[:NAME_LENGTH]
        return ", ".join(self.names[k] for k in strongest if strength[k] >= MIN_NAME_STRENGTH) or None

    def _mean(self, nodes: Sequence[int] | NDArray[np.int64], power: int = 1) -> NDArray[np.float64]:
        rows = self.x[list(nodes)].astype(np.float64)
        rows = rows.power(power) if sp.issparse(rows) else rows**power
        return np.asarray(rows.mean(axis=0)).ravel()

    def _share(self, nodes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray((self.x[list(nodes)] != 0).mean(axis=0)).ravel()


def feature_names(graph: NodeGraph) -> tuple[str, ...]:
    """Return the features' names, or numbers where they have none."""
    return graph.feature_names or tuple(f"feature {k}" for k in range(graph.num_features))


def nearest_source(
    graph: NodeGraph, neighbourhood: NDArray[np.float64], nodes: Sequence[int], count: int = REFERENCES
) -> NDArray[np.int64]:
    """Return the source nodes with the neighbourhood features nearest to those of some nodes: (nodes, count)."""
    from sklearn.neighbors import NearestNeighbors

    source = np.flatnonzero(~graph.is_target.numpy())
    index = NearestNeighbors(n_neighbors=min(count, len(source))).fit(neighbourhood[source])
    return np.asarray(source[index.kneighbors(neighbourhood[list(nodes)], return_distance=False)])


def gnn_explanations(
    detector: Detector, graph: NodeGraph, nodes: Sequence[int], *, epochs: int = 60, seed: int = 0
) -> dict[int, MaskExplanation]:
    """Explain the scores of nodes by PyTorch Geometric's GNNExplainer.

    Masks of nodes that one network predicts are learned together, each on a copy of the node's surroundings. Left out
    are nodes where the detector has no network to explain, where the graph has edge weights and the network takes none,
    and where the surroundings are too large.
    """
    fit, neighbours = detector.fits[0], Neighbours(graph)
    explained: dict[int, MaskExplanation] = {}
    by_network: dict[int, list[int]] = {}
    for node in nodes:
        by_network.setdefault(fit.explainable_index(graph.ids[node]), []).append(node)
    for _, own in sorted(by_network.items()):
        network = fit.explainable_network(graph.ids[own[0]])
        if network is None or (graph.edge_weight is not None and not getattr(network, "takes_edge_weight", True)):
            continue
        is_mlp = getattr(network, "encoder", None) == "mlp"
        limit = largest_subgraph(graph.num_features)
        found = [_surroundings(neighbours, node, limit, with_edges=not is_mlp) for node in own]
        for part in _in_parts([each for each in found if each is not None], limit):
            explained |= _learn_masks(network, graph, part, epochs, seed)
    return explained


def _sees_edges(network: torch.nn.Module) -> bool:
    from torch_geometric.nn import MessagePassing

    return any(isinstance(layer, MessagePassing) for layer in network.modules())


class Surroundings(NamedTuple):
    """The subgraph around a node."""

    node: int
    nodes: Tensor  # of the subgraph, by position in the graph
    edge_index: Tensor  # of the subgraph, by position there
    edge_weight: Tensor | None
    centre: int  # position of the node there


def largest_subgraph(features: int) -> int:
    """Return how many nodes a subgraph may have that a mask is learned on.

    >>> largest_subgraph(1000), largest_subgraph(20_000), largest_subgraph(1_000_000)
    (3000, 225, 100)
    """
    return max(MIN_SUBGRAPH, min(MAX_SUBGRAPH, MAX_MASK // max(1, features)))


def _surroundings(neighbours: Neighbours, node: int, limit: int, *, with_edges: bool) -> Surroundings | None:
    """Return the subgraph around a node, which is the node alone without edges; None if it has more nodes than allowed.

    Two layers see two hops, and normalise by the degrees there, which a third hop makes complete. Only the edges of
    nodes that are reached are read.
    """
    nodes = np.array([node])
    for hop in range(3 if with_edges else 0):
        reached = np.union1d(nodes, neighbours.of(nodes)[1])
        if len(reached) > limit:
            if hop < 2:
                return None
            break
        nodes = reached
    left, right, edge = neighbours.among(nodes)
    edge_weight = None if neighbours.weight is None else neighbours.weight[torch.from_numpy(edge)]
    edge_index = torch.from_numpy(np.stack([left, right]))
    return Surroundings(node, torch.from_numpy(nodes), edge_index, edge_weight, int(np.searchsorted(nodes, node)))


def _in_parts(surroundings: Sequence[Surroundings], limit: int) -> Iterator[list[Surroundings]]:
    """Divide subgraphs into parts that have no more nodes than allowed, or are one subgraph."""
    part: list[Surroundings] = []
    for each in surroundings:
        if part and sum(len(other.nodes) for other in part) + len(each.nodes) > limit:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def _learn_masks(
    network: torch.nn.Module, graph: NodeGraph, part: Sequence[Surroundings], epochs: int, seed: int
) -> dict[int, MaskExplanation]:
    """Learn the masks of several nodes on the disjoint union of their surroundings."""
    from torch_geometric.explain import Explainer, GNNExplainer

    offset = np.cumsum([0, *(len(each.nodes) for each in part)])
    edges = np.cumsum([0, *(each.edge_index.shape[1] for each in part)])
    nodes = torch.cat([each.nodes for each in part])
    edge_index = torch.cat([each.edge_index + begin for each, begin in zip(part, offset, strict=False)], dim=1)
    weights = [each.edge_weight for each in part if each.edge_weight is not None]
    x = select_rows(graph.x, nodes)
    x = x if x.layout == torch.strided else x.to_dense()
    masks_edges = edge_index.numel() > 0 and _sees_edges(network)
    # The loss becomes a mean over the explained nodes, the size of edge masks with it, which alone is a sum; that of
    # feature masks is a mean over the nodes of the union, so that masks of smaller surroundings shrink less.
    algorithm = GNNExplainer(epochs=epochs, lr=0.05, edge_size=EDGE_SIZE / len(part))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        explainer = Explainer(
            network,
            algorithm,
            explanation_type="model",
            node_mask_type="attributes",
            edge_mask_type="object" if masks_edges else None,
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        )
        index = torch.tensor([begin + each.centre for each, begin in zip(part, offset, strict=False)])
        masks = explainer(x, edge_index, index=index, edge_weight=torch.cat(weights) if weights else None)
    explained = {}
    for k, each in enumerate(part):
        own = slice(offset[k], offset[k + 1])
        weight = masks.node_mask[own].sum(dim=0) * (x[own] != 0).any(dim=0)
        edge_mask = masks.edge_mask[edges[k] : edges[k + 1]] if masks_edges else None
        neighbours = {} if edge_mask is None else _neighbour_weights(each.edge_index, edge_mask, each.centre)
        heaviest = sorted(neighbours.items(), key=lambda pair: -pair[1])[:MAX_NEIGHBOURS]
        explained[each.node] = MaskExplanation(
            _heaviest_features(weight, feature_names(graph)),
            tuple((int(each.nodes[other]), value) for other, value in heaviest),
        )
    return explained


def _heaviest_features(weight: Tensor, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    highest = float(weight.max()) or 1.0
    order = torch.argsort(weight, descending=True, stable=True)[:MAX_FEATURES].tolist()
    return tuple((names[k], float(weight[k]) / highest) for k in order if weight[k] > 0)


def _neighbour_weights(edge_index: Tensor, edge_mask: Tensor, index: int) -> dict[int, float]:
    """Return the highest weight of an edge between a node and each of its neighbours."""
    weights: dict[int, float] = {}
    for a, b, weight in zip(*edge_index.tolist(), edge_mask.tolist(), strict=True):
        if index in (a, b):
            other = b if a == index else a
            weights[other] = max(weight, weights.get(other, 0.0))
    return weights
