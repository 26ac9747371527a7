"""Tables or a graph -> Result: what is done, in its order."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.base import clone

from recoslip.base.errors import SettingError
from recoslip.base.memory import memory_errors
from recoslip.base.progress import Progress, shown
from recoslip.base.settings import Choice, Integer, Number, Optional, check_params
from recoslip.data.graph import NodeGraph
from recoslip.data.options import reads
from recoslip.data.packed.reader import open_packed
from recoslip.data.split import can_calibrate
from recoslip.data.tables.cells import described_by_genes, open_if_cells
from recoslip.data.tables.read import read_graph
from recoslip.inference.analysis import find_novel
from recoslip.inference.calibrated import MAX_FPR, Calibrated, calibrate
from recoslip.inference.check import Align, Check, check_align, check_graph, refuse_leaks
from recoslip.inference.p_values import check_rates, reachable_rate
from recoslip.learning.base import Detector
from recoslip.learning.methods import AUTO, DEFAULT, EFFORTS, Effort, detector
from recoslip.pipeline.folder import paths
from recoslip.pipeline.result import Result

log = logging.getLogger("recoslip")

OTHER_EFFORT = (
    "effort='thorough' also trains networks, which takes minutes. Its mean AU-ROC was 0.92 where that of the scan was "
    "0.89, on three test cases."
)


@reads()
def read(nodes: Any, edges: Any = None, *, use_rep: str | None = None, **read: Any) -> NodeGraph:
    """Read a graph in any form: tables, a graph file, a graph of another library, or the folder of a packed graph.

    Args:
        nodes: what `recoslip.read_graph` takes, the folder of a packed graph, or a NodeGraph, which is returned.
        edges: table of edges, where the nodes are a table.
        use_rep: of AnnData, as for `recoslip.read_graph`.
    """
    is_packed = isinstance(nodes, str | Path) and Path(nodes).is_dir()
    if not is_packed and not isinstance(nodes, NodeGraph):
        return read_graph(nodes, edges, use_rep=use_rep, **read)
    kind = "a packed graph" if is_packed else "a NodeGraph"
    if edges is not None:
        raise SettingError(f"{kind} has its own edges; got edges={edges!r}, leave them out")
    if read:
        remedy = "pack again" if is_packed else "build the graph"
        raise SettingError(
            f"{next(iter(read))} is about reading tables, and {kind} was read before; leave it out, or {remedy} with it"
        )
    return open_packed(nodes) if is_packed else nodes


@reads()
@memory_errors()
def check(
    nodes: Any, edges: Any = None, *, align: Align = "auto", use_rep: str | None = None, **read_options: Any
) -> Check:
    """Check a graph before anything is trained: columns that leak the domain, and how far source and target differ.

    It takes seconds. `detect` does the same first.

    Args:
        nodes: table of nodes, a graph in any form that `detect` takes, or a NodeGraph.
        edges: table of edges.
        align: whether to bring the target's features to the source's location and scale: "off", "on", or "auto", where
            source and target are separable, and not after it. "auto" also leaves out the edges where that helps.
        use_rep: of AnnData, as for `detect`.
    """
    return check_graph(read(nodes, edges, use_rep=use_rep, **read_options), align=align)


@reads()
@memory_errors()
def detect(
    nodes: Any,
    edges: Any = None,
    *,
    effort: Effort | None = None,
    method: str | Detector | None = None,
    settings: Mapping[str, Any] | None = None,
    max_fpr: float | None = None,
    fdr: float | None = None,
    rotations: int | None = None,
    max_growth: float | None = None,
    align: Align = "auto",
    allow_leak: Sequence[str] = (),
    groups: bool = True,
    described_by: NodeGraph | None = None,
    use_rep: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    executor: Callable[..., Calibrated] | None = None,
    checked: Callable[[Check], None] | None = None,
    progress: Progress | bool = True,
    **read_options: Any,
) -> Result:
    """Find the target nodes of categories that the source does not have.

    It reads the graph, checks it, fits the method, and says what follows: `result.verdict`, `result.table`,
    `result.groups`, `result.report("report.html")`. Nothing is written before `result.save("out")`.

    Args:
        nodes: table of nodes (a file, or a data frame of polars or pandas), a graph (a file, or an object of NetworkX,
            igraph, PyTorch Geometric or AnnData), the folder of a packed graph, or a NodeGraph.
        edges: table of edges; without it, a table of nodes is a graph without edges.
        effort: "quick", the default, is the scan, which takes seconds and trains no network; "thorough" adds the
            networks of RECO-SLIP+, which take minutes. Where source and target are separable and no edges join them,
            nodes are ranked by their distance to the source instead.
        method: instead of effort, the name of a method, or a detector, which is copied and not changed.
        settings: of the method that is named, such as {"epochs": 500}.
        max_fpr: fraction of the known target nodes that may be listed; by default 0.01.
        fdr: list nodes by this false-discovery rate, instead of `max_fpr`.
        rotations: how many times to fit; each fit hides another part of the source, to compare with. By default 5, or
            12 fits of the scan where the domains follow the edges.
        max_growth: how many times as frequent a known category may have become, for the verdict and the lower end of
            the novel share; by default 3, or as much as clusters of known nodes seem to have grown.
        align: as for `check`.
        allow_leak: columns that may say the same as the domain; any other such column is an error.
        groups: whether to divide the listed nodes into groups.
        described_by: the same nodes with the features that groups are described by, such as genes of cells whose
            features are principal components. For AnnData it is made of the genes.
        use_rep: of AnnData, the representation that is taken for features; see `recoslip.read_graph`.
        seed: of what is drawn at random.
        device: to train networks on: "auto", "cpu" or "cuda".
        executor: called as `executor(detector, graph, rotations=..., max_fpr=..., progress=...)` instead of
            `recoslip.calibrate`, to fit elsewhere; of a packed graph, `graph` is its folder.
        checked: called with the result of the check before training.
        progress: whether to show progress in a terminal or a notebook; or what is called with steps done and in all.
    """
    if method is not None and effort is not None:
        raise SettingError(f"effort is of the default and method names another; got {effort=} and {method=}, give one")
    model = _build(_of_effort(effort) if method in (None, AUTO) else method, settings, max_fpr, seed, device)
    check_align(align)
    check_rates(max_fpr, fdr)
    if max_growth is not None:
        Number(1, 1e6)("max_growth", max_growth)
    if rotations is not None:
        Integer(2)("rotations", rotations)
    cells = open_if_cells(nodes)
    given = read(nodes if cells is None else cells, edges, use_rep=use_rep, **read_options)
    found = check_graph(given, align=align)
    if checked is not None:
        checked(found)
    refuse_leaks(found, allow_leak)
    if method in (None, AUTO) and found.method != DEFAULT:
        model = _replacement(found, model, settings or {})
    graph = found.prepared
    asked, sources = MAX_FPR if max_fpr is None else float(max_fpr), int((~graph.is_target).sum())
    fits_once = rotations is None and not can_calibrate(graph)
    rate, notes = (asked, ()) if fits_once else reachable_rate(sources, asked, fdr, graph.terms)
    if notes:
        log.info(notes[0])
    with shown("fitting", "steps", progress) as steps:
        start = time.perf_counter()
        if fits_once:
            calibrated = Calibrated.uncalibrated(clone(model).fit(graph, progress=steps)).with_settings(max_fpr=rate)
        elif executor is None:
            calibrated = calibrate(model, graph, rotations=rotations, max_fpr=rate, progress=steps)
        else:
            on_disk = isinstance(nodes, str | Path) and Path(nodes).is_dir() and graph is given
            place = Path(nodes) if on_disk else graph
            calibrated = executor(model, place, rotations=rotations, max_fpr=rate, progress=steps)
    seconds = time.perf_counter() - start
    compared = int(calibrated.calibration.sum())
    if calibrated.is_calibrated and compared < sources:  # parts that follow the edges may leave out a few
        rate, notes = reachable_rate(compared, asked, fdr, graph.terms)
        calibrated = replace(calibrated, max_fpr=rate)
    described = described_by_genes(cells, graph) if described_by is None and cells is not None else described_by
    findings = find_novel(
        calibrated, graph, fdr=fdr, max_growth=max_growth, grouped=groups, check=found, described=described
    )
    if method in (None, AUTO) and model.name == DEFAULT:
        notes = (*notes, OTHER_EFFORT)
    elif model.name not in EFFORTS.values():
        notes = (
            *notes,
            f"The verdict rests on counts of similar {graph.terms.noun}; {model.name} makes the list.",
        )
    return Result.of(findings, seconds=seconds, notes=notes, inputs=paths(nodes, edges))


def analyse(
    model: Calibrated | Detector,
    graph: NodeGraph,
    *,
    fdr: float | None = None,
    groups: bool = True,
    check: Check | None = None,
    described_by: NodeGraph | None = None,
) -> Result:
    """Return the result of a method that is fitted already; `detect` does this after a fit of its own.

    Args:
        model: what `recoslip.calibrate` returned; or a fitted detector, whose list has no guarantee.
        graph: the graph that it was fitted on, or another that has source nodes of that one.
        fdr: list nodes by this false-discovery rate; without it, by the model's `max_fpr`.
        groups: whether to divide the listed nodes into groups.
        check: what `recoslip.check` returned, if `graph` is its `prepared`; without it, the graph is checked as it is.
        described_by: as for `detect`.
    """
    calibrated = model if isinstance(model, Calibrated) else Calibrated.uncalibrated(model)
    return Result.of(find_novel(calibrated, graph, fdr=fdr, grouped=groups, check=check, described=described_by))


def _of_effort(effort: str | None) -> str:
    """Return the name of the method that an effort stands for."""
    Optional(Choice(Effort))("effort", effort)
    return EFFORTS[effort or "quick"]


def _build(
    method: str | Detector,
    settings: Mapping[str, Any] | None,
    max_fpr: float | None,
    seed: int | None,
    device: str | None,
) -> Detector:
    """Return an unfitted detector of the caller's own, with the settings that were given."""
    if not isinstance(method, str | Detector):
        raise SettingError(f"method must be a name or a detector, such as recoslip.Scan(); got {method!r:.80}")
    if isinstance(method, Detector) and settings:
        raise SettingError("settings go with the name of a method; this detector has its own, leave them out")
    model: Detector = clone(method) if isinstance(method, Detector) else detector(method, **dict(settings or {}))
    own = {"max_fpr": max_fpr, "random_state": seed, "device": device}
    model.set_params(**{name: own[name] for name in own.keys() & model.get_params().keys() if own[name] is not None})
    check_params(model)
    return model


def _replacement(found: Check, model: Detector, settings: Mapping[str, Any]) -> Detector:
    """Return the method that the check chose instead of the default, with all settings that were given."""
    kept = {"device": model.device, "random_state": model.random_state}
    try:
        return detector(found.method, **(kept | dict(settings)))
    except SettingError as problem:
        raise SettingError(
            f"source and target are separable, so that {found.method} is taken instead of {model.name}, and {problem}; "
            f"leave the setting out, or give method={model.name!r}"
        ) from problem
