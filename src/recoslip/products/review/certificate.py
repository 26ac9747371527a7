"""A run's list + verdicts on a random sample -> a certificate: bounds of how much is new, of the list and in all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pydantic

from recoslip.base.errors import RecoslipError
from recoslip.base.text import at_least_percent, at_most_percent, counted
from recoslip.pipeline.report.html import asset, fill
from recoslip.products.review.decisions import Nodes


@cache
def least(population: int, drawn: int, novel: int, error: float) -> int:
    """Return a lower bound of the novel nodes of a population: it is too high with a probability of `error` at most.

    It is the smallest number of novel nodes at which a sample, drawn without replacement, holds `novel` of them or more
    with a probability above `error`: Clopper and Pearson's bound for a finite population.

    >>> least(population=10**6, drawn=20, novel=20, error=0.05) / 10**6
    0.860893
    >>> least(population=25, drawn=20, novel=20, error=0.05), least(population=20, drawn=20, novel=13, error=0.05)
    (24, 13)
    """
    from scipy.stats import hypergeom

    if novel == 0:
        return 0
    return _first(novel, population, lambda count: hypergeom.sf(novel - 1, population, count, drawn) > error)


def most(population: int, drawn: int, novel: int, error: float) -> int:
    """Return an upper bound of the novel nodes of a population: it is too low with a probability of `error` at most."""
    return population - least(population, drawn, drawn - novel, error)


def bounds(population: int, drawn: int, confirmed: int, rejected: int, error: float) -> tuple[int, int]:
    """Return the least and the most novel nodes: they hold together with a probability of at least 1 - `error`.

    They hold whenever the review ends: nodes of the sample without a verdict count as known for the lower bound and as
    novel for the upper one, so nobody has to review all of it.
    """
    return least(population, drawn, confirmed, error / 2), most(population, drawn, drawn - rejected, error / 2)


def sample_size(population: int, fraction: float, error: float) -> int:
    """Return how many nodes to draw, so that at least a `fraction` of the population is novel if all of them are.

    >>> sample_size(10**6, 0.85, 0.05), sample_size(30, 0.85, 0.05), sample_size(1, 0.85, 0.05)
    (19, 13, 1)
    """
    if population == 0:
        return 0
    return _first(1, population, lambda drawn: least(population, drawn, drawn, error) >= fraction * population)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from `low` to `high` from which on something holds; it does at `high`."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


ERROR = 0.05  # probability that a statement is wrong
AIM = 0.85  # of the list, that is to be certified if all of the sample is new
WITHOUT_LIST = 20  # nodes to draw where nothing is listed


@pydantic.dataclasses.dataclass(frozen=True)
class Sample:
    """Nodes that were drawn at random, without replacement, from the list and from the rest of the target."""

    nodes: tuple[str, ...]  # in the order of their review, those of the list first
    from_list: int  # how many of them are listed
    listed: int  # nodes of the list
    rest: int  # target nodes that are not listed
    seed: int  # of the draw
    digest: str  # SHA-256 of the table of scores that it was drawn from


def propose(nodes: Nodes) -> int:
    """Return how many nodes to draw: enough to certify most of the list if all of them are new, and as many others."""
    listed, rest = int(nodes.listed.sum()), int((nodes.is_target & ~nodes.listed).sum())
    of_list = sample_size(listed, AIM, ERROR)
    return of_list + min(rest, of_list or WITHOUT_LIST)


def draw(nodes: Nodes, size: int, seed: int) -> Sample:
    """Draw a sample: half of it from the list, the other half from the rest of the target, where there are as many."""
    listed, rest = np.flatnonzero(nodes.listed), np.flatnonzero(nodes.is_target & ~nodes.listed)
    if not 1 <= size <= len(listed) + len(rest):
        raise RecoslipError(f"a sample has 1 to {len(listed) + len(rest):,} nodes, the target's; got {size:,}")
    of_list = min(len(listed), max(-(-size // 2), size - len(rest)))
    rng = np.random.default_rng(seed)
    chosen = np.concatenate(
        [rng.permutation(listed)[:of_list], rng.permutation(rest)[: size - of_list]],
    )
    drawn = tuple(nodes.ids[node] for node in chosen.tolist())
    return Sample(drawn, of_list, len(listed), len(rest), seed, nodes.digest)


@dataclass(frozen=True)
class Tally:
    """Verdicts on the part of a sample that was drawn from one set of nodes."""

    population: int
    drawn: int
    confirmed: int
    rejected: int

    @property
    def undecided(self) -> int:
        """Drawn nodes without a verdict."""
        return self.drawn - self.confirmed - self.rejected


@dataclass(frozen=True)
class Certificate:
    """What a sample and its verdicts certify."""

    sample: Sample
    verdicts: Mapping[str, bool]  # of nodes of the sample: whether they are new
    of_list: Tally
    of_rest: Tally

    @property
    def precision(self) -> float:
        """A lower bound, with 95 % confidence, of the fraction of the list that is new."""
        tally = self.of_list
        return least(tally.population, tally.drawn, tally.confirmed, ERROR) / max(1, tally.population)

    @property
    def share(self) -> tuple[float, float]:
        """Bounds, with 95 % confidence, of the fraction of the target that is new."""
        tallies = self.of_list, self.of_rest
        parts = [bounds(each.population, each.drawn, each.confirmed, each.rejected, ERROR / 2) for each in tallies]
        target = self.sample.listed + self.sample.rest
        low, high = (sum(ends) / target for ends in zip(*parts, strict=True))
        return low, high

    @property
    def sentence(self) -> str:
        """Say what is certified."""
        if not self.verdicts:
            return (
                f"Nothing is certified yet: none of the {counted(len(self.sample.nodes), 'drawn node')} has a verdict."
            )
        low, high = self.share
        target = counted(self.sample.listed + self.sample.rest, "target node")
        about_target = f"95 % sure that {at_least_percent(low)} to {at_most_percent(high)} of all {target} are new."
        tally = self.of_list
        if not tally.drawn:
            return about_target
        undecided = f", {tally.undecided:,} without a verdict, which count as known" if tally.undecided else ""
        return (
            f"95 % sure that at least {at_least_percent(self.precision)} of this list of "
            f"{counted(tally.population, 'node')} is new ({tally.confirmed:,} of {tally.drawn:,} drawn at random are "
            f"confirmed{undecided}). {about_target}"
        )

    def html(self) -> str:
        """Return one page to print or to file, without scripts."""
        return fill(
            "products/review/certificate.html",
            styles=[asset("pipeline/report/plain.css")],
            title="Certificate",
            certificate=self,
            counted=counted,
        )


def certify(sample: Sample, verdicts: Mapping[str, bool]) -> Certificate:
    """Say what verdicts on a sample certify.

    Args:
        sample: what was drawn.
        verdicts: whether nodes are new; those outside the sample are left out.
    """
    own = {node: verdicts[node] for node in sample.nodes if node in verdicts}
    parts = (sample.nodes[: sample.from_list], sample.listed), (sample.nodes[sample.from_list :], sample.rest)
    tallies = []
    for nodes, population in parts:
        confirmed = sum(own.get(node) is True for node in nodes)
        tallies.append(Tally(population, len(nodes), confirmed, sum(own.get(node) is False for node in nodes)))
    return Certificate(sample, own, *tallies)
