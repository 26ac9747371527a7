"""Datasets x splits x methods x seeds -> records on disk -> tables of the methods compared, as the options say."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from recoslip.products.cli.options import Quiet, option

SPLITS = (
    "own: the split that comes with a dataset, the authors' for the paper's graphs; a number n: the split seeds 0 to "
    "n-1; or a list such as own,7,8."
)
JOBS = "Number of processes that share the work. On one GPU they take turns, unless NVIDIA's MPS is running."
ROOT = "Folder of the paper's graphs; default: RECOSLIP_DATA, or the cache folder."


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user wants to compare, and how: the options of every experiment."""

    datasets: Annotated[str | None, option("Names, separated by commas; default: those of the experiment.")] = None
    methods: Annotated[str | None, option("Names, separated by commas; default: those of the experiment.")] = None
    without: Annotated[str, option("Names of methods to leave out, separated by commas.")] = ""
    seeds: Annotated[str, option("Number of seeds from the paper's 10, 20, ..., or a list such as 1,2,3.")] = "10"
    splits: Annotated[str, option(SPLITS)] = "own"
    settings: Annotated[
        list[str] | None, option("Setting for all methods that have it, such as --set epochs=100.", "--set")
    ] = None
    device: Annotated[str, option("Device to train on: auto, cpu or cuda.")] = "auto"
    jobs: Annotated[int, option(JOBS, min=1)] = 1
    out: Annotated[Path, option("Folder of records and tables.")] = Path("recoslip-bench")
    root: Annotated[Path | None, option(ROOT)] = None
    config: Annotated[Path | None, option("TOML file with your own datasets in tables \\[datasets.NAME].")] = None
    reference: Annotated[str, option("Name of the method that the others are tested against.")] = "reco-slip"
    any_version: Annotated[bool, option("Accept records that other versions of the code made.", "--any-version")] = (
        False
    )
    render_only: Annotated[bool, option("Train nothing; render the records that exist.", "--render")] = False
    quiet: Quiet = False
