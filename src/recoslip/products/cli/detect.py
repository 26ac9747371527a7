"""The commands `detect`, `check`, `score` and `demo`: options -> calls of the pipeline -> console and folder."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from recoslip.base.errors import NoDomainError, SettingError, nearest
from recoslip.base.files import printable
from recoslip.learning.methods import AUTO, EFFORTS, Effort
from recoslip.products.cli import options
from recoslip.products.cli.console import ask_for_domain, make_console, print_check, print_result, say, show_steps
from recoslip.products.cli.options import argument, option, split_names, takes

NO_EDGES = "-"  # in place of a table of old edges
INPUTS = (
    "A graph (.graphml, .gexf, .gml, .pt of PyTorch Geometric), cells (.h5ad), the folder of a packed graph, or a "
    "table of nodes (.csv, .tsv, .parquet, .arrow, .xlsx) and one of edges."
)
Inputs = Annotated[list[Path] | None, argument(INPUTS, metavar="GRAPH | NODES [EDGES]", show_default=False)]


class DetectCommand(TyperCommand):
    """A command that takes the settings of every method as options, which its help looks up when it is shown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set aside options that the command does not declare, with their values; they are settings of the method."""
        declared = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        own, settings, remaining = [], [], iter(args)
        for given in remaining:
            name, has_value, _ = given.partition("=")
            if given == "--":
                own += [given, *remaining]
            elif name.startswith("--") and name not in {*declared, "--help"}:
                settings += [given] if has_value else [given, *filter(None, [next(remaining, "")])]
            else:
                own.append(given)
        super().parse_args(ctx, own)
        ctx.args = settings + ctx.args
        return list(ctx.args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        super().format_help(ctx, formatter)
        options.print_settings_of_methods()


class ScoreCommand(TyperCommand):
    """A command of which `--with` takes one table or two."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say that there are no edges where a table of nodes is given alone."""
        if "--with" in args and (at := args.index("--with") + 2) <= len(args):
            alone = at == len(args) or (args[at].startswith("-") and args[at] != NO_EDGES)
            args = [*args[:at], NO_EDGES, *args[at:]] if alone else args
        return list(super().parse_args(ctx, args))


def input_files(given: list[Path] | None) -> tuple[Path, Path | None]:
    """Return the files that are given: nodes or a whole graph, and perhaps edges."""
    if not given:
        raise SettingError("no graph was given: recoslip detect graph.graphml, or recoslip detect nodes.csv edges.csv")
    if len(given) > 2:
        raise SettingError(f"a graph is one file or two, nodes and edges; {str(given[2])!r} is one too many")
    return given[0], given[1] if len(given) > 1 else None


