"""NodeGraph -> scores, by a rule: what detectors share that train nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from recoslip.detectors.base import Callbacks, Detector
from recoslip.graph import NodeGraph
from recoslip.graph.split import Split


class UntrainedDetector(Detector):
    """A detector whose scores follow from the graph alone, so that all seeds give the same and nothing is saved."""

    scores_need_source: ClassVar[bool] = True

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], callbacks: Callbacks, **truth: Any
    ) -> list[dict[str, Any]]:
        callbacks.progress(0, 1)
        scores = self._score(graph)
        callbacks.progress(1, 1)
        return [{"scores_": scores.copy()} for _ in seeds]

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {}, {}

    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        return {}
