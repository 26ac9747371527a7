"""NodeGraph -> each column against the domain; new rows -> each column against the table that was fitted."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.text import counted, named, percent
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask
from recoslip.data.tables.drift import Drift
from recoslip.data.tables.read import NewNodes

LEAK = 0.9  # AU-ROC from which on a column says the same as the domain
MIN_DEVIATIONS = 5.0  # standard deviations that it must be above chance: of few nodes, some column says so by chance
MAX_NODES = 5000  # of each domain that columns are compared on
RANKED_DENSITY = 0.2  # fraction of non-zeros from which the values of a sparse feature are ranked, not their presence
BLOCK = 256  # features that are ranked at a time
MIN_ALONE = 0.5  # fraction of a domain's nodes whose values the other domain never has, from which on a column is named
CHANCE = 1e-3  # probability up to which it is no chance that a value occurs in one domain alone
EXAMPLES = 3  # of such values


@dataclass(frozen=True)
class ColumnDifference:
    """What a column says about the domain."""

    column: str  # of the table, or the name of the feature, or its number
    feature: str  # the one that says most; for a category all of its values together
    auroc: float  # between 0.5 and 1
    source: float  # mean of the feature in the source
    target: float
    says_the_same: bool  # whether it says the same as the domain, almost or altogether, and not by chance


@dataclass(frozen=True)
class OneDomain:
    """A column many of whose values occur in one domain only, whatever their order."""

    column: str
    source: float  # fraction of the source nodes whose value no target node has
    target: float  # fraction of the target nodes whose value no source node has
    examples: tuple[str, ...]  # such values, the most frequent first


@dataclass(frozen=True)
class ColumnsCheck:
    """What stands out about the columns."""

    differences: tuple[ColumnDifference, ...]  # of all columns, those that say most about the domain first
    constant: tuple[str, ...]  # features with one value in all nodes
    empty: dict[str, int]  # features that are zero in all nodes of one domain: how many, by the name of the domain
    one_domain: tuple[OneDomain, ...] = ()  # columns with values of one domain only

    @property
    def leaks(self) -> tuple[ColumnDifference, ...]:
        """Columns that say the same as the domain, where others do not.

        If most do, the domains were measured in different ways, or everything is new, and none is to blame by itself.
        """
        found = tuple(difference for difference in self.differences if difference.says_the_same)
        return found if len(found) <= max(1, len(self.differences) // 2) else ()


def check_columns(graph: NodeGraph, *, seed: int = 0) -> ColumnsCheck:
    """Compare every column with the domain, by itself.

    Args:
        graph: the graph.
        seed: of the nodes that are compared where there are many.
    """
    is_target = graph.is_target
    rng = np.random.default_rng(seed)
    nodes = np.sort(
        np.concatenate([rng.permutation(np.flatnonzero(is_target == side))[:MAX_NODES] for side in (False, True)])
    )
    is_target = is_target[nodes]
    x = graph.x[nodes].tocsc() if sp.issparse(graph.x) else graph.x[nodes]
    auroc = _dense_auroc(x, is_target) if isinstance(x, np.ndarray) else _sparse_auroc(x, is_target)
    means = [np.asarray(x[is_target == side].mean(axis=0, dtype=np.float64)).ravel() for side in (False, True)]
    names = graph.feature_names or tuple(f"feature {k}" for k in range(graph.num_features))
    columns: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        columns[column_of(name, graph.encoding)].append(position)
    count = int(is_target.sum()), int((~is_target).sum())
    deviation = math.sqrt((sum(count) + 1) / (12 * math.prod(count)))  # of the AU-ROC of a column that says nothing
    found = []
    for column, own in columns.items():
        best = own[int(np.argmax(np.abs(auroc[own] - 0.5)))]
        value, feature = auroc[best], names[best]
        state = (graph.encoding or {}).get(column, {})
        if len(own) > 1 and state.get("encoding") == "category" and "separator" not in state:
            value, feature = _category_auroc(x[:, own], is_target), column
        value = float(max(value, 1 - value))
        says_the_same = value >= max(LEAK, 0.5 + MIN_DEVIATIONS * deviation)
        found.append(
            ColumnDifference(column, feature, value, float(means[0][best]), float(means[1][best]), says_the_same)
        )
    lowest, highest = (np.asarray(_extreme(x, largest)).ravel() for largest in (False, True))
    constant = tuple(names[k] for k in np.flatnonzero(lowest == highest))
    zero = [np.asarray(abs(x[is_target == side]).sum(axis=0)).ravel() == 0 for side in (False, True)]
    empty = {
        name: int((own & ~other).sum())
        for name, own, other in (("source", *zero), ("target", *zero[::-1]))
        if (own & ~other).any()
    }
    found.sort(key=lambda difference: -difference.auroc)
    return ColumnsCheck(tuple(found), constant, empty, _of_one_domain(x, is_target, columns, names, graph.encoding))


def _of_one_domain(
    x: Any, is_target: Mask, columns: Mapping[str, list[int]], names: Sequence[str], encoding: Mapping[str, Any] | None
) -> tuple[OneDomain, ...]:
    """Return the columns of numbers or categories with values that occur in one domain only, and not by chance.

    A column of years separates domains by another time, say, although not by its order.
    """
    found = []
    for column, own in columns.items():
        state = (encoding or {}).get(column, {})
        if state.get("encoding") not in ("number", "category"):
            continue
        block = x[:, own] if isinstance(x, np.ndarray) else x[:, own].toarray()
        if state["encoding"] == "number":
            values, code = np.unique(block[:, 0], return_inverse=True)
            has_value: Any = sp.csr_array((np.ones(len(code)), (np.arange(len(code)), code)))
            said = [f"{v:.6g}" for v in values / state["weight"] * state["scale"] + state["mean"] + state["median"]]
        else:
            has_value, said = sp.csr_array(block != 0, dtype=float), [names[k].removeprefix(f"{column}=") for k in own]
        target = has_value.T @ is_target.astype(float)
        count = np.asarray(has_value.sum(axis=0))
        share = is_target.mean()
        alone = [(target == 0) & ((1 - share) ** count <= CHANCE), (target == count) & (share**count <= CHANCE)]
        rows = has_value[~is_target], has_value[is_target]
        source_alone, target_alone = (float((of @ each > 0).mean()) for of, each in zip(rows, alone, strict=True))
        if max(source_alone, target_alone) >= MIN_ALONE:
            most = [k for k in np.argsort(-count, kind="stable") if alone[target_alone >= source_alone][k]]
            found.append(OneDomain(column, source_alone, target_alone, tuple(said[k] for k in most[:EXAMPLES])))
    return tuple(sorted(found, key=lambda each: -max(each.source, each.target)))


def column_of(feature: str, encoding: Mapping[str, Any] | None) -> str:
    """Return the table column that a feature was made of; without a table, the feature itself.

    >>> column_of("colour=red", {"colour": {"encoding": "category"}})
    'colour'
    >>> column_of("a=b", {"a=b": {"encoding": "number"}})
    'a=b'
    """
    if encoding is None or feature in encoding:
        return feature
    ends = [match.start() for match in re.finditer(r"[=:\[]", feature)]
    return next((feature[:end] for end in reversed(ends) if feature[:end] in encoding), feature)


def _extreme(x: Any, largest: bool) -> Any:
    extreme = x.max(axis=0) if largest else x.min(axis=0)
    return extreme if isinstance(extreme, np.ndarray) else extreme.toarray()


def _dense_auroc(x: NDArray[np.float32], is_target: Mask) -> NDArray[np.float64]:
    """Return the AU-ROC of every column: the probability that a target node's value is larger than a source node's."""
    from scipy.stats import rankdata

    positive, negative = is_target.sum(), (~is_target).sum()
    result = np.empty(x.shape[1])
    for begin in range(0, x.shape[1], BLOCK):
        ranks = rankdata(x[:, begin : begin + BLOCK], axis=0)[is_target].sum(axis=0)
        result[begin : begin + BLOCK] = (ranks - positive * (positive + 1) / 2) / (positive * negative)
    return result


def _sparse_auroc(x: Any, is_target: Mask) -> NDArray[np.float64]:
    """Return the AU-ROC of every column by the presence of a value, and by its rank where many nodes have one."""
    present = x != 0
    shares = [np.asarray(present[is_target == side].mean(axis=0)).ravel() for side in (False, True)]
    result = 0.5 + (shares[1] - shares[0]) / 2
    frequent = np.flatnonzero(np.maximum(*shares) >= RANKED_DENSITY)
    if len(frequent):
        result[frequent] = _dense_auroc(x[:, frequent].toarray(), is_target)
    return np.asarray(result)


def _category_auroc(x: Any, is_target: Mask) -> float:
    """Return the AU-ROC of a category column: each node is scored by the target's share of its value."""
    dense = x if isinstance(x, np.ndarray) else x.toarray()
    value = dense.argmax(axis=1)
    count = np.bincount(value, minlength=dense.shape[1])
    share = np.bincount(value, weights=is_target, minlength=dense.shape[1]) / np.maximum(count, 1)
    return float(_dense_auroc(share[value][:, None], is_target)[0])


