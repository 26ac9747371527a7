"""recoslip: find the nodes of a graph that belong to a category nobody has seen before."""

__version__ = "0.1.0"
