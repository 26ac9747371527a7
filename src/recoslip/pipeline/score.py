"""Fitted detector + tables of new nodes -> their scores, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from sklearn.base import clone

from recoslip._version import __version__
from recoslip.base.text import counted
from recoslip.data.ids import id_hashes
from recoslip.data.tables.new_nodes import NewNodes
from recoslip.inference.analysis import Findings, analyse, facts, with_columns_of
from recoslip.inference.columns import DriftCheck
from recoslip.learning.base import Detector
from recoslip.learning.p_values import selected


class Scored(NamedTuple):
    """What new nodes scored."""

    table: pl.DataFrame  # of the new nodes, the highest scores first
    summary: dict[str, Any]
    findings: Findings | None  # of the source and the new nodes; None where the source nodes were not given


def with_settings(model: Detector, settings: Mapping[str, Any]) -> Detector:
    """Return a copy of a fitted detector with other settings, which nothing that was learned depends on."""
    copy: Detector = clone(model).set_params(**settings)
    copy.__dict__.update({name: value for name, value in vars(model).items() if name.endswith("_")})
    copy.rotations_ = tuple(with_settings(fit, settings) for fit in model.rotations_)
    copy.check_params()
    copy.set_threshold()
    return copy


def check_new(detector: Detector, new: NewNodes) -> DriftCheck:
    """Look at new nodes before they are scored."""
    given = id_hashes(new.graph.ids)
    known = np.isin(given[new.is_new], detector.node_)
    absent = ~np.isin(detector.node_, given)
    joined = (~new.is_new)[new.graph.edge_index].all(axis=0)  # edges between old nodes
    return DriftCheck(
        new,
        known=int(known.sum()),
        compared=bool(detector.calibrates(new.graph).any()),
        absent=int(absent.sum()),
        without_edges=bool(new.old and detector.has_edges_ and not joined.any()),
    )


def score_new(
    detector: Detector, new: NewNodes, check: DriftCheck, *, fdr: float | None = None, grouped: bool = True
) -> Scored:
    """Score new nodes that were read with a detector's encoder."""
    is_target = new.graph.is_target
    if not check.compared or not is_target[new.is_new].any():
        return _score_alone(detector, check, fdr)
    nodes = np.flatnonzero(~is_target | new.is_new)
    view, graph = detector.transfer(new.graph, nodes), new.graph.subgraph(nodes)
    findings = replace(analyse(view, graph, fdr=fdr, grouped=grouped), before_scoring=tuple(check.rows()))
    own = pl.Series(graph.ids[new.is_new[nodes]].tolist(), strict=False)
    table = findings.table()
    table = table.filter(table["id"].is_in(own.cast(table["id"].dtype).implode()))
    return Scored(table, _summary(detector, check, table) | facts(findings), findings)


def _summary(detector: Detector, check: DriftCheck, table: pl.DataFrame) -> dict[str, Any]:
    """Summarise what new nodes scored, as JSON values."""
    new, listed = check.rows_read, int(table["listed"].sum())
    return {
        "recoslip": __version__,
        "method": detector.name,
        "settings": detector.json_params(),
        "check_before_scoring": check.to_dict(),
        "nodes": new,
        "listed": listed,
        "list": f"{listed:,} of {counted(new, 'new node')} {'is' if listed == 1 else 'are'} listed.",
    }


def _score_alone(detector: Detector, check: DriftCheck, fdr: float | None) -> Scored:
    """Score new nodes where the source nodes that they should be compared with were not given."""
    graph, is_new = check.new.graph, check.new.is_new
    scores, p = (values[is_new] for values in detector.scores_and_p_values(graph))
    is_target = ~np.isnan(p)
    listed = np.zeros(len(p), dtype=bool)
    listed[is_target] = selected(p[is_target], detector.max_fpr, fdr)
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
    guarantee = (
        "No statistical guarantee: the new nodes are compared with "
        f"{counted(int(detector.calibration_.sum()), 'source node')} of all regions together, as these scored in the "
        "fit. Give the old nodes and edges (old=...) to compare within regions."
        if is_target.any()
        else "All of these nodes were source nodes in the fit. They are known, so none can be listed."
    )
    table = frame.sort("score", descending=True, maintain_order=True)
    summary = _summary(detector, check, table)
    said = {"verdict": "inconclusive", "headline": summary["list"], "advice": guarantee, "supported": False}
    return Scored(
        table, summary | said | {"guarantee": guarantee, "check": check.to_dict() | {"rows": check.rows()}}, None
    )
