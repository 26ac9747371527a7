"""An experiment and the user's choices -> the cells to train, each a fleet of seeds on one split of one dataset."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from recoslip.bench.paper import AUROC, GRAPHS
from recoslip.bench.records import Key, Records, code_version, fingerprint, key_of
from recoslip.bench.sources import Sources
from recoslip.detectors import DETECTORS, Detector, detector
from recoslip.errors import SettingError
from recoslip.graph import NodeGraph

SHIFTS = ("ns", "ms", "s")
ABLATION = ("reco-slip-none", "reco-slip-all", "reco-slip-target", "reco-slip")
PAPER_ORDER = tuple(dict.fromkeys(method for method, _ in AUROC))
REPRESENTATIVE = ("domain-discriminator", "sar-em", "pu-gnn", "reco-slip")


@dataclass(frozen=True)
class Experiment:
    """One of the paper's: which datasets and methods it compares."""

    name: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]


def experiment(name: str) -> Experiment:
    """Return the paper's experiment of this name."""
    strong = tuple(f"{graph}-s" for graph in GRAPHS)
    match name:
        case "main":
            methods = dict.fromkeys((*PAPER_ORDER, *DETECTORS))
            return Experiment(name, (*strong, "arxiv"), tuple(m for m in methods if m not in ABLATION[:3]))
        case "ablation":
            return Experiment(name, (*strong, "arxiv"), ABLATION)
        case "shift":
            return Experiment(name, tuple(f"{graph}-{shift}" for graph in GRAPHS for shift in SHIFTS), REPRESENTATIVE)
    raise SettingError(f"no experiment is called {name!r}; there are main, ablation, shift")


@dataclass(frozen=True)
class Cell:
    """Runs that share a graph, a split, a method and its settings, and so are trained as one fleet."""

    dataset: str
    split: str
    method: str
    settings: dict[str, Any]  # as given to the method
    settings_hash: str  # of everything the method was set to, and of a user's own data
    seeds: tuple[int, ...]

    def runs(self) -> list[Key]:
        """Return the key of every run."""
        return [Key(self.dataset, self.split, self.method, self.settings_hash, seed) for seed in self.seeds]

    def code(self) -> str:
        """Return the version of the code its results depend on."""
        return code_version(DETECTORS[self.method])


def plan(
    datasets: Sequence[str],
    methods: Sequence[str],
    splits: Sequence[str],
    seeds: Sequence[int],
    sources: Sources,
    settings: dict[str, Any] | None = None,
) -> list[Cell]:
    """List the cells of a comparison, datasets first.

    Args:
        datasets: names.
        methods: names in the registry. One that trains nothing gives the same for every seed and gets one.
        splits: "own", or seeds of splits.
        seeds: of initial weights and dropout.
        sources: where datasets come from, with their settings.
        settings: settings for all methods that have them, before those of the datasets.
    """
    given = dict(settings or {})
    for setting in given:
        if not any(setting in detector(method).get_params() for method in methods):
            raise SettingError(f"none of these methods has a setting {setting!r}: {', '.join(methods)}")
    cells = []
    for dataset in datasets:
        sources.check(dataset)
        data = sources.digest(dataset)
        for method in methods:
            known = detector(method).get_params()
            wanted = sources.settings(dataset, method) | given
            own = {key: value for key, value in wanted.items() if key in known}
            try:
                model = detector(method, **own)
                model._check_settings()
            except SettingError as problem:
                raise SettingError(f"{method} on {dataset}: {problem}") from problem
            effective = settings_of(model)
            mark = fingerprint(effective if data is None else [effective, data])
            chosen = tuple(seeds) if model.trains else tuple(seeds[:1])
            cells += [Cell(dataset, split, method, own, mark, chosen) for split in splits]
    return sorted(cells, key=lambda cell: (list(datasets).index(cell.dataset), list(splits).index(cell.split)))


def settings_of(model: Detector) -> dict[str, Any]:
    """Return everything a method is set to that its results depend on besides the seed, as JSON values.

    A setting at None is left to the method and says nothing: with it, a new setting of that kind would disown every
    record made before it.
    """
    settings = model._json_settings().items()
    return {k: v for k, v in settings if v is not None and k not in ("random_state", "device")}


def missing(cells: Sequence[Cell], records: Records, *, any_version: bool = False) -> list[Cell]:
    """Take away the runs that have a record, made by the code as it is now or, if that shall do, by any."""
    done = {(key_of(record), None if any_version else record["code"]) for record in records}
    left = []
    for cell in cells:
        code = None if any_version else cell.code()
        seeds = tuple(key.seed for key in cell.runs() if (key, code) not in done)
        if seeds:
            left.append(replace(cell, seeds=seeds))
    return left


def recorded(cells: Sequence[Cell], records: Records) -> dict[Key, dict[str, Any]]:
    """Return the record of each planned run: the latest by the code as it is now, else the latest of all."""
    codes = {key: cell.code() for cell in cells for key in cell.runs()}
    found: dict[Key, dict[str, Any]] = {}
    for record in records:
        key = key_of(record)
        if key in codes and (key not in found or _merit(record, codes[key]) > _merit(found[key], codes[key])):
            found[key] = record
    return found


def _merit(record: dict[str, Any], code: str) -> tuple[bool, str]:
    return record["code"] == code, record["time"]


def estimate(
    cell: Cell, graph: NodeGraph, device: torch.device, threads: int, records: Iterable[dict[str, Any]]
) -> tuple[float, bool]:
    """Guess the seconds a cell takes, and say whether records of such runs on such a device are what it is based on."""
    same = (cell.dataset, cell.method, cell.settings_hash, device_name(device, threads))
    past = [r["seconds"] for r in records if (r["dataset"], r["method"], r["settings_hash"], r["device"]) == same]
    if past:
        return statistics.median(past) * len(cell.seeds), True
    model = detector(cell.method, **cell.settings)
    if not model.trains:
        return graph.num_nodes * 5e-4, False
    settings = model.get_params()
    members = len(cell.seeds) * settings.get("restarts", 1) * len(settings.get("recall_targets", [0]))
    epochs = settings.get("epochs", 1000) * (0.3 if "patience" in settings else 1)  # most stop early
    epochs *= 2 * min(100, settings["em_steps"]) if "em_steps" in settings else 1
    width = settings.get("hidden_channels", 64) + settings.get("out_channels", 32)
    pairs = graph.num_edges * {"none": 0}.get(settings.get("links", "none"), 2)  # of the link loss
    pairs += graph.num_edges * settings.get("negatives_per_edge", 0)
    work = (8 * graph.num_nodes + 2 * graph.num_edges + 4 * pairs) * width * members  # numbers touched in an epoch
    at_least, each = (1e-3, 1e-11) if device.type == "cuda" else (5e-3, 2e-9 / threads)
    return epochs * max(at_least, work * each), False


def threads_each(jobs: int) -> int:
    """Return how many threads each of several processes gets."""
    return max(1, torch.get_num_threads() // jobs)


def device_name(device: torch.device, threads: int) -> str:
    """Name the hardware that a time was taken on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{threads} CPU threads" if device.type == "cpu" else str(device)


def paper_seeds(count: int) -> tuple[int, ...]:
    """Return the paper's seeds 10, 20, ..., as many as wanted.

    >>> paper_seeds(3)
    (10, 20, 30)
    """
    return tuple(range(10, 10 * count + 1, 10))
