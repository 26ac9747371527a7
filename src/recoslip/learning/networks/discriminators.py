"""Discriminators of two sets of nodes: source and target, with Elkan-Noto's correction, or the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recoslip.base.errors import SettingError
from recoslip.base.progress import Progress
from recoslip.base.settings import learned
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask, Split
from recoslip.learning.base import Attributes, Scores
from recoslip.learning.networks.interfaces import Fleet, GraphInput, Objective
from recoslip.learning.networks.network_detector import BATCHES, PATIENCE, NetworkDetector
from recoslip.learning.networks.risk_objectives import DomainNodes, RiskObjective, discriminate, domain_nodes, positions


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
        held_out = torch.from_numpy(split.validation & ~graph.is_target)
        source = torch.sigmoid(logits[held_out, 0] - logits[held_out, 1])
        return {"labelled_fraction_": float(source.mean())}

    def _from_logits(self, logits: Tensor, graph: NodeGraph, attributes: Mapping[str, Any]) -> Scores:
        known = torch.sigmoid(logits[:, 0] - logits[:, 1]) / attributes["labelled_fraction_"]
        scores: Scores = (1 - known.clamp(max=1)).numpy()
        return scores


class Oracle(NetworkDetector):
    r"""Minimise the cross-entropy of novel against known nodes. No method without the truth should do better.

    The truth is an argument of `fit`, never read from the graph: `Oracle().fit(graph, split, novel=mask)`.
    """

    name: ClassVar[str] = "oracle"
    requires_truth: ClassVar[bool] = True

    patience: int = PATIENCE
    batch_size: int | None = BATCHES

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        if truth.get("novel") is None:
            raise SettingError("the oracle needs the truth: fit(graph, split, novel=mask); it is for comparison only")
        novel = np.asarray(truth["novel"])
        if novel.shape != (graph.num_nodes,) or novel.dtype != bool:
            raise SettingError(
                f"novel must be a boolean array over {graph.num_nodes} nodes; got {novel.dtype} {novel.shape}"
            )
        for subset, mask in (("train", split.train), ("validation", split.validation)):
            if not novel[mask].any() or novel[mask].all():
                raise SettingError(
                    f"the oracle needs novel and known nodes in {subset}; there is only one of the two, take more nodes"
                )
        return super()._learn_seeds(graph, split, seeds, progress, novel=novel)

    def _objective(self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, **truth: Any) -> Objective:
        novel: Mask = truth["novel"]
        training, validation = (
            DomainNodes(positions(subset & ~novel, data.device), positions(subset & novel, data.device))
            for subset in (split.train, split.validation)
        )
        return RiskObjective(discriminate, training, validation)
