"""Fitted detector + tables of new nodes -> their scores, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from recoslip._version import __version__
from recoslip.calibration.conformal import ROUNDING, benjamini_hochberg
from recoslip.detectors.base import Detector
from recoslip.findings.analysis import Findings, analyse, facts, with_columns_of
from recoslip.graph.ids import id_hashes
from recoslip.inspection.drift import DriftCheck
from recoslip.tables.new_nodes import NewNodes
from recoslip.wording import counted


@dataclass(frozen=True, eq=False)
class Scored:
    """New nodes with their scores."""

    detector: Detector  # as it was fitted
    look: DriftCheck
    table: pl.DataFrame  # id, score, p_value, listed and more, of the new nodes, the highest scores first
    findings: Findings | None  # of the source and the new nodes; None where the source nodes were not given
    promise: str

    def summary(self) -> dict[str, Any]:
        """Return what was found as JSON values."""
        new, listed = self.look.rows_read, int(self.table["listed"].sum())
        result: dict[str, Any] = {
            "recoslip": __version__,
            "method": self.detector.name,
            "settings": self.detector.json_params(),
            "look_before_scoring": self.look.facts(),
            "nodes": new,
            "listed": listed,
            "list": f"{listed:,} of {counted(new, 'new node')} {'is' if listed == 1 else 'are'} listed.",
            "promise": self.promise,
        }
        return result if self.findings is None else result | facts(self.findings)


def look_at_new(detector: Detector, new: NewNodes) -> DriftCheck:
    """Look at new nodes before they are scored."""
    known = np.isin(id_hashes(new.graph.ids[new.is_new]), detector.node_)
    return DriftCheck(new, int(known.sum()), bool(detector.calibrates(new.graph).any()))


def score(detector: Detector, new: NewNodes, *, fdr: float | None = None, grouped: bool = True) -> Scored:
    """Score new nodes.

    With old nodes the new ones are analysed as the target of the graph that was fitted: what was target then counts as
    neighbours alone, unless it is among the new rows. Without old nodes there are scores, p-values and a list.

    Args:
        detector: fitted.
        new: what its `read_table` returned.
        fdr: list nodes by this false-discovery rate; without it, by the detector's `max_fpr`.
        grouped: whether to divide the listed nodes into groups.
    """
    look = look_at_new(detector, new)
    is_target = new.graph.is_target.numpy()
    if not look.compared or not is_target[new.is_new].any():
        return _score_alone(detector, look, fdr)
    nodes = np.flatnonzero(~is_target | new.is_new)
    view, graph = detector.transfer(new.graph, nodes), new.graph.subgraph(nodes)
    findings = replace(analyse(view, graph, fdr=fdr, grouped=grouped), before_scoring=tuple(look.rows()))
    own = pl.Series(graph.ids[new.is_new[nodes]].tolist(), strict=False)
    table = findings.table()
    return Scored(
        detector,
        look,
        table.filter(table["id"].is_in(own.cast(table["id"].dtype).implode())),
        findings,
        findings.promise,
    )


def _score_alone(detector: Detector, look: DriftCheck, fdr: float | None) -> Scored:
    """Score new nodes where the source nodes that they should be compared with were not given."""
    graph, is_new = look.new.graph, look.new.is_new
    scores, p = (values[is_new] for values in detector.scores_and_p_values(graph))
    is_target = ~np.isnan(p)
    listed = np.zeros(len(p), dtype=bool)
    if fdr is None:
        listed[is_target] = p[is_target] <= detector.max_fpr * (1 + ROUNDING)
    else:
        listed[is_target] = benjamini_hochberg(p[is_target], fdr)
    frame = pl.DataFrame(
        {
            "id": pl.Series(graph.ids[is_new].tolist(), strict=False),
            "domain": np.where(is_target, "target", "source"),
            "score": scores,
            "p_value": pl.Series(p, nan_to_null=True),
            "listed": listed,
        }
    )
    frame = with_columns_of(frame, graph, is_new)
    promise = (
        "No promise goes with this list: the new nodes are compared with "
        f"{counted(int(detector.calibration_.sum()), 'source node')} of all regions together, as these scored in the "
        "fit. Give the old nodes and edges (--with) to compare within regions."
        if is_target.any()
        else "All of these nodes were source nodes of the fit: they are known, and none can be listed."
    )
    return Scored(detector, look, frame.sort("score", descending=True, maintain_order=True), None, promise)
