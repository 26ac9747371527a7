"""Findings -> a graph with the scores as attributes of its nodes, for NetworkX, Gephi and Cytoscape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

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
    if name not in FORMATS:
        raise SettingError(f"a graph is written as {' or '.join(FORMATS)}; got graph={name!r}")
