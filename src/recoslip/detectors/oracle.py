"""Oracle: the same network trained with the truth, as an upper bound to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from recoslip.detectors.base import Callbacks
from recoslip.detectors.network_detector import BATCHES, PATIENCE, NetworkDetector
from recoslip.detectors.risk_objectives import DomainNodes, RiskObjective, discriminate, positions
from recoslip.errors import SettingError
from recoslip.fleet.interfaces import Fleet, GraphInput, Objective
from recoslip.graph import NodeGraph
from recoslip.graph.split import Mask, Split


class Oracle(NetworkDetector):
    r"""Minimise the cross-entropy of novel against known nodes. No method without the truth should do better.

    The truth is an argument of `fit`, never read from the graph: `Oracle().fit(graph, split, novel=mask)`.
    """

    name: ClassVar[str] = "oracle"
    requires_truth: ClassVar[bool] = True

    patience: int = PATIENCE
    batch_size: int | None = BATCHES

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], callbacks: Callbacks, **truth: Any
    ) -> list[dict[str, Any]]:
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
        return super()._learn(graph, split, seeds, callbacks, novel=novel)

    def _objective(self, fleet: Fleet, data: GraphInput, graph: NodeGraph, split: Split, **truth: Any) -> Objective:
        novel: Mask = truth["novel"]
        training, validation = (
            DomainNodes(positions(subset & ~novel, data.device), positions(subset & novel, data.device))
            for subset in (split.train, split.validation)
        )
        return RiskObjective(discriminate, training, validation)
