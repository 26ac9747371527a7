"""The scan, its student and RECO-SLIP+'s committee of networks: the mean of the three ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recoslip.base.progress import Progress
from recoslip.base.settings import Integer, learned, param
from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import TREES
from recoslip.learning.base import Attributes, Presentation, Scores
from recoslip.learning.networks.reco_slip_plus import RecoSlipPlus
from recoslip.learning.scan import Ranks, ScanModel


class Thorough(RecoSlipPlus):
    """The mean rank of a node by the scan, by its student and by RECO-SLIP+.

    The scan compares groups of similar nodes, the networks learn which features and edges matter; each finds novel
    nodes that the other misses. It takes as long as RECO-SLIP+.
    """

    name: ClassVar[str] = "thorough"

    trees: int = param(
        TREES, Integer(1, 1000), "of the scan: how many times to divide the nodes, by each kind of vectors"
    )

    scan_: ScanModel = learned("bins, what was counted in them, and the student")
    ranks_: Ranks = learned("of the committee's scores")

    def _learn(self, shown: Sequence[Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
        learned = super()._learn(shown, progress, **truth)
        return [self._with_scan(each.graph, own, each.seed) for each, own in zip(shown, learned, strict=True)]

    def _with_scan(self, graph: NodeGraph, committee: Attributes, seed: int) -> Attributes:
        """Return what was learned together with the scan, and the scores of both."""
        scan, scores = ScanModel.fit(graph, seed, trees=self.trees)
        ranks = Ranks.of(committee["scores_"])
        scores = _mean_rank(scores, ranks(committee["scores_"]))
        return committee | {"scores_": scores, "scan_": scan, "ranks_": ranks}

    def _score(self, graph: NodeGraph) -> Scores:
        return _mean_rank(self.scan_.scores(graph), self.ranks_(super()._score(graph)))

    def _rescore(self, graph: NodeGraph) -> Scores:
        """Count the domains of the graph, as the scan does."""
        return _mean_rank(self.scan_.recounted(graph).scores(graph), self.ranks_(super()._score(graph)))

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
        if name == "scan_":
            return ScanModel.from_arrays(arrays)
        return Ranks(**arrays) if name == "ranks_" else super()._restored(name, arrays)


def _mean_rank(scan: Scores, committee: Scores) -> Scores:
    """Return the mean of three ranks, of which the first argument is the mean of two."""
    return np.asarray((2 * scan + committee) / 3)
