"""The command `bench`: options -> choices -> an experiment that is run and rendered.

As in the rest of the command line, what computes is imported when a command is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from recoslip.console.messages import make_console
from recoslip.console.option_values import split_names

app = typer.Typer(
    no_args_is_help=True,
    help="Regenerate the paper's tables and figures, or compare methods on your own graphs. "
    "An interrupted command can be run again: runs that have a record are not repeated.",
)

Datasets = Annotated[
    str | None, typer.Option(help="Names of datasets, separated by commas; default: those of the experiment.")
]
Methods = Annotated[
    str | None, typer.Option(help="Names of methods, separated by commas; default: those of the experiment.")
]
Without = Annotated[str, typer.Option(help="Names of methods to leave out, separated by commas.")]
Seeds = Annotated[str, typer.Option(help="Number of seeds from the paper's 10, 20, ..., or a list such as 1,2,3.")]
Splits = Annotated[
    str,
    typer.Option(
        help="own: the split that comes with a dataset, the authors' for the paper's graphs; "
        "a number n: the split seeds 0 to n-1; or a list such as own,7,8."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting for all methods that have it, such as --set epochs=100."),
]
Device = Annotated[str, typer.Option(help="Device to train on: auto, cpu or cuda.")]
Jobs = Annotated[
    int,
    typer.Option(
        help="Number of processes that share the work. On one GPU they take turns, unless NVIDIA's MPS is running."
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster to train on; auto: the running one, local: start one here with --jobs processes."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder of records, tables and figures.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder of the paper's graphs; default: RECOSLIP_DATA, or the cache folder.")
]
Config = Annotated[
    Path | None, typer.Option(help="TOML file that describes your own datasets in tables \\[datasets.NAME].")
]
Reference = Annotated[str, typer.Option(help="Name of the method that the others are tested against.")]
AnyVersion = Annotated[bool, typer.Option("--any-version", help="Accept records that other versions of the code made.")]
RenderOnly = Annotated[bool, typer.Option("--render", help="Train nothing; render the records that exist.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]

DEFAULT_FOLDER = Path("recoslip-bench")


def _experiment_command(experiments: Sequence[str]) -> Callable[..., None]:
    """Make the command that runs experiments; all such commands have the same options."""

    def command(
        datasets: Datasets = None,
        methods: Methods = None,
        without: Without = "",
        seeds: Seeds = "10",
        splits: Splits = "own",
        settings: Set = None,
        device: Device = "auto",
        jobs: Jobs = 1,
        ray: Ray = None,
        out: Out = DEFAULT_FOLDER,
        root: Root = None,
        config: Config = None,
        reference: Reference = "reco-slip",
        any_version: AnyVersion = False,
        render_only: RenderOnly = False,
        quiet: Quiet = False,
    ) -> None:
        from recoslip.bench.choices import Choices, parse_seeds, parse_splits
        from recoslip.bench.session import Session

        choices = Choices(
            datasets=None if datasets is None else split_names(datasets),
            methods=None if methods is None else split_names(methods),
            without=split_names(without),
            seeds=parse_seeds(seeds),
            splits=parse_splits(splits),
            settings=settings or [],
            device=device,
            jobs=jobs,
            ray=ray,
            reference=reference,
            any_version=any_version,
            render_only=render_only,
        )
        session = Session(choices, out, root, config, make_console(quiet))
        if session.run(experiments):
            raise typer.Exit(1)

    return command


for _name, _experiments, _help in (
    ("main", ("main",), "AU-ROC of all methods on the five datasets."),
    ("ablation", ("ablation",), "The contributions of the link loss and of its selection."),
    ("shift", ("shift",), "Representative methods without, with minor and with strong shift of proportions."),
    ("panel", ("panel",), "All methods on several cases of every graph: other novel categories, shares and edges."),
    ("all", ("main", "ablation", "shift"), "Everything: main, ablation, shift, distributions."),
):
    app.command(_name, help=_help)(_experiment_command(_experiments))


@app.command()
def distributions(
    datasets: Datasets = None,
    out: Out = DEFAULT_FOLDER,
    root: Root = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Proportions of the categories in source and target, as tables and bar charts. Trains nothing."""
    from recoslip.bench.session import write_distributions
    from recoslip.bench.sources import read_sources

    chosen = None if datasets is None else split_names(datasets)
    write_distributions(chosen, read_sources(config, root), out, make_console(quiet))
