"""Findings -> a folder: scores, summary, model, page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import polars as pl

from recoslip._version import __version__
from recoslip.errors import RecoslipError
from recoslip.findings.analysis import Findings, facts
from recoslip.graph import NodeGraph
from recoslip.json_files import read_json
from recoslip.page.report import Report
from recoslip.results import REVIEW, for_spreadsheets
from recoslip.storage import (
    atomic_folder,
    atomic_write,
    check_output_folder,
    output_lock,
    printable,
    resolve,
    restore_replaced,
)

Format: TypeAlias = Literal["csv", "parquet"]

# The files that an output folder may hold.
FILES = (
    "scores.csv", "scores.parquet", "summary.json", "model", "report.html", "report.json",
    "graph.graphml", "graph.gexf", "cells.h5ad",
)  # fmt: skip

# What an output folder takes, about: the page and the networks, and scores, similarities and page data per node.
OVERHEAD, BYTES_PER_NODE = 2**22, 700


def summarise(findings: Findings, seconds: float) -> dict[str, Any]:
    """Summarise a run in JSON values: the graph, the decisions, and what is needed to repeat the run."""
    detector, graph = findings.detector, findings.graph
    is_target = graph.is_target.numpy()
    result: dict[str, Any] = {
        "recoslip": __version__,
        "method": detector.name,
        "settings": detector.json_params(),
        "rotation_settings": detector.rotation_params() if detector.rotations_ else {},
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
        "listed": int(findings.listed.sum()),
        **facts(findings),
    }
    first = detector.fits[0]
    if hasattr(first, "prior_"):
        result["known_fraction_of_target"] = first.prior_
    candidates: pl.DataFrame | None = getattr(first, "candidates_", None)
    if candidates is not None:
        result["chosen"] = candidates.filter("chosen").drop("chosen").to_dicts()
    for table in ("encoders", "rounds"):
        if hasattr(first, f"{table}_"):
            result[table] = getattr(first, f"{table}_").to_dicts()
    return result


More: TypeAlias = "Mapping[str, Callable[[Path], None]]"  # further files of ours, by name, and what writes each
Write: TypeAlias = "Callable[[Findings, dict[str, Any], Report | None, Format, More], None]"


@contextmanager
def reserved(folder: str | os.PathLike[str], graph: NodeGraph, *, replace: bool) -> Iterator[Write]:
    """Hold an output folder from before training until it is written; yield the function that writes it.

    What can be known to go wrong with writing is raised at the beginning: a folder that is not ours, a disk that is
    read-only or too full, another process that writes there.
    """

    def write_there(
        findings: Findings, summary: dict[str, Any], page: Report | None, table_format: Format, more: More
    ) -> None:
        write(folder, findings, summary, page, table_format=table_format, replace=replace, more=more)

    with output_lock(folder):
        check_folder(folder, replace=replace, size=OVERHEAD + BYTES_PER_NODE * graph.num_nodes)
        yield write_there


def check_folder(folder: str | os.PathLike[str], *, replace: bool, size: int = 0) -> None:
    """Raise unless results can be written to a folder; one that holds people's verdicts is never replaced."""
    if (resolve(folder) / REVIEW).exists():
        raise RecoslipError(
            f"{printable(folder)} holds a review ({REVIEW}), whose verdicts are about the list that is there; choose "
            "another folder"
        )
    check_output_folder(folder, ours=FILES, replace=replace, size=size)


def write(
    folder: str | os.PathLike[str],
    findings: Findings,
    summary: dict[str, Any],
    page: Report | None,
    *,
    table_format: Format = "csv",
    replace: bool = False,
    more: More | None = None,
) -> None:
    """Write scores, summary, model, page and further files into a folder that appears complete or not at all."""
    with atomic_folder(folder, ours=FILES, replace=replace) as temporary:
        _write_into(temporary, findings.table(), summary, page, table_format)
        findings.detector.save(temporary / "model")
        for name, write_file in (more or {}).items():
            write_file(temporary / name)


def write_scores(
    folder: str | os.PathLike[str],
    table: pl.DataFrame,
    summary: dict[str, Any],
    page: Report | None,
    *,
    table_format: Format = "csv",
    replace: bool = False,
) -> None:
    """Write scores, summary and page, and no model, into a folder that appears complete or not at all."""
    with atomic_folder(folder, ours=FILES, replace=replace) as temporary:
        _write_into(temporary, table, summary, page, table_format)


def _write_into(
    folder: Path, table: pl.DataFrame, summary: dict[str, Any], page: Report | None, table_format: Format
) -> None:
    with (folder / f"scores.{table_format}").open("wb") as file:  # polars takes no path that is not UTF-8
        if table_format == "csv":
            for_spreadsheets(table).write_csv(file)
        else:
            table.write_parquet(file)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if page is not None:
        (folder / "report.json").write_text(json.dumps(page.data) + "\n", encoding="utf-8")
        page.save(folder / "report.html")


def rebuild_page(folder: str | os.PathLike[str]) -> Path:
    """Write a run's page anew from the data that the run wrote, and return its path."""
    path = resolve(folder)
    with output_lock(path):
        restore_replaced(path)
        try:
            data = read_json(path / "report.json")
        except FileNotFoundError as problem:
            raise RecoslipError(
                f"{printable(folder)} holds no report.json; recoslip detect and demo write it"
            ) from problem
        except (OSError, ValueError) as problem:
            raise RecoslipError(
                f"{printable(folder)}/report.json cannot be read: {problem}; run detect again"
            ) from problem
        page = path / "report.html"
        try:
            html = Report(data).html()
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            raise RecoslipError(
                f"{printable(folder)}/report.json is damaged or not recoslip's ({problem!r}); run detect again"
            ) from problem
        atomic_write(page, html)
    return page
