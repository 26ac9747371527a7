"""Two results -> what changed: nodes that joined or left the list, groups, verdicts, settings."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import polars as pl

from recoslip.base.errors import RecoslipError
from recoslip.base.files import printable, write_new
from recoslip.base.text import counted
from recoslip.pipeline.saved import AGAIN, for_spreadsheets, read_scores, read_summary

NodeChange: TypeAlias = Literal["joined", "left", "new", "gone", "regrouped"]
GroupKind: TypeAlias = Literal["same", "split", "merged", "rearranged", "new", "gone"]

COMPARED = ("domain", "score", "p_value", "listed", "group")  # columns of both results, side by side
CHANGES = ("id", "change", *(f"{name}_{side}" for name in COMPARED for side in ("first", "second")))

# What of two summaries is compared, value by value; of `settings` each setting.
SUMMARY_VALUES = (
    "recoslip", "method", "seed", "nodes", "source", "target", "edges", "features", "calibrated", "calibration_nodes",
    "rotations", "regions", "fdr", "guarantee",
)  # fmt: skip
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
        sides = (
            ("first", self.first, self.first_names, self.first_size),
            ("second", self.second, self.second_names, self.second_size),
        )
        return {
            "kind": self.kind,
            **{
                side: {
                    "groups": [{"number": number, "name": name} for number, name in zip(numbers, names, strict=True)],
                    "size": size,
                }
                for side, numbers, names, size in sides
            },
            "shared": self.shared,
            "found_again": self.found_again,
            "known_before": self.known_before,
        }


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
    novel_share: Mapping[str, float] | None
    target: int  # target nodes in the table of scores
    listed: int
    groups: int | None  # None where listed nodes were not divided into groups

    def says_the_same(self, other: Outcome) -> bool:
        """Say whether another result comes to the same, whatever its folder."""
        return replace(self, folder=other.folder) == other

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**vars(self), "novel_share": None if self.novel_share is None else dict(self.novel_share)}


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
        count: dict[str, int] = dict(self.changes["change"].value_counts().iter_rows())
        nodes = f"{counted(self.both, 'node')} {'is' if self.both == 1 else 'are'} in both results"
        only = f"{self.only_first:,} only in the first, {self.only_second:,} only in the second."
        if self.identical:
            return [f"{nodes}, and nothing changed."]
        found = [f"{nodes}, {only}"]
        if self.same_list:
            found.append("No node changed its place on the list or its group.")
        else:
            joined, left = count.get("joined", 0), count.get("left", 0)
            found.append(f"Of the nodes in both, {joined:,} joined the list and {left:,} left it.")
        if count.keys() & {"new", "gone"}:
            new, gone = count.get("new", 0), count.get("gone", 0)
            found.append(f"Listed nodes that only one result has: {gone:,} in the first, {new:,} in the second.")
        if regrouped := count.get("regrouped", 0):
            found.append(f"{counted(regrouped, 'node')} on both lists changed group.")
        if self.changed_domain:
            found.append(f"{counted(self.changed_domain, 'node')} changed from source to target or back.")
        if self.rank_correlation is not None:
            found.append(
                f"The rank correlation of the scores of {counted(self.ranked, 'target node')} in both is "
                f"{self.rank_correlation:.2f}."
            )
        for side, outcome in (("first", self.first), ("second", self.second)):
            if outcome.groups is None:
                found.append(f"The {side} result has no groups, so groups are not compared.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "identical": self.identical,
            "nodes": {
                "both": self.both,
                "only_first": self.only_first,
                "only_second": self.only_second,
                "changed_domain": self.changed_domain,
            },
            "ranked": self.ranked,
            "rank_correlation": self.rank_correlation,
            "sentences": self.sentences(),
            "changes": self.changes.to_dicts(),
            "groups": [group.to_dict() for group in self.groups],
            "differences": [vars(difference) for difference in self.differences],
        }


def compare(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> Comparison:
    """Compare two results: two weeks, two settings, or before and after a review.

    Nodes are matched by id, as text. The same folder may be given twice; then nothing changed.

    Args:
        first: a folder that detect, demo or score wrote.
        second: another one, with some of the same nodes.
    """
    tables = read_scores(first), read_scores(second)
    summaries = read_summary(first), read_summary(second)
    outcomes = (_outcome(first, tables[0], summaries[0]), _outcome(second, tables[1], summaries[1]))
    nodes = _side_by_side(*tables)
    both = nodes.filter(pl.col("score_first").is_not_null() & pl.col("score_second").is_not_null())
    if both.is_empty():
        raise RecoslipError(
            f"{printable(first)} and {printable(second)} have no node in common (their first ids are "
            f"{tables[0]['id'][0]!r} and {tables[1]['id'][0]!r}); if ids were renamed, give the nodes the same ids in "
            "both runs"
        )
    groups: tuple[GroupChange, ...] = ()
    if outcomes[0].groups is not None and outcomes[1].groups is not None:
        names = (_group_names(first, summaries[0]), _group_names(second, summaries[1]))
        groups = _group_changes(nodes, *names)
    differences = _differences(*summaries)
    targets = both.filter((pl.col("domain_first") == "target") & (pl.col("domain_second") == "target"))
    return Comparison(
        first=outcomes[0],
        second=outcomes[1],
        identical=_same_values(nodes) and outcomes[0].says_the_same(outcomes[1]) and not differences,
        both=both.height,
        only_first=tables[0].height - both.height,
        only_second=tables[1].height - both.height,
        changed_domain=both.filter(pl.col("domain_first") != pl.col("domain_second")).height,
        ranked=targets.height,
        rank_correlation=_rank_correlation(targets),
        groups=groups,
        differences=differences,
        changes=_changes(nodes, groups),
    )


def write_changes(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write one row per node whose list status or group changed as CSV, so that spreadsheets run no id as a formula."""
    write_new(path, for_spreadsheets(comparison.changes).write_csv())