# From these on a column is far from what was fitted. They are conventions: what a detector bears depends on the graph.
MAX_DEVIATIONS = 1.0  # that the mean of numbers moved
MAX_MOVED = 0.3  # fraction of categories, or of words, that would have to change
MAX_UNKNOWN = 0.1  # fraction of the rows with values that were not seen


@dataclass(frozen=True, eq=False)
class DriftCheck:
    """What the check of new rows found."""

    new: NewNodes
    known: int  # rows that took part in the fit
    compared: bool  # whether the source nodes that new ones are compared with are among the nodes given
    absent: int = 0  # nodes of the fit that are not given
    without_edges: bool = False  # whether the old nodes have no edges here, and had some in the fit

    @property
    def rows_read(self) -> int:
        """The number of rows of the new table."""
        return int(self.new.is_new.sum())

    def far(self) -> dict[str, str]:
        """Say of each column that is far from what was fitted how far it is, the farthest first."""
        found = {name: self._how_far(drift) for name, drift in self.new.features.drift.items()}
        ordered = sorted(found.items(), key=lambda item: -item[1][0])
        return {name: sentence for name, (extent, sentence) in ordered if extent >= 1}

    def _how_far(self, drift: Drift) -> tuple[float, str]:
        """Return how far a column is, against the most that is borne, and that in words."""
        unknown = drift.unknown / max(1, self.rows_read)
        found = [(unknown / MAX_UNKNOWN, f"{percent(unknown)} of the rows hold nothing that was seen before")]
        if drift.deviations is not None:
            found.append((drift.deviations / MAX_DEVIATIONS, f"{drift.deviations:.1f} standard deviations away"))
        if drift.moved is not None:
            found.append((drift.moved / MAX_MOVED, f"{percent(drift.moved)} of its values or words changed"))
        return max(found)

    def rows(self) -> list[tuple[str, str]]:
        """Return the check as a table: what was checked, and what was found."""
        new = self.new
        took_part = f", of which {self.known:,} took part in the fit" if self.known else ""
        rows = [("new nodes", f"{counted(self.rows_read, 'row')}{took_part}.")]
        rows.append(("old nodes", self._old_nodes()))
        if new.unused:
            rows.append(("unused", f"{named(new.unused)}: columns that the model was not fitted with."))
        if new.features.missing:
            filled = tuple(f"{name} ({count:,} rows)" for name, count in new.features.missing.items())
            rows.append(("missing", f"{named(filled)}: filled by what was learned of the old table."))
        unknown = {name: drift.unknown for name, drift in new.features.drift.items() if drift.unknown}
        if unknown:
            shown = tuple(f"{name} ({count:,} rows)" for name, count in unknown.items())
            rows.append(("unknown", f"{named(shown)}: values that were not seen, or texts without a known word."))
        rows.append(("drift", self.sentence()))
        return rows

    def _old_nodes(self) -> str:
        """Say which old nodes were given, and what is missing."""
        new, parts = self.new, []
        if new.old is not None:
            again = f", {new.replaced:,} of them given again and taken from the new table" if new.replaced else ""
            parts.append(f"{counted(new.old, 'node')}{again}.")
        else:
            parts.append("Not given.")
        if new.lost_edges:
            verb = "leads" if new.lost_edges == 1 else "lead"
            parts.append(f"{counted(new.lost_edges, 'edge')} {verb} to nodes that are not given, and cannot be used.")
        if new.old is not None and self.absent:
            verb = "is" if self.absent == 1 else "are"
            parts.append(f"{counted(self.absent, 'node')} of the fit {verb} not given.")
        if self.without_edges:
            parts.append("Their edges, which the fit had, are not given.")
        if new.old is not None and not (new.lost_edges or self.absent or self.without_edges):
            parts.append("Neighbourhoods are complete.")
        if not self.compared:
            parts.append("No source node of the fit is given, so there are no regions and no groups.")
        return " ".join(parts)

    def sentence(self) -> str:
        """Say whether the new table is like the one that was fitted."""
        far = self.far()
        if not far:
            return "No column is far from the table that was fitted."
        shown = named(tuple(f"{name} ({how})" for name, how in far.items()))
        return (
            f"Far from the table that was fitted: {shown}. Scores rely on what was learned there: inspect the columns, "
            "and fit again with the new nodes among the target."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON values."""
        return {
            "rows_read": self.rows_read,
            "took_part": self.known,
            "replaced": self.new.replaced,
            "lost_edges": self.new.lost_edges,
            "unused": list(self.new.unused),
            "missing": dict(self.new.features.missing),
            "drift": {name: asdict(drift) for name, drift in self.new.features.drift.items()},
            "far": self.far(),
            "fit_again": bool(self.far()),
            "sentence": self.sentence(),
            "rows": [list(row) for row in self.rows()],
        }
