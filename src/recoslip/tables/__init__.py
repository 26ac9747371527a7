"""Nodes and edges as files or data frames -> NodeGraph."""

from recoslip.tables.read import read_graph

__all__ = ["read_graph"]
