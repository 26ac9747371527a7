"""Two results -> what changed: nodes that joined or left the list, groups, verdicts, settings."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import polars as pl

from recoslip.base.errors import RecoslipError
from recoslip.base.files import printable, write_new
from recoslip.base.text import counted
from recoslip.pipeline.saved import AGAIN, for_spreadsheets, read_scores, read_summary

if TYPE_CHECKING:
    from recoslip.pipeline.result import Result

NodeChange: TypeAlias = Literal["joined", "left", "new", "gone", "regrouped"]
GroupKind: TypeAlias = Literal["same", "split", "merged", "rearranged", "new", "gone"]

KINDS: Mapping[tuple[int, int], GroupKind] = {  # by how many belong together in the first and in the second; 2: several
    (0, 1): "new", (1, 0): "gone", (1, 1): "same", (1, 2): "split", (2, 1): "merged", (2, 2): "rearranged",
}  # fmt: skip

COMPARED = ("domain", "score", "p_value", "listed", "group")  # columns of both results, side by side
SIDES = ("first", "second")
CHANGES = ("id", "change", *(f"{name}_{side}" for name in COMPARED for side in SIDES))

# What of two summaries is compared, value by value; of `settings` each setting.
SUMMARY_VALUES = (
    "recoslip", "method", "seed", "nodes", "source", "target", "edges", "features", "calibrated", "calibration_nodes",
    "rotations", "regions", "fdr", "guarantee",
)  # fmt: skip
ENDS = ("estimate", "low", "high")  # of the novel share
SUMMARY_SETTINGS = ("settings", "rotation_settings")


@dataclass(frozen=True)
class GroupChange:
    """What became of some groups of the first result, or where some of the second came from.

    A group of the first and one of the second are linked if they share more than half of the listed nodes of either.
    Groups that links connect belong together:

    - one and one: "same"; one of the first and several of the second: "split"; several and one: "merged"; several and
      several: "rearranged";
    - a group of the first without a link is "gone", one of the second is "new".
    """

    kind: GroupKind
    first: tuple[int, ...]  # numbers of the groups in the first result, ascending
    second: tuple[int, ...]
    first_names: tuple[str | None, ...]
    second_names: tuple[str | None, ...]
    first_size: int  # listed nodes of these groups
    second_size: int
    shared: int  # nodes that are in these groups of both results

    @property
    def found_again(self) -> float | None:
        """Return the fraction of the first's nodes that is in the second's groups; None for new or gone groups."""
        return self.shared / self.first_size if self.first and self.second else None

    @property
    def known_before(self) -> float | None:
        """Return the fraction of the second's nodes that was in the first's groups; None for new or gone groups."""
        return self.shared / self.second_size if self.first and self.second else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        sides = {}
        for side in SIDES:
            numbers, names, size = (getattr(self, f"{side}{what}") for what in ("", "_names", "_size"))
            found = [{"number": number, "name": name} for number, name in zip(numbers, names, strict=True)]
            sides[side] = {"groups": found, "size": size}
        rates = {"found_again": self.found_again, "known_before": self.known_before}
        return {"kind": self.kind, **sides, "shared": self.shared, **rates}


@dataclass(frozen=True)
class Difference:
    """A value that two summaries do not agree on; None where a summary does not have it."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class Outcome:
    """What one result comes to."""

    folder: str
    verdict: str | None  # None where new nodes were scored without the old ones
    headline: str | None
    novel_share: dict[str, float] | None  # estimate, low and high
    target: int  # target nodes in the table of scores
    listed: int
    groups: int | None  # None where listed nodes were not divided into groups


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two results side by side."""

    first: Outcome
    second: Outcome
    identical: bool  # every score, p-value, list status, group and compared value of the summaries is the same
    both: int  # nodes that both results have
    only_first: int
    only_second: int
    changed_domain: int  # nodes in both that are source in one and target in the other
    ranked: int  # nodes that are target in both
    rank_correlation: float | None  # Spearman's, of the scores of these; None where it is not defined
    groups: tuple[GroupChange, ...]  # empty where one result has no groups
    differences: tuple[Difference, ...]  # in method, settings, seed, sizes, promises
    changes: pl.DataFrame = field(repr=False)
    """One row per node whose list status or group changed.

    Columns: id, change, then domain, score, p_value, listed and group in the first and in the second result, null where
    a node is not in it. Change is one of

    - "joined", "left": the node is in both, and listed in the second or in the first alone;
    - "new", "gone": a listed node that only the second or only the first has;
    - "regrouped": it is listed in both, in groups that are not the same.
    """

    @property
    def same_list(self) -> bool:
        """Say whether no node changed its list status or its group."""
        return self.changes.is_empty()

    def changed(self, change: NodeChange) -> pl.DataFrame:
        """Return the nodes with one kind of change."""
        return self.changes.filter(pl.col("change") == change)

    def sentences(self) -> list[str]:
        """Say what changed in words."""
        count = {kind: self.changed(kind).height for kind in get_args(NodeChange)}
        nodes = f"{counted(self.both, 'node')} {'is' if self.both == 1 else 'are'} in both results"
        if self.identical:
            return [f"{nodes}, and nothing changed."]
        on_list = f"Of the nodes in both, {count['joined']:,} joined the list and {count['left']:,} left it."
        correlation = (
            f"The rank correlation of the scores of {counted(self.ranked, 'target node')} in both is "
            f"{self.rank_correlation or 0:.2f}."
        )
        said = {
            f"{nodes}, {self.only_first:,} only in the first, {self.only_second:,} only in the second.": True,
            "No node changed its place on the list or its group." if self.same_list else on_list: True,
            f"Listed nodes that only one result has: {count['gone']:,} in the first, {count['new']:,} in the second.": (
                count["gone"] or count["new"]
            ),
            f"{counted(count['regrouped'], 'node')} on both lists changed group.": count["regrouped"],
            f"{counted(self.changed_domain, 'node')} changed from source to target or back.": self.changed_domain,
            correlation: self.rank_correlation is not None,
            "The first result has no groups, so groups are not compared.": self.first.groups is None,
            "The second result has no groups, so groups are not compared.": self.second.groups is None,
        }
        return [sentence for sentence, holds in said.items() if holds]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "first": vars(self.first),
            "second": vars(self.second),
            "identical": self.identical,
            "nodes": {name: getattr(self, name) for name in ("both", "only_first", "only_second", "changed_domain")},
            "ranked": self.ranked,
            "rank_correlation": self.rank_correlation,
            "sentences": self.sentences(),
            "changes": self.changes.to_dicts(),
            "groups": [group.to_dict() for group in self.groups],
            "differences": [vars(difference) for difference in self.differences],
        }


def compare(first: Result | str | os.PathLike[str], second: Result | str | os.PathLike[str]) -> Comparison:
    """Compare two results: two weeks, two settings, or before and after a review.

    Nodes are matched by id, as text. The same one may be given twice; then nothing changed.

    Args:
        first: a result, or a folder that detect, demo or score wrote.
        second: another one, with some of the same nodes.
    """
    one, two = _read(first), _read(second)
    nodes = _side_by_side(one.table, two.table)
    both = nodes.filter(pl.col("score_first").is_not_null() & pl.col("score_second").is_not_null())
    if both.is_empty():
        raise RecoslipError(
            f"{one.outcome.folder} and {two.outcome.folder} have no node in common (their first ids are "
            f"{one.table['id'][0]!r} and {two.table['id'][0]!r}); if ids were renamed, give the nodes the same ids in "
            "both runs"
        )
    divided = None not in (one.outcome.groups, two.outcome.groups)
    groups = _group_changes(nodes, [one.names, two.names]) if divided else ()
    differences = _differences(one.summary, two.summary)
    targets = both.filter((pl.col("domain_first") == "target") & (pl.col("domain_second") == "target"))
    correlation = targets.select(pl.corr("score_first", "score_second", method="spearman")).item()
    same = [pl.col(f"{name}_first").eq_missing(pl.col(f"{name}_second")).all().alias(name) for name in COMPARED]
    says_the_same = replace(one.outcome, folder=two.outcome.folder) == two.outcome
    return Comparison(
        first=one.outcome,
        second=two.outcome,
        identical=all(nodes.select(same).row(0)) and says_the_same and not differences,
        both=both.height,
        only_first=one.table.height - both.height,
        only_second=two.table.height - both.height,
        changed_domain=both.filter(pl.col("domain_first") != pl.col("domain_second")).height,
        ranked=targets.height,
        rank_correlation=None if correlation is None or math.isnan(correlation) else correlation,
        groups=groups,
        differences=differences,
        changes=_changes(nodes, groups),
    )


def write_changes(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write one row per node whose list status or group changed as CSV, so that spreadsheets run no id as a formula."""
    write_new(path, for_spreadsheets(comparison.changes).write_csv())


