"""Calibrated detector + tables of new nodes -> their scores, and what they come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from recoslip._version import __version__
from recoslip.base.errors import TableError
from recoslip.base.settings import json_params
from recoslip.data.ids import id_hashes
from recoslip.data.tables.cells import tables_of_new_cells
from recoslip.data.tables.read import GivenTable, NewNodes, read_new_nodes
from recoslip.data.tables.table_encoder import TableEncoder
from recoslip.inference.analysis import Findings, facts, find_novel, with_columns_of
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.columns import DriftCheck
from recoslip.inference.p_values import selected


class Scored(NamedTuple):
    """What new nodes scored."""

    table: pl.DataFrame  # of the new nodes, the highest scores first
    summary: dict[str, Any]
    findings: Findings | None  # of the source and the new nodes; None where the source nodes were not given


def read_for(model: Calibrated, nodes: Any, edges: GivenTable | None = None, **options: Any) -> NewNodes:
    """Read nodes that a model was not fitted on, with the encoder of those it was fitted on.

    The arguments are those of `recoslip.data.tables.read.read_new_nodes`: among others `old_nodes` and
    `old_edges`, so that neighbourhoods are complete. Nodes that were source in the fit are source, all others target.
    """
    encoding = model.fits[0].encoding_
    if encoding is None:
        raise TableError(
            "this detector has no encoder: it was fitted on a graph that was not read from tables, or whose features "
            "were aligned; build the graph and call decision_function, or fit again"
        )
    sources = model.node[~model.is_target]
    if (cells := tables_of_new_cells(nodes, list(encoding))) is not None:
        nodes, edges = cells.nodes, cells.edges if edges is None else edges
        options.setdefault("weight", cells.weight)
    return read_new_nodes(
        nodes, edges, TableEncoder.from_json(encoding), lambda ids: np.isin(id_hashes(ids), sources), **options
    )


def check_new(model: Calibrated, new: NewNodes) -> DriftCheck:
    """Look at new nodes before they are scored."""
    given = id_hashes(new.graph.ids)
    known = np.isin(given[new.is_new], model.node)
    absent = ~np.isin(model.node, given)
    joined = (~new.is_new)[new.graph.edge_index].all(axis=0)  # edges between old nodes
    return DriftCheck(
        new,
        known=int(known.sum()),
        compared=bool(np.any(model.hidden_in(new.graph))),
        absent=int(absent.sum()),
        without_edges=bool(new.old and model.fits[0].has_edges_ and not joined.any()),
    )


def score_new(
    model: Calibrated, new: NewNodes, check: DriftCheck, *, fdr: float | None = None, grouped: bool = True
) -> Scored:
    """Score new nodes that were read with a detector's encoder."""
    is_target = new.graph.is_target
    if not check.compared or not is_target[new.is_new].any():
        return _score_alone(model, check, fdr)
    nodes = np.flatnonzero(~is_target | new.is_new)
    view, graph = model.transfer(new.graph, nodes), new.graph.subgraph(nodes)
    findings = replace(find_novel(view, graph, fdr=fdr, grouped=grouped), before_scoring=tuple(check.rows()))
    own = pl.Series(graph.ids[new.is_new[nodes]].tolist(), strict=False)
    table = findings.table()
    table = table.filter(table["id"].is_in(own.cast(table["id"].dtype).implode()))
    return Scored(table, _summary(model, check, table) | facts(findings), findings)


def _summary(model: Calibrated, check: DriftCheck, table: pl.DataFrame) -> dict[str, Any]:
    """Summarise what new nodes scored, as JSON values."""
    new, listed, terms = check.rows_read, int(table["listed"].sum()), check.new.graph.terms
    return {
        "recoslip": __version__,
        "method": model.name,
        "settings": json_params(model.detector),
        "max_fpr": model.max_fpr,
        "check_before_scoring": check.to_dict(),
        "nodes": new,
        "listed": listed,
        "list": f"{listed:,} of {terms.nodes(new)} {'is' if listed == 1 else 'are'} listed.",
    }


def _score_alone(model: Calibrated, check: DriftCheck, fdr: float | None) -> Scored:
    """Score new nodes where the source nodes that they should be compared with were not given."""
    graph, is_new = check.new.graph, check.new.is_new
    scores, p = (values[is_new] for values in model.scores_and_p_values(graph))
    is_target = ~np.isnan(p)
    listed = np.zeros(len(p), dtype=bool)
    listed[is_target] = selected(p[is_target], model.max_fpr, fdr)
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
        f"No statistical guarantee: the new {graph.terms.noun} are compared with "
        f"{graph.terms.sources(int(model.calibration.sum()))} as these scored in the fit. Give the old nodes and "
        "edges (old=...) to compare them in one graph."
        if is_target.any()
        else "All of these nodes were source nodes in the fit. They are known, so none can be listed."
    )
    table = frame.sort("score", descending=True, maintain_order=True)
    judged = "Inconclusive" + (f", as the old {graph.terms.noun} were not given" if is_target.any() else "")
    summary = _summary(model, check, table)
    said = {
        "verdict": "inconclusive",
        "headline": f"{judged}: {summary['list']}",
        "advice": guarantee,
        "supported": False,
    }
    return Scored(
        table, summary | said | {"guarantee": guarantee, "check": check.to_dict() | {"rows": check.rows()}}, None
    )
