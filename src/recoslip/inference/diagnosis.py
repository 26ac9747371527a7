"""Graph + listed nodes -> what the data can support: clusters that grew, and how far proportions shifted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recoslip.base.text import PLAIN, Terms, at_least, times
from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import Partitions
from recoslip.data.split import Mask
from recoslip.data.vectors import Vectors
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.traits import FeatureStatistics


def least_growth(source: float, target: float, sources: int, targets: int, confidence: float = 0.95) -> float:
    r"""Return a lower confidence bound of the ratio of a set's fractions of the target and of the source.

    Both counts are Poisson distributed. Given their sum, the number of target nodes is binomial with probability
    $\frac{g T}{g T + S}$, where g is the growth and S and T are the sizes of the domains; the bound inverts the exact
    lower bound of that probability (Clopper and Pearson).

    Args:
        source: source nodes of the set.
        target: its target nodes.
        sources: S.
        targets: T.
        confidence: one-sided.

    >>> round(least_growth(0, 30, 1000, 1000), 2)
    9.52
    >>> round(least_growth(100, 300, 1000, 1000), 2)
    2.47
    >>> least_growth(5, 0, 1000, 1000)
    0.0
    """
    from scipy.stats import beta

    if target <= 0:
        return 0.0
    probability = beta.ppf(1 - confidence, target, source + 1)
    return float(probability / (1 - probability) * sources / max(1, targets))


def most_growth(source: float, target: float, sources: int, targets: int, confidence: float = 0.95) -> float:
    """Return an upper confidence bound of the ratio that `least_growth` bounds from below.

    >>> round(most_growth(100, 300, 1000, 1000), 2)
    3.66
    """
    least = least_growth(target, source, targets, sources, confidence)  # of the domains in each other's place
    return 1 / least if least > 0 else float("inf")


DEPTH = 2  # of the bins that are compared: about 16 of them
MIN_CLUSTER_SOURCE = 10  # source nodes of a cluster whose growth is estimated
MIN_TARGET_FRACTION = 0.01  # of the target nodes, in a cluster that is said to have grown
GROWN = 2.0  # confidence bound from which on a cluster is said to have grown


@dataclass(frozen=True)
class Cluster:
    """A bin of nodes that are alike, and whose neighbours are, at a coarse scale.

    The number of known nodes and their growth are None where there are too few source nodes.
    """

    source: int
    target: int
    known: int | None  # target nodes that score as its source nodes do: twice those below the median of these
    listed: int
    growth: float | None  # share of the target nodes that are not listed, over share of the source nodes
    least_growth: float  # lower confidence bound of the growth (95 %, one-sided)
    name: str | None  # the features that its source nodes have more of than others, where features have names
    most_growth: float = float("inf")  # upper confidence bound of the growth (95 %, one-sided)
    label: int = -1  # the bin

    @property
    def kind(self) -> str:
        """Which nodes it holds, after the noun."""
        return f"like {self.name!r}" if self.name else "of one cluster"

    def sentence(self, terms: Terms = PLAIN) -> str:
        """Say how much it grew."""
        assert self.growth is not None
        return (
            f"{terms.noun} {self.kind} are at least {at_least(self.least_growth)} times as frequent {terms.in_target} "
            f"as {terms.in_source} (95 % bound; estimate: {times(self.growth)} times)"
        )


def _below_median(calibration_nodes: int) -> float:
    """Return the probability that a known node has a p-value above one half.

    >>> _below_median(9), _below_median(10)
    (0.5, 0.5454545454545454)
    """
    n = calibration_nodes
    return (n + 1 - (n + 1) // 2) / (n + 1)


def find_clusters(
    model: Calibrated, label: NDArray[np.integer], listed: Mask, features: FeatureStatistics
) -> tuple[Cluster, ...]:
    """Compare how frequent the known nodes of each bin are in source and target.

    The bins do not depend on the domain, so a known target node scores as the hidden source nodes of its bin do: half
    of the known ones score below their median. A novel node scores above it, so novel nodes are not taken for growth,
    as long as the bin's source nodes do not score like them. Where the domains follow the edges, the hidden nodes of a
    bin are a few parts of the graph and show no median, so that no growth is estimated.

    Args:
        model: calibrated on the graph.
        label: (nodes,) the bin of each node.
        listed: (nodes,) the listed nodes.
        features: of the graph, to name bins by.
    """
    is_target = model.is_target
    p, listed_in = model.p_values_within(label), np.bincount(label[listed], minlength=label.max() + 1)
    counted = []
    for k in np.unique(label):
        inside = label == k
        source, target = int((inside & ~is_target).sum()), int((inside & is_target).sum())
        compared = int((inside & model.calibration).sum())
        enough = min(source, compared) >= MIN_CLUSTER_SOURCE and not model.hiding.follows_edges
        below = int((p[inside & is_target] > 0.5).sum())  # the median of the cluster's calibration nodes
        known = min(target, round(below / _below_median(compared))) if enough else None
        name = features.name(np.flatnonzero(inside & ~is_target))
        counted.append(Cluster(source, target, known, int(listed_in[k]), None, 0.0, name, label=int(k)))
    sizes = int((~is_target).sum()), int((is_target & ~listed).sum())
    return tuple(sorted((_with_growth(each, *sizes) for each in counted), key=lambda each: -(each.growth or 0)))


def _known(cluster: Cluster) -> int:
    """Return how many target nodes of a cluster are known; where that is not estimated, those that are not listed."""
    return cluster.target - cluster.listed if cluster.known is None else cluster.known


def _with_growth(cluster: Cluster, sources: int, targets: int) -> Cluster:
    """Compare a cluster's share of the source nodes with its share of the target nodes that are not listed."""
    if cluster.known is None:
        return cluster
    half = cluster.source / 2, cluster.known / 2, sources, targets  # the known ones are counted by half of them
    growth = cluster.known / max(1, targets) / (cluster.source / sources)
    return replace(cluster, growth=growth, least_growth=least_growth(*half), most_growth=most_growth(*half))


