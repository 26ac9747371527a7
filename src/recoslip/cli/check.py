"""The command `check`: tables or a packed graph -> a look before training; and what `detect` does with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recoslip.cli.options import (
    AlignOption,
    AllowLeak,
    BlockWeights,
    DomainColumn,
    DropUnknown,
    EdgeFeatures,
    EncodingName,
    Features,
    IdColumn,
    Ignore,
    Impute,
    Json,
    NodeType,
    Quiet,
    RelationColumn,
    Scored,
    Since,
    SourceColumn,
    TargetColumn,
    TargetValue,
    TextColumns,
    TimeColumn,
    WeightColumn,
    read_graph_arguments,
    refuse_table_options,
)
from recoslip.cli.printing import print_look
from recoslip.console.messages import make_console
from recoslip.console.option_values import split_names

if TYPE_CHECKING:
    from recoslip.graph import NodeGraph
    from recoslip.inspection.check import Check


def check(
    context: typer.Context,
    nodes: Annotated[
        Path,
        typer.Argument(
            help="A table of nodes (.csv, .tsv, .parquet, .arrow, .xlsx), a graph (.graphml, .gexf, .gml, .pt), cells "
            "(.h5ad), or the folder of a packed graph."
        ),
    ],
    edges: Annotated[Path | None, typer.Argument(help="Table of edges; without it the graph has none.")] = None,
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
    align: AlignOption = "auto",
    allow_leak: AllowLeak = "",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Look at a graph before anything is trained: its size, its columns, and how far source and target mix.

    It ends with code 2 if a column says the same as the domain.
    """
    graph = read(nodes, edges, context)
    look = look_at(graph, align)
    if as_json:
        print(json.dumps(look.facts()))
    else:
        print_look(look.rows(), make_console(quiet))
    refuse_leaks(look, allow_leak)


def input_files(given: list[Path] | None, nodes: Path | None, edges: Path | None) -> tuple[Path, Path | None]:
    """Return the files that arguments and options name: nodes or a whole graph, and perhaps edges."""
    from recoslip.errors import SettingError

    files = list(given or [])
    if nodes is None and files:
        nodes = files.pop(0)
    if edges is None and files:
        edges = files.pop(0)
    if nodes is None:
        raise SettingError("no graph was given: recoslip detect graph.graphml, or recoslip detect nodes.csv edges.csv")
    if files:
        raise SettingError(f"a graph is one file or two, nodes and edges; {str(files[0])!r} is one too many")
    return nodes, edges


def read(nodes: Path, edges: Path | None, context: typer.Context) -> NodeGraph:
    """Read the tables or the graph, or open the packed graph."""
    from recoslip.errors import SettingError

    if nodes.is_dir() and edges is not None:
        raise SettingError(f"a packed graph has its own edges; leave {str(edges)!r} out")
    if nodes.is_dir():
        from recoslip.packed import open_packed

        refuse_table_options(context)
        return open_packed(nodes)
    from recoslip.tables import read_graph

    return read_graph(nodes, edges, **read_graph_arguments(context))


def look_at(graph: NodeGraph, align: str) -> Check:
    """Look at a graph with the value of --align."""
    from recoslip.inspection import check as inspection

    return inspection.check(graph, align=align)  # type: ignore[arg-type]


def refuse_leaks(look: Check, allowed: str) -> None:
    """Raise if a column says the same as the domain, unless it is allowed to."""
    from recoslip.errors import SettingError
    from recoslip.inspection.check import leak_sentence

    names = split_names(allowed)
    known = {each.column for each in look.columns.differences}
    for name in names:
        if name not in known:
            raise SettingError(f"--allow-leak names no column that is used: {name!r}")
    leaks = [each for each in look.columns.leaks if each.column not in names]
    if leaks:
        columns = ",".join(each.column for each in leaks)
        raise SettingError(
            f"{' '.join(map(leak_sentence, leaks))} Every detector would learn it and call all of the target new. "
            f"Leave it out (--ignore {columns}), or keep it (--allow-leak {columns})."
        )
