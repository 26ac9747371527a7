"""The command line: parse, call, print."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from typer.core import TyperGroup

import recoslip
from recoslip import cluster, output
from recoslip.bench.command import app as bench_app
from recoslip.console import names, notes, read_toml, resumable, screen, talk_to, value_of
from recoslip.detectors import DETECTORS, Detector, checks, detector
from recoslip.detectors.base import Progress as Steps
from recoslip.detectors.registry import AUTO, DEFAULT
from recoslip.errors import RecoslipError, RecoslipWarning, SettingError, nearest
from recoslip.insight.findings import Findings, calibration_share
from recoslip.report import Report
from recoslip.report import report as make_report
from recoslip.storage import check_free

HAS_REPORT = all(find_spec(name) for name in ("igraph", "leidenalg", "plotly"))


class Commands(TyperGroup):
    """Our commands: errors in the input end with code 2, an interruption with 130, each with one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        log = logging.getLogger("recoslip")
        before = log.handlers, log.level, log.propagate
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except RecoslipError as problem:
            notes.print(f"[bold red]error:[/] {escape(str(problem))}", highlight=False, soft_wrap=True)
            sys.exit(2)
        except MemoryError:
            notes.print(
                "[bold red]error:[/] memory did not suffice; pack the graph (recoslip pack) and give the folder"
            )
            sys.exit(2)
        except KeyboardInterrupt:
            notes.print("interrupted; nothing was written")
            sys.exit(130)
        finally:
            log.handlers, log.level, log.propagate = before


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Find the nodes of a graph that belong to a category nobody has seen before.",
)
app.add_typer(bench_app, name="bench")
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier result in the output folder.")]
Seed = Annotated[int, typer.Option(help="Seed of weights, dropout and split.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
IdColumn = Annotated[str, typer.Option("--id", help="Nodes' column of names.")]
Domain = Annotated[str, typer.Option(help="Nodes' column that tells source from target.")]
TargetValue = Annotated[str | None, typer.Option(help="Its value that means target.")]
TimeColumn = Annotated[str | None, typer.Option("--time", help="Take the domain from this column ...")]
Since = Annotated[str | None, typer.Option(help="... target from this number or date on.")]
Features = Annotated[str | None, typer.Option(help="Columns to use, with commas; default: all fit.")]
Ignore = Annotated[str, typer.Option(help="Columns not to use, with commas.")]
Text = Annotated[str, typer.Option(help="Columns of free text, with commas.")]
SourceColumn = Annotated[str | None, typer.Option(help="Edges' column of one end; default: first.")]
TargetColumn = Annotated[str | None, typer.Option(help="Edges' column of the other; default: second.")]
Weight = Annotated[str | None, typer.Option(help="Edges' column of weights.")]
DropUnknown = Annotated[bool, typer.Option("--drop-unknown", help="Leave out edges to unknown ids.")]
Impute = Annotated[bool, typer.Option("--impute", help="Fill missing values.")]
Format = Annotated[str, typer.Option("--format", help="Of the scores: csv or parquet.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Find the nodes of a graph that belong to a category nobody has seen before."""
    if version:
        print(f"recoslip {recoslip.__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("recoslip-demo"),
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
    force: Force = False,
    table_format: Format = "csv",
) -> None:
    """See it work: handwritten digits, of which nobody told the detector that 9 exists."""
    from recoslip.insight.metrics import auroc

    wanted_format = _format(table_format)
    talk = talk_to(quiet or as_json)
    replace = force or _holds_demo(out)
    check_free(out, ours=output.FILES, replace=replace)
    data = recoslip.load_dataset("digits")
    categories, target = data.graph.categories, data.graph.is_target.numpy()
    assert categories is not None
    talk.print("[bold]1,797 handwritten digits, each joined to the 10 images most like it.[/bold]")
    talk.print(
        "The source holds digits 0 to 8. In the target their proportions are turned upside down, and there are 9s.\n"
        "The detector is told who is source and who is target, and no digit's name.\n"
    )
    chosen = detector(AUTO, random_state=seed, device=device)
    seconds = _fit(chosen, data.graph, data.split, calibration_share(data.graph), talk)
    findings = recoslip.analyse(chosen, data.graph, grouped=HAS_REPORT)
    test = data.split.test
    truth = {
        "auroc_test": auroc(data.novel, chosen.scores_, test),
        "auroc_target": auroc(data.novel, chosen.scores_, target),
        "novel_true": int(data.novel.sum()),
    }
    facts = output.summary(findings, seconds) | {"dataset": "digits", "truth": truth}
    page = _page(findings, "Handwritten digits: what is new?", talk, image_shape=(8, 8))
    output.write(out, findings, facts, page, table_format=wanted_format, replace=replace)
    if as_json:
        print(json.dumps(facts))
        return
    _print_course(chosen, talk)
    top = findings.table().head(20)["id"].to_list()
    digits = " ".join(f"[bold green]{d}[/]" if d == 9 else f"[red]{d}[/]" for d in categories[top].tolist())
    talk.print(f"\nThe 20 most novel images are: {digits}")
    talk.print(
        f"AU-ROC against the truth: [bold]{truth['auroc_test']:.3f}[/] on the {int(test.sum())} held-out target nodes, "
        f"{truth['auroc_target']:.3f} on all {facts['target']:,}"
    )
    _print_outcome(facts, out, talk)


# Title, column and format of what is printed of a detector's tables.
CANDIDATES = (
    ("recall target", "recall_target", "{:g}"),
    ("validation FPR", "fpr", "{:.3f}"),
    ("validation recall", "recall", "{:.3f}"),
    ("chosen", "chosen", "{}"),
)
ROUNDS = (
    ("round", "round", "{}"),
    ("examples of novel", "novel", "{:,}"),
    ("of known", "known", "{:,}"),
    ("target that looks novel", "looks_novel", "{:.1%}"),
)


def _settings_help() -> str:
    """List every method's settings with their defaults."""
    lines = []
    for name in dict.fromkeys(kind.name for kind in DETECTORS.values()):
        settings = {k: v for k, v in detector(name).get_params().items() if k not in ("random_state", "device")}
        shown = (f"--{k.replace('_', '-')} {_shown(v)}" for k, v in settings.items())
        lines.append(f"Settings of {name} and their defaults: {'  '.join(shown)}")
    return "\n\n".join(lines)


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog=_settings_help(),
)
def detect(
    context: typer.Context,
    nodes: Annotated[Path, typer.Option(help="Table of nodes, .csv, .tsv, .parquet or .arrow; or a packed graph.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    edges: Annotated[Path | None, typer.Option(help="Table of edges; without it the graph has none.")] = None,
    id_column: IdColumn = "id",
    domain: Domain = "domain",
    target_value: TargetValue = None,
    time_column: TimeColumn = None,
    since: Since = None,
    features: Features = None,
    ignore: Ignore = "",
    text: Text = "",
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    weight: Weight = None,
    drop_unknown: DropUnknown = False,
    impute: Impute = False,
    method: Annotated[str, typer.Option(help=f"{AUTO} ({DEFAULT}) or one of: {', '.join(DETECTORS)}.")] = AUTO,
    config: Annotated[Path | None, typer.Option(help="TOML file of the method's settings.")] = None,
    fdr: Annotated[
        float | None, typer.Option(help="List nodes by this false-discovery rate instead of --max-fpr.")
    ] = None,
    calibration: Annotated[
        float | None, typer.Option(help="Share of the source to hold back for p-values; default: a fifth to a third.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Train with a Ray cluster: its address, auto, or local for one here.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes of the cluster that train.")] = 2,
    storage: Annotated[
        Path | None, typer.Option(help="Folder that all machines of the cluster see, for what they keep.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, dropout and split.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    force: Force = False,
    table_format: Format = "csv",
) -> None:
    """Score the nodes of your own graph.

    Every setting of the method is an option too, such as --epochs 500 or --recall-targets 0.02,0.05.
    """
    talk = talk_to(quiet or as_json)
    own_options = [name for parameter in context.command.params for name in parameter.opts]
    options = {key: value for key, value in (("random_state", seed), ("device", device)) if value is not None}
    chosen = detector(method, **_toml(config) | _settings(method, context.args, own_options) | options)
    chosen._check_settings()
    wanted_format = _format(table_format)
    if fdr is not None:
        checks.number("fdr", fdr, 0, 1, open_ends=True)
    checks.number("calibration", 0 if calibration is None else calibration, 0, 0.9)
    check_free(out, ours=output.FILES, replace=force)
    if nodes.is_dir():
        _refuse_table_options(context)
        graph = recoslip.open_packed(nodes)
    else:
        graph = recoslip.read_graph(nodes, edges, **_reading(context))
    talk.print(escape(repr(graph)))
    held_back = calibration_share(graph) if calibration is None else calibration
    if ray is None:
        seconds = _fit(chosen, graph, None, held_back, talk)
    else:
        chosen, seconds = _fit_on_ray(
            chosen, nodes if nodes.is_dir() else graph, held_back, talk, ray, workers, storage
        )
    findings = recoslip.analyse(chosen, graph, fdr=fdr, grouped=HAS_REPORT)
    facts = output.summary(findings, seconds)
    page = _page(findings, title or f"What is new in {nodes.name}", talk)
    output.write(out, findings, facts, page, table_format=wanted_format, replace=force)
    if as_json:
        print(json.dumps(facts))
        return
    _print_course(chosen, talk)
    _print_top(findings.table().head(10), talk)
    _print_outcome(facts, out, talk)


@app.command()
def pack(
    context: typer.Context,
    nodes: Annotated[Path, typer.Argument(help="Table of nodes: .csv, .tsv, .parquet or .arrow.")],
    edges: Annotated[Path, typer.Argument(help="Table of edges.")],
    folder: Annotated[Path, typer.Argument(help="To write; detect takes it as --nodes.")],
    id_column: IdColumn = "id",
    domain: Domain = "domain",
    target_value: TargetValue = None,
    time_column: TimeColumn = None,
    since: Since = None,
    features: Features = None,
    ignore: Ignore = "",
    text: Text = "",
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    weight: Weight = None,
    drop_unknown: DropUnknown = False,
    impute: Impute = False,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Write a graph that is larger than memory as a folder that stays on disk.

    Interrupted, the same command goes on where it was.
    """
    talk = talk_to(quiet)
    with resumable("what was done is kept"), _progress(talk, "packing", "rows") as report:
        recoslip.pack(nodes, edges, folder, replace=force, progress=report, **_reading(context))
    talk.print(escape(repr(recoslip.open_packed(folder))))
    talk.print(f"Written to {escape(str(folder))}; detect takes it as --nodes {escape(str(folder))}", soft_wrap=True)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="What detect or demo wrote.")], quiet: Quiet = False) -> None:
    """Write the page of an earlier run anew."""
    page = output.rebuild(folder)
    talk_to(quiet).print(f"written: {escape(str(page))}", soft_wrap=True)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods that `detect --method` knows."""
    rows = [
        {"name": name, "paper": kind.paper, "needs": kind.needs, "trains a network": kind.trains}
        for name, kind in DETECTORS.items()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("name", "paper", "needs", "trains a network", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(("yes" if v else "no") if isinstance(v, bool) else str(v) for v in row.values()))
    screen.print(table)


@app.command()
def datasets(as_json: Json = False) -> None:
    """List the datasets that can be loaded by name."""
    from recoslip.datasets import CATALOGUE

    if as_json:
        print(json.dumps({name: {"about": entry.about, "ratios": entry.ratios} for name, entry in CATALOGUE.items()}))
        return
    table = Table("name", "what", "source ratio per category (0: novel)", box=None, pad_edge=False)
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.about, " ".join(f"{ratio:g}" for ratio in entry.ratios) or "-")
    screen.print(table)


def _holds_demo(folder: Path) -> bool:
    """Say whether an earlier demo wrote a folder; that one gives way to the next."""
    try:
        summary = json.loads((folder.expanduser() / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("dataset") == "digits"


def _reading(context: typer.Context) -> dict[str, Any]:
    """Turn the options about tables into the arguments of `read_graph`."""
    given = context.params
    plain = (
        "domain", "target_value", "since", "source_column", "target_column", "weight", "drop_unknown", "impute",
    )  # fmt: skip
    return {
        "id": given["id_column"],
        "time": given["time_column"],
        "features": None if given["features"] is None else names(given["features"]),
        "ignore": names(given["ignore"]),
        "text": names(given["text"]),
        **{name: given[name] for name in plain},
    }


def _refuse_table_options(context: typer.Context) -> None:
    """Raise if an option about tables was given where there are none."""
    of_tables = ("edges", "id_column", "time_column", *(set(_reading(context)) - {"id", "time"}))
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in of_tables and source is not None and source.name == "COMMANDLINE":
            raise SettingError(
                f"{parameter.opts[0]} is about tables, and a packed graph has its edges, domains and features; "
                "leave it out, or pack again with it"
            )


def main() -> None:
    """Run the command line."""
    app()


def _fit(
    chosen: Detector, graph: recoslip.NodeGraph, split: recoslip.Split | None, calibration: float, talk: Console
) -> float:
    begin = time.perf_counter()
    with _progress(talk, "training", "epochs") as report:
        chosen.fit(graph, split, calibration=calibration, progress=report)
    return time.perf_counter() - begin


def _fit_on_ray(
    chosen: Detector,
    graph: recoslip.NodeGraph | Path,
    calibration: float,
    talk: Console,
    address: str,
    workers: int,
    storage: Path | None,
) -> tuple[Detector, float]:
    checks.whole("workers", workers, 1)
    begin = time.perf_counter()
    with _progress(talk, "training", "epochs") as report:
        fitted = cluster.fit(
            chosen,
            graph,
            workers=workers,
            address=address,
            storage=storage,
            calibration=calibration,
            progress=report,
        )
    return fitted, time.perf_counter() - begin


def _page(findings: Findings, title: str, talk: Console, **options: Any) -> Report | None:
    if not HAS_REPORT:
        talk.print(escape("no page and no groups: pip install 'recoslip[report]' adds both"), style="dim")
        return None
    talk.print("making the page", style="dim")
    return make_report(findings.detector, findings.graph, findings=findings, title=title, **options)


class Rate(ProgressColumn):
    """How many steps are done in a second."""

    def render(self, task: Task) -> str:
        """Write it, once it is known."""
        return f"{task.speed:,.0f}/s," if task.speed else ""


@contextmanager
def _progress(talk: Console, doing: str, what: str) -> Iterator[Steps]:
    """Show a bar with rate and time left on a terminal; elsewhere a line for every tenth of the work."""
    if talk.is_terminal and not talk.quiet:
        columns = (
            TextColumn(doing),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"{what},"),
            Rate(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=talk, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    tenths = 0

    def line(done: int, total: int) -> None:
        nonlocal tenths
        if 10 * done // total > tenths:
            tenths = 10 * done // total
            talk.print(f"{doing}: {done:,} of {total:,} {what}")

    yield line


def _print_course(chosen: Detector, talk: Console) -> None:
    """Print what a detector has to tell of its own training."""
    for attribute, shown in (("candidates_", CANDIDATES), ("rounds_", ROUNDS)):
        rows: Any = getattr(chosen, attribute, None)
        if rows is None or not rows.height:
            continue
        table = Table(box=None, pad_edge=False)
        for title, _, _ in shown:
            table.add_column(title, justify="right")
        for row in rows.iter_rows(named=True):
            is_chosen = row.get("chosen", False)
            table.add_row(*(form.format(row[name]) for _, name, form in shown), style="bold" if is_chosen else None)
        talk.print(table)


def _print_top(top: Any, talk: Console) -> None:
    table = Table("most novel", "score", box=None, pad_edge=False)
    for row in top.iter_rows(named=True):
        table.add_row(escape(str(row["id"])), f"{row['score']:.4f}", style="bold" if row["novel"] else None)
    talk.print()
    talk.print(table)


def _print_outcome(facts: dict[str, Any], out: Path, talk: Console) -> None:
    talk.print(f"\n[bold]{escape(facts['headline'])}[/bold]", soft_wrap=True)
    talk.print(escape(facts["rule"]), soft_wrap=True)
    for warning in facts["diagnosis"]["warnings"]:
        talk.print(f"[yellow]note:[/] {escape(warning)}", soft_wrap=True)
    written = "scores, summary.json, model" + (", report.html" if HAS_REPORT else "")
    talk.print(f"Written to {escape(str(out))} after {facts['seconds']:.1f} s of training: {written}", soft_wrap=True)
    if HAS_REPORT:
        talk.print(f"Open [bold]{escape(str(out / 'report.html'))}[/bold] in a browser.", soft_wrap=True)


def _format(name: str) -> output.Format:
    if name == "csv" or name == "parquet":
        return name  # type: ignore[return-value]
    raise SettingError(f"--format must be csv or parquet; got {name!r}")


def _toml(path: Path | None) -> dict[str, Any]:
    settings = {} if path is None else read_toml(path)
    settings = {key.replace("-", "_"): tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
    return {"random_state" if key == "seed" else key: value for key, value in settings.items()}


def _settings(method: str, arguments: list[str], own_options: list[str]) -> dict[str, Any]:
    """Read what is left of the command line as the method's settings: --epochs 500, --links=none."""
    defaults = detector(method).get_params()
    settings: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        option, has_value, value = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in defaults:
            known = [*own_options, *("--" + key.replace("_", "-") for key in defaults)]
            raise SettingError(f"no option {option!r}{nearest(option, known)}; see recoslip detect --help")
        if not has_value:
            value = next(rest, "")
        if not value:
            raise SettingError(f"{option} needs a value")
        settings[name] = value_of(value, defaults[name])
    return settings


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, RecoslipWarning):
        notes.print(f"[bold yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True)
