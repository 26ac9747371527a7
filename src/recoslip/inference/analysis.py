"""Fitted detector + graph -> findings: how many nodes may be novel, which are listed, in what groups, why; summary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip._version import __version__
from recoslip.base.errors import GraphError
from recoslip.base.settings import json_params
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask
from recoslip.data.vectors import Vectors
from recoslip.inference.calibrated import Calibrated, mean_uncertainty
from recoslip.inference.check import Check, check_as_given
from recoslip.inference.diagnosis import Diagnosis, diagnose
from recoslip.inference.earlier import EarlierStep, earlier_step
from recoslip.inference.evidence import BinCounts
from recoslip.inference.groups import Group, Grouping, find_groups, inspect_first, profile_groups, single_group
from recoslip.inference.novel_share import NovelShare, novel_share
from recoslip.inference.traits import FeatureStatistics
from recoslip.inference.verdict import Verdict, decide, guarantee, make_surer, name_new
from recoslip.learning.base import Scores

RESERVED = ("uncertainty", "holds_up_to", "group")  # columns of a table of scores that some have


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that the page and the tables show."""

    model: Calibrated
    graph: NodeGraph
    p_value: Scores  # (nodes,) NaN for source nodes
    listed: Mask  # (nodes,) the target nodes that are listed as novel
    guarantee: str  # the statistical guarantee of the list, in words
    fdr: float | None  # the false-discovery rate that the list was made by; None: by the model's `max_fpr`
    novel_share: NovelShare
    partition: Grouping  # of the listed nodes into groups
    groups: tuple[Group, ...]  # those with the most evidence of being new first
    diagnosis: Diagnosis
    verdict: Verdict
    check: Check  # at the graph, before training
    similarity: NDArray[np.float32] = field(repr=False)  # (nodes, width) whose inner products are similarities
    features: FeatureStatistics = field(repr=False)  # that groups and nodes are described by
    bins: BinCounts = field(repr=False)  # the evidence is counted in them
    earlier: EarlierStep | None = None  # the same question one step earlier, where there are times
    before_scoring: tuple[tuple[str, str], ...] = ()  # of new nodes: what a look at their table found, row by row

    def headline(self) -> str:
        """Return the verdict in words."""
        return self.verdict.sentence

    def list_sentence(self) -> str:
        """Say how many nodes are listed, and in how many groups."""
        listed, targets = int(self.listed.sum()), self.graph.terms.targets(int(self.graph.is_target.sum()))
        if not listed:
            return f"None of the {targets} is listed."
        groups = f", in {self.partition.count} groups" if self.partition.has_structure else ""
        return f"{listed:,} of {targets} {'is' if listed == 1 else 'are'} listed{groups}."

    def inspect_first(self) -> tuple[int, ...]:
        """Return the nodes to inspect first: the highest of each group in turn, if anything stands out."""
        every = self.verdict.stands_out and not self.verdict.supported  # then no group has evidence
        return inspect_first(self.groups, every=every)

    def label_of(self, node: int) -> str:
        """Return what a person calls a node: its value in the column that names nodes, or else its id."""
        graph = self.graph
        label = None if graph.label is None else graph.columns[graph.label][node]
        return str(graph.ids[node] if label is None else label)

    def nearest_known(self, group: Group) -> str | None:
        """Return the name of the cluster of known nodes that a group is most like."""
        names = {cluster.label: cluster.name for cluster in self.diagnosis.clusters}
        return names.get(group.nearest_bin)

    def table(self) -> pl.DataFrame:
        """List all nodes, target nodes first and the highest scores on top.

        Columns: id, domain, score, p_value, uncertainty (where the detector has one), holds_up_to (of target nodes: how
        many times as frequent known nodes would have to be to explain the nodes that are most like it), listed, group,
        which is 0 for listed nodes in no group and null for nodes that are not listed, and the columns of the user's
        table that were kept; one that is called as one of ours has `own_` before its name.
        """
        label, uncertainty = self.partition.label.tolist(), mean_uncertainty(self.model)
        frame = pl.DataFrame(
            {
                "id": pl.Series(self.graph.ids.tolist(), strict=False),
                "domain": np.where(self.graph.is_target, "target", "source"),
                "score": self.model.scores,
                "p_value": pl.Series(self.p_value, nan_to_null=True),
                **({} if uncertainty is None else {"uncertainty": uncertainty}),
                "holds_up_to": pl.Series(np.where(self.graph.is_target, self.bins.of_each(), np.nan), nan_to_null=True),
                "listed": self.listed,
                "group": pl.Series([None if number < 0 else number for number in label], dtype=pl.Int64),
            }
        )
        frame = with_columns_of(frame, self.graph)
        return frame.sort(["domain", "score"], descending=True, maintain_order=True)  # "target" sorts after "source"