class _Read(NamedTuple):
    """A result, checked as far as it is compared."""

    table: pl.DataFrame
    summary: Mapping[str, Any]
    outcome: Outcome
    names: dict[int, str | None]  # of its groups, by number


def _read(given: Result | str | os.PathLike[str]) -> _Read:
    if isinstance(given, str | os.PathLike):
        folder, table, summary = printable(given), read_scores(given), read_summary(given)
    else:
        folder, summary = str(given.folder or "the result"), dict(given.summary)
        table = given.table.with_columns(pl.col("id").cast(pl.String))
    share, groups = summary.get("novel_share"), summary.get("groups", {"found": []})
    as_written = {
        "verdict": isinstance(summary.get("verdict"), str | None),
        "headline": isinstance(summary.get("headline"), str | None),
        "novel_share": share is None or _has(share, dict.fromkeys(ENDS, int | float)),
        "groups": _has(groups, {"found": list})
        and all(_has(group, {"number": int, "name": str | None}) for group in groups["found"]),
    }
    if damaged := [name for name, is_right in as_written.items() if not is_right]:
        raise RecoslipError(
            f"{folder}/summary.json is damaged or not recoslip's: {damaged[0]} is not as detect writes it; {AGAIN}"
        )
    listed = table.filter("listed")
    divided = listed.is_empty() or listed["group"].is_not_null().any()
    outcome = Outcome(
        folder=folder,
        verdict=summary.get("verdict"),
        headline=summary.get("headline"),
        novel_share=share and {end: float(share[end]) for end in ENDS},
        target=table.filter(pl.col("domain") == "target").height,
        listed=listed.height,
        groups=listed.filter(pl.col("group") > 0)["group"].n_unique() if divided else None,
    )
    return _Read(table, summary, outcome, {group["number"]: group["name"] for group in groups["found"]})


