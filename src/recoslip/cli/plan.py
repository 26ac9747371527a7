"""The command `plan`: sizes of a graph and of a cluster -> what a run would need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from recoslip.cli.options import Json
from recoslip.console.messages import stdout


def plan(
    graph: Annotated[
        Path | None, typer.Argument(help="Folder of a packed graph, instead of the sizes.", show_default=False)
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of the graph.")] = None,
    edges: Annotated[int | None, typer.Option(help="Edges of the graph.")] = None,
    features: Annotated[int | None, typer.Option(help="Features of each node.")] = None,
    rotations: Annotated[int, typer.Option(help="How many times detect fits.")] = 5,
    workers: Annotated[int, typer.Option(help="Processes of the cluster that fit at once.")] = 1,
    cores: Annotated[int, typer.Option(help="Cores of each process.")] = 2,
    as_json: Json = False,
) -> None:
    """Estimate the disk, memory and time of a run on a large graph, on CPUs; nothing is trained.

    Sizes are those of a graph with dense features and edges without weights.
    """
    from recoslip.detectors.params import Whole
    from recoslip.errors import SettingError
    from recoslip.plan import Plan

    sizes = {"nodes": nodes, "edges": edges, "features": features}
    if graph is not None:
        from recoslip.packed import open_packed

        if any(size is not None for size in sizes.values()):
            raise SettingError("give the folder of a packed graph, or its sizes; not both")
        opened = open_packed(graph)
        sizes = {"nodes": opened.num_nodes, "edges": opened.num_edges, "features": opened.num_features}
        sizes["packed_bytes"] = sum(path.stat().st_size for path in graph.iterdir())
    missing = [f"--{name}" for name, size in sizes.items() if size is None]
    if missing:
        raise SettingError(f"give {' and '.join(missing)}, or the folder of a packed graph")
    sizes |= {"rotations": rotations, "workers": workers, "cores": cores}
    for name, size in sizes.items():
        Whole(0 if name == "edges" else 1)(name, size)
    planned = Plan(**{name: int(size) for name, size in sizes.items() if size is not None})
    if as_json:
        print(json.dumps(planned.facts()))
        return
    table = Table("what", "how much", box=None, pad_edge=False)
    for what, much in planned.rows():
        table.add_row(escape(what), escape(much))
    stdout.print(table)
    stdout.print("Estimates: each may be three times as much or a third.")
