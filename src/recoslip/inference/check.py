"""NodeGraph -> a check before training: leaks, and how far source and target differ."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import scipy.sparse as sp

from recoslip.base.errors import GraphError, SettingError
from recoslip.base.text import NAMED, Terms, capitalised, named, percent
from recoslip.data.alignment import aligned
from recoslip.data.graph import NodeGraph
from recoslip.data.split import MIN_SOURCE
from recoslip.inference.columns import ColumnDifference, ColumnsCheck, OneDomain, check_columns
from recoslip.inference.separability import APART, Mixing, measure_mixing
from recoslip.learning.methods import DEFAULT

Align: TypeAlias = Literal["off", "on", "auto"]
Remedy: TypeAlias = Literal["aligned", "without edges"]

ALIGN = ("off", "on", "auto")
MENDED = 0.75  # AU-ROC within regions up to which the domains count as aligned
MOST_COLUMNS = 30  # of a table, that have a line each
JOINED = 0.1  # edges between the domains, relative to chance, from which on edges join them


@dataclass(frozen=True, eq=False)
class Check:
    """What the check of a graph found."""

    graph: NodeGraph = field(repr=False)  # as it was given
    columns: ColumnsCheck
    mixing: Mixing
    remedy: Remedy | None  # what was done to make the domains comparable, or because it was asked for
    remedied: bool  # whether they are comparable after it
    prepared: NodeGraph = field(repr=False)  # the graph to fit on: as given, or aligned
    align: Align  # as it was asked for

    @property
    def is_separable(self) -> bool:
        """Whether source and target are separable almost everywhere, and no remedy worked."""
        return self.mixing.situation == "apart" and not self.remedied

    @property
    def method(self) -> str:
        """The method that `detect` takes on this graph by default.

        Where the domains are separable and no edges join them, detectors that learn the domain learn only what
        separates it; the distance to the source still ranks.
        """
        joined = self.mixing.edges is not None and self.mixing.edges >= JOINED
        return "nearest-source" if self.is_separable and not joined else DEFAULT

    def situation(self) -> str:
        """Say how far source and target differ."""
        mixing = self.mixing
        source, target = mixing.mixed_share()
        terms, both = self.graph.terms, capitalised(self.graph.terms.both)
        mixed = f"{percent(source)} of the {terms.sources()} and {percent(target)} of the {terms.targets()}"
        match mixing.situation:
            case "too few":
                few = f"There are too few {terms.sources()} or {terms.targets()}"
                return f"{few} to measure whether the domains are separable."
            case "proportions":
                return (
                    f"{both} are not separable: in regions with {mixed} they share groups of similar {terms.noun} "
                    f"(AU-ROC {mixing.separability or 0.5:.2f}; above {APART} they were separable). They may differ in "
                    "proportions."
                )
            case "new kind":
                alone = sum(region.target for region in mixing.regions if region.is_target_alone)
                return (
                    f"{both} are not separable in regions with {mixed}. Regions with {percent(alone)} of "
                    f"the {terms.targets()} hold hardly any of the {terms.sources()}: a novel category, or a known one "
                    "that grew."
                )
        where = f"except in regions with {mixed}" if source or target else "in every region"
        return f"{both} are separable (covariate shift) {where}. {self._what_was_done()}"

    def _what_was_done(self) -> str:
        if self.remedied and self.remedy == "aligned":
            terms = self.graph.terms
            return (
                f"After alignment (features {terms.in_target} get the mean and the scale of those {terms.in_source}) "
                "they are not."
            )
        if self.remedied:
            return "By their features alone they are not, so the edges are left out."
        if self.remedy == "aligned":
            return "They are separable after alignment too."
        return "No alignment was tried." if self.align == "off" else "No remedy worked."

    def differences(self) -> str:
        """Name what differs most between source and target: columns, and whether edges join the two."""
        strongest = [each for each in self.columns.differences if each.auroc > 0.6][:NAMED]
        named = ", ".join(f"{each.feature} (AU-ROC {each.auroc:.2f})" for each in strongest)
        parts = [f"the columns that predict the domain best are {named}" if named else "no single column stands out"]
        if self.mixing.edges is not None and self.mixing.edges < JOINED:
            parts.append(f"hardly any edge joins {self.graph.terms.both}")
        return "; ".join(parts)

    def lowest_p_value(self) -> float:
        """Return the lowest p-value that can be reached."""
        return 1 / (int((~self.graph.is_target).sum()) + 1)

    def size(self) -> dict[str, int]:
        """Count what the graph holds, and the bytes of its features, edges and domains."""
        graph, x = self.graph, self.graph.x
        features = [x.data, x.indices, x.indptr] if sp.issparse(x) else [x]
        weight = [] if graph.edge_weight is None else [graph.edge_weight]
        return {
            "source": int((~graph.is_target).sum()),
            "target": int(graph.is_target.sum()),
            "edges": graph.num_edges,
            "features": graph.num_features,
            "values": features[0].size,
            "bytes": sum(each.nbytes for each in (*features, graph.edge_index, *weight, graph.is_target)),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the check as a table: what was checked, and what was found."""
        graph, mixing, columns, terms = self.graph, self.mixing, self.columns, self.graph.terms
        size = self.size()
        rows = [
            (
                "size",
                f"{terms.sources(size['source'])}, {terms.targets(size['target'])}, {size['edges']:,} edges, "
                f"{size['features']:,} feature columns with {size['values']:,} stored values: "
                f"{size['bytes'] / 1e6:,.2f} MB",
            ),
            ("columns", _columns_sentence(columns)),
        ]
        rows += _reading_rows(graph)
        rows += [("leak", leak_sentence(each)) for each in columns.leaks]
        rows += [("one domain", _one_domain_sentence(each, terms)) for each in columns.one_domain[:NAMED]]
        if columns.constant:
            rows.append(("constant", f"{named(columns.constant)}: the same in all nodes, and not used."))
        if graph.missing:
            filled = tuple(f"{name} ({count:,} rows)" for name, count in graph.missing.items())
            rows.append(("missing", f"{named(filled)}: missing values were filled."))
        rows += [
            ("empty", f"{count:,} features are zero in all {getattr(terms, f'{domain}s')()} and not in the others.")
            for domain, count in columns.empty.items()
            if 2 * count > graph.num_features
        ]
        if mixing.edges is None:
            rows.append(
                (
                    "edges",
                    "There are no edges, so features alone are compared: what only neighbours tell cannot be found. "
                    "neighbours=10 joins each to those most like it.",
                )
            )
        else:
            rows.append(("edges", f"{_against_chance(mixing.edges)} edges join {terms.both} as by chance."))
        if mixing.neighbours is not None:
            rows.append(
                (
                    "neighbours",
                    f"{_against_chance(mixing.neighbours)} pairs of similar {terms.noun} join {terms.both} as by "
                    "chance.",
                )
            )
        rows.append(("separability", self.situation()))
        rows += [("p-values", self._p_value_limit()), ("method", f"The default method here is {self.method}.")]
        return rows

    def _p_value_limit(self) -> str:
        source = int((~self.graph.is_target).sum())
        if source < MIN_SOURCE:
            return f"{self.graph.terms.sources(source)} are too few for any p-value."
        return f"No p-value can be below {self.lowest_p_value():.2g}."

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON values."""
        return {
            "situation": self.mixing.situation,
            "sentence": self.situation(),
            "separable": self.is_separable,
            "remedy": self.remedy,
            "remedied": self.remedied,
            "method": self.method,
            "separability": self.mixing.separability,
            "neighbours": self.mixing.neighbours,
            "edges": self.mixing.edges,
            "regions": [asdict(region) for region in self.mixing.regions],
            "leaks": [each.column for each in self.columns.leaks],
            "columns": [asdict(each) for each in self.columns.differences[:20]],
            "constant": list(self.columns.constant),
            "missing": dict(self.graph.missing or {}),
            "one_domain": [asdict(each) for each in self.columns.one_domain],
            "reading": None if self.graph.reading is None else [each._asdict() for each in self.graph.reading.columns],
            "notes": [] if self.graph.reading is None else list(self.graph.reading.notes),
            "lowest_p_value": self.lowest_p_value(),
            "size": self.size(),
            "rows": [list(row) for row in self.rows()],
        }


def check_graph(graph: NodeGraph, *, align: Align = "auto") -> Check:
    """Check a graph before anything is trained; takes seconds.

    Args:
        graph: the graph.
        align: whether to align the target's features with the mean and scale of the source's: "off", "on", or "auto",
            where source and target are separable, and not after it. "auto" also leaves out the edges where that helps.
    """
    if not isinstance(graph, NodeGraph):
        raise GraphError(f"expected a NodeGraph; got {type(graph).__name__} (NodeGraph.from_pyg may help)")
    graph.require_both_domains()
    check_align(align)
    columns, mixing = check_columns(graph), measure_mixing(graph)
    if align == "on":
        prepared = aligned(graph)
        remedied = _mixes(prepared) if mixing.situation == "apart" else False
        return Check(graph, columns, mixing, "aligned", remedied, prepared, align)
    if align == "auto" and mixing.situation == "apart":
        if _mixes(prepared := aligned(graph)):
            return Check(graph, columns, mixing, "aligned", True, prepared, align)
        if graph.num_edges and _mixes(prepared := graph.without_edges()):
            return Check(graph, columns, mixing, "without edges", True, prepared, align)
    return Check(graph, columns, mixing, None, False, graph, align)


def check_align(align: str) -> None:
    """Raise unless there is such a way to align."""
    if align not in ALIGN:
        raise SettingError(f"align must be one of {', '.join(ALIGN)}; got {align!r}")


def check_as_given(graph: NodeGraph) -> Check:
    """Check a graph without a remedy."""
    return Check(graph, check_columns(graph), measure_mixing(graph), None, False, graph, "off")


def _mixes(graph: NodeGraph) -> bool:
    """Return whether a remedy worked; the limit is stricter than that of the graph as given."""
    separability = measure_mixing(graph).separability
    return separability is not None and separability <= MENDED


def leak_sentence(column: ColumnDifference) -> str:
    """Say that a column identifies the domain."""
    same = "exactly the same" if column.auroc == 1 else "almost the same"
    return f"Column {column.column!r} says {same} as the domain (AU-ROC {column.auroc:.3f})."


def _one_domain_sentence(column: OneDomain, terms: Terms) -> str:
    """Say that many values of a column occur in one domain only."""
    return (
        f"Column {column.column!r} nearly is the domain: {percent(column.target)} of the {terms.targets()} and "
        f"{percent(column.source)} of the {terms.sources()} have values that the other domain never has (such as "
        f"{', '.join(column.examples)}). ignore=[{column.column!r}] leaves it out."
    )


def _reading_rows(graph: NodeGraph) -> list[tuple[str, str]]:
    """Say how the table was read: what was left out or assumed, and each column on a line, the first of many."""
    if graph.reading is None:
        return []
    columns = graph.reading.columns
    rows = [("rows", note) for note in graph.reading.notes]
    for each in columns[:MOST_COLUMNS]:
        option = "" if each.option in each.why else f"; or {each.option}"
        rows.append(("column", f"{each.column}: {each.read_as}{f' ({each.why})' if each.why else ''}{option}"))
    if len(columns) > MOST_COLUMNS:
        kinds = Counter(each.read_as for each in columns[MOST_COLUMNS:])
        more = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        rows.append(("column", f"and {len(columns) - MOST_COLUMNS:,} more: {more}"))
    return rows


def _columns_sentence(columns: ColumnsCheck) -> str:
    shown = ", ".join(f"{each.feature} {each.auroc:.2f}" for each in columns.differences[:NAMED])
    sentence = f"Columns that predict the domain best, each alone (AU-ROC): {shown}."
    same = sum(each.says_the_same for each in columns.differences)
    if same and not columns.leaks:
        sentence += (
            f" {same:,} of {len(columns.differences):,} predict the domain almost perfectly. The domains may have been "
            "measured differently, or the whole target is novel."
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
