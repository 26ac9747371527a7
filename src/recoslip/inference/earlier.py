"""NodeGraph with times -> how the source itself changed: the same question one step earlier, and what went on since."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from recoslip.base.errors import TableError
from recoslip.base.text import PLAIN, Terms, at_least_percent, times
from recoslip.data.graph import NodeGraph
from recoslip.data.tables.times import time_numbers
from recoslip.inference.evidence import ERROR, BinCounts
from recoslip.inference.hiding import match_domains

FEWEST = 100  # nodes before the earlier step, and in it
LARGEST = 0.75  # of the source that the earlier step may hold
LATE, HIGH = 0.25, 0.2  # fractions of the source that are called late, and that have high scores
MUCH = 1.3  # of lateness, from which on content is said to drift


@dataclass(frozen=True)
class EarlierStep:
    """What was new one step earlier: the latest source nodes, compared with those before them."""

    period: str  # first and last time of it
    source: int  # nodes before it
    target: int  # nodes in it
    low: float  # at least this fraction of them is unlike those before
    holds_up_to: float  # growth of known categories up to which some are
    late: float  # how many times as frequent the latest quarter of the source is among its fifth with high scores
    drifts: bool  # whether known content seems to change steadily, by either

    def sentence(self, terms: Terms = PLAIN) -> str:
        """Say what was found."""
        found = (
            f"at least {at_least_percent(self.low)} were"
            if self.low > 0
            else "no difference was shown (a smaller step may hide one)"
        )
        return f"One step earlier, of {terms.nodes(self.target)} ({self.period}) against those before, {found}."

    def drift(self, terms: Terms = PLAIN) -> str:
        """Say what speaks for a steady change."""
        if self.low > 0:
            return (
                f"so were at least {at_least_percent(self.low)} of the {terms.noun} one step earlier ({self.period}), "
                "against those before"
            )
        return (
            f"the latest quarter of the {terms.sources()} is {times(self.late)} times as frequent among those with "
            "the highest scores as among all of them"
        )


def earlier_step(graph: NodeGraph, scores: NDArray[np.float64]) -> EarlierStep | None:
    """Divide the source where the target's length of time goes back from its end; None without times, or if few.

    A step that would hold more than three quarters of the source is shorter.

    Args:
        graph: with times.
        scores: (nodes,) of source nodes that were hidden.
    """
    if graph.times is None:
        return None
    try:
        time = time_numbers(graph.times)
    except TableError:  # which part of a date is the day was told by `since` alone
        return None
    nodes = np.flatnonzero(~graph.is_target & np.isfinite(time))
    if len(nodes) < 2 * FEWEST:
        return None
    own, later = time[nodes], time[graph.is_target & np.isfinite(time)]
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
    late, is_significant = lateness(scores[nodes], own)
    drifts = bound.new > 0 or (is_significant and late >= MUCH)
    return EarlierStep(period, *sizes, bound.new / sizes[1], bins.holds_up_to, late, drifts)


def lateness(scores: NDArray[np.float64], time: NDArray[np.float64]) -> tuple[float, bool]:
    """Return how many times as frequent late nodes are among those with high scores, and whether by more than chance.

    >>> lateness(np.arange(100.0), np.arange(100.0))
    (4.0, True)
    """
    from scipy.stats import hypergeom

    late, high = time >= np.quantile(time, 1 - LATE), scores >= np.quantile(scores, 1 - HIGH)
    both, sizes = int((late & high).sum()), (len(time), int(late.sum()), int(high.sum()))
    ratio = both * sizes[0] / (sizes[1] * sizes[2])
    return ratio, bool(hypergeom.sf(both - 1, *sizes) <= ERROR)


def _period(given: NDArray[np.generic], order: NDArray[np.float64]) -> str:
    """Write the first and the last of some times."""
    ends = [given[order.argmin()], given[order.argmax()]]
    if np.issubdtype(given.dtype, np.number):
        return " to ".join(dict.fromkeys(f"{float(end):g}" for end in ends))
    dates = [datetime.fromtimestamp(end / 1e6, UTC).date().isoformat() for end in (order.min(), order.max())]
    return " to ".join(dict.fromkeys(dates))
