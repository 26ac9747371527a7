"""The command `detect`: tables or a packed graph -> a folder with scores, summary, model and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from recoslip.cli.check import input_files, look_at, read, refuse_leaks
from recoslip.cli.method_settings import parse_settings, print_settings_of_methods, read_settings_file
from recoslip.cli.options import (
    AlignOption,
    AllowLeak,
    BlockWeights,
    DomainColumn,
    DropUnknown,
    EdgeFeatures,
    EncodingName,
    Features,
    Force,
    IdColumn,
    Ignore,
    Impute,
    Json,
    Keep,
    Label,
    NodeType,
    Quiet,
    RelationColumn,
    Scored,
    ScoresFormat,
    Show,
    Since,
    SourceColumn,
    TargetColumn,
    TargetValue,
    TextColumns,
    TimeColumn,
    WeightColumn,
    WriteGraph,
    check_format,
)
from recoslip.cli.page import check_shown, make_page
from recoslip.cli.printing import print_look, print_most_novel, print_outcome, print_training
from recoslip.cli.training import fit, fit_on_cluster
from recoslip.console.messages import make_console
from recoslip.console.option_values import split_names
from recoslip.detectors.catalogue import AUTO, DEFAULT

if TYPE_CHECKING:
    from rich.console import Console

    from recoslip.detectors.base import Detector
    from recoslip.findings.analysis import Findings
    from recoslip.graph import NodeGraph
    from recoslip.inspection.check import Check


class DetectCommand(TyperCommand):
    """A command that takes the settings of every method as options, which its help looks up when it is shown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set aside options that the command does not declare, with their values; they are settings of the method."""
        declared = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        own, settings, remaining = [], [], iter(args)
        for argument in remaining:
            name, has_value, _ = argument.partition("=")
            if argument == "--":
                own += [argument, *remaining]
            elif name.startswith("--") and name not in {*declared, "--help"}:
                settings += (
                    [argument] if has_value else [argument, *([value] if (value := next(remaining, "")) else [])]
                )
            else:
                own.append(argument)
        super().parse_args(ctx, own)
        ctx.args = settings + ctx.args
        return list(ctx.args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        super().format_help(ctx, formatter)
        print_settings_of_methods()


def detect(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write the results to.")],
    graph_files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="GRAPH | NODES [EDGES]",
            help="A graph (.graphml, .gexf, .gml, .pt of PyTorch Geometric), cells (.h5ad), the folder of a packed "
            "graph, or a table of nodes (.csv, .tsv, .parquet, .arrow, .xlsx) and one of edges.",
            show_default=False,
        ),
    ] = None,
    nodes_option: Annotated[
        Path | None, typer.Option("--nodes", help="The table of nodes, instead of the first argument.")
    ] = None,
    edges_option: Annotated[
        Path | None,
        typer.Option("--edges", help="The table of edges, instead of the second; without any the graph has none."),
    ] = None,
    id_column: IdColumn = "id",
    domain: DomainColumn = "domain",
    target_value: TargetValue = None,
    time_column: TimeColumn = None,
    since: Since = None,
    features: Features = None,
    ignore: Ignore = "",
    text: TextColumns = "",
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    weight: WeightColumn = None,
    relation: RelationColumn = None,
    edge_features: EdgeFeatures = "",
    node_type: NodeType = None,
    scored: Scored = None,
    drop_unknown: DropUnknown = False,
    impute: Impute = False,
    encoding: EncodingName = None,
    block_weights: BlockWeights = "",
    label: Label = None,
    show: Show = "",
    keep: Keep = "",
    align: AlignOption = "auto",
    allow_leak: AllowLeak = "",
    method: Annotated[
        str,
        typer.Option(
            help=f"Name of the method; recoslip methods lists them. {AUTO} means {DEFAULT}, or nearest-source where "
            "source and target are worlds apart."
        ),
    ] = AUTO,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings of the method.")] = None,
    fdr: Annotated[
        float | None, typer.Option(help="List nodes by this false-discovery rate instead of --max-fpr.")
    ] = None,
    calibration: Annotated[
        float | None,
        typer.Option(help="Fit once, with this fraction of the source nodes to calibrate p-values with; 0 for none."),
    ] = None,
    rotations: Annotated[
        int | None,
        typer.Option(help="Fit so many times, until every source node has calibrated p-values once; default: 5."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster to train on; auto: the running one, local: start one here."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of processes of the cluster that train.")] = 2,
    storage: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints that all machines of the cluster can access.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the initial weights, dropout and the split.")] = None,
    device: Annotated[str | None, typer.Option(help="Device to train on: auto, cpu or cuda.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    force: Force = False,
    table_format: ScoresFormat = "csv",
    write_graph: WriteGraph = None,
) -> None:
    """Score the nodes of your own graph.

    Every setting of the method is an option too, such as --epochs 500 or --recall-targets 0.02,0.05.
    """
    from recoslip import output
    from recoslip.detectors.params import Number, Whole
    from recoslip.errors import SettingError
    from recoslip.graph_files import FORMATS, check_graph_format, graph_writers
    from recoslip.shift import default_rotations
    from recoslip.storage import output_lock, printable

    console = make_console(quiet or as_json)
    nodes, edges = input_files(graph_files, nodes_option, edges_option)
    detector = _build_detector(context, method, config, random_state=seed, device=device)
    scores_format = check_format(table_format)
    graph_formats = check_graph_format(write_graph or (own if (own := nodes.suffix[1:].lower()) in FORMATS else None))
    if fdr is not None:
        Number(0, 1, open_ends=True)("fdr", fdr)
    if calibration is not None:
        Number(0, 0.9)("calibration", calibration)
    if rotations is not None:
        Whole(2)("rotations", rotations)
        if calibration is not None:
            raise SettingError("give --calibration, to fit once, or --rotations, to fit several times; not both")
    with output_lock(out):
        output.check_folder(out, replace=force)  # before anything is read
        graph = read(nodes, edges, context)
        check_shown(graph, show)
        console.print(escape(repr(graph)))
        look = look_at(graph, align)
        print_look(look.rows(), console)
        refuse_leaks(look, allow_leak)
        if method == AUTO and look.method != detector.name:
            detector = _replaced(detector, look.method)
        graph = look.prepared
        with output.reserved(out, graph, replace=force) as write:
            fits = 1 if calibration is not None else default_rotations(graph) if rotations is None else rotations
            _check_level(detector, graph, calibration, fdr, console)
            if ray is None:
                fitted, seconds = fit(detector, graph, None, calibration or 0.0, fits, console)
            else:
                shared = nodes if nodes.is_dir() and look.remedy is None else graph
                fitted, seconds = fit_on_cluster(
                    detector,
                    shared,
                    calibration or 0.0,
                    fits,
                    console,
                    address=ray,
                    workers=workers,
                    storage=storage,
                )
            findings, more = _analyse(fitted, look, fdr, nodes)
            more |= graph_writers(findings, graph_formats)
            summary = output.summarise(findings, seconds)
            page_title = title or f"What is new in {printable(nodes.name)}"
            page = make_page(findings, page_title, console, show=split_names(show))
            write(findings, summary, page, scores_format, more)
    if as_json:
        print(json.dumps(summary))
        return
    print_training(fitted, console)
    print_most_novel(findings.table().head(10), console)
    print_outcome(summary, out, console, has_page=True, more=more)


def _analyse(
    fitted: Detector, look: Check, fdr: float | None, nodes: Path
) -> tuple[Findings, dict[str, Callable[[Path], None]]]:
    """Turn scores into findings; of cells, described by their genes, and with a file of annotated cells to write."""
    if nodes.suffix.lower() != ".h5ad":
        from recoslip.findings.analysis import analyse

        return analyse(fitted, look.prepared, fdr=fdr, look=look), {}
    from recoslip import cells
    from recoslip.tables.cells import open_cells

    adata = open_cells(nodes)
    findings = cells.analyse_cells(adata, fitted, look, fdr=fdr)
    cells.annotate(adata, findings)
    return findings, {"cells.h5ad": lambda path: cells.write_annotated(nodes, adata, path)}


def _build_detector(context: typer.Context, method: str, config: Path | None, **options: Any) -> Detector:
    """Build the detector: options go before arguments that are settings, and those before the file."""
    from recoslip.detectors.registry import detector

    declared = [name for parameter in context.command.params for name in parameter.opts]
    settings = read_settings_file(config) | parse_settings(method, context.args, declared)
    result = detector(method, **settings | {name: value for name, value in options.items() if value is not None})
    result.check_params()
    return result


def _replaced(model: Detector, method: str) -> Detector:
    """Return another method with the settings that every method has."""
    from recoslip.detectors.registry import detector

    return detector(method, max_fpr=model.max_fpr, device=model.device, random_state=model.random_state)


def _check_level(
    detector: Detector, graph: NodeGraph, calibration: float | None, fdr: float | None, console: Console
) -> None:
    """Say, before training, if calibration nodes are too few for the rate that was asked for.

    `max_fpr` is raised to the lowest rate that they can promise; a false-discovery rate is left as it is.
    """
    count = int((1 if calibration is None else calibration) * int((~graph.is_target).sum()))
    lowest, asked = 1 / (count + 1), detector.max_fpr if fdr is None else fdr
    if count <= 2 or asked >= lowest:
        return
    rate = "false-positive" if fdr is None else "false-discovery"
    remedy = (
        f"the list is made by {100 * lowest:.3g} %, the lowest that they can"
        if fdr is None
        else f"nothing can be listed below {100 * lowest:.3g} %: give a higher --fdr, or --max-fpr instead of it"
    )
    console.print(
        f"[yellow]note:[/] {count} source nodes to compare with cannot promise a {rate} rate of {100 * asked:.3g} %; "
        f"{remedy}.",
        soft_wrap=True,
    )
    if fdr is None:
        detector.set_params(max_fpr=lowest)
