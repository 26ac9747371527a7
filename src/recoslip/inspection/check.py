"""NodeGraph -> a look before training: what the graph can tell, and what to mend first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from recoslip.detectors.catalogue import DEFAULT
from recoslip.detectors.regions import region_count
from recoslip.errors import GraphError, SettingError
from recoslip.graph import NodeGraph
from recoslip.graph.alignment import aligned
from recoslip.graph.split import MIN_SOURCE
from recoslip.inspection.features import ColumnDifference, ColumnsCheck, check_columns
from recoslip.inspection.mixing import Mixing, measure_mixing
from recoslip.wording import NAMED, named, percent

Align: TypeAlias = Literal["off", "on", "auto"]
Remedy: TypeAlias = Literal["aligned", "without edges"]

ALIGN = ("off", "on", "auto")
MENDED = 0.75  # AU-ROC within regions up to which a remedy has brought two worlds together
JOINED = 0.1  # edges between the domains, against chance, from which on one network joins them


@dataclass(frozen=True, eq=False)
class Check:
    """What a look at a graph found."""

    graph: NodeGraph = field(repr=False)  # as it was given
    columns: ColumnsCheck
    mixing: Mixing
    remedy: Remedy | None  # what was done so that source and target mix, or because it was asked for
    mended: bool  # whether they mix then
    prepared: NodeGraph = field(repr=False)  # the graph to fit on: as it was given, or after the remedy

    @property
    def is_apart(self) -> bool:
        """Whether source and target differ almost everywhere, and nothing mended it."""
        return self.mixing.situation == "apart" and not self.mended

    @property
    def method(self) -> str:
        """The method that "auto" stands for on this graph.

        Where nothing joins the two worlds, neither features nor edges, detectors that learn the domain learn what
        tells the worlds apart; the distance to the source still ranks.
        """
        joined = self.mixing.edges is not None and self.mixing.edges >= JOINED
        return "nearest-source" if self.is_apart and not joined else DEFAULT

    def situation(self) -> str:
        """Say in which of the situations source and target are."""
        mixing = self.mixing
        source, target = mixing.mixed_share()
        mixed = f"{percent(source)} of the source and {percent(target)} of the target nodes"
        match mixing.situation:
            case "too few":
                return "Too few source or target nodes to say how far the two mix."
            case "proportions":
                return (
                    f"Source and target mix: in regions with {mixed} a classifier tells one from the other badly or "
                    "not at all. They may still differ in their proportions."
                )
            case "new kind":
                alone = sum(region.target for region in mixing.regions if region.is_target_alone)
                return (
                    f"Source and target mix in regions with {mixed}; regions with {percent(alone)} of the target "
                    "nodes hold hardly any source node: a new kind, or a known one that grew."
                )
        where = f"only regions with {mixed} mix" if source or target else "no region mixes"
        return (
            "Source and target are worlds apart: a classifier tells one from the other almost everywhere, and "
            f"{where}. {self._what_was_done()}"
        )

    def _what_was_done(self) -> str:
        if self.mended and self.remedy == "aligned":
            return "They mix once the target's features have the location and the scale of the source's."
        if self.mended:
            return "Their features mix, so that it is the edges that differ; they are left out."
        if self.remedy == "aligned":
            return "Bringing the target's features to the location and the scale of the source's does not mend it."
        return "It was not mended."

    def assumption(self) -> str:
        """Say what a promise rests on besides, if the features were aligned; else nothing."""
        if self.remedy != "aligned":
            return ""
        return (
            "It also rests on the alignment: that bringing the target's features to the location and the scale of the "
            "source's undid what differed, and moved no known node away from the source."
        )

    def differences(self) -> str:
        """Name what differs most between source and target: columns, and whether edges join the two."""
        strongest = [each for each in self.columns.differences if each.auroc > 0.6][:NAMED]
        named = ", ".join(f"{each.feature} (AU-ROC {each.auroc:.2f})" for each in strongest)
        parts = [f"the columns that say most about the domain are {named}" if named else "no single column stands out"]
        if self.mixing.edges is not None and self.mixing.edges < JOINED:
            parts.append("hardly any edge joins source and target")
        return "; ".join(parts)

    def lowest_p_value(self) -> tuple[float, float]:
        """Return the lowest p-value that can be reached if all regions score alike, and if none do."""
        source = int((~self.graph.is_target).sum())
        return 1 / (source + 1), 1 / (source // region_count(source) + 1)

    def size(self) -> dict[str, int]:
        """Count what the graph holds, and the bytes of its features, edges and domains."""
        graph, x = self.graph, self.graph.x
        features = [x] if x.layout == torch.strided else [x.values(), x.col_indices(), x.crow_indices()]
        weight = [] if graph.edge_weight is None else [graph.edge_weight]
        return {
            "source": int((~graph.is_target).sum()),
            "target": int(graph.is_target.sum()),
            "edges": graph.num_edges,
            "features": graph.num_features,
            "values": features[0].numel(),
            "bytes": sum(each.nbytes for each in (*features, graph.edge_index, *weight, graph.is_target)),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the look as a table: what was looked at, and what was found."""
        graph, mixing, columns = self.graph, self.mixing, self.columns
        size = self.size()
        rows = [
            (
                "size",
                f"{size['source']:,} source and {size['target']:,} target nodes, {size['edges']:,} edges, "
                f"{size['features']:,} feature columns with {size['values']:,} stored values: "
                f"{size['bytes'] / 1e6:,.2f} MB",
            ),
            ("columns", _columns_sentence(columns)),
        ]
        rows += [("leak", leak_sentence(each)) for each in columns.leaks]
        if columns.constant:
            rows.append(("constant", f"{named(columns.constant)}: the same in all nodes, so they say nothing."))
        if graph.missing:
            filled = tuple(f"{name} ({count:,} rows)" for name, count in graph.missing.items())
            rows.append(("missing", f"{named(filled)}: missing values were filled."))
        rows += [
            ("empty", f"{count:,} features are zero in all {domain} nodes and not in the others.")
            for domain, count in columns.empty.items()
            if 2 * count > graph.num_features
        ]
        if mixing.edges is None:
            rows.append(("edges", "There are no edges: features alone are compared."))
        else:
            rows.append(("edges", f"{_against_chance(mixing.edges)} edges between source and target as by chance."))
        if mixing.neighbours is not None:
            rows.append(
                (
                    "neighbours",
                    f"{_against_chance(mixing.neighbours)} nearest neighbours of the other domain as by chance.",
                )
            )
        rows.append(("mixing", self.situation()))
        rows += [("p-values", self._p_value_limit()), ("method", f"auto takes {self.method} here.")]
        return rows

    def _p_value_limit(self) -> str:
        lowest, regional = self.lowest_p_value()
        source = int((~self.graph.is_target).sum())
        if source < MIN_SOURCE:
            return f"{source} source nodes are too few for any p-value."
        if regional > lowest:
            return (
                f"No p-value can be below {lowest:.2g}; in a region that scores unlike the others, not below about "
                f"{regional:.2g}."
            )
        return f"No p-value can be below {lowest:.2g}."

    def facts(self) -> dict[str, Any]:
        """Return the look as JSON values."""
        lowest, regional = self.lowest_p_value()
        return {
            "situation": self.mixing.situation,
            "sentence": self.situation(),
            "apart": self.is_apart,
            "remedy": self.remedy,
            "mended": self.mended,
            "method": self.method,
            "separability": self.mixing.separability,
            "neighbours": self.mixing.neighbours,
            "edges": self.mixing.edges,
            "regions": [asdict(region) for region in self.mixing.regions],
            "leaks": [each.column for each in self.columns.leaks],
            "columns": [asdict(each) for each in self.columns.differences[:20]],
            "constant": list(self.columns.constant),
            "missing": dict(self.graph.missing or {}),
            "lowest_p_value": {"alike": lowest, "regional": regional},
            "size": self.size(),
            "rows": [list(row) for row in self.rows()],
        }


