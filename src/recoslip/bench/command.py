"""The command line of the bench: choices -> plan -> run -> render."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from recoslip.bench.paper import GRAPHS
from recoslip.bench.plan import (
    SHIFTS,
    Cell,
    device_name,
    estimate,
    experiment,
    missing,
    paper_seeds,
    plan,
    recorded,
    threads_each,
)
from recoslip.bench.records import Records
from recoslip.bench.render import render, render_distributions
from recoslip.bench.run import Epochs, Worker, run
from recoslip.bench.sources import OWN, Sources, read_sources
from recoslip.console import names, notes, resumable, talk_to, value_of
from recoslip.datasets.load import check_arxiv, data_root
from recoslip.detectors import DETECTORS, detector
from recoslip.errors import DatasetError, SettingError, nearest
from recoslip.fleet.device import resolve_device
from recoslip.storage import write_file

app = typer.Typer(
    no_args_is_help=True,
    help="Regenerate the paper's tables and figures, or compare methods on your own graphs. "
    "Resumable: what has a record is not done again.",
)

Out = Annotated[Path, typer.Option(help="Folder of records, tables and figures.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with datasets of your own: tables \\[datasets.NAME].")]
Root = Annotated[Path | None, typer.Option(help="Folder of the paper's graphs; else RECOSLIP_DATA, else the cache.")]
Datasets = Annotated[str | None, typer.Option(help="Names, joined by commas; else the experiment's own.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


def _command(name: str, experiments: Sequence[str]) -> Callable[..., None]:
    """Make the command of an experiment; all have the same options."""

    def command(
        datasets: Datasets = None,
        methods: Annotated[
            str | None, typer.Option(help="Registry names, joined by commas; else the experiment's.")
        ] = None,
        without: Annotated[str, typer.Option(help="Methods to leave out, joined by commas.")] = "",
        seeds: Annotated[str, typer.Option(help="How many of the paper's 10, 20, ..., or a list: 1,2,3.")] = "10",
        splits: Annotated[
            str, typer.Option(help="own: the authors' split; a number n: split seeds 0 to n-1; or a list: own,7,8.")
        ] = OWN,
        settings: Annotated[
            list[str] | None, typer.Option("--set", help="A setting for all methods that have it: --set epochs=100.")
        ] = None,
        device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
        jobs: Annotated[
            int,
            typer.Option(help="Processes that share the work. On one GPU they take turns, unless NVIDIA's MPS runs."),
        ] = 1,
        ray: Annotated[
            str | None,
            typer.Option(help="Let a Ray cluster do it: its address, auto, or local for one here of --jobs processes."),
        ] = None,
        out: Out = Path("recoslip-bench"),
        root: Root = None,
        config: Config = None,
        reference: Annotated[str, typer.Option(help="The method that others are tested against.")] = "reco-slip",
        any_version: Annotated[
            bool, typer.Option("--any-version", help="Let records of other versions of the code count as done.")
        ] = False,
        render_only: Annotated[
            bool, typer.Option("--render", help="Train nothing; render what records exist.")
        ] = False,
        quiet: Quiet = False,
    ) -> None:
        talk = talk_to(quiet)
        logging.getLogger("recoslip").setLevel(logging.WARNING)  # remarks on each graph's edges are not wanted here
        if jobs < 1:
            raise SettingError(f"--jobs must be 1 or more; got {jobs}")
        if reference not in DETECTORS:
            raise SettingError(f"--reference: no method is called {reference!r}{nearest(reference, DETECTORS)}")
        sources = read_sources(config, root)
        records = Records(out / "records")
        plans, changed = {}, {}
        for each in experiments:
            wanted = _choose(each, datasets, methods, without, None if render_only else sources)
            changed[each] = _settings(settings or [], wanted[1])
            plans[each] = plan(*wanted, _splits(splits), _seeds(seeds), sources, changed[each])
        failed = 0
        if not render_only:
            cells = list({cell.runs()[0]: cell for each in plans.values() for cell in each}.values())
            resolve_device(device)
            _probe(out)
            failed = _run(cells, Worker(sources, records, device, jobs, ray), any_version, talk)
        for each, cells in plans.items():
            found = recorded(cells, records)
            if render_only and not found:
                raise SettingError(
                    f"{out} has no record of {each} with these choices; --render needs the --set, --seeds, --splits "
                    "and --config of the run"
                )
            if datasets is None:  # nobody asked for those that are not there
                cells = [c for c in cells if any(key.dataset == c.dataset for key in found)] or cells
            _write(out, render(each, cells, found, reference=reference, changed=changed[each]), talk)
        if len(experiments) > 1:
            _distributions(_available(_versions(), sources), sources, out, talk)
        if failed:
            raise typer.Exit(1)

    command.__name__ = name
    return command


for _name, _experiments, _help in (
    ("main", ("main",), "AU-ROC of all methods on the five datasets."),
    ("ablation", ("ablation",), "What the link loss and its selection bring."),
    ("shift", ("shift",), "Representative methods without, with minor and with strong shift of proportions."),
    ("all", ("main", "ablation", "shift"), "Everything: main, ablation, shift, distributions."),
):
    app.command(_name, help=_help)(_command(_name, _experiments))


@app.command()
def distributions(
    datasets: Datasets = None,
    out: Out = Path("recoslip-bench"),
    root: Root = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Proportions of the categories in source and target, as tables and bar charts. Trains nothing."""
    sources = read_sources(config, root)
    chosen = _available(_versions(), sources) if datasets is None else names(datasets)
    _distributions(chosen, sources, out, talk_to(quiet))


