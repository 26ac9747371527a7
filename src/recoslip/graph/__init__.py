"""NodeGraph, what it is built from, and the sparse algebra on it."""

from recoslip.graph.node_graph import NodeGraph
from recoslip.graph.validation import EdgeRepairs

__all__ = ["EdgeRepairs", "NodeGraph"]
