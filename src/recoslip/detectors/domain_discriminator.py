"""Domain discriminator: tell source from target, and call novel what looks most like target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from recoslip.detectors.networked import SingleNetworkDetector
from recoslip.detectors.risk import Nodes, RiskObjective, parts
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Fleet, Output
from recoslip.fleet.view import GraphView
from recoslip.graph import NodeGraph
from recoslip.objectives.pu import domain_risk
from recoslip.shift import Split


class DomainDiscriminator(SingleNetworkDetector):
    r"""Minimise the cross-entropy of source against target, $-\frac1n(\sum_S \log(1 - f) + \sum_T \log f)$.

    The basis of most positive-unlabelled learning. It ranks well if the known proportions do not shift; where they do,
    a known category that is rare in the source looks as novel as a novel one. Arguments: `SingleNetworkDetector`.
    """

    name: ClassVar[str] = "domain-discriminator"
    paper: ClassVar[str] = "baseline of Chung et al. 2024"

    def _train(
        self,
        fleet: Fleet | ModuleFleet,
        view: GraphView | Batches,
        graph: NodeGraph,
        split: Split,
        progress: Callable[[int], None],
        **given: Any,
    ) -> None:
        self._minimise(fleet, view, RiskObjective(discriminate, *parts(graph, split, view.device)), progress)


def discriminate(output: Output, nodes: Nodes) -> Tensor:
    """Cross-entropy of source against target nodes, per member."""
    return domain_risk(output.margin, nodes.source, nodes.target)
