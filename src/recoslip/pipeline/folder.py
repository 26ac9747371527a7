"""What a run found -> a folder: scores, summary, model, report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import polars as pl

from recoslip.detectors.base import Detector
from recoslip.errors import RecoslipError
from recoslip.pipeline.report.html import Report
from recoslip.results import REVIEW, for_spreadsheets
from recoslip.storage import (
    atomic_folder,
    check_output_folder,
    output_lock,
    printable,
    resolve,
)

Format: TypeAlias = Literal["csv", "parquet"]

# The files that an output folder may hold.
FILES = (
    "scores.csv", "scores.parquet", "summary.json", "model", "report.html", "report.json",
    "graph.graphml", "graph.gexf", "cells.h5ad",
)  # fmt: skip

FORMATS = ("csv", "parquet")

# What an output folder takes, about: the page and the networks, and scores, similarities and page data per node.
OVERHEAD, BYTES_PER_NODE = 2**22, 700


More: TypeAlias = "Mapping[str, Callable[[Path], None]]"  # further files of ours, by name, and what writes each


@contextmanager
def reserved(folder: str | os.PathLike[str], *, replace: bool, nodes: int = 0) -> Iterator[None]:
    """Hold an output folder from before anything is read until it is written.

    What can be known to go wrong with writing is raised at the beginning: a folder that is not ours, a disk that is
    read-only or too full, another process that writes there.

    Args:
        folder: the folder to write.
        replace: whether an earlier result in it may be replaced.
        nodes: how many nodes the result has, where that is known.
    """
    with output_lock(folder):
        check_folder(folder, replace=replace, nodes=nodes)
        yield


def check_folder(folder: str | os.PathLike[str], *, replace: bool, nodes: int = 0) -> None:
    """Raise unless results can be written to a folder; one that holds people's verdicts is never replaced."""
    if (resolve(folder) / REVIEW).exists():
        raise RecoslipError(
            f"{printable(folder)} holds a review ({REVIEW}), whose verdicts are about the list that is there; choose "
            "another folder"
        )
    check_output_folder(folder, ours=FILES, replace=replace, size=OVERHEAD + BYTES_PER_NODE * nodes)


def write(
    folder: str | os.PathLike[str],
    table: pl.DataFrame,
    summary: Mapping[str, Any],
    model: Detector | None,
    report: Report | None,
    *,
    table_format: Format = "csv",
    replace: bool = False,
    more: More | None = None,
) -> Path:
    """Write scores, summary, model, report and further files into a folder that appears complete or not at all."""
    with reserved(folder, replace=replace), atomic_folder(folder, ours=FILES, replace=replace) as temporary:
        _write_into(temporary, table, summary, report, table_format)
        if model is not None:
            model.save(temporary / "model")
        for name, write_file in (more or {}).items():
            write_file(temporary / name)
    return resolve(folder)


def _write_into(
    folder: Path, table: pl.DataFrame, summary: Mapping[str, Any], report: Report | None, table_format: Format
) -> None:
    with (folder / f"scores.{table_format}").open("wb") as file:  # polars takes no path that is not UTF-8
        if table_format == "csv":
            for_spreadsheets(table).write_csv(file)
        else:
            table.write_parquet(file)
    (folder / "summary.json").write_text(json.dumps(dict(summary), indent=1) + "\n", encoding="utf-8")
    if report is not None:
        (folder / "report.json").write_text(json.dumps(report.data) + "\n", encoding="utf-8")
        report.save(folder / "report.html")
