"""Domain discriminator: tell source from target, and call novel what looks most like target."""

from __future__ import annotations

from typing import Any, ClassVar

from recoslip.detectors.network_detector import BATCHES, PATIENCE, NetworkDetector
from recoslip.detectors.risk_objectives import RiskObjective, discriminate, domain_nodes
from recoslip.fleet.interfaces import Fleet, GraphInput, Objective
from recoslip.graph import NodeGraph
from recoslip.graph.split import Split


class DomainDiscriminator(NetworkDetector):
    r"""Minimise the cross-entropy of source against target, $-\frac1n(\sum_S \log(1 - f) + \sum_T \log f)$.

    The basis of most positive-unlabelled learning. It ranks well if the known proportions do not shift; where they do,
    a known category that is rare in the source looks as novel as a novel one.
    """

    name: ClassVar[str] = "domain-discriminator"

    patience: int = PATIENCE
    batch_size: int | None = BATCHES

    def _objective(self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, **truth: Any) -> Objective:
        return RiskObjective(discriminate, *domain_nodes(graph, split, data.device))
