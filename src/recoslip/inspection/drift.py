"""New rows, as an encoder read them -> a check before scoring: what differs from the table that was fitted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from recoslip.tables.column_encoders import Drift
from recoslip.tables.new_nodes import NewNodes
from recoslip.wording import counted, named, percent

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
