"""Fitted detector + graph -> a folder: scores, summary, model."""

from __future__ import annotations

import json
import os
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

import recoslip
from recoslip.detectors.base import Detector
from recoslip.graph import NodeGraph
from recoslip.storage import whole_folder

Format: TypeAlias = Literal["csv", "parquet"]

FILES = ("scores.csv", "scores.parquet", "summary.json", "model")  # what an output folder may hold


def scores_table(detector: Detector, graph: NodeGraph) -> pl.DataFrame:
    """List nodes as id, domain, score, novel: target nodes first, the most novel on top."""
    is_target = graph.is_target.numpy()
    frame = pl.DataFrame(
        {
            "id": pl.Series(graph.ids.tolist(), strict=False),
            "domain": np.where(is_target, "target", "source"),
            "score": detector.scores_,
            "novel": detector.predict(),
        }
    )
    return frame.sort(["domain", "score"], descending=True, maintain_order=True)  # "target" sorts after "source"


def summary(detector: Detector, graph: NodeGraph, seconds: float) -> dict[str, Any]:
    """Sum up a run in JSON values: what went in, what was decided, and what it takes to do it again."""
    is_target = graph.is_target.numpy()
    novel = detector.predict()
    result: dict[str, Any] = {
        "recoslip": recoslip.__version__,
        "method": detector.name,
        "settings": detector._json_settings(),
        "seed": detector.random_state,
        "seconds": round(seconds, 3),
        "nodes": graph.num_nodes,
        "source": int((~is_target).sum()),
        "target": int(is_target.sum()),
        "edges": graph.num_edges,
        "features": graph.num_features,
        "feature_names": None if graph.feature_names is None else list(graph.feature_names),
        "edge_repairs": {
            "mirrored": graph.repairs.mirrored,
            "merged": graph.repairs.merged,
            "loops": graph.repairs.loops,
        },
        "threshold": detector.threshold_,
        "novel": int(novel.sum()),
    }
    candidates: pl.DataFrame | None = getattr(detector, "candidates_", None)
    if hasattr(detector, "prior_"):
        result["known_share_of_target"] = detector.prior_
    if candidates is not None:
        result["chosen"] = candidates.filter("chosen").drop("chosen").to_dicts()
    return result


def write(
    folder: str | os.PathLike[str],
    detector: Detector,
    graph: NodeGraph,
    facts: dict[str, Any],
    *,
    table_format: Format = "csv",
    replace: bool = False,
) -> None:
    """Write scores, summary and model into a folder that appears whole or not at all."""
    table = scores_table(detector, graph)
    with whole_folder(folder, ours=FILES, replace=replace) as draft:
        if table_format == "csv":
            table.write_csv(draft / "scores.csv")
        else:
            table.write_parquet(draft / "scores.parquet")
        (draft / "summary.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        detector.save(draft / "model")
