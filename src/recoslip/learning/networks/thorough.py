"""The scan, its student and RECO-SLIP+'s committee of networks: the mean of the three ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from recoslip.base.settings import Integer, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import TREES
from recoslip.data.split import Split
from recoslip.learning.base import Callbacks, Scores
from recoslip.learning.model_file import Array, arrays_below
from recoslip.learning.networks.reco_slip_plus import RecoSlipPlus
from recoslip.learning.scan import Ranks, Scan, ScanModel

Attributes = dict[str, Any]


class Thorough(RecoSlipPlus):
    """The mean rank of a node by the scan, by its student and by RECO-SLIP+.

    The scan compares groups of similar nodes, the networks learn which features and edges matter; each finds novel
    nodes that the other misses. It takes as long as RECO-SLIP+.
    """

    name: ClassVar[str] = "thorough"
    has_regions: ClassVar[bool] = False
    allowed_growth: ClassVar[float | None] = Scan.allowed_growth

    trees: int = param(
        TREES, Integer(1, 1000), "of the scan: how many times to divide the nodes, by each kind of vectors"
    )

    scan_: ScanModel = learned("bins, what was counted in them, and the student")
    ranks_: Ranks = learned("of the committee's scores")

    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], callbacks: Callbacks, **truth: Any
    ) -> list[Attributes]:
        learned = super()._learn(graph, split, seeds, callbacks, **truth)
        return [self._with_scan(graph, each, seed) for each, seed in zip(learned, seeds, strict=True)]

    def _learn_rotations(
        self,
        graph: NodeGraph,
        presented: Sequence[tuple[NodeGraph, Split]],
        seeds: Sequence[Sequence[int]],
        callbacks: Callbacks,
        **truth: Any,
    ) -> list[list[Attributes]]:
        learned = super()._learn_rotations(graph, presented, seeds, callbacks, **truth)
        return [
            [
                each if "scan_" in each else self._with_scan(shown, each, seed)
                for each, seed in zip(of_rotation, seeds[0], strict=True)
            ]
            for (shown, _), of_rotation in zip(presented, learned, strict=True)
        ]

    def _with_scan(self, graph: NodeGraph, committee: Attributes, seed: int) -> Attributes:
        """Return what was learned together with the scan, and the scores of both."""
        self._check_scores(committee["scores_"])
        scan = ScanModel.fit(graph, seed, trees=self.trees)
        ranks = Ranks.of(committee["scores_"])
        scores = _mean_rank(scan.scores(graph), ranks(committee["scores_"]))
        return committee | {"scores_": scores, "scan_": scan, "ranks_": ranks}

    def _score_all(self, graph: NodeGraph) -> dict[str, Any]:
        attributes = super()._score_all(graph)
        return attributes | {"scores_": _mean_rank(self.scan_.scores(graph), self.ranks_(attributes["scores_"]))}

    def _score_among(self, graph: NodeGraph) -> dict[str, Any]:
        """Count the domains of the graph, as the scan does."""
        shown = self._as_presented(graph)
        attributes = super()._score_all(shown)
        scan = self.scan_.recounted(shown).scores(shown)
        return attributes | {"scores_": _mean_rank(scan, self.ranks_(attributes["scores_"]))}

    def _score(self, graph: NodeGraph) -> Scores:
        return _mean_rank(self.scan_.scores(graph), self.ranks_(super()._score(graph)))

    def _pack(self) -> tuple[dict[str, Any], dict[str, Array]]:
        values, learned = super()._pack()
        arrays = {f"scan.{name}": value for name, value in self.scan_.arrays().items()}
        arrays |= {"ranks.value": self.ranks_.value, "ranks.rank": self.ranks_.rank}
        return values, learned | arrays

    def _unpack(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        return super()._unpack(values, arrays) | {
            "scan_": ScanModel.from_arrays(arrays_below("scan.", arrays)),
            "ranks_": Ranks(arrays["ranks.value"], arrays["ranks.rank"]),
        }


def _mean_rank(scan: Scores, committee: Scores) -> Scores:
    """Return the mean of three ranks, of which the first argument is the mean of two."""
    return np.asarray((2 * scan + committee) / 3)
