"""Every option of reading tables, declared once: Python's arguments and the command line's options are made of it."""

from __future__ import annotations

import codecs
import functools
import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import date
from typing import Any, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from recoslip.base.errors import SettingError, TableError, nearest

Kind: TypeAlias = Literal["text", "value", "names", "numbers", "pairs", "count", "switch"]
Since: TypeAlias = "int | float | str | date"  # a datetime is a date
P = ParamSpec("P")
R = TypeVar("R")

BLOCKS = ("number", "category", "text", "vector")
READ_AS = ("number", "category", "list", "text")  # how a column may be read as asked
SEQUENCES = ("features", "ignore", "text", "keep", "edge_features")


class Option(NamedTuple):
    """How an option is documented and given."""

    help: str  # one sentence, which fits Python and the command line
    kind: Kind  # how the command line reads it
    more: str = ""  # for Python's documentation


def option(
    help: str,  # noqa: A002
    default: Any = None,
    kind: Kind = "text",
    *,
    more: str = "",
) -> Any:
    """Declare an option: see `Option`."""
    metadata = {"option": Option(help, kind, more)}
    if kind in ("numbers", "pairs"):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which columns of the tables to read, and how."""

    id: str = option(
        "Column of the nodes table with the ids.",
        "id",
        more="Text or whole numbers; 1.0 is the same as 1. Where there is no such column, it is the first that is "
        "called like an identifier and has another value in every row; else rows are numbered.",
    )
    domain: str = option(
        "Column of the nodes table that separates source from target.",
        "domain",
        more="It holds true/false, 0/1, source/target, or any values with `target`. Rows without a value are left out.",
    )
    target: Any = option("Value of the domain column that means target; all others are source.", kind="value")
    time: str | None = option(
        "Column of the nodes table with times, which replaces the domain: nodes are target from `since` on.",
        more='A column called "domain" is then no feature. Rows without a time are left out.',
    )
    since: Since | None = option(
        "First time that is target: a number, a date, or a year.",
        more="Such as 2007, 2007-01-31, 31.01.2007, January 31, 2007 or 2007-01-31T12:00. Dates such as 1/31/2007 are "
        "read where some value tells which part is the day. Times with an offset from UTC are compared as instants; "
        "`since` must have an offset where the column has one.",
    )
    category: str | None = option(
        "Column of the nodes table with true categories, kept for evaluation and never used as a feature."
    )
    features: Sequence[str] | None = option(
        "Columns to use as features; default: all that are suitable.", kind="names", more="`recoslip check` lists them."
    )
    ignore: Sequence[str] = option("Columns not to use as features.", (), "names")
    text: Sequence[str] = option(
        "Columns of free text, encoded as tf-idf weights of words; besides those of four words or more.",
        (),
        "names",
    )
    read_as: Mapping[str, str] = option(
        "How columns are read instead of as guessed, such as year=category: number, category, list or text.",
        kind="pairs",
        more="A list is several categories in one cell, such as 'Drama, Comedy'.",
    )
    edge_from: str | None = option(
        "Column of the edges table with one end of each edge; default: the first that holds ids of nodes.",
    )
    edge_to: str | None = option(
        "Column of the edges table with the other end of each edge; default: the second that holds ids of nodes.",
    )
    weight: str | None = option("Column of the edges table with the weights of the edges, which are positive.")
    drop_unknown: bool = option("Leave out edges to unknown nodes instead of refusing them.", False, "switch")
    neighbours: int | None = option(
        "For a table without edges: join each node to so many others whose features are most like its own.",
        kind="count",
        more="By the cosine of their features.",
    )
    impute: bool | None = option(
        "Fill missing values, which is the default; otherwise they are refused.",
        None,
        "switch",
        more="Numbers by the median, with a feature that says where; vectors by the mean, categories by a category of "
        "their own, text by the empty text. Where new nodes are read, True also fills columns that are not there.",
    )
    block_weights: Mapping[str, float] = option(
        "Weights of number, category, text and vector columns on top of equal ones, such as text=2; default: 1.",
        kind="numbers",
    )
    label: str | None = option(
        'Column that names the nodes in the report; default: one that is called so, such as title; "" for none.'
    )
    noun: str | None = option(
        "What a node is called in sentences, in the plural, such as titles; default: the file's name, if it is one."
    )
    keep: Sequence[str] = option(
        "Columns to keep beside the nodes, in the report and in the table of scores.", (), "names"
    )
    encoding: str | None = option("Encoding of text files that are not UTF-8, such as utf-16, latin-1 or cp1252.")
    relation: str | None = option(
        "Column of the edges table with the kinds of edges.",
        more="Of each kind, the number of a node's edges and the mean of its neighbours become features.",
    )
    edge_features: Sequence[str] = option(
        "Columns of the edges table that describe edges, numbers or categories.",
        (),
        "names",
        more="Their means over a node's edges, by kind, become features.",
    )
    node_type: str | None = option(
        "Column of the nodes table with the kinds of nodes; `scored` names the one to score.",
        more="The other kinds need no domain; they describe the scored nodes that they are joined to.",
    )
    scored: str | None = option("The kind of nodes to score, where there are several.")

    def __post_init__(self) -> None:
        for name in SEQUENCES:
            if isinstance(value := getattr(self, name), str):
                raise TableError(f"{name} must be a list of column names; got the text {value!r}, write [{value!r}]")
        check_block_weights(self.block_weights)
        for name, kind in self.read_as.items():
            if kind not in READ_AS:
                raise TableError(f"column {name!r} may be read as {', '.join(READ_AS)}; got {kind!r}")
        if self.neighbours is not None and (isinstance(self.neighbours, bool) or self.neighbours < 1):
            raise TableError(f"neighbours must be a whole number from 1 on; got {self.neighbours!r}")
        if self.encoding is not None:
            check_encoding(self.encoding)
        if (self.time is None) != (self.since is None):
            raise TableError("a domain from time needs both: the column (time) and the first target time (since)")
        if self.time is not None and (self.target is not None or self.domain != ReadOptions.domain):
            raise TableError("the domain is taken from a column (domain, target) or from time; give one of them")
        if (self.node_type is None) != (self.scored is None):
            raise TableError("several kinds of nodes need both: their column (node_type) and the one to score (scored)")

    @property
    def is_relational(self) -> bool:
        """Whether there are several kinds of nodes or edges, or edges with features."""
        return bool(self.relation or self.edge_features or self.node_type)


def check_block_weights(weights: Mapping[str, float]) -> None:
    """Raise unless each weight is a positive number of a block."""
    for name, weight in weights.items():
        if name not in BLOCKS:
            raise TableError(f"a block weight is for one of {', '.join(BLOCKS)}; got {name!r}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e6:
            raise TableError(f"the block weight of {name} must be above 0 and at most a million; got {weight!r}")


def check_encoding(name: str) -> None:
    """Raise unless Python has an encoding of this name."""
    try:
        "".encode(name)
        codecs.getincrementaldecoder(name)
    except (LookupError, ValueError, TypeError) as problem:
        raise TableError(
            f"there is no encoding {name!r}; name one that Python has, such as utf-16, latin-1, cp1252 (Windows), "
            "mac-roman, shift-jis or gb18030"
        ) from problem


def declared(only: Collection[str] | None = None) -> dict[str, tuple[Field[Any], Option]]:
    """Return the fields and declarations of all options, or of some, by name."""
    return {
        each.name: (each, each.metadata["option"]) for each in fields(ReadOptions) if only is None or each.name in only
    }


def check_names(given: Collection[str], known: Collection[str], *, what: str = "option") -> None:
    """Raise for an option that does not exist."""
    for name in given:
        if name not in known:
            raise SettingError(f"there is no {what} {name!r}{nearest(name, known)}; there are {', '.join(known)}")


def reads(*only: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a function that takes `**read` the options of reading in its signature and its documentation.

    A name that is no argument is refused with the nearest one, before the function is called.

    Args:
        *only: the options that it has; by default all.
    """
    chosen = declared(only or None)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        own_names = {parameter.name for parameter in own}
        read = {name: each for name, each in chosen.items() if name not in own_names}
        allowed = [p.name for p in own if p.kind is p.KEYWORD_ONLY] + list(read)

        @functools.wraps(function)
        def call(*args: P.args, **given: P.kwargs) -> R:
            check_names([name for name in given if name not in own_names], allowed, what="argument")
            return function(*args, **given)

        call.__signature__ = signature.replace(parameters=[*own, *map(_parameter, read.values())])  # type: ignore[attr-defined]
        call.__doc__ = _documented(inspect.getdoc(function) or "", read)
        return call

    return decorate


def _parameter(each: tuple[Field[Any], Option]) -> inspect.Parameter:
    own = each[0]
    default = own.default if own.default is not MISSING else {}
    return inspect.Parameter(own.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=own.type)


def _documented(text: str, read: Mapping[str, tuple[Field[Any], Option]]) -> str:
    """Insert the options into the section Args of a docstring."""
    lines = [
        textwrap.fill(f"{name}: {own.help} {own.more}".rstrip(), 112, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name, (_, own) in read.items()
    ]
    before, _, after = text.partition("\nArgs:\n")
    given, blank, rest = after.partition("\n\n")
    return "\n".join([before, "Args:", *([given] if given else []), *lines]) + blank + rest