def _rank_correlation(nodes: pl.DataFrame) -> float | None:
    """Return Spearman's rank correlation of the scores; None if all scores of a result are equal."""
    value: float | None = nodes.select(pl.corr("score_first", "score_second", method="spearman")).item()
    return None if value is None or math.isnan(value) else value


def _outcome(folder: str | os.PathLike[str], table: pl.DataFrame, summary: dict[str, Any]) -> Outcome:
    listed = table.filter("listed")
    divided = listed.is_empty() or listed["group"].is_not_null().any()
    share = summary.get("novel_share")
    ends = ("low", "estimate", "high")
    if share is not None and not (isinstance(share, dict) and all(_is_number(share.get(end)) for end in ends)):
        raise _damaged(folder, "novel_share")
    for name in ("verdict", "headline"):
        if not isinstance(summary.get(name, ""), str):
            raise _damaged(folder, name)
    return Outcome(
        folder=printable(folder),
        verdict=summary.get("verdict"),
        headline=summary.get("headline"),
        novel_share=None if share is None else {end: float(share[end]) for end in ends},
        target=table.filter(pl.col("domain") == "target").height,
        listed=listed.height,
        groups=listed.filter(pl.col("group") > 0)["group"].n_unique() if divided else None,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _damaged(folder: str | os.PathLike[str], name: str) -> RecoslipError:
    return RecoslipError(
        f"{printable(folder)}/summary.json is damaged or not recoslip's: {name} is not as detect writes it; {AGAIN}"
    )


def _side_by_side(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Join two tables of scores; the order is the second's, then the first's."""
    sides = [
        table.select("id", pl.col(COMPARED).name.suffix(f"_{side}"))
        for table, side in ((first, "first"), (second, "second"))
    ]
    joined = sides[1].join(sides[0], on="id", how="left", maintain_order="left")
    only_first = sides[0].join(sides[1], on="id", how="anti", maintain_order="left")
    return pl.concat([joined, only_first], how="diagonal")


def _same_values(nodes: pl.DataFrame) -> bool:
    """Say whether both results have the same nodes, with the same values."""
    same = [pl.col(f"{name}_first").eq_missing(pl.col(f"{name}_second")).all() for name in COMPARED]
    return all(nodes.select(same_column.alias(str(k)) for k, same_column in enumerate(same)).row(0))


# Groups.


def _group_names(folder: str | os.PathLike[str], summary: dict[str, Any]) -> dict[int, str | None]:
    """Return the names of a result's groups by number."""
    try:
        found = summary.get("groups", {"found": []})["found"]
        names = {group["number"]: group["name"] for group in found}
    except (KeyError, TypeError) as problem:
        raise _damaged(folder, "groups") from problem
    if not all(name is None or isinstance(name, str) for name in names.values()):
        raise _damaged(folder, "groups")
    return names


def _group_changes(
    nodes: pl.DataFrame, first_names: dict[int, str | None], second_names: dict[int, str | None]
) -> tuple[GroupChange, ...]:
    """Say what became of each group; `GroupChange` states the rule. The largest of the second come first."""
    import networkx as nx

    first, second = (_sizes(nodes, side) for side in ("first", "second"))
    grouped = nodes.filter("listed_first", "listed_second", pl.col("group_first") > 0, pl.col("group_second") > 0)
    counts = grouped.group_by("group_first", "group_second").len()
    overlap = {(one, other): shared for one, other, shared in counts.iter_rows()}
    linked = nx.Graph()
    linked.add_nodes_from([*((1, one) for one in first), *((2, other) for other in second)])
    linked.add_edges_from(
        ((1, one), (2, other))
        for (one, other), shared in overlap.items()
        if 2 * shared > min(first[one], second[other])
    )
    found = []
    for together in nx.connected_components(linked):
        ones, others = (tuple(sorted(number for side, number in together if side == wanted)) for wanted in (1, 2))
        found.append(
            GroupChange(
                kind=_kind(len(ones), len(others)),
                first=ones,
                second=others,
                first_names=tuple(first_names.get(number) for number in ones),
                second_names=tuple(second_names.get(number) for number in others),
                first_size=sum(first[one] for one in ones),
                second_size=sum(second[other] for other in others),
                shared=sum(overlap.get((one, other), 0) for one in ones for other in others),
            )
        )
    return tuple(sorted(found, key=lambda group: (-group.second_size, -group.first_size, group.second, group.first)))


def _sizes(nodes: pl.DataFrame, side: str) -> dict[int, int]:
    """Return the number of listed nodes of each group of one result."""
    members = nodes.filter(f"listed_{side}", pl.col(f"group_{side}") > 0)
    return dict(members[f"group_{side}"].value_counts().iter_rows())


def _kind(ones: int, others: int) -> GroupKind:
    """Name what happened to groups that belong together, by how many there are in each result."""
    if not ones or not others:
        return "gone" if ones else "new"
    if ones > 1:
        return "rearranged" if others > 1 else "merged"
    return "split" if others > 1 else "same"


# Nodes.


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


# Summaries.


def _differences(first: dict[str, Any], second: dict[str, Any]) -> tuple[Difference, ...]:
    """Return the values that two summaries do not agree on, in the order of the first."""
    flat = [_flat(summary) for summary in (first, second)]
    return tuple(
        Difference(name, flat[0].get(name), flat[1].get(name))
        for name in dict.fromkeys([*flat[0], *flat[1]])
        if flat[0].get(name) != flat[1].get(name)
    )


def _flat(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the values to compare; each setting has the name of its table before it."""
    values = {name: summary.get(name) for name in SUMMARY_VALUES}
    for table in SUMMARY_SETTINGS:
        settings = summary.get(table)
        if isinstance(settings, dict):
            values |= {f"{table}.{name}": value for name, value in settings.items()}
    return values