def _has(value: Any, types: Mapping[str, Any]) -> bool:
    """Say whether a JSON value is an object with values of these types."""
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in types.items())


def _side_by_side(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Join two tables of scores; the order is the second's, then the first's."""
    one, two = (
        table.select("id", pl.col(COMPARED).name.suffix(f"_{side}"))
        for table, side in zip((first, second), SIDES, strict=True)
    )
    joined = two.join(one, on="id", how="left", maintain_order="left")
    return pl.concat([joined, one.join(two, on="id", how="anti", maintain_order="left")], how="diagonal")


def _group_changes(nodes: pl.DataFrame, names: Sequence[Mapping[int, str | None]]) -> tuple[GroupChange, ...]:
    """Say what became of each group; `GroupChange` states the rule. The largest of the second come first."""
    import networkx as nx

    columns = [f"group_{side}" for side in SIDES]
    grouped = nodes.select(pl.when(f"listed_{s}", pl.col(f"group_{s}") > 0).then(f"group_{s}") for s in SIDES)
    sizes = [dict(grouped[column].drop_nulls().value_counts().iter_rows()) for column in columns]
    overlap = {(one, other): shared for one, other, shared in grouped.drop_nulls().group_by(columns).len().iter_rows()}
    linked = nx.Graph()
    linked.add_nodes_from((side, number) for side in (0, 1) for number in sizes[side])
    linked.add_edges_from(
        ((0, one), (1, other))
        for (one, other), shared in overlap.items()
        if 2 * shared > min(sizes[0][one], sizes[1][other])
    )
    found = []
    for together in nx.connected_components(linked):
        ones, others = (tuple(sorted(number for of, number in together if of == side)) for side in (0, 1))
        kind = KINDS[min(len(ones), 2), min(len(others), 2)]
        own_names = tuple(map(names[0].get, ones)), tuple(map(names[1].get, others))
        own_sizes = sum(sizes[0][one] for one in ones), sum(sizes[1][other] for other in others)
        shared = sum(overlap.get((one, other), 0) for one in ones for other in others)
        found.append(GroupChange(kind, ones, others, *own_names, *own_sizes, shared))
    return tuple(sorted(found, key=lambda group: (-group.second_size, -group.first_size, group.second, group.first)))


def _changes(nodes: pl.DataFrame, groups: tuple[GroupChange, ...]) -> pl.DataFrame:
    """Return the rows of nodes that changed, with the kind of change, the highest scores of each kind first."""
    in_first, in_second = (pl.col(f"score_{side}").is_not_null() for side in ("first", "second"))
    was, now = pl.col("listed_first").fill_null(False), pl.col("listed_second").fill_null(False)
    change = (
        pl.when(now & ~in_first).then(pl.lit("new"))
        .when(was & ~in_second).then(pl.lit("gone"))
        .when(now & ~was).then(pl.lit("joined"))
        .when(was & ~now).then(pl.lit("left"))
        .when(was & now).then(_regrouping(groups))
    )  # fmt: skip
    kinds = pl.Enum(get_args(NodeChange))
    changed = nodes.with_columns(change=change.cast(kinds)).filter(pl.col("change").is_not_null())
    score = pl.coalesce("score_second", "score_first")
    order = changed.sort("change", score, descending=[False, True], maintain_order=True)
    return order.select(CHANGES).cast({"change": pl.String})


def _regrouping(groups: tuple[GroupChange, ...]) -> pl.Expr:
    """Return "regrouped" for a node that is listed in both results, in groups that are not the same; else null."""
    if not groups:
        return pl.lit(None, dtype=pl.String)
    same = {0: 0} | {group.first[0]: group.second[0] for group in groups if group.kind == "same"}  # 0: in no group
    expected = pl.col("group_first").replace_strict(same, default=-1, return_dtype=pl.Int64)
    return pl.when(expected != pl.col("group_second")).then(pl.lit("regrouped"))


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the values that two summaries do not agree on, in the order of the first."""
    one, two = _flat(first), _flat(second)
    names = dict.fromkeys([*one, *two])
    return tuple(Difference(k, one.get(k), two.get(k)) for k in names if one.get(k) != two.get(k))


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to compare; each setting has the name of its table before it."""
    values = {name: summary.get(name) for name in SUMMARY_VALUES}
    for table in SUMMARY_SETTINGS:
        if isinstance(settings := summary.get(table), dict):
            values |= {f"{table}.{name}": value for name, value in settings.items()}
    return values
