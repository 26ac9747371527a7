"""The options of every experiment of the bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user wants to compare, and how: the options of every experiment."""

    datasets: Annotated[
        str | None, _option("Names of datasets, separated by commas; default: those of the experiment.")
    ] = None
    methods: Annotated[
        str | None, _option("Names of methods, separated by commas; default: those of the experiment.")
    ] = None
    without: Annotated[str, _option("Names of methods to leave out, separated by commas.")] = ""
    seeds: Annotated[str, _option("Number of seeds from the paper's 10, 20, ..., or a list such as 1,2,3.")] = "10"
    splits: Annotated[
        str,
        _option(
            "own: the split that comes with a dataset, the authors' for the paper's graphs; "
            "a number n: the split seeds 0 to n-1; or a list such as own,7,8."
        ),
    ] = "own"
    settings: Annotated[
        list[str] | None, _option("Setting for all methods that have it, such as --set epochs=100.", "--set")
    ] = None
    device: Annotated[str, _option("Device to train on: auto, cpu or cuda.")] = "auto"
    jobs: Annotated[
        int,
        _option("Number of processes that share the work. On one GPU they take turns, unless NVIDIA's MPS is running."),
    ] = 1
    out: Annotated[Path, _option("Folder of records and tables.")] = Path("recoslip-bench")
    root: Annotated[
        Path | None, _option("Folder of the paper's graphs; default: RECOSLIP_DATA, or the cache folder.")
    ] = None
    config: Annotated[
        Path | None, _option("TOML file that describes your own datasets in tables \\[datasets.NAME].")
    ] = None
    reference: Annotated[str, _option("Name of the method that the others are tested against.")] = "reco-slip"
    any_version: Annotated[bool, _option("Accept records that other versions of the code made.", "--any-version")] = (
        False
    )
    render_only: Annotated[bool, _option("Train nothing; render the records that exist.", "--render")] = False
    quiet: Annotated[bool, _option("Print errors only.", "--quiet", "-q")] = False
