"""What a run found -> a folder: scores, summary, model, report; and a graph file for NetworkX, Gephi and Cytoscape."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

import polars as pl

from recoslip.base.errors import RecoslipError, SettingError
from recoslip.base.files import Folder, Kind, check_output, output_lock, printable, resolve, writing
from recoslip.inference.analysis import Findings
from recoslip.inference.calibrated import Calibrated
from recoslip.pipeline.report.html import Report
from recoslip.pipeline.saved import REVIEW, for_spreadsheets

if TYPE_CHECKING:
    import networkx as nx

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
    model: Calibrated | None,
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
            model.save_below(written, "model")
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


GRAPH_FORMATS = ("graphml", "gexf")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_networkx(findings: Findings) -> nx.Graph:
    """Return the graph with domain, score, p_value, listed, group and the kept columns as attributes of its nodes.

    A value that is missing, such as the group of a node that is not listed, is no attribute.
    """
    import networkx as nx

    graph, result = findings.graph, nx.Graph()
    for row in findings.table().iter_rows(named=True):
        name = _printable(row.pop("id"))
        result.add_node(name, **{key: _printable(value) for key, value in row.items() if value is not None})
    ids = [_printable(name) for name in graph.ids.tolist()]
    one_way = graph.edge_index[0] < graph.edge_index[1]
    weights = None if graph.edge_weight is None else graph.edge_weight[one_way].tolist()
    for k, (a, b) in enumerate(graph.edge_index[:, one_way].T.tolist()):
        result.add_edge(ids[a], ids[b], **({} if weights is None else {"weight": weights[k]}))
    return result


def _printable(value: Any) -> Any:
    """Return a value as it is; in text, a character that no XML file can hold is replaced."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else value


def graph_writers(findings: Findings, name: str) -> dict[str, Callable[[BinaryIO], None]]:
    """Return the file of a graph with scores, by its name, and what writes it."""
    import networkx as nx

    check_graph_format(name)
    writer: Any = {"graphml": nx.write_graphml, "gexf": nx.write_gexf}[name]

    def write(file: BinaryIO) -> None:
        writer(to_networkx(findings), file)

    return {f"graph.{name}": write}


def check_graph_format(name: str) -> None:
    """Raise unless there is such a format of graph files."""
    if name not in GRAPH_FORMATS:
        raise SettingError(f"a graph is written as {' or '.join(GRAPH_FORMATS)}; got graph={name!r}")