def check(graph: NodeGraph, *, align: Align = "auto") -> Check:
    """Look at a graph before anything is trained; takes seconds.

    Args:
        graph: the graph.
        align: whether to bring the target's features to the source's location and scale: "off", "on", or "auto" where
            source and target are worlds apart and mix after it. "auto" also leaves out the edges where that mends it.
    """
    if not isinstance(graph, NodeGraph):
        raise GraphError(f"expected a NodeGraph; got {type(graph).__name__} (NodeGraph.from_pyg may help)")
    graph.require_both_domains()
    check_align(align)
    columns, mixing = check_columns(graph), measure_mixing(graph)
    if align == "on":
        prepared = aligned(graph)
        mended = _mixes(prepared) if mixing.situation == "apart" else False
        return Check(graph, columns, mixing, "aligned", mended, prepared)
    if align == "auto" and mixing.situation == "apart":
        if _mixes(prepared := aligned(graph)):
            return Check(graph, columns, mixing, "aligned", True, prepared)
        if graph.num_edges and _mixes(prepared := graph.without_edges()):
            return Check(graph, columns, mixing, "without edges", True, prepared)
    return Check(graph, columns, mixing, None, False, graph)


def check_align(align: str) -> None:
    """Raise unless there is such a way to align."""
    if align not in ALIGN:
        raise SettingError(f"align must be one of {', '.join(ALIGN)}; got {align!r}")


def look_as_it_is(graph: NodeGraph, reduced: NDArray[np.float64], neighbourhood: NDArray[np.float64]) -> Check:
    """Look at a graph without mending anything, with its reduced and its neighbourhood features."""
    return Check(graph, check_columns(graph), measure_mixing(graph, reduced, neighbourhood), None, False, graph)


def _mixes(graph: NodeGraph) -> bool:
    """Return whether source and target mix after a remedy, which is held to more than the graph as it was given."""
    separability = measure_mixing(graph).separability
    return separability is not None and separability <= MENDED


def leak_sentence(column: ColumnDifference) -> str:
    """Say that a column says the same as the domain."""
    same = "exactly the same" if column.auroc == 1 else "almost the same"
    return f"Column {column.column!r} says {same} as the domain (AU-ROC {column.auroc:.3f})."


def _columns_sentence(columns: ColumnsCheck) -> str:
    shown = ", ".join(f"{each.feature} {each.auroc:.2f}" for each in columns.differences[:NAMED])
    sentence = f"Those that say most about the domain, each by itself (AU-ROC): {shown}."
    same = sum(each.says_the_same for each in columns.differences)
    if same and not columns.leaks:
        sentence += (
            f" {same:,} of {len(columns.differences):,} say almost the same as the domain: it may have been measured "
            "differently, or all of it is new."
        )
    return sentence


def _against_chance(ratio: float) -> str:
    return f"{ratio:.2f} times as many"


def refuse_leaks(found: Check, allowed: Sequence[str] = ()) -> None:
    """Raise if a column says the same as the domain, unless it is allowed to."""
    known = {each.column for each in found.columns.differences}
    for name in allowed:
        if name not in known:
            raise SettingError(f"allow_leak names no column that is used: {name!r}")
    leaks = [each for each in found.columns.leaks if each.column not in allowed]
    if leaks:
        columns = [each.column for each in leaks]
        raise SettingError(
            f"{' '.join(map(leak_sentence, leaks))} Every detector would learn it and list all target nodes. "
            f"Leave it out (ignore={columns!r}), or keep it (allow_leak={columns!r})."
        )
