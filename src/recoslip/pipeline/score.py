"""Result + tables of new nodes -> Result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.base import clone

from recoslip._version import __version__
from recoslip.calibration.conformal import ROUNDING, benjamini_hochberg
from recoslip.detectors.base import Detector
from recoslip.detectors.loading import load_detector
from recoslip.detectors.params import Number
from recoslip.errors import SettingError
from recoslip.findings.analysis import analyse, facts, with_columns_of
from recoslip.graph import NodeGraph
from recoslip.graph.ids import id_hashes
from recoslip.inspection.drift import DriftCheck
from recoslip.packed import open_packed
from recoslip.pipeline.result import Result
from recoslip.read_options import reads
from recoslip.tables.new_nodes import NewNodes
from recoslip.wording import counted


@reads("id", "edge_from", "edge_to", "weight", "drop_unknown", "impute", "label", "keep", "encoding")
def score(
    result: Result | Detector | str | os.PathLike[str],
    nodes: Any,
    edges: Any = None,
    *,
    old: NodeGraph | str | os.PathLike[str] | tuple[Any, Any] | None = None,
    rename: Mapping[str, str] | None = None,
    max_fpr: float | None = None,
    fdr: float | None = None,
    groups: bool = True,
    device: str | None = None,
    checked: Callable[[DriftCheck], None] | None = None,
    **read_options: Any,
) -> Result:
    """Score new rows with a model that was fitted before. Columns are encoded as those of the table it was fitted on.

    With old nodes the new ones are analysed as the target of the graph that was fitted: what was target then counts as
    neighbours alone, unless it is among the new rows. Without old nodes there are scores, p-values and a list, and no
    statistical guarantee.

    Args:
        result: what `recoslip.detect` returned, its folder, a fitted detector, or the folder of one.
        nodes: table of the new nodes; it needs no domain.
        edges: table of their edges, to each other and to old nodes.
        old: the old nodes, so that neighbourhoods are complete: tables of nodes and of edges (or None), a packed graph
            or its folder.
        rename: names of the new table's columns -> the names that the model knows them by.
        max_fpr: another false-positive rate than the model's.
        fdr: list nodes by this false-discovery rate instead.
        groups: whether to divide the listed nodes into groups.
        device: to score on: "auto", "cpu" or "cuda".
        checked: called with the differences between the new and the old table before anything is scored.
    """
    if fdr is not None:
        Number(0, 1, open_ends=True)("fdr", fdr)
    model = _model(result, max_fpr=max_fpr, device=device)
    if isinstance(old, tuple):
        old_nodes, old_edges = old
    else:
        old_nodes, old_edges = open_packed(old) if isinstance(old, str | os.PathLike) else old, None
    new = model.read_table(nodes, edges, old_nodes=old_nodes, old_edges=old_edges, rename=rename, **read_options)
    look = look_at_new(model, new)
    if checked is not None:
        checked(look)
    return score_new(model, new, look, fdr=fdr, grouped=groups)


def _model(result: Any, *, max_fpr: float | None, device: str | None) -> Detector:
    """Return a fitted detector of the caller's own, with other settings where they are given."""
    changed = {name: value for name, value in (("max_fpr", max_fpr), ("device", device)) if value is not None}
    if isinstance(result, str | os.PathLike):
        folder = Path(result).expanduser()
        own = folder / "model" if (folder / "model").is_dir() and not (folder / "model.json").exists() else folder
        return load_detector(own, **changed)
    model = result.detector if isinstance(result, Result) else result
    if not isinstance(model, Detector):
        raise SettingError(f"expected a Result, a Detector or a folder; got {type(result).__name__}")
    return _changed(model, changed) if changed else model


def _changed(model: Detector, settings: Mapping[str, Any]) -> Detector:
    """Return a copy of a fitted detector with other settings, which nothing that was learned depends on."""
    copy: Detector = clone(model).set_params(**settings)
    copy.__dict__.update({name: value for name, value in vars(model).items() if name.endswith("_")})
    copy.rotations_ = tuple(_changed(fit, settings) for fit in model.rotations_)
    copy.check_params()
    copy.set_threshold()
    return copy


def look_at_new(detector: Detector, new: NewNodes) -> DriftCheck:
    """Look at new nodes before they are scored."""
    known = np.isin(id_hashes(new.graph.ids[new.is_new]), detector.node_)
    return DriftCheck(new, int(known.sum()), bool(detector.calibrates(new.graph).any()))


def score_new(
    detector: Detector, new: NewNodes, look: DriftCheck, *, fdr: float | None = None, grouped: bool = True
) -> Result:
    """Score new nodes that were read with a detector's encoder."""
    is_target = new.graph.is_target.numpy()
    if not look.compared or not is_target[new.is_new].any():
        return _score_alone(detector, look, fdr)
    nodes = np.flatnonzero(~is_target | new.is_new)
    view, graph = detector.transfer(new.graph, nodes), new.graph.subgraph(nodes)
    findings = replace(analyse(view, graph, fdr=fdr, grouped=grouped), before_scoring=tuple(look.rows()))
    own = pl.Series(graph.ids[new.is_new[nodes]].tolist(), strict=False)
    table = findings.table()
    table = table.filter(table["id"].is_in(own.cast(table["id"].dtype).implode()))
    return Result(table, _summary(detector, look, table) | facts(findings), findings)


def _summary(detector: Detector, look: DriftCheck, table: pl.DataFrame) -> dict[str, Any]:
    """Summarise what new nodes scored, as JSON values."""
    new, listed = look.rows_read, int(table["listed"].sum())
    return {
        "recoslip": __version__,
        "method": detector.name,
        "settings": detector.json_params(),
        "look_before_scoring": look.facts(),
        "nodes": new,
        "listed": listed,
        "list": f"{listed:,} of {counted(new, 'new node')} {'is' if listed == 1 else 'are'} listed.",
    }


def _score_alone(detector: Detector, look: DriftCheck, fdr: float | None) -> Result:
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
    table = frame.sort("score", descending=True, maintain_order=True)
    summary = _summary(detector, look, table)
    said = {"verdict": "cannot tell", "headline": summary["list"], "advice": promise, "supported": False}
    return Result(table, summary | said | {"promise": promise, "look": look.facts() | {"rows": look.rows()}})
