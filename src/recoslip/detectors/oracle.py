"""Oracle: the same network trained with the truth, as an upper bound to compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from recoslip.detectors.base import Progress
from recoslip.detectors.domain_discriminator import discriminate
from recoslip.detectors.networked import SingleNetworkDetector
from recoslip.detectors.risk import Nodes, RiskObjective, positions
from recoslip.errors import SettingError
from recoslip.fleet.batches import Batches
from recoslip.fleet.modules import ModuleFleet
from recoslip.fleet.network import Fleet
from recoslip.fleet.view import GraphView
from recoslip.graph import NodeGraph
from recoslip.shift import Mask, Split


class Oracle(SingleNetworkDetector):
    r"""Minimise the cross-entropy of novel against known nodes. No method without the truth should do better.

    The truth is an argument of `fit`, never read from the graph: `Oracle().fit(graph, split, novel=mask)`.
    Arguments: `SingleNetworkDetector`.
    """

    name: ClassVar[str] = "oracle"
    paper: ClassVar[str] = "baseline of Chung et al. 2024"
    needs: ClassVar[str] = "features, edges and the truth"

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        if given.get("novel") is None:
            raise SettingError("the oracle needs the truth: fit(graph, split, novel=mask); it is for comparison only")
        novel = np.asarray(given["novel"])
        if novel.shape != (graph.num_nodes,) or novel.dtype != bool:
            raise SettingError(
                f"novel must be a boolean array over {graph.num_nodes} nodes; got {novel.dtype} {novel.shape}"
            )
        for part, mask in (("train", split.train), ("validation", split.validation)):
            if not novel[mask].any() or novel[mask].all():
                raise SettingError(f"the oracle needs novel and known nodes in {part}; there is only one kind")
        return super()._learn(graph, split, seeds, progress, novel=novel)

    def _train(
        self,
        fleet: Fleet | ModuleFleet,
        view: GraphView | Batches,
        graph: NodeGraph,
        split: Split,
        progress: Callable[[int], None],
        **given: Any,
    ) -> None:
        novel: Mask = given["novel"]
        training, validation = (
            Nodes(positions(part & ~novel, view.device), positions(part & novel, view.device))
            for part in (split.train, split.validation)
        )
        self._minimise(fleet, view, RiskObjective(discriminate, training, validation), progress)
