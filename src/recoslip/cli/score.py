"""The command `score`: a saved model and tables of new nodes -> a folder with scores, summary and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from recoslip.cli.options import (
    DropUnknown,
    EncodingName,
    Force,
    IdColumn,
    Impute,
    Json,
    Keep,
    Label,
    Quiet,
    ScoresFormat,
    Show,
    SourceColumn,
    TargetColumn,
    WeightColumn,
    check_format,
    kept_columns,
)
from recoslip.cli.page import make_page
from recoslip.cli.printing import print_look, print_most_novel, print_outcome
from recoslip.console.messages import make_console
from recoslip.console.option_values import parse_pairs, split_names

if TYPE_CHECKING:
    from recoslip.detectors.base import Detector

NO_EDGES = "-"  # in place of a table of old edges


def score(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model, or the folder that detect wrote.")],
    nodes: Annotated[Path, typer.Option(help="Table of the new nodes; it needs no domain.")],
    out: Annotated[Path, typer.Option(help="Folder to write the results to.")],
    edges: Annotated[Path | None, typer.Option(help="Table of their edges, to each other and to old nodes.")] = None,
    old: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--with",
            metavar="NODES EDGES",
            help=f"Tables of the old nodes and their edges ({NO_EDGES}: none), so that neighbourhoods are complete.",
        ),
    ] = None,
    packed: Annotated[
        Path | None, typer.Option("--with-packed", help="The old graph, as recoslip pack wrote it.")
    ] = None,
    id_column: IdColumn = "id",
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    weight: WeightColumn = None,
    drop_unknown: DropUnknown = False,
    impute: Impute = False,
    encoding: EncodingName = None,
    rename: Annotated[
        str, typer.Option(help="Columns that have another name now, such as price_eur=price, separated by commas.")
    ] = "",
    label: Label = None,
    show: Show = "",
    keep: Keep = "",
    max_fpr: Annotated[float | None, typer.Option(help="Another false-positive rate than the model's.")] = None,
    fdr: Annotated[
        float | None, typer.Option(help="List nodes by this false-discovery rate instead of a false-positive rate.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    device: Annotated[str | None, typer.Option(help="Device to score on: auto, cpu or cuda.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    force: Force = False,
    table_format: ScoresFormat = "csv",
) -> None:
    """Score new nodes with a model that was fitted before.

    The columns are encoded as those of the table it was fitted on, and compared with them first.
    """
    from recoslip import output, scoring
    from recoslip.detectors.params import Number
    from recoslip.errors import SettingError
    from recoslip.storage import output_lock, printable

    console = make_console(quiet or as_json)
    scores_format = check_format(table_format)
    if fdr is not None:
        Number(0, 1, open_ends=True)("fdr", fdr)
    if old is not None and packed is not None:
        raise SettingError("give the old nodes as tables (--with) or as a packed graph (--with-packed), not both")
    options: dict[str, Any] = {
        "id": id_column,
        "source_column": source_column,
        "target_column": target_column,
        "weight": weight,
        "drop_unknown": drop_unknown,
        "impute": impute,
        "encoding": encoding,
        "rename": parse_pairs("--rename", rename),
        **kept_columns({"label": label, "show": show, "keep": keep}),
    }
    with output_lock(out):
        output.check_folder(out, replace=force)  # before anything is read
        detector = _load(model, max_fpr=max_fpr, device=device)
        if packed is not None:
            from recoslip.packed import open_packed

            options["old_nodes"] = open_packed(packed)
        elif old is not None:
            options |= {"old_nodes": Path(old[0]), "old_edges": None if old[1] == NO_EDGES else Path(old[1])}
        new = detector.read_table(nodes, edges, **options)
        print_look(scoring.look_at_new(detector, new).rows(), console)
        scored = scoring.score(detector, new, fdr=fdr)
        summary = scored.summary()
        page = None
        if scored.findings is not None:
            page_title = title or f"What is new in {printable(nodes.name)}"
            page = make_page(scored.findings, page_title, console, show=split_names(show))
        output.write_scores(out, scored.table, summary, page, table_format=scores_format, replace=force)
    if as_json:
        print(json.dumps(summary))
        return
    print_most_novel(scored.table.head(10), console)
    if scored.findings is not None:
        print_outcome(summary, out, console, has_page=page is not None)
        return
    console.print(escape(f"\n{summary['list']} {summary['promise']}"), soft_wrap=True)
    console.print(f"Written to {escape(printable(out))}: scores, summary.json", soft_wrap=True)


def _load(folder: Path, **settings: Any) -> Detector:
    """Load a model from its folder, or from the folder that `detect` wrote."""
    from recoslip.detectors.loading import load

    inside = folder / "model"
    given = {name: value for name, value in settings.items() if value is not None}
    return load(inside if inside.is_dir() and not (folder / "model.json").exists() else folder, **given)
