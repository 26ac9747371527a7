"""Numbers -> words, so that every sentence writes them in the same way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NAMED = 3  # things that a sentence names
MAX_TERM = 40  # characters of a name that the user gave


def percent(fraction: float) -> str:
    """Write a fraction: whole percents from 10 % on, two digits below.

    >>> percent(0.126), percent(0.0123)
    ('13 %', '1.2 %')
    """
    return f"{100 * fraction:.0f} %" if fraction >= 0.1 else f"{100 * fraction:.2g} %"


def at_least_percent(bound: float) -> str:
    """Write a lower bound of a fraction, rounded down.

    >>> at_least_percent(0.128), at_least_percent(0.0628), at_least_percent(0.00068)
    ('12 %', '6.2 %', '0.068 %')
    """
    return percent(_rounded(bound, math.floor, 1e-9))


def at_most_percent(bound: float) -> str:
    """Write an upper bound of a fraction, rounded up.

    >>> at_most_percent(0.121), at_most_percent(0.0621), at_most_percent(0.0)
    ('13 %', '6.3 %', '0 %')
    """
    return percent(_rounded(bound, math.ceil, -1e-9))


def _rounded(bound: float, to_whole: Callable[[float], int], slack: float) -> float:
    """Round a fraction to the digits that `percent` writes."""
    if bound <= 0:
        return 0.0
    step = 0.01 if bound >= 0.1 else 10.0 ** (math.floor(math.log10(bound)) - 1)
    return to_whole(bound / step + slack) * step


def times(factor: float) -> str:
    """Write a factor: whole from 10 on, with one decimal below.

    >>> times(412.3), times(2.857)
    ('412', '2.9')
    """
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}"


def at_least(bound: float) -> str:
    """Write a lower bound of a factor, rounded down.

    >>> at_least(412.7), at_least(2.857)
    ('412', '2.8')
    """
    return times(math.floor(bound) if bound >= 10 else math.floor(10 * bound) / 10)


def counted(number: int, noun: str) -> str:
    """Write a number of things.

    >>> counted(1, "source node"), counted(1200, "source node")
    ('1 source node', '1,200 source nodes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def singular(noun: str) -> str:
    """Return the singular of a regular English plural.

    >>> [singular(noun) for noun in ("titles", "entries", "boxes", "species", "people")]
    ['title', 'entry', 'box', 'species', 'people']
    """
    if noun.endswith(("ss", "us", "series", "species")) or not noun.endswith("s"):
        return noun
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    return noun[:-2] if noun.endswith(("sses", "xes", "ches", "shes")) else noun[:-1]


def shortened(text: str, length: int) -> str:
    """Cut a text.

    >>> shortened("a long title", 7), shortened("short", 7)
    ('a long…', 'short')
    """
    return f"{text[: length - 1]}…" if len(text) > length else text


@dataclass(frozen=True)
class Terms:
    """What the user calls the two domains and the nodes.

    >>> terms = Terms("south", "north", "products")
    >>> terms.sources(), terms.targets(1), terms.nodes(1200), terms.in_source
    ('south products', '1 north product', '1,200 products', 'in south')
    >>> terms = Terms("before 2020", "2020 and later", "titles", by_time=True)
    >>> terms.sources(), terms.targets(1), terms.in_source, terms.in_target
    ('titles from before 2020', '1 title from 2020 and later', 'before 2020', 'in 2020 and later')
    """

    source: str = "source"
    target: str = "target"
    noun: str = "nodes"
    by_time: bool = False  # whether the domains are named by times

    @classmethod
    def given(cls, source: object, target: object, noun: str, *, by_time: bool = False) -> Terms:
        """Build from values of a table: on one line, without characters that cannot be seen, and not too long."""
        return cls(_one_line(source), _one_line(target), _one_line(noun), by_time)

    def nodes(self, number: int | None = None) -> str:
        """Write nodes, or a number of them."""
        return self._counted("", number)

    def sources(self, number: int | None = None) -> str:
        """Write source nodes, or a number of them."""
        return self._counted(self.source, number)

    def targets(self, number: int | None = None) -> str:
        """Write target nodes, or a number of them."""
        return self._counted(self.target, number)

    def _counted(self, name: str, number: int | None) -> str:
        noun = singular(self.noun) if number == 1 else self.noun
        named = f"{noun} from {name}" if self.by_time and name else f"{name} {noun}".strip()
        return named if number is None else f"{number:,} {named}"

    @property
    def the_source(self) -> str:
        """The source, as a noun."""
        return "the source" if self.source == Terms.source else self.source

    @property
    def the_target(self) -> str:
        """The target, as a noun."""
        return "the target" if self.target == Terms.target else self.target

    @property
    def both(self) -> str:
        """The source and the target."""
        return f"{self.the_source} and {self.the_target}"

    @property
    def in_source(self) -> str:
        """Where source nodes are."""
        return self.source if self.by_time else f"in {self.the_source}"

    @property
    def in_target(self) -> str:
        """Where target nodes are."""
        return f"in {self.the_target}"


PLAIN = Terms()


def _one_line(value: object) -> str:
    return shortened(" ".join("".join(c if c.isprintable() else " " for c in str(value)).split()), MAX_TERM)


def named(names: Sequence[str], most: int = NAMED) -> str:
    """Name the first of several things, and say how many more there are.

    >>> named(("a", "b", "c", "d", "e"))
    'a, b, c and 2 more'
    """
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def capitalised(sentence: str) -> str:
    """Begin a sentence with a capital letter.

    >>> capitalised("no single column stands out")
    'No single column stands out'
    """
    return sentence[:1].upper() + sentence[1:]


def duration(seconds: float) -> str:
    """Write a duration with one digit or two.

    >>> [duration(seconds) for seconds in (0.2, 8, 100, 8000, 400_000)]
    ['1 s', '8 s', '2 min', '2.2 h', '4.6 days']
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
