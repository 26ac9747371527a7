"""Findings -> a graph with the scores as attributes of its nodes, for NetworkX, Gephi and Cytoscape."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recoslip.errors import SettingError
from recoslip.findings.analysis import Findings

if TYPE_CHECKING:
    import networkx as nx

FORMATS = ("graphml", "gexf")
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


def graph_writers(findings: Findings, formats: list[str]) -> dict[str, Callable[[Path], None]]:
    """Return the files of a graph with scores, by name, and what writes each."""
    import networkx as nx

    writers: dict[str, Any] = {"graphml": nx.write_graphml, "gexf": nx.write_gexf}

    def writer(name: str) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            with path.open("wb") as file:
                writers[name](to_networkx(findings), file)

        return write

    return {f"graph.{name}": writer(name) for name in formats}


def check_graph_format(name: str | None) -> list[str]:
    """Return the formats of graph files that are asked for."""
    if name is not None and name not in FORMATS:
        raise SettingError(f"--write-graph must be {' or '.join(FORMATS)}; got {name!r}")
    return [] if name is None else [name]
