"""NodeGraph with times -> the same question one step earlier, where the source alone is divided by time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.text import PLAIN, Terms, at_least_percent
from recoslip.data.graph import NodeGraph
from recoslip.data.tables.times import read_times
from recoslip.inference.evidence import BinCounts
from recoslip.inference.hiding import match_domains

FEWEST = 100  # nodes before the earlier step, and in it
LARGEST = 0.75  # of the source that the earlier step may hold


@dataclass(frozen=True)
class EarlierStep:
    """What was new one step earlier: the latest source nodes, compared with those before them."""

    period: str  # first and last time of it
    source: int  # nodes before it
    target: int  # nodes in it
    low: float  # at least this fraction of them is unlike those before
    holds_up_to: float  # growth of known categories up to which some are

    def sentence(self, terms: Terms = PLAIN) -> str:
        """Say what was found."""
        found = f"at least {at_least_percent(self.low)} were" if self.low > 0 else "nothing stood out"
        return f"One step earlier, of {terms.nodes(self.target)} ({self.period}) against those before, {found}."


def earlier_step(graph: NodeGraph) -> EarlierStep | None:
    """Divide the source where the target's length of time goes back from its end; None without times, or if few.

    A step that would hold more than three quarters of the source is shorter.
    """
    if graph.times is None:
        return None
    times = time_numbers(graph.times)
    nodes = np.flatnonzero(~graph.is_target & np.isfinite(times))
    if len(nodes) < 2 * FEWEST:
        return None
    own, later = times[nodes], times[graph.is_target & np.isfinite(times)]
    wanted = own.max() - (later.max() - later.min()) if len(later) else np.inf
    start = max(wanted, float(np.quantile(own, 1 - LARGEST, method="higher")))
    is_target = own >= start
    if min(is_target.sum(), (~is_target).sum()) < FEWEST:
        return None
    step = graph.subgraph(nodes).with_target(is_target)
    bins = BinCounts.of(step, match_domains(step))
    bound = bins.bound(is_target)
    period = _period(graph.times[nodes][is_target], own[is_target])
    sizes = int((~is_target).sum()), int(is_target.sum())
    return EarlierStep(period, *sizes, bound.new / sizes[1], bins.holds_up_to)


def time_numbers(times: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return times as numbers that are in the same order."""
    if np.issubdtype(times.dtype, np.number):
        return times.astype(np.float64)
    column = pl.Series("time", times.tolist(), strict=False)
    return np.asarray(read_times(column).ticks, dtype=np.float64)


def _period(given: NDArray[np.generic], order: NDArray[np.float64]) -> str:
    """Write the first and the last of some times."""
    ends = [given[order.argmin()], given[order.argmax()]]
    if np.issubdtype(given.dtype, np.number):
        return " to ".join(dict.fromkeys(f"{float(end):g}" for end in ends))
    dates = [datetime.fromtimestamp(end / 1e6, UTC).date().isoformat() for end in (order.min(), order.max())]
    return " to ".join(dict.fromkeys(dates))
