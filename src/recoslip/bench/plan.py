"""Datasets, methods, splits and seeds -> the cells to train, each a fleet of seeds on one split of one dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recoslip.bench.datasets import Sources
from recoslip.bench.records import Key, Records, code_version, fingerprint, key_of
from recoslip.datasets.catalogue import GRAPHS
from recoslip.detectors.base import Detector
from recoslip.detectors.registry import DETECTORS, detector
from recoslip.errors import SettingError

TITLES = {  # in the order of the paper, then of the others
    "oracle": "Oracle",
    "domain-discriminator": "Domain discriminator",
    "upu": "uPU",
    "nnpu": "nnPU",
    "sar-em": "SAR-EM",
    "lp-pul": "LP-PUL",
    "pu-gnn": "PU-GNN",
    "reco-slip": "RECO-SLIP",
    "reco-slip-none": "w/o link prediction",
    "reco-slip-all": "w/ full link prediction",
    "reco-slip-target": "w/ target link prediction",
    "reco-slip-plus": "RECO-SLIP+",
    "scan": "Scan",
    "conoc": "CoNoC",
    "dist-pu": "Dist-PU",
    "elkan-noto": "Elkan-Noto",
    "energy": "Energy",
    "nearest-source": "Nearest source",
    "dominant": "DOMINANT",
}
ABLATION = ("reco-slip-none", "reco-slip-all", "reco-slip-target", "reco-slip")
REPRESENTATIVE = ("domain-discriminator", "sar-em", "pu-gnn", "reco-slip")
SHIFTS = ("ns", "ms", "s")  # versions of each graph: no, minor and strong shift
_STRONG = (*(f"{graph}-s" for graph in GRAPHS), "arxiv")
DATASETS = {  # of each experiment; those of the panel are the graphs that are here
    "main": _STRONG,
    "ablation": _STRONG,
    "shift": tuple(f"{graph}-{shift}" for graph in GRAPHS for shift in SHIFTS),
    "panel": (),
}


def methods_of(experiment: str) -> tuple[str, ...]:
    """Return the methods that an experiment compares."""
    chosen = {"ablation": ABLATION, "shift": REPRESENTATIVE}
    return chosen.get(experiment) or tuple(m for m in dict.fromkeys((*TITLES, *DETECTORS)) if m not in ABLATION[:3])


@dataclass(frozen=True)
class Cell:
    """Runs that share a graph, a split, a method and its settings, and so are trained as one fleet."""

    dataset: str
    split: str
    method: str
    settings: dict[str, Any]  # those that differ from the method's defaults
    settings_hash: str  # of all settings of the method, and of the data where they are the user's
    seeds: tuple[int, ...]

    def runs(self) -> list[Key]:
        """Return the key of every run."""
        return [Key(self.dataset, self.split, self.method, self.settings_hash, seed) for seed in self.seeds]

    def code(self) -> str:
        """Return the version of the code that its results depend on."""
        return code_version(DETECTORS[self.method].kind)


def plan(
    datasets: Sequence[str],
    methods: Sequence[str],
    splits: Sequence[str],
    seeds: Sequence[int],
    sources: Sources,
    settings: dict[str, Any] | None = None,
) -> list[Cell]:
    """List the cells of a comparison, ordered by dataset, split and method.

    Args:
        datasets: names.
        methods: names in the registry. One that trains nothing gives the same for every seed and gets one.
        splits: "own", or seeds of splits.
        seeds: seeds of initial weights and dropout.
        sources: where datasets come from, with their settings.
        settings: settings for all methods that have them; they override those of the datasets.
    """
    cells = []
    for dataset in datasets:
        sources.check(dataset)
        chosen = {method: _settings(dataset, method, sources, settings or {}) for method in methods}
        for split in splits:
            for method in methods:
                runs = tuple(seeds) if DETECTORS[method].trains else tuple(seeds[:1])
                cells.append(Cell(dataset, split, method, *chosen[method], runs))
    return cells


def _settings(dataset: str, method: str, sources: Sources, overrides: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the settings of a method on a dataset, and the hash that identifies its results."""
    known = detector(method).get_params()
    wanted = sources.settings(dataset, method) | overrides
    chosen = {name: value for name, value in wanted.items() if name in known}
    try:
        model = detector(method, **chosen)
        model.check_params()
    except SettingError as problem:
        raise SettingError(f"{method} on {dataset}: {problem}") from problem
    effective, data = effective_settings(model), sources.digest(dataset)
    return chosen, fingerprint(effective if data is None else [effective, data])


def effective_settings(model: Detector) -> dict[str, Any]:
    """Return all settings of a method that its results depend on besides the seed, as JSON values.

    Settings that are None are left out, so that records stay valid when a method gets a new setting with that default.
    """
    settings = model.json_params().items()
    return {k: v for k, v in settings if v is not None and k not in ("random_state", "device")}


def missing(cells: Sequence[Cell], records: Records, *, any_version: bool = False) -> list[Cell]:
    """Leave out the runs that have a record, made by the present code or, with `any_version`, by any."""
    done = {(key_of(record), None if any_version else record["code"]) for record in records}
    remaining = []
    for cell in cells:
        code = None if any_version else cell.code()
        seeds = tuple(key.seed for key in cell.runs() if (key, code) not in done)
        if seeds:
            remaining.append(replace(cell, seeds=seeds))
    return remaining


def recorded(cells: Sequence[Cell], records: Records) -> dict[Key, dict[str, Any]]:
    """Return the record of each planned run: the latest by the present code, else the latest of all."""
    codes = {key: cell.code() for cell in cells for key in cell.runs()}
    found: dict[Key, dict[str, Any]] = {}
    for record in sorted(records, key=lambda r: (r["code"] == codes.get(key_of(r)), r["time"]), reverse=True):
        if (key := key_of(record)) in codes:
            found.setdefault(key, record)
    return found