def _versions() -> list[str]:
    return [*(f"{graph}-{shift}" for graph in GRAPHS for shift in reversed(SHIFTS)), "arxiv"]


def _probe(out: Path) -> None:
    """Raise now, not after an hour, if nothing can be written there."""
    write_file(out / "records" / ".probe", "")
    (out / "records" / ".probe").unlink()


def _distributions(chosen: Sequence[str], sources: Sources, out: Path, talk: Console) -> None:
    for name in chosen:
        sources.check(name)
    _write(out, render_distributions({name: sources.load(name, OWN) for name in chosen}), talk)


def _choose(
    name: str, datasets: str | None, methods: str | None, without: str, sources: Sources | None
) -> tuple[list[str], list[str]]:
    """Return the datasets and methods of an experiment, or those the user chose.

    With `sources`, datasets that nobody asked for by name must be there.
    """
    default = experiment(name)
    chosen = list(default.methods) if methods is None else names(methods)
    for method in (*chosen, *names(without)):
        if method not in DETECTORS:
            raise SettingError(f"no method is called {method!r}{nearest(method, DETECTORS)}; see recoslip methods")
    chosen = [method for method in dict.fromkeys(chosen) if method not in names(without)]
    given = list(default.datasets) if datasets is None else list(dict.fromkeys(names(datasets)))
    if datasets is None and sources is not None:
        given = _available(given, sources)
    if not chosen or not given:
        raise SettingError("nothing to compare: choose at least one dataset and one method")
    return given, chosen


def _available(datasets: Sequence[str], sources: Sources) -> list[str]:
    """Leave out, with a remark, datasets of an experiment whose files are not here and cannot be downloaded."""
    found = []
    for name in datasets:
        try:
            if name == "arxiv":  # the others download themselves
                check_arxiv(data_root(sources.root))
            found.append(name)
        except DatasetError as problem:
            notes.print(f"[bold yellow]{name} is left out:[/] {escape(str(problem))}", highlight=False, soft_wrap=True)
    return found


def _seeds(text: str) -> tuple[int, ...]:
    """Read --seeds: a number is how many of the paper's, a list is a list.

    >>> _seeds("2"), _seeds("7,8"), _seeds("7,")
    ((10, 20), (7, 8), (7,))
    """
    numbers = [_whole("--seeds", part) for part in names(text)]
    if not numbers or ("," not in text and numbers[0] == 0):
        raise SettingError(f"--seeds must be a number of seeds, or a list of them such as 1,2,3; got {text!r}")
    return tuple(dict.fromkeys(numbers)) if "," in text else paper_seeds(numbers[0])


def _splits(text: str) -> list[str]:
    """Read --splits: own, a number of split seeds, or a list.

    >>> _splits("own"), _splits("3"), _splits("own,7")
    (['own'], ['0', '1', '2'], ['own', '7'])
    """
    parts = names(text)
    if not parts:
        raise SettingError(f"--splits must be own, a number, or a list such as own,0,1; got {text!r}")
    if "," not in text and text.strip() != OWN:
        count = _whole("--splits", text)
        if count == 0:
            raise SettingError("--splits must be own, or 1 or more; got 0")
        return [str(seed) for seed in range(count)]
    return list(dict.fromkeys(part if part == OWN else str(_whole("--splits", part)) for part in parts))