def grown(clusters: Sequence[Cluster]) -> list[Cluster]:
    """Return the clusters that can be said to have grown, the one with the most known nodes first."""
    targets = sum(cluster.target for cluster in clusters)
    found = [
        cluster
        for cluster in clusters
        if cluster.least_growth >= GROWN and (cluster.known or 0) >= MIN_TARGET_FRACTION * targets
    ]
    return sorted(found, key=lambda cluster: -(cluster.known or 0))


def unevenness(clusters: Sequence[Cluster]) -> float | None:
    """Return the total variation between source and known target nodes over clusters, beyond that of chance.

    0 is no shift; None where no target node looks known. Chance adds to the squares of the differences, so their sum
    is reduced by its expectation.
    """
    source, known = np.array([cluster.source for cluster in clusters]), np.array([_known(each) for each in clusters])
    if not known.sum():
        return None
    pooled = (source / source.sum() + known / known.sum()) / 2
    # Known nodes are counted by half of them, so their number has twice the variance.
    by_chance = (pooled * (1 - pooled) * (1 / source.sum() + 2 / known.sum())).sum()
    difference = source / source.sum() - known / known.sum()
    squares = max(1e-12, float((difference**2).sum()))
    return float(0.5 * np.abs(difference).sum() * np.sqrt(max(0.0, 1 - by_chance / squares)))


STRONG = 0.3  # total variation from which on proportions differ strongly
FEW_SOURCE = 100  # fewer source nodes may not represent what is known


@dataclass(frozen=True)
class Diagnosis:
    """What the data can tell."""

    unevenness: float | None  # total variation between source and known target nodes over the clusters; 0: no shift
    clusters: tuple[Cluster, ...]  # in descending order of their growth
    warnings: tuple[str, ...]

    @property
    def grown(self) -> list[Cluster]:
        """The clusters whose known nodes can be said to have grown."""
        return grown(self.clusters)

    @property
    def growth_of_target(self) -> float:
        """The largest growth of these clusters, compared with all target nodes, those that are listed too."""
        sources, targets = (sum(getattr(each, name) for each in self.clusters) for name in ("source", "target"))
        return max(((each.known or 0) / targets / (each.source / sources) for each in self.grown), default=0.0)

    def shift(self, terms: Terms = PLAIN) -> str:
        """Say how far the proportions of known categories shifted."""
        if self.unevenness is None:
            return f"The shift of known categories is not estimated: too few {terms.targets()} look known."
        how = "hardly" if self.unevenness < 0.1 else "somewhat" if self.unevenness < STRONG else "strongly"
        return (
            f"The proportions of {len(self.clusters)} clusters of similar {terms.noun} {how} differ: about "
            f"{100 * self.unevenness:.0f} % of the {terms.sources()} would have to change cluster to match the known "
            f"{terms.targets()}. A shift within a cluster does not show."
        )


def diagnose(model: Calibrated, graph: NodeGraph, listed: Mask, features: FeatureStatistics) -> Diagnosis:
    """Measure the shift, and warn of what the data cannot support; uses no true categories.

    Args:
        model: calibrated on `graph`.
        graph: the graph.
        listed: (nodes,) the listed nodes.
        features: of the graph, to name bins by.
    """
    is_target = graph.is_target
    clusters = find_clusters(model, Partitions.of(graph).at_depth(DEPTH), listed, features)
    ends = graph.edge_index
    joined = graph.num_edges == 0 or bool((is_target[ends[0]] & is_target[ends[1]]).any())
    moved, terms = unevenness(clusters), graph.terms
    warnings = _data_warnings(is_target, Vectors.of(graph).own, terms, joined=joined)
    if moved is not None and moved >= STRONG:
        warnings.append(
            f"The proportions of known {terms.noun} differ strongly. More of those that became more frequent may be "
            "listed than the rate says."
        )
    return Diagnosis(moved, clusters, tuple(warnings))


def _data_warnings(is_target: Mask, own: NDArray[np.float32], terms: Terms, *, joined: bool) -> list[str]:
    """Say what the graph itself cannot support."""
    source = int((~is_target).sum())
    warnings = []
    if source < FEW_SOURCE:
        warnings.append(f"There are only {terms.sources(source)}. They may not represent all known categories.")
    if not joined:
        warnings.append(f"No edge joins two {terms.targets()}, so edges do not show which of them belong together.")
    if np.ptp(own, axis=0).max(initial=0) < 1e-6:
        warnings.append(f"All {terms.noun} have the same features. Only edges can distinguish them.")
    return warnings
