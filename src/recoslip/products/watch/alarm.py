r"""The nodes that are kept and those of a batch -> whether growth alone explains where recent ones lie, or an alarm.

1. Trees of bins, sets of similar nodes, are grown anew for each batch, without knowing which nodes are recent. Bins of
   earlier nodes alone would give a new category no bin of its own.
2. If no known category is more than G times as frequent among M recent nodes as among S earlier ones, a node of a bin
   is recent with probability at most $\pi = \frac{G M}{G M + S}$, whatever the bin. The recent ones of N are then no
   more than binomial, $p = P(\text{Bin}(N, \pi) \ge n)$.
3. Bins are many, so the lowest p-value is multiplied by the number of bins that are large enough to reach the level
   at all (Tarone 1990).
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.data.graph import NodeGraph
from recoslip.data.partitions import Partitions
from recoslip.data.split import Mask
from recoslip.data.tables.table_encoder import TableEncoder
from recoslip.inference.diagnosis import least_growth
from recoslip.inference.separability import measure_mixing
from recoslip.inference.traits import FeatureStatistics
from recoslip.products.watch import page
from recoslip.products.watch.state import GROUP, Batch, Group, Nodes, State

TREES, FIRST = 4, (24, 48, 96, 192)  # of each view, and bins that each divides all nodes into first
SINCE = 0.25  # of the highest share in a batch: the first batch with so much of a group is its beginning
MAX_MEMBERS = 1000  # ids of a group that are remembered
NAMED_MEMBERS = 10  # that a sentence names
VOTERS = 5  # earlier nodes that a bin needs to tell of which kind its new nodes are
SPENDING = 1.5  # exponent of the share of the error probability that each batch may spend
SPENT = 1.6123753486854883  # sum of (t + 1)^-1.5 over t = 1, 2, ...


@dataclass(frozen=True)
class Appearance:
    """What the counts say about the recent nodes."""

    p_value: float  # that known categories which grew G times at most explain them; 1 where no bin could tell
    bin: int | None  # the one with the lowest p-value
    growth: float  # known nodes of that bin would have to be more than so many times as frequent as before
    least_members: int | None  # recent nodes that a bin without others must hold to reach the level; None: never


def level(batch: int, alpha: float) -> float:
    """Return the error probability that a batch, 1, 2, ..., may spend; over all batches they add up to `alpha`.

    >>> round(sum(level(batch, 0.05) for batch in range(1, 10_000)), 3)
    0.049
    """
    return float(alpha / SPENT / (batch + 1) ** SPENDING)


def appearance(counts: NDArray[np.int64], sizes: tuple[int, int], *, max_growth: float, at_level: float) -> Appearance:
    """Test whether categories that grew `max_growth` times at most explain the recent nodes of every bin.

    Args:
        counts: (bins, 2) earlier and recent nodes of each; bins were chosen without knowing which nodes are recent.
        sizes: S and M, of the earlier and of the recent nodes.
        max_growth: G.
        at_level: the level at which the p-value is compared, by which bins count that are large enough.

    >>> found = appearance(np.array([[450, 50], [0, 60]]), (900, 100), max_growth=3, at_level=0.001)
    >>> found.p_value < 1e-30, found.bin, round(found.growth)
    (True, 1, 67)
    """
    from scipy.stats import binom

    odds = max_growth * sizes[1] / max(1, sizes[0])
    if not len(counts) or odds <= 0:
        return Appearance(1.0, None, 0.0, None)
    unit = -math.log1p(1 / odds)  # the logarithm of pi
    (earlier, recent), size = counts.T, counts.sum(axis=1)
    lowest = np.sort(size * unit)  # logarithms of the lowest p-values that bins can have
    numbers = np.arange(1, len(size) + 1)
    able = np.searchsorted(lowest, np.log(at_level / numbers), side="right")
    count = int(numbers[np.argmax(able <= numbers)])
    needed = math.ceil(math.log(at_level / count) / unit)
    within = np.flatnonzero(size * unit <= math.log(at_level / count))
    if not len(within):
        return Appearance(1.0, None, 0.0, needed)
    p = binom.sf(recent[within] - 1, size[within], odds / (1 + odds))
    best = int(within[p.argmin()])
    growth = least_growth(float(earlier[best]), float(recent[best]), *sizes, confidence=1 - at_level / count)
    return Appearance(min(1.0, float(p.min()) * count), best, growth, needed)


def nodes_in(partitions: Partitions, chosen: int) -> Mask:
    """Return which nodes are in a bin, (nodes,)."""
    is_inside = np.arange(len(partitions.parent)) == chosen
    for bins in partitions.levels:
        is_inside[bins] |= is_inside[partitions.parent[bins]]
    return np.asarray(is_inside[partitions.leaf].any(axis=0))


def kinds_of(partitions: Partitions, kind: NDArray[np.int64], own: Mask, first_group: int) -> NDArray[np.int64]:
    """Return the kind of each new node: that of most earlier nodes in the smallest bins that hold enough of them.

    Args:
        partitions: of all nodes.
        kind: (nodes,) of the earlier ones.
        own: (nodes,) which are new.
        first_group: the first kind that is a group. A node is of a group only if it has more than half of the votes.
    """
    kinds, code = np.unique(kind[~own], return_inverse=True)
    voter = np.full(len(kind), -1)
    voter[~own] = code
    counts = partitions.count(voter, len(kinds))
    voters = counts.sum(axis=1)
    asked = np.arange(len(voters))  # of each bin, the smallest one around it that holds enough
    for bins in partitions.levels:
        asked[bins] = np.where(voters[bins] < VOTERS, asked[partitions.parent[bins]], bins)
    share = counts / np.maximum(voters, 1)[:, None]
    votes = np.mean([share[asked[leaf[own]]] for leaf in partitions.leaf], axis=0)
    votes[:, kinds >= first_group] *= votes[:, kinds >= first_group] > 0.5
    return np.asarray(kinds[votes.argmax(axis=1)])


def judge(
    state: State, pool: Nodes, encoder: TableEncoder, batch: Batch, unseen: Mapping[str, str]
) -> tuple[State, Group | None]:
    """Decide what a batch comes to, and return the state with it, and the group that it raised an alarm for.

    Args:
        state: before the batch.
        pool: the nodes that are kept and those of the batch.
        encoder: of the known nodes.
        batch: what is known of it so far.
        unseen: words of the batch, by the features that words share which the known nodes do not have.
    """
    settings, batches = state.settings, pool.table["batch"].to_numpy()
    own = batches == batch.number
    graph = graph_of(pool, encoder, own)
    partitions = Partitions.of(graph, trees=TREES, first=FIRST)
    kind = pool.table["kind"].to_numpy().copy()
    kind[own] = kinds_of(partitions, kind, own, GROUP)
    is_recent = batches > max(0, batch.number - settings.window)
    part = np.where(kind < GROUP, is_recent, -1)  # groups count neither as recent nor as earlier nodes
    graph = graph.with_target(part != 0)
    counts = partitions.count(part)[partitions.parent >= 0]
    sizes = int((part == 0).sum()), int((part == 1).sum())
    at_level = level(batch.number, settings.alpha)
    found = appearance(counts, sizes, max_growth=settings.max_growth, at_level=at_level)
    batch = replace(batch, p_value=found.p_value, level=at_level, least_members=found.least_members)
    group, history, groups = None, state.batches, state.groups
    if found.bin is not None and found.p_value <= at_level:
        chosen = int(np.flatnonzero(partitions.parent >= 0)[found.bin])
        members = np.flatnonzero(nodes_in(partitions, chosen) & (part == 1))
        if _is_apart(graph, batches, part, members):
            sentence = page.apart_sentence(min(batch.number, settings.window))
            batch = replace(batch, verdict="apart", sentence=sentence)
        else:
            group = _new_group(state, batch, pool.table[members], found.growth, _name(graph, members, unseen))
            groups = (*groups, group)
            kind[members] = GROUP + group.number
            others = is_recent & (kind < GROUP)  # some of which are of the same category, in other bins
            joins = kinds_of(partitions, kind, others, GROUP) == GROUP + group.number
            kind[np.flatnonzero(others)[joins]] = GROUP + group.number
            batch = replace(batch, verdict="new", sentence=page.new_sentence(group, settings, batch))
            history = tuple(_recounted(each, batches, kind) for each in history)
    batch = replace(batch, counts=counts_of(kind[own]))
    pool = replace(pool, table=pool.table.with_columns(kind=pl.Series(kind)))
    state = replace(state, groups=groups, nodes=pool)
    if batch.verdict == "nothing":
        grown = page.grown_sentence(state.with_batches((*history, batch)))
        quiet = page.quiet_sentence(settings, batch, sizes[1])
        batch = replace(batch, verdict="grown" if grown else "nothing", sentence=f"{grown} {quiet}".lstrip())
    return state.with_batches((*history, batch)), group


def _is_apart(
    graph: NodeGraph, batches: NDArray[np.int64], part: NDArray[np.int64], members: NDArray[np.int64]
) -> bool:
    """Return whether the batches that a new category seems to be in are separable from all earlier nodes."""
    compared = (part == 0) | ((part == 1) & np.isin(batches, np.unique(batches[members])))
    return measure_mixing(graph.subgraph(np.flatnonzero(compared))).situation == "apart"


def _name(graph: NodeGraph, members: NDArray[np.int64], unseen: Mapping[str, str]) -> str | None:
    name = FeatureStatistics(graph).name(members) or ""
    return ", ".join(unseen.get(each, each) for each in name.split(", ")) or None


def _new_group(state: State, batch: Batch, members: pl.DataFrame, growth: float, name: str | None) -> Group:
    per_batch = Counter(members["batch"].to_list())
    sizes = {each.number: each.nodes for each in (*state.batches, batch)}
    share = {number: count / sizes[number] for number, count in per_batch.items()}
    return Group(
        number=len(state.groups) + 1,
        alarm=batch.number,
        since=min(number for number, value in share.items() if value >= SINCE * max(share.values())),
        size=members.height,
        growth=growth,
        name=name,
        members=members["id"][:MAX_MEMBERS].to_list(),
        shown=members["shown"][:NAMED_MEMBERS].to_list(),
    )


def _recounted(batch: Batch, batches: NDArray[np.int64], kind: NDArray[np.int64]) -> Batch:
    """Return a recent batch with its nodes counted by kind anew; one that is not kept whole stays as it is."""
    inside = batches == batch.number
    return replace(batch, counts=counts_of(kind[inside])) if int(inside.sum()) == batch.nodes else batch


def counts_of(kind: NDArray[np.int64]) -> dict[str, int]:
    """Count nodes by kind."""
    values, counts = np.unique(kind, return_counts=True)
    return {str(value): int(count) for value, count in zip(values, counts, strict=True)}


def graph_of(pool: Nodes, encoder: TableEncoder, is_target: Mask) -> NodeGraph:
    """Return the graph of nodes that are kept."""
    both_ways = np.hstack([pool.edge_index, pool.edge_index[::-1]])
    return NodeGraph(
        pool.x,
        both_ways,
        is_target,
        ids=pool.table["id"].to_numpy(),
        feature_names=encoder.feature_names,
        encoding=encoder.to_json(),
        one_domain=True,
    )