def _whole(option: str, text: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit():
        raise SettingError(f"{option}: expected a whole number, not negative; got {text!r}")
    return int(text)


def _settings(given: Sequence[str], methods: Sequence[str]) -> dict[str, Any]:
    """Read --set NAME=VALUE, the value as the first method that has the setting would have it."""
    settings = {}
    for text in given:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        defaults: dict[str, Any] = {}
        for method in methods:
            defaults = detector(method).get_params() | defaults
        if not sign or name not in defaults or name in ("random_state", "device"):
            raise SettingError(
                f"--set {text}: expected NAME=VALUE with a setting of the methods{nearest(name, defaults)}"
            )
        settings[name] = value_of(value, defaults[name])
    return settings


def _run(cells: Sequence[Cell], worker: Worker, any_version: bool, talk: Console) -> int:
    """Train what has no record yet; return how many cells failed."""
    left = missing(cells, worker.records, any_version=any_version)
    total, open_runs = (sum(len(cell.seeds) for cell in each) for each in (cells, left))
    talk.print(f"{total:,} runs planned, {total - open_runs:,} have a record, {open_runs:,} to do")
    if not left:
        return 0
    if worker.ray is not None and len(left) < worker.jobs:  # too few for the cluster: their seeds
        left = [replace(cell, seeds=(seed,)) for cell in left for seed in cell.seeds]
    where = resolve_device(worker.device)
    expected = _print_plan(left, worker.sources, worker.records, where, worker.jobs, talk)
    failures: list[tuple[Cell, str]] = []
    begin = time.perf_counter()
    with resumable("what had ended is stored"), _progress(left, expected, talk) as (done, epochs):

        def ended(cell: Cell, reason: str | None) -> None:
            done(cell, reason)
            if reason is not None:
                failures.append((cell, reason))

        run(left, worker, ended, epochs)
    talk.print(f"trained {len(left) - len(failures):,} fleets in {_duration(time.perf_counter() - begin)}")
    for cell, reason in failures:
        notes.print(
            f"[bold red]failed:[/] {cell.dataset}, split {cell.split}, {cell.method}: {escape(reason)}",
            highlight=False,
            soft_wrap=True,
        )
    return len(failures)


def _print_plan(
    cells: Sequence[Cell], sources: Sources, records: Records, device: torch.device, jobs: int, talk: Console
) -> list[float]:
    """Say what will be trained and how long that may take; return the guess for every cell."""
    past = list(records)
    graphs = {name: sources.load(name, OWN).graph for name in dict.fromkeys(cell.dataset for cell in cells)}
    threads = threads_each(jobs)
    guesses = [estimate(cell, graphs[cell.dataset], device, threads, past) for cell in cells]
    at_once = 1 if device.type == "cuda" else jobs  # processes share a GPU by taking turns
    table = Table("dataset", "splits", "methods", "fleets", "runs", "about", box=None, pad_edge=False)
    for name in graphs:
        rows = [(cell, guess) for cell, (guess, _) in zip(cells, guesses, strict=True) if cell.dataset == name]
        table.add_row(
            name,
            str(len({cell.split for cell, _ in rows})),
            str(len({cell.method for cell, _ in rows})),
            f"{len(rows):,}",
            f"{sum(len(cell.seeds) for cell, _ in rows):,}",
            _duration(sum(guess for _, guess in rows) / at_once),
        )
    talk.print(table)
    known = sum(based for _, based in guesses)
    talk.print(
        f"on {device_name(device, threads)}, {jobs} at a time: about {_duration(sum(g for g, _ in guesses) / at_once)} "
        f"({known} of {len(cells)} fleets by earlier runs, the others by their size, which may be off by a factor of 3)"
    )
    return [guess for guess, _ in guesses]


@contextmanager
def _progress(
    cells: Sequence[Cell], expected: Sequence[float], talk: Console
) -> Iterator[tuple[Callable[[Cell, str | None], None], Epochs]]:
    """Show a bar on a terminal, and elsewhere a line for every fleet that has ended."""
    weight = {id(cell): guess for cell, guess in zip(cells, expected, strict=True)}
    count = 0
    begin = time.perf_counter()

    def line(cell: Cell, reason: str | None) -> str:
        nonlocal count
        count += 1
        outcome = f"after {_duration(time.perf_counter() - begin)}" if reason is None else "failed"
        seeds = f"{len(cell.seeds)} seed{'s' if len(cell.seeds) > 1 else ''}"
        return f"{count}/{len(cells)} {cell.dataset} split {cell.split} {cell.method} ({seeds}), {outcome}"

    if not talk.is_terminal or talk.quiet:
        yield lambda cell, reason: talk.print(line(cell, reason)), lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), TimeElapsedColumn())
    with Progress(*columns, console=talk, transient=True) as bar:
        left = f"0/{len(cells)}, about {_duration(sum(expected))} left"
        overall: TaskID = bar.add_task("fleets", total=sum(expected), left=left)
        inner: TaskID = bar.add_task("epochs", total=None, left="")
        spent = 0.0

        def done(cell: Cell, reason: str | None) -> None:
            nonlocal spent
            bar.console.print(line(cell, reason), highlight=False)
            spent += weight[id(cell)]
            to_go = (time.perf_counter() - begin) * (sum(expected) - spent) / max(spent, 1e-9)
            bar.update(overall, completed=spent, left=f"{count}/{len(cells)}, about {_duration(to_go)} left")

        yield done, lambda steps, total: bar.update(inner, completed=steps, total=total)


def _duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> _duration(5), _duration(130), _duration(9000)
    ('5 s', '2.2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _write(out: Path, files: dict[str, str | bytes], talk: Console) -> None:
    for name, content in files.items():
        write_file(out / name, content)
    talk.print(f"written to {escape(str(out))}: {', '.join(sorted(files))}", soft_wrap=True)
