"""Elkan-Noto: a discriminator whose probabilities are divided by the fraction of known nodes that are labelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from recoslip.detectors.base import Scores
from recoslip.detectors.network_detector import BATCHES, PATIENCE, NetworkDetector
from recoslip.detectors.params import learned
from recoslip.detectors.risk_objectives import RiskObjective, discriminate, domain_nodes
from recoslip.fleet.interfaces import Fleet, GraphInput, Objective
from recoslip.graph import NodeGraph
from recoslip.graph.split import Split


class ElkanNoto(NetworkDetector):
    r"""$P(\text{known} \mid v) = P(\text{source} \mid v) / c$ with $c = P(\text{source} \mid \text{known})$.

    c is the mean of $P(\text{source} \mid v)$ over validation source nodes. This holds if each known node is as likely
    as any other to be source (selected completely at random), which a shift of proportions breaks.
    The score is $1 - \min(1, (1 - f) / c)$.
    """

    name: ClassVar[str] = "elkan-noto"

    patience: int = PATIENCE
    batch_size: int | None = BATCHES

    labelled_fraction_: float = learned("c")

    def _objective(self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, **truth: Any) -> Objective:
        return RiskObjective(discriminate, *domain_nodes(graph, split, data.device))

    def _learn_from_logits(self, logits: Tensor, graph: NodeGraph, split: Split) -> dict[str, float]:
        held_out = torch.from_numpy(split.validation & ~graph.is_target.numpy())
        source = torch.sigmoid(logits[held_out, 0] - logits[held_out, 1])
        return {"labelled_fraction_": float(source.mean())}

    def _from_logits(self, logits: Tensor, graph: NodeGraph, attributes: Mapping[str, Any]) -> Scores:
        known = torch.sigmoid(logits[:, 0] - logits[:, 1]) / attributes["labelled_fraction_"]
        scores: Scores = (1 - known.clamp(max=1)).numpy()
        return scores
