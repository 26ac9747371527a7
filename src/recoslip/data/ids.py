"""Ids of nodes -> an order of the nodes, and hashes that are the same in every graph."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.memory import memory
from recoslip.data.graph import Derived, NodeGraph

log = logging.getLogger("recoslip")


def id_hashes(ids: Iterable[Any]) -> NDArray[np.int64]:
    """Hash ids by how they read, in 64 bits: 7 and "7" are the same id.

    >>> bool(id_hashes([7])[0] == id_hashes(np.array(["7"]))[0])
    True
    """
    digests = (hashlib.blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in ids)
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Hashes:
    hashes: NDArray[np.int64]

    def permuted(self, order: NDArray[np.int64]) -> _Hashes:
        return _Hashes(self.hashes[order])


def hashes_of(graph: NodeGraph) -> NDArray[np.int64]:
    """Return the hashes of a graph's ids, which are computed once."""
    return graph.derived("hashes of ids", lambda: _Hashes(id_hashes(graph.ids))).hashes


def id_order(graph: NodeGraph) -> NDArray[np.int64] | None:
    """Return the order of nodes by id; None where they are in it, or where the graph is too large to be sorted here."""
    ids = graph.ids
    if ids.dtype == object:
        keys = [(type(name).__name__, str(name)) for name in ids.tolist()]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    else:
        order = np.argsort(ids, kind="stable")
    if (np.diff(order) > 0).all():
        return None
    entries = 4 * graph.x.nnz if sp.issparse(graph.x) else graph.x.size
    # By the memory there is, not by what is free just now: every process and every time has the same order.
    if 8 * entries + 64 * graph.edge_index.size > memory().total / 2:
        log.info("the nodes stay in the order they are given in, for want of memory: another order has other draws")
        return None
    return order


def derived(graph: NodeGraph, key: str, make: Callable[[NodeGraph], Derived]) -> Derived:
    """Return what follows from a graph's features and edges, made once, with its nodes in the order of their ids.

    So the same nodes in another order have the same, to the last bit.
    """

    def made() -> Derived:
        order = id_order(graph)
        return make(graph) if order is None else cast(Derived, make(graph.permuted(order)).permuted(np.argsort(order)))

    return graph.derived(key, made)
