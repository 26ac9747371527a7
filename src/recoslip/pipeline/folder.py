"""What a run found -> a folder: scores, summary, model, report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import polars as pl

from recoslip.detectors.base import Detector
from recoslip.errors import RecoslipError
from recoslip.pipeline.report.html import Report
from recoslip.results import REVIEW, for_spreadsheets
from recoslip.storage import Folder, Kind, check_output, output_lock, printable, resolve, writing

Format: TypeAlias = Literal["csv", "parquet"]
FORMATS = ("csv", "parquet")

# What an output folder takes, about: the page and the networks, and scores, similarities and page data per node.
OVERHEAD, BYTES_PER_NODE = 2**22, 700


More: TypeAlias = "Mapping[str, Callable[[BinaryIO], object]]"  # further files of ours, by name, and what writes each


@contextmanager
def reserved(
    folder: str | os.PathLike[str], kind: Kind, *, replace: bool, inputs: Iterable[Any] = (), nodes: int = 0
) -> Iterator[None]:
    """Hold an output folder from before anything is read until it is written.

    What can be known to go wrong with writing is raised at the beginning: a folder that is not ours, a disk that is
    read-only or too full, another process that writes there.

    Args:
        folder: the folder to write.
        kind: what it is.
        replace: whether an earlier result in it may be replaced.
        inputs: what is read, of which files and folders must not lie in it.
        nodes: how many nodes the result has, where that is known.
    """
    with output_lock(folder):
        check_folder(folder, kind, replace=replace, inputs=inputs, nodes=nodes)
        yield


def check_folder(
    folder: str | os.PathLike[str], kind: Kind, *, replace: bool, inputs: Iterable[Any] = (), nodes: int = 0
) -> None:
    """Raise unless results can be written to a folder; one that holds people's verdicts is never replaced."""
    if (resolve(folder) / REVIEW).exists():
        raise RecoslipError(
            f"{printable(folder)} holds a review ({REVIEW}), whose verdicts are about the list that is there; choose "
            "another folder"
        )
    size = OVERHEAD + BYTES_PER_NODE * nodes
    check_output(folder, kind, replace=replace, inputs=paths(*inputs), size=size)


def paths(*given: object) -> tuple[Path, ...]:
    """Return those of some inputs that are files or folders."""
    return tuple(Path(each) for each in given if isinstance(each, str | os.PathLike))


def write(
    folder: str | os.PathLike[str],
    kind: Kind,
    table: pl.DataFrame,
    summary: Mapping[str, Any],
    model: Detector | None,
    report: Report | None,
    *,
    table_format: Format = "csv",
    replace: bool = False,
    inputs: Iterable[Path] = (),
    more: More | None = None,
) -> Path:
    """Write scores, summary, model, report and further files into a folder that appears complete or not at all."""
    inputs = tuple(inputs)
    check_folder(folder, kind, replace=replace, inputs=inputs)
    with writing(folder, kind, replace=replace, inputs=inputs) as written:
        _write_into(written, table, summary, report, table_format)
        if model is not None:
            model.write_into(written, "model/")
        for name, write_file in (more or {}).items():
            written.write(name, write_file)
    return resolve(folder)


def _write_into(
    folder: Folder, table: pl.DataFrame, summary: Mapping[str, Any], report: Report | None, table_format: Format
) -> None:
    if table_format == "csv":
        folder.write("scores.csv", for_spreadsheets(table).write_csv)
    else:
        folder.write("scores.parquet", table.write_parquet)
    folder.write("summary.json", json.dumps(dict(summary), indent=1) + "\n")
    if report is not None:
        folder.write("report.json", json.dumps(report.data) + "\n")
        folder.write("report.html", report.html())
