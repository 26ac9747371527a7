"""Findings, or the folder of an earlier run -> Result: what a user sees, saves, and goes on with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from recoslip.base.errors import RecoslipError, SettingError
from recoslip.base.files import Kind, printable, put_right
from recoslip.base.settings import Number
from recoslip.base.text import Terms
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import hashes_of, id_hashes
from recoslip.data.options import reads
from recoslip.data.packed.reader import open_packed
from recoslip.inference.analysis import Findings, ListedGroup, SavedCheck, listed_groups, summarise
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.check import Check
from recoslip.inference.columns import DriftCheck
from recoslip.inference.evidence import Bound
from recoslip.inference.feedback import Feedback
from recoslip.inference.novel_share import NovelShare
from recoslip.inference.p_values import check_rates, selected
from recoslip.inference.verdict import Figure, Verdict
from recoslip.learning.base import Detector
from recoslip.pipeline.folder import Format, graph_writers, paths, to_networkx, write
from recoslip.pipeline.report.html import TITLE, Report, preview, saved_report
from recoslip.pipeline.report.payload import payload
from recoslip.pipeline.saved import read_scores, read_summary
from recoslip.pipeline.score import check_new, read_for, score_new

if TYPE_CHECKING:
    import networkx as nx

NO_GRAPH = (
    "this result holds no graph, as it was loaded from a folder or scored without the old nodes: run recoslip.detect "
    "again, or score with old=..."
)
NEW_NODES = "check_before_scoring"  # in the summary of new nodes that were scored


@dataclass(frozen=True, eq=False)
class Result:
    """What `recoslip.detect` found: a verdict, all nodes in a table, groups of the listed ones, and the detector.

    In a notebook it shows itself.
    """

    table: pl.DataFrame = field(repr=False)  # the highest scores first; `Findings.table` has the columns
    summary: Mapping[str, Any] = field(repr=False)  # what summary.json holds
    findings: Findings | None = field(default=None, repr=False)  # None of a loaded result
    model: Calibrated | None = field(default=None, repr=False)  # None: in the folder, if there is one
    folder: Path | None = None  # that it was loaded from
    inputs: tuple[Path, ...] = field(default=(), repr=False)  # files and folders that were read

    @classmethod
    def of(
        cls, findings: Findings, *, seconds: float | None = None, notes: Sequence[str] = (), inputs: Sequence[Path] = ()
    ) -> Result:
        """Build from what was found."""
        summary = summarise(findings) | {"notes": list(notes)}
        if seconds is not None:
            summary["seconds"] = round(seconds, 3)
        return cls(findings.table(), summary, findings, findings.model, inputs=tuple(inputs))

    @property
    def verdict(self) -> Verdict:
        """The verdict: its kind, a sentence, three figures, what to do next, and what it rests on."""
        said = self.summary
        return Verdict(
            said["verdict"],
            said["headline"],
            said["advice"],
            said["supported"],
            said.get("stands_out", said["verdict"] == "novel"),
            said.get("conditions", ""),
            tuple(Figure(**each) for each in said.get("figures", ())),
        )

    @property
    def guarantee(self) -> str:
        """What is promised of the list, and what that rests on."""
        return str(self.summary["guarantee"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done otherwise than asked, and what another effort would bring, in sentences."""
        return tuple(self.summary.get("notes", ()))

    @property
    def novel_share(self) -> NovelShare | None:
        """The fraction of the target nodes that is novel, with an interval; None where the data do not allow for it."""
        share = self.summary.get("novel_share")
        return None if share is None else NovelShare(**share)

    @property
    def check(self) -> Check | SavedCheck:
        """What was found before training."""
        return SavedCheck(self.summary["check"]) if self.findings is None else self.findings.check

    @property
    def listed(self) -> pl.DataFrame:
        """The rows of the table that are listed as novel."""
        return self.table.filter("listed")

    @cached_property
    def groups(self) -> tuple[ListedGroup, ...]:
        """The groups of listed nodes, those with the most evidence of being new first."""
        return listed_groups(self.summary, self.table)

    @cached_property
    def calibrated(self) -> Calibrated:
        """The detector's fits, and what they were calibrated by."""
        if self.model is not None:
            return self.model
        if self.folder is None or not (self.folder / "model").is_dir():
            raise RecoslipError("this result holds no model; give the result of recoslip.detect")
        return Calibrated.load(self.folder / "model")

    def select(self, *, max_fpr: float | None = None, fdr: float | None = None) -> pl.DataFrame:
        """Return the rows of the target nodes that another rate would list.

        Args:
            max_fpr: list nodes with a p-value up to this.
            fdr: list nodes by this false-discovery rate (Benjamini-Hochberg).
        """
        if max_fpr is None and fdr is None:
            raise SettingError("give max_fpr or fdr")
        check_rates(max_fpr, fdr)
        rows = self.table.filter(pl.col("p_value").is_not_null())
        return rows.filter(pl.Series(selected(rows["p_value"].to_numpy(), max_fpr, fdr)))

    def bound(self, ids: Sequence[Any], *, max_growth: float | None = None) -> Bound:
        """Bound how many of some target nodes are new, whichever you choose: the bound holds for all choices at once.

        It needs the graph, which a result that was loaded from a folder does not hold.

        Args:
            ids: of the nodes; source nodes do not count.
            max_growth: how many times as frequent a known category may have become; by default what the verdict allows.
        """
        findings = self._findings()
        if isinstance(ids, str) or not hasattr(ids, "__iter__") or hasattr(ids, "columns"):
            raise SettingError(f"ids must be a list of ids; got {type(ids).__name__}, such as result.listed['id']")
        ids = list(ids)
        if max_growth is not None:
            Number(1, 1e6)("max_growth", max_growth)
        if not self.verdict.supported:
            raise RecoslipError(f"no bound holds for these data: {self.verdict.sentence}")
        own, wanted = hashes_of(findings.graph), id_hashes(ids)
        unknown = np.flatnonzero(~np.isin(wanted, own))
        if len(unknown):
            raise SettingError(
                f"ids must name nodes of the graph; {len(unknown):,} of {len(ids):,} do not (first: "
                f"{ids[int(unknown[0])]!r})"
            )
        share = findings.novel_share
        return findings.bins.bound(np.isin(own, wanted), share.max_growth if max_growth is None else max_growth)

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        title: str | None = None,
        show: Sequence[str] | None = None,
        image_shape: tuple[int, int] | None = None,
    ) -> Report:
        """Return the report, which shows itself in a notebook, and write it to a file if one is given.

        Args:
            path: file to write; it must not exist, unless this process wrote it.
            title: of the report.
            show: the kept columns to show; by default all of them.
            image_shape: rows and columns, if a node's features are the pixels of an image.
        """
        if self.findings is not None:
            made = Report(payload(self.findings, title=title or TITLE, show=show, image_shape=image_shape))
        elif title is not None or show is not None or image_shape is not None:
            raise RecoslipError(f"title, show and image_shape are chosen when the report is made, and {NO_GRAPH}")
        else:
            made = saved_report(self.folder)
        if path is not None:
            made.save(path)
        return made

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        replace: bool = False,
        table: Format = "csv",
        graph: str | None = None,
        report: Report | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write table, summary, model and report into a folder, which appears complete or not at all.

        Args:
            folder: to write; it must not exist, or be empty.
            replace: whether an earlier result may be replaced, in a folder that holds nothing else and no input.
            table: "csv" or "parquet".
            graph: also write the graph with scores as attributes of its nodes: "graphml" or "gexf".
            report: by default the one that `report()` makes.
            more: further files by name, and the function that writes each to an open binary file.
        """
        if self.findings is None and self.folder is not None:
            raise RecoslipError(f"this result lies in {printable(self.folder)} already; copy that folder")
        writers = dict(more or {}) | (graph_writers(self._findings(), graph) if graph else {})
        made = report or (None if self.findings is None else self.report())
        kind: Kind = "scores" if NEW_NODES in self.summary else "result"
        return write(
            folder,
            kind,
            self.table,
            self.summary,
            self.model,
            made,
            table_format=table,
            replace=replace,
            inputs=self.inputs,
            more=writers,
        )

    def score(self, nodes: Any, edges: Any = None, **options: Any) -> Result:
        """Score new rows with the same model; the arguments are those of `recoslip.score`."""
        return score(self, nodes, edges, **options)

    def learn(self, confirmed: Sequence[Any], rejected: Sequence[Any]) -> pl.DataFrame:
        """Return the table with scores that take decisions on some target nodes into account; the list stays.

        It needs the graph, as `bound` does.

        Args:
            confirmed: ids of target nodes that are novel.
            rejected: ids of target nodes that are known.
        """
        learned = Feedback(self.calibrated, confirmed, rejected).scores()
        ids = pl.Series("id", self._ids(), dtype=self.table["id"].dtype)
        scores = pl.DataFrame({"id": ids, "score": learned})
        table = self.table.drop("score").join(scores, on="id", maintain_order="left")
        return table.select(self.table.columns).sort(["domain", "score"], descending=True, maintain_order=True)

    def suggest(self, confirmed: Sequence[Any], rejected: Sequence[Any], count: int = 20) -> list[Any]:
        """Return the ids of the target nodes whose decisions would teach `learn` most."""
        ids = self._ids()
        return [ids[position] for position in Feedback(self.calibrated, confirmed, rejected).queue(count)]

    def _ids(self) -> list[Any]:
        """Return the ids in the graph's order."""
        return list(self._findings().graph.ids.tolist())

    def _findings(self) -> Findings:
        if self.findings is None:
            raise RecoslipError(NO_GRAPH)
        return self.findings

    def to_networkx(self) -> nx.Graph:
        """Return the graph with domain, score, p_value, listed, group and kept columns as attributes of its nodes."""
        return to_networkx(self._findings())

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is said of the run, as JSON values."""
        return dict(self.summary)

    def __repr__(self) -> str:
        return f"Result({self.verdict.kind}: {self.verdict.sentence})"

    def _repr_html_(self) -> str:
        said = (self.verdict.sentence, self.verdict.advice, self.guarantee, *self.notes)
        return preview(said, self.table, self.folder)


def load(folder: str | os.PathLike[str]) -> Result:
    """Read what `Result.save`, or the commands detect, demo and score, wrote into a folder."""
    path = Path(folder).expanduser()
    if (path / "model.json").exists() and not (path / "summary.json").exists():
        raise RecoslipError(f"{printable(folder)} holds a detector and no result; recoslip.load_detector reads it")
    return Result(read_scores(path), read_summary(path), folder=path)


@reads("id", "edge_from", "edge_to", "weight", "drop_unknown", "impute", "label", "keep", "encoding")
def score(
    result: Result | Calibrated | Detector | str | os.PathLike[str],
    nodes: Any,
    edges: Any = None,
    *,
    old: NodeGraph | str | os.PathLike[str] | tuple[Any, Any] | None = None,
    rename: Mapping[str, str] | None = None,
    max_fpr: float | None = None,
    fdr: float | None = None,
    groups: bool = True,
    device: str | None = None,
    checked: Callable[[DriftCheck], None] | None = None,
    **read_options: Any,
) -> Result:
    """Score new rows with a model that was fitted before. Columns are encoded as those of the table it was fitted on.

    With old nodes the new ones are analysed as the target of the graph that was fitted: what was target then counts as
    neighbours alone, unless it is among the new rows. Without old nodes there are scores, p-values and a list, and no
    statistical guarantee.

    Args:
        result: what `recoslip.detect` or `recoslip.calibrate` returned, a fitted detector, or the folder of one.
        nodes: table of the new nodes; it needs no domain.
        edges: table of their edges, to each other and to old nodes.
        old: the old nodes, so that neighbourhoods are complete: tables of nodes and of edges (or None), a table of
            nodes without edges, a packed graph or its folder.
        rename: names of the new table's columns -> the names that the model knows them by.
        max_fpr: another false-positive rate than the model's.
        fdr: list nodes by this false-discovery rate instead.
        groups: whether to divide the listed nodes into groups.
        device: to score on: "auto", "cpu" or "cuda".
        checked: called with the differences between the new and the old table before anything is scored.
    """
    check_rates(max_fpr, fdr)
    model, summary = _calibrated(result, max_fpr=max_fpr, device=device), _said(result)
    if (own := _id_column(summary)) is not None:
        read_options.setdefault("id", own)
    if isinstance(old, str | os.PathLike) and Path(old).is_file():
        old = old, None
    if isinstance(old, tuple):
        old_nodes, old_edges = old
    else:
        old_nodes, old_edges = open_packed(old) if isinstance(old, str | os.PathLike) else old, None
    new = read_for(model, nodes, edges, old_nodes=old_nodes, old_edges=old_edges, rename=rename, **read_options)
    terms = Terms(**summary["terms"]) if "terms" in summary else new.graph.terms
    new = replace(new, graph=new.graph.called(terms if terms.by_time else Terms(terms.source, "new", terms.noun)))
    check = check_new(model, new)
    if checked is not None:
        checked(check)
    inputs = paths(getattr(result, "folder", result), nodes, edges, *(old if isinstance(old, tuple) else (old,)))
    return Result(*score_new(model, new, check, fdr=fdr, grouped=groups), inputs=inputs)


def _said(result: Any) -> dict[str, Any]:
    """Return the summary of a result; nothing for a model without one."""
    if isinstance(result, str | os.PathLike):
        folder = Path(result).expanduser()
        return read_summary(folder) if (folder / "summary.json").exists() else {}
    return dict(result.summary) if isinstance(result, Result) else {}


def _id_column(summary: Mapping[str, Any]) -> str | None:
    """Return the column that held the ids of the table that was read; None where rows were numbered."""
    reading = summary.get("check", {}).get("reading") or ()
    return next((each["column"] for each in reading if each["read_as"] == "id"), None)


def _calibrated(result: Any, *, max_fpr: float | None, device: str | None) -> Calibrated:
    """Return what a result was calibrated by, with other settings where they are given."""
    changed = {name: value for name, value in (("max_fpr", max_fpr), ("device", device)) if value is not None}
    if isinstance(result, str | os.PathLike):
        folder = Path(result).expanduser()
        put_right(folder)
        own = folder if (folder / "model.json").exists() or not (folder / "model").is_dir() else folder / "model"
        return Calibrated.load(own, **changed)
    model = result.calibrated if isinstance(result, Result) else result
    model = Calibrated.uncalibrated(model) if isinstance(model, Detector) else model
    if not isinstance(model, Calibrated):
        raise SettingError(f"expected a Result, a Calibrated, a Detector or a folder; got {type(result).__name__}")
    return model.with_settings(**changed) if changed else model