def with_columns_of(table: pl.DataFrame, graph: NodeGraph, nodes: Mask | None = None) -> pl.DataFrame:
    """Add the columns of the user's table that were kept; those called as one of ours have `own_` before their names.

    Args:
        table: one row per node.
        graph: that the columns were kept with.
        nodes: (nodes,) those that the table is about; all by default.
    """
    taken, added = {*table.columns, *RESERVED}, []
    for name, values in graph.columns.items():
        while name in taken:
            name = f"own_{name}"
        taken.add(name)
        added.append(pl.Series(name, (values if nodes is None else values[nodes]).tolist(), strict=False))
    return table.with_columns(added)


def find_novel(
    model: Calibrated,
    graph: NodeGraph,
    *,
    fdr: float | None = None,
    max_growth: float | None = None,
    grouped: bool = True,
    check: Check | None = None,
    described: NodeGraph | None = None,
) -> Findings:
    """Turn scores and p-values into findings.

    Args:
        model: what `recoslip.calibrate` returned; of a single fit, the result has no guarantee.
        graph: the graph that it was fitted on, or another that has source nodes of that one.
        fdr: list nodes by this false-discovery rate; without it, by the model's `max_fpr`.
        max_growth: how many times as frequent a known category may have become, for the novel share's lower end; by
            default 3, or more: as much as groups of known nodes seem to have grown, or as placebos seemed to.
        grouped: whether to divide the listed nodes into groups.
        check: what `recoslip.check` returned, if `graph` is its `prepared`; without it, `graph` is checked as it is.
        described: the same nodes with other features, which groups and nodes are described by, such as the genes of
            cells whose features are principal components; by default `graph`.
    """
    is_target = graph.is_target
    if not model.is_about(graph):
        model = model.transfer(graph)
        if not model.calibration.any():
            raise GraphError(
                "the detector was fitted on another graph, and this one holds none of the source nodes that it was "
                "calibrated by; analyse a graph that has them, under the ids that they had"
            )
    listed = model.select(fdr=fdr)
    similarity = Vectors.of(graph).summary()
    check = check_as_given(graph) if check is None else check
    features = FeatureStatistics(graph if described is None else described)
    p, diagnosis, bins = model.p_values(), diagnose(model, graph, listed, features), BinCounts.of(graph, model.hiding)
    if max_growth is None:
        max_growth = max(bins.allowed, diagnosis.growth_of_target)
    elif bins.follows_edges:
        max_growth = max(bins.allowed, max_growth)  # what placebos seem to need is no evidence
    share = novel_share(p[is_target], int(model.calibration.sum()), bins, max_growth=max_growth)
    partition = find_groups(graph, listed) if grouped else single_group(listed)
    earlier = earlier_step(graph, model.scores) if share.low > 0 else None
    verdict = decide(model, listed, fdr, share, bins, diagnosis, check, earlier)
    guaranteed = guarantee(model, fdr, supported=verdict.supported, terms=graph.terms)
    evident = bins if verdict.stands_out and verdict.supported else None
    groups = profile_groups(graph, model.scores, listed, partition, similarity, features, evident)
    verdict = name_new(verdict, groups, share, bins)
    return Findings(
        model=model,
        graph=graph,
        p_value=p,
        listed=listed,
        guarantee=guaranteed,
        fdr=fdr,
        novel_share=share,
        partition=partition.renumbered([group.number for group in groups]),
        groups=tuple(replace(group, number=number) for number, group in enumerate(groups, start=1)),
        diagnosis=diagnosis,
        verdict=verdict,
        check=check,
        similarity=similarity,
        features=features,
        bins=bins,
        earlier=earlier,
    )


@dataclass(frozen=True)
class ListedGroup:
    """A group of listed nodes."""

    number: int
    size: int
    name: str | None  # the features that it has more of than the source, where features have names
    evidence: str | None  # that it is new, in a sentence
    members: tuple[Any, ...] = field(repr=False)  # ids, the highest scores first


