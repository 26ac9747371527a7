"""The command `pack`: tables -> the folder of a packed graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from recoslip.cli.options import (
    BlockWeights,
    DomainColumn,
    DropUnknown,
    EncodingName,
    Features,
    Force,
    IdColumn,
    Ignore,
    Impute,
    Keep,
    Label,
    Quiet,
    Show,
    Since,
    SourceColumn,
    TargetColumn,
    TargetValue,
    TextColumns,
    TimeColumn,
    WeightColumn,
    read_graph_arguments,
)
from recoslip.console.messages import make_console
from recoslip.console.progress import show_steps


def pack(
    context: typer.Context,
    nodes: Annotated[Path, typer.Argument(help="Table of nodes: .csv, .tsv, .parquet or .arrow.")],
    edges: Annotated[Path, typer.Argument(help="Table of edges.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write, which detect takes as --nodes.")],
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
    drop_unknown: DropUnknown = False,
    impute: Impute = False,
    encoding: EncodingName = None,
    block_weights: BlockWeights = "",
    label: Label = None,
    show: Show = "",
    keep: Keep = "",
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Write a graph that is larger than memory as a folder that stays on disk."""
    console = make_console(quiet)
    with show_steps(console, "packing", "rows") as progress:
        from recoslip import packed
        from recoslip.storage import printable

        packed.pack(nodes, edges, folder, replace=force, progress=progress, **read_graph_arguments(context))
    console.print(escape(repr(packed.open_packed(folder))))
    path = escape(printable(folder))
    console.print(f"Written to {path}; detect takes it as --nodes {path}", soft_wrap=True)