@takes()
def check(
    graph: Inputs = None,
    align: options.Align = "auto",
    allow_leak: options.AllowLeak = "",
    use_rep: options.UseRep = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Check a graph before anything is trained: its columns, and how far source and target differ.

    It ends with code 2 if a column says the same as the domain.
    """
    from recoslip.inference.check import refuse_leaks
    from recoslip.pipeline.detect import check as check_graph

    nodes, edges = input_files(graph)
    found = check_graph(nodes, edges, align=align, use_rep=use_rep, **read)
    if as_json:
        print(json.dumps(found.to_dict()))
    else:
        print_check(found.rows(), make_console(quiet))
    refuse_leaks(found, split_names(allow_leak))


@takes()
def detect(
    context: typer.Context,
    graph: Inputs = None,
    out: options.Out = Path("recoslip-out"),
    show: options.Show = "",
    align: options.Align = "auto",
    allow_leak: options.AllowLeak = "",
    effort: Annotated[
        Effort | None, option("quick: counts similar nodes, in seconds; thorough: networks too; default: quick.")
    ] = None,
    method: Annotated[str | None, option("Name of a method, instead of --effort; recoslip methods lists them.")] = None,
    config: Annotated[Path | None, option("TOML file with settings of the method.")] = None,
    max_fpr: options.MaxFpr = None,
    fdr: options.Fdr = None,
    rotations: Annotated[int | None, option("Number of fits, each with another hidden part; default: 5.")] = None,
    max_growth: Annotated[
        float | None, option("Times a known category may have grown, for the verdict; default: 3, or as measured.")
    ] = None,
    ray: Annotated[str | None, option("Ray cluster that fits: an address, auto, or local to start one.")] = None,
    workers: Annotated[int, option("Number of fits that the cluster does at the same time.")] = 2,
    storage: Annotated[Path | None, option("Folder of finished fits of the cluster, not done again.")] = None,
    use_rep: options.UseRep = None,
    title: options.Title = None,
    seed: Annotated[int | None, option("Seed of what is drawn at random; default: 0.")] = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    force: options.Force = False,
    table_format: options.ScoresFormat = "csv",
    write_graph: Annotated[
        Literal["graphml", "gexf"] | None,
        option("Also write the graph with scores as attributes of its nodes; default: as it came."),
    ] = None,
    *,
    read: dict[str, Any],
) -> None:
    """Find the target nodes of your own graph whose categories the source does not have.

    Every setting of the method is an option too, such as --epochs 500 or --recall-targets 0.02,0.05.
    """
    console = make_console(quiet or as_json)
    nodes, edges = input_files(graph)
    given = f"The graph: {printable(nodes)}" + ("" if edges is None else f" and {printable(edges)}")
    say(console, given, "dim")  # before libraries are imported, which takes a second

    from recoslip.pipeline.detect import detect as run
    from recoslip.pipeline.folder import GRAPH_FORMATS, check_folder, reserved

    declared = [name for parameter in context.command.params for name in parameter.opts]
    chosen, columns = method or EFFORTS.get(effort or "", AUTO), split_names(show)
    settings = options.read_settings_file(config) | options.parse_settings(chosen, context.args, declared)
    in_file = settings.pop("max_fpr", None)  # a setting of the list, not of the method
    graph_format = write_graph or (own if (own := nodes.suffix[1:].lower()) in GRAPH_FORMATS else None)

    def print_and_reserve(found: Any) -> None:
        """Print the graph and how it was read; raise if a column cannot be shown, or the disk is too small."""
        if missing := [name for name in columns if name not in (known := found.graph.columns)]:
            raise SettingError(
                f"--show {missing[0]}: the graph was packed without this column{nearest(missing[0], list(known))}; it "
                f"has {', '.join(known) or 'none'}; pack again with --show"
            )
        check_folder(out, "result", replace=force, nodes=found.graph.num_nodes)
        say(console, repr(found.graph), "dim")
        print_check([row for row in found.rows() if row[0] in READ], console)

    def fit(**asked: Any) -> Any:
        with show_steps(console, "fitting", "steps") as progress:
            return run(
                nodes,
                edges,
                effort=effort,
                method=method,
                settings=settings,
                max_fpr=in_file if max_fpr is None and fdr is None else max_fpr,
                fdr=fdr,
                rotations=rotations,
                max_growth=max_growth,
                align=align,
                allow_leak=split_names(allow_leak),
                use_rep=use_rep,
                seed=seed,
                device=device,
                executor=None if ray is None else _on_cluster(ray, workers, storage),
                checked=print_and_reserve,
                progress=progress,
                **options.kept(read | asked, show, packed=nodes.is_dir()),
            )

    with reserved(out, "result", replace=force, inputs=(nodes, edges, config)):
        try:
            result = fit()
        except NoDomainError as problem:
            result = fit(**ask_for_domain(problem, console))
        console.print("making the report", style="dim")
        report = result.report(title=title or f"What is new in {printable(nodes.name)}", show=columns)
        more = _annotated_cells(nodes, result)
        result.save(out, replace=force, table=table_format, graph=graph_format, report=report, more=more)
    written = [f"graph.{graph_format}", *more] if graph_format else more
    print_result(result, out, console, as_json, more=written)


READ = ("rows", "column", "leak", "one domain", "missing")  # rows of the check that say how a table was read


def _on_cluster(address: str, workers: int, storage: Path | None) -> Any:
    from recoslip.products import cluster

    return partial(cluster.fit, address=address, workers=workers, storage=storage)


def _annotated_cells(nodes: Path, result: Any) -> dict[str, Any]:
    """Return what writes the annotated copy of a file of cells, by its name; nothing for other inputs."""
    if nodes.suffix.lower() != ".h5ad":
        return {}
    from recoslip.data.tables.cells import open_cells
    from recoslip.products import cells

    adata = open_cells(nodes)
    cells.annotate(adata, result)
    return {"cells.h5ad": lambda file: cells.write_annotated(nodes, adata, file)}


@takes("id", "edge_from", "edge_to", "weight", "drop_unknown", "impute", "label", "keep", "encoding")
def score(
    model: Annotated[Path, argument("Folder that detect wrote, or the folder of a saved detector.")],
    nodes: Annotated[Path, option("Table of the new nodes; it needs no domain.")],
    out: options.Out,
    edges: Annotated[Path | None, option("Table of their edges, to each other and to old nodes.")] = None,
    old: Annotated[
        tuple[str, str] | None,
        option(
            "Tables of the old nodes and of their edges, so that neighbourhoods are complete.",
            "--with",
            metavar="NODES [EDGES]",
        ),
    ] = None,
    packed: Annotated[Path | None, option("The old graph, as recoslip pack wrote it.", "--with-packed")] = None,
    rename: Annotated[str, option("Renamed columns, such as price_eur=price, separated by commas.")] = "",
    show: options.Show = "",
    max_fpr: options.MaxFpr = None,
    fdr: options.Fdr = None,
    title: options.Title = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    force: options.Force = False,
    table_format: options.ScoresFormat = "csv",
    *,
    read: dict[str, Any],
) -> None:
    """Score new nodes with a model that was fitted before.

    The columns are encoded as those of the table it was fitted on, and compared with them first.
    """
    from recoslip.pipeline.folder import reserved
    from recoslip.pipeline.result import score as run

    console = make_console(quiet or as_json)
    if old is not None and packed is not None:
        raise SettingError("give the old nodes as tables (--with) or as a packed graph (--with-packed), not both")
    tables = None if old is None else (Path(old[0]), None if old[1] == NO_EDGES else Path(old[1]))
    with reserved(out, "scores", replace=force, inputs=(model, nodes, edges, packed, *(tables or ()))):
        result = run(
            model,
            nodes,
            edges,
            old=packed or tables,
            rename=options.parse_pairs("--rename", rename),
            max_fpr=max_fpr,
            fdr=fdr,
            device=device,
            checked=lambda found: print_check(found.rows(), console),
            **options.kept(read, show),
        )
        report = None
        if result.findings is not None:
            console.print("making the report", style="dim")
            report = result.report(title=title or f"What is new in {printable(nodes.name)}", show=split_names(show))
        result.save(out, replace=force, table=table_format, report=report)
    print_result(result, out, console, as_json)


def demo(
    out: options.Out = Path("recoslip-demo"),
    seed: Annotated[int, option("Seed of what is drawn at random.")] = 0,
    device: options.Device = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    force: options.Force = False,
    table_format: options.ScoresFormat = "csv",
) -> None:
    """See it work on handwritten digits, without being told that the digit 9 exists."""
    from recoslip.data.datasets.load import load_dataset
    from recoslip.inference.metrics import auroc
    from recoslip.pipeline.detect import detect as run
    from recoslip.pipeline.folder import reserved

    console = make_console(quiet or as_json)
    data = load_dataset("digits")
    console.print("[bold]1,797 handwritten digits, each joined to the 10 images most like it.[/bold]")
    console.print(
        "The source holds digits 0 to 8. The target holds them in other proportions, and 9s.\n"
        "The detector knows which images are source and which are target, and no digit's name.\n"
    )
    replaces = force or is_demo(out)
    with reserved(out, "result", replace=replaces, nodes=data.graph.num_nodes):
        with show_steps(console, "fitting", "steps") as progress:
            result = run(data.graph, seed=seed, device=device, progress=progress)
        truth = {
            "auroc_target": auroc(data.novel, result.calibrated.scores, data.graph.is_target),
            "novel_true": int(data.novel.sum()),
        }
        result = replace(result, summary={**result.summary, "dataset": "digits", "truth": truth})
        report = result.report(title="Handwritten digits: what is new?", image_shape=(8, 8))
        result.save(out, replace=replaces, table=table_format, report=report)
    assert data.graph.categories is not None
    most_novel = data.graph.categories[result.table.head(20)["id"].to_list()].tolist()
    digits = " ".join(f"[bold green]{d}[/]" if d == 9 else f"[red]{d}[/]" for d in most_novel)
    console.print(f"\nThe 20 most novel images are: {digits}")
    console.print(
        f"AU-ROC against the truth: [bold]{truth['auroc_target']:.3f}[/] on the {result.summary['target']:,} target "
        f"nodes, of which {truth['novel_true']} are 9s"
    )
    print_result(result, out, console, as_json, shown=0)


def is_demo(folder: Path) -> bool:
    """Say whether a folder is the output of an earlier demo, which the next one may replace."""
    from recoslip.base.json_files import read_json

    try:
        return bool(read_json(folder.expanduser() / "summary.json").get("dataset") == "digits")
    except (OSError, ValueError):
        return False
