"""Counts in bins -> the smallest novel category that would have been noticed, by showing groups of nodes as new."""

from dataclasses import dataclass

import numpy as np

from recoslip.base.text import PLAIN, Terms, percent
from recoslip.inference.evidence import BinCounts

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)  # of the target, of the groups that are shown as new
WIDTH = 1.5  # factor by which their sizes may differ from that
PLANTED = 40  # groups of each share, at most
FEWEST = 10
NOTICED = 0.9  # fraction of them that must be noticed
MUCH = 5  # times as many source nodes, which nobody is advised to look for
FACTORS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)  # by which the source may have to be larger


@dataclass(frozen=True)
class Power:
    """How small a novel category would have been noticed."""

    share: float | None  # of the target; None: a category of a fifth of it may have been missed
    noticed: int  # groups of that share, or of a fifth, that were noticed
    planted: int  # of so many that were shown as new
    more_source: int | None = None  # about so many more source nodes would make a category of a fifth noticed
    sources: int = 0  # how many there are

    @property
    def suffices(self) -> bool:
        """Whether a large novel category would have been noticed."""
        return self.share is not None

    def sentence(self, terms: Terms = PLAIN) -> str:
        """Say what would have been noticed."""
        share = percent(SHARES[-1] if self.share is None else self.share)
        if self.suffices:
            return (
                f"Groups of about {share} of the {terms.targets()} would have been noticed: {self.noticed} of "
                f"{self.planted} groups of similar {terms.noun} that were shown as new for a test were."
            )
        return (
            f"A novel category of about {share} of the {terms.targets()} may have been missed: {self.noticed} of "
            f"{self.planted} groups of similar {terms.noun} that were shown as new for a test were noticed."
        )

    def advice(self, terms: Terms = PLAIN) -> str:
        """Say what would settle it."""
        if self.more_source is None:
            return f"More {terms.noun}, or features that tell categories apart better, may settle it."
        if self.more_source > MUCH * self.sources:
            return (
                f"More than {MUCH} times as many {terms.sources()} would be needed to settle it; features that tell "
                "categories apart better may help more."
            )
        return f"At least about {self.more_source:,} more {terms.sources()} would be needed to settle it."


def measure_power(bins: BinCounts, seed: int = 0) -> Power:
    """Show groups of similar nodes as new, and count how many are noticed.

    A group is a bin, of both domains; all of its nodes are shown as target. It is noticed if the counts in the bins of
    the other trees show that some of its nodes are new.
    """
    noticed = {share: _noticed(bins, share, seed) for share in SHARES}
    largest = noticed[SHARES[-1]]
    enough = [share for share in SHARES if all(_suffices(noticed[other]) for other in SHARES if other >= share)]
    if enough:
        return Power(enough[0], *noticed[enough[0]])
    for factor in FACTORS:
        if _suffices(_noticed(bins, SHARES[-1], seed, factor)):
            return Power(None, *largest, _rounded((factor - 1) * bins.domains[0]), bins.domains[0])
    return Power(None, *largest)


def _noticed(bins: BinCounts, share: float, seed: int, factor: float = 1.0) -> tuple[int, int]:
    """Count the groups of a share of the target that are noticed if the source is so much larger; and all groups."""
    partitions, size = bins.partitions, bins.counts.sum(axis=1)
    wanted = share * bins.domains[1]
    fits = (
        (size > wanted / WIDTH)
        & (size < wanted * WIDTH)
        & (partitions.parent >= 0)
        & (partitions.view == partitions.view.max())
    )
    candidates = np.flatnonzero(fits)
    chosen = np.random.default_rng([seed, 6]).permutation(candidates)[:PLANTED]
    return sum(bins.would_show(int(place), factor=factor) for place in chosen), len(chosen)


def _suffices(noticed: tuple[int, int]) -> bool:
    return noticed[1] >= FEWEST and noticed[0] >= NOTICED * noticed[1]


def _rounded(number: float) -> int:
    """Round up to two digits."""
    step = 10 ** max(0, len(str(int(number))) - 2)
    return int(-(-number // step) * step)
