"""Options that several commands have, and the arguments of `read_graph` that some of them stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recoslip.console.option_values import parse_numbers, split_names
from recoslip.errors import SettingError

if TYPE_CHECKING:
    from recoslip.output import Format

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier result in the output folder.")]
ScoresFormat = Annotated[str, typer.Option("--format", help="Format of the table of scores: csv or parquet.")]

WriteGraph = Annotated[
    str | None,
    typer.Option(
        help="Also write the graph with scores as attributes of its nodes: graphml or gexf; default: as the graph came."
    ),
]

IdColumn = Annotated[str, typer.Option("--id", help="Column of the nodes table with the names of the nodes.")]
DomainColumn = Annotated[str, typer.Option(help="Column of the nodes table that separates source from target.")]
TargetValue = Annotated[str | None, typer.Option(help="Value of the --domain column that means target.")]
TimeColumn = Annotated[
    str | None, typer.Option("--time", help="Column of the nodes table with times; nodes are target from --since on.")
]
Since = Annotated[str | None, typer.Option(help="First number or date of the --time column that is target.")]
Features = Annotated[
    str | None,
    typer.Option(help="Columns to use as features, separated by commas; default: all that are suitable."),
]
Ignore = Annotated[str, typer.Option(help="Columns not to use as features, separated by commas.")]
TextColumns = Annotated[str, typer.Option(help="Columns of free text, separated by commas.")]
SourceColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of the edges table with one end of each edge; default: the first that holds ids of nodes."
    ),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(help="Column of the edges table with the other end of each edge; default: the second such column."),
]
WeightColumn = Annotated[str | None, typer.Option(help="Column of the edges table with the weights of the edges.")]
DropUnknown = Annotated[
    bool, typer.Option("--drop-unknown", help="Leave out edges to unknown nodes instead of refusing them.")
]
EncodingName = Annotated[
    str | None,
    typer.Option("--encoding", help="Encoding of text files that are not UTF-8, such as utf-16, latin-1 or cp1252."),
]
RelationColumn = Annotated[
    str | None, typer.Option("--relation", help="Column of the edges table with the kinds of edges.")
]
EdgeFeatures = Annotated[
    str, typer.Option(help="Columns of the edges table with what edges are like, separated by commas.")
]
NodeType = Annotated[
    str | None, typer.Option(help="Column of the nodes table with the kinds of nodes; --scored names the one to score.")
]
Scored = Annotated[str | None, typer.Option(help="The kind of nodes to score, where there are several.")]
Impute = Annotated[bool, typer.Option("--impute", help="Fill missing values instead of refusing them.")]

BlockWeights = Annotated[
    str,
    typer.Option(
        help="Weights of number, category, text and vector columns on top of equal ones, such as text=2; default: 1."
    ),
]

Label = Annotated[
    str | None,
    typer.Option(
        help='Column that names the nodes on the page; default: one that is called so, such as title; "" for none.'
    ),
]
Show = Annotated[str, typer.Option(help="Columns to show beside the nodes on the page, separated by commas.")]
Keep = Annotated[
    str, typer.Option(help="Columns to keep in the table of scores, besides --label and --show, separated by commas.")
]

AlignOption = Annotated[
    str,
    typer.Option(
        "--align",
        help="Bring the target's features to the source's location and scale: off, on, or auto, where that mends it.",
    ),
]
AllowLeak = Annotated[
    str, typer.Option(help="Columns that may say the same as the domain, separated by commas; otherwise the run stops.")
]

_SAME_NAME = (
    "domain", "target_value", "since", "source_column", "target_column", "weight", "drop_unknown", "impute", "encoding",
)  # fmt: skip


def read_graph_arguments(context: typer.Context) -> dict[str, Any]:
    """Return the arguments of `read_graph` that the options of a command stand for."""
    options = context.params
    return {
        "id": options["id_column"],
        "time": options["time_column"],
        "features": None if options["features"] is None else split_names(options["features"]),
        "ignore": split_names(options["ignore"]),
        "text": split_names(options["text"]),
        "block_weights": parse_numbers("--block-weights", options["block_weights"]),
        **kept_columns(options),
        **relational(options),
        **{name: options[name] for name in _SAME_NAME},
    }


def kept_columns(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that say which columns are kept to be shown; a command may lack these options."""
    names = [*split_names(options.get("show", "")), *split_names(options.get("keep", ""))]
    return {"label": options.get("label"), "keep": list(dict.fromkeys(names))}


def relational(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments about several kinds of nodes and edges, of the commands that have these options."""
    if "relation" not in options:
        return {}
    named = {name: options[name] for name in ("relation", "node_type", "scored")}
    return {**named, "edge_features": split_names(options["edge_features"])}


def refuse_table_options(context: typer.Context) -> None:
    """Raise if the user gave an option about tables; a packed graph was read from its tables already."""
    about_tables = ("edges", "id_column", "time_column", *(set(read_graph_arguments(context)) - {"id", "time"}))
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in about_tables and source is not None and source.name == "COMMANDLINE":
            raise SettingError(
                f"{parameter.opts[0]} is about tables, and a packed graph has its edges, domains and features; "
                "leave it out, or pack again with it"
            )


def check_format(name: str) -> Format:
    """Return the value of --format, or raise if it is none."""
    if name == "csv" or name == "parquet":
        return name  # type: ignore[return-value]
    raise SettingError(f"--format must be csv or parquet; got {name!r}")