@dataclass(frozen=True)
class SavedCheck:
    """What the check of a loaded result found."""

    facts: dict[str, Any] = field(repr=False)  # as `Check.to_dict` returns them

    def rows(self) -> list[tuple[str, str]]:
        """Return what was checked, and what was found."""
        return [(what, found) for what, found in self.facts["rows"]]


def listed_groups(summary: Mapping[str, Any], table: pl.DataFrame) -> tuple[ListedGroup, ...]:
    """Return the groups that a summary tells of, with their members in the table of scores."""
    found = summary.get("groups", {}).get("found", [])
    members = [tuple(table.filter(pl.col("group") == each["number"])["id"]) for each in found]
    return tuple(
        ListedGroup(each["number"], each["size"], each["name"], each["evidence"], own)
        for each, own in zip(found, members, strict=True)
    )


def summarise(findings: Findings) -> dict[str, Any]:
    """Summarise a run in JSON values: the graph, the decisions, and what is needed to repeat the run."""
    model, graph = findings.model, findings.graph
    is_target = graph.is_target
    result: dict[str, Any] = {
        "recoslip": __version__,
        "method": model.name,
        "settings": json_params(model.detector),
        "fit_settings": json_params(model.fits[0]) if model.is_calibrated else {},
        "seed": model.detector.random_state,
        "nodes": graph.num_nodes,
        "source": int((~is_target).sum()),
        "target": int(is_target.sum()),
        "edges": graph.num_edges,
        "features": graph.num_features,
        "feature_names": None if graph.feature_names is None else list(graph.feature_names),
        "edge_repairs": {
            "mirrored": graph.repairs.mirrored,
            "merged": graph.repairs.merged,
            "loops": graph.repairs.loops,
        },
        "max_fpr": model.max_fpr,
        "listed": int(findings.listed.sum()),
        **facts(findings),
    }
    first = model.fits[0]
    if hasattr(first, "prior_"):
        result["known_fraction_of_target"] = first.prior_
    candidates: pl.DataFrame | None = getattr(first, "candidates_", None)
    if candidates is not None:
        result["chosen"] = candidates.filter("chosen").drop("chosen").to_dicts()
    for table in ("encoders", "rounds"):
        if hasattr(first, f"{table}_"):
            result[table] = getattr(first, f"{table}_").to_dicts()
    return result


def facts(findings: Findings) -> dict[str, Any]:
    """Return what the findings add to a run's summary, as JSON values."""
    model, share, terms = findings.model, findings.novel_share, findings.graph.terms
    first = findings.inspect_first()
    partition, diagnosis, check = findings.partition, findings.diagnosis, findings.check.to_dict()
    return {
        "verdict": findings.verdict.kind,
        "headline": findings.headline(),
        "advice": findings.verdict.advice,
        "conditions": findings.verdict.conditions,
        "figures": [asdict(figure) for figure in findings.verdict.figures],
        "label": findings.graph.label,
        "surer": make_surer(findings.verdict, terms),
        "terms": asdict(terms),
        "supported": findings.verdict.supported,
        "stands_out": findings.verdict.stands_out,
        "list": findings.list_sentence(),
        "inspect_first": [str(findings.graph.ids[node]) for node in first],
        "inspect_first_labels": [findings.label_of(node) for node in first],
        "guarantee": findings.guarantee,
        "calibrated": model.is_calibrated,
        "fdr": findings.fdr,
        "lowest_listed_score": float(model.scores[findings.listed].min()) if findings.listed.any() else None,
        "calibration_nodes": int(model.calibration.sum()),
        "rotations": len(model.fits),
        "novel_share": asdict(share) if findings.verdict.supported else None,
        "domains_follow_edges": model.hiding.follows_edges,
        "earlier_step": None if findings.earlier is None else asdict(findings.earlier),
        "groups": {
            "count": partition.count,
            "has_structure": partition.has_structure,
            "found": [
                group.to_dict()
                | {
                    "typical": [findings.label_of(node) for node in group.typical],
                    "nearest": findings.nearest_known(group),
                }
                for group in findings.groups
            ],
        },
        "check": check | {"rows": [*map(list, findings.before_scoring), *check["rows"]]},
        "diagnosis": {
            "shift": diagnosis.shift(terms) if findings.verdict.supported else None,
            "grown": [cluster.sentence(terms) for cluster in diagnosis.grown] if findings.verdict.supported else [],
            "warnings": list(diagnosis.warnings),
        },
    }
