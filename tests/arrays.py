"""A graph or a matrix -> a dense array to compare."""

import scipy.sparse as sp


def dense_x(graph):
    """Return a graph's features as a dense array."""
    return graph.x.toarray() if sp.issparse(graph.x) else graph.x


def same_x(one, other):
    """Return whether two graphs have the same features, as arrays of one kind."""
    return sp.issparse(one.x) == sp.issparse(other.x) and (dense_x(one) == dense_x(other)).all()
