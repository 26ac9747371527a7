"""Texts of the bench's options -> datasets, methods, splits, seeds and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recoslip.bench.paper import paper_seeds
from recoslip.bench.plan import Experiment
from recoslip.bench.sources import DEFAULT_SPLIT, Sources
from recoslip.console.messages import print_problem
from recoslip.console.option_values import parse_value, split_names
from recoslip.datasets.load import check_arxiv, data_root
from recoslip.datasets.panel import CASES, supported_cases
from recoslip.detectors.registry import DETECTORS, detector
from recoslip.errors import DatasetError, SettingError, nearest


@dataclass(frozen=True)
class Choices:
    """What the user wants to compare, and how."""

    datasets: list[str] | None  # None: those of the experiment
    methods: list[str] | None  # None: those of the experiment
    without: list[str]  # methods to leave out
    seeds: tuple[int, ...]
    splits: list[str]
    settings: list[str]  # texts NAME=VALUE
    device: str
    jobs: int  # processes that train at the same time
    ray: str | None  # address of a Ray cluster
    reference: str  # the method that the others are tested against
    any_version: bool  # whether records that other versions of the code made count
    render_only: bool

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise SettingError(f"--jobs must be 1 or more; got {self.jobs}")
        if self.reference not in DETECTORS:
            raise SettingError(
                f"--reference: no method is called {self.reference!r}{nearest(self.reference, DETECTORS)}"
            )


def choose(experiment: Experiment, choices: Choices, sources: Sources) -> tuple[list[str], list[str]]:
    """Return the datasets and the methods to compare: those that the user names, else those of the experiment."""
    methods = list(experiment.methods) if choices.methods is None else choices.methods
    for method in (*methods, *choices.without):
        if method not in DETECTORS:
            raise SettingError(f"no method is called {method!r}{nearest(method, DETECTORS)}; see recoslip methods")
    methods = [method for method in dict.fromkeys(methods) if method not in choices.without]
    datasets = list(experiment.datasets) if choices.datasets is None else list(dict.fromkeys(choices.datasets))
    if experiment.name == "panel":
        datasets = panel_cases(choices.datasets, sources, check=not choices.render_only)
    elif choices.datasets is None and not choices.render_only:
        datasets = available(datasets, sources)
    if not methods or not datasets:
        raise SettingError("nothing to compare: choose at least one dataset and one method")
    return datasets, methods


def panel_cases(names: Sequence[str] | None, sources: Sources, *, check: bool) -> list[str]:
    """List the panel's datasets: those that are named, and for the name of a graph all of its cases.

    With `check`, cases that a graph has too few categories for are left out, and so are, with a message, graphs whose
    files are not here, unless they are named.
    """
    datasets: list[str] = []
    for name in sources.panel_graphs() if names is None else names:
        if sources.panel_case(name) is not None:
            datasets.append(name)
            continue
        try:
            cases = supported_cases(name, sources.labelled(name).categories) if check else list(CASES)
        except DatasetError as problem:
            if names is not None:
                raise
            print_problem(f"{name} is left out", str(problem), "bold yellow")
            continue
        datasets += [f"{name}-{case}" for case in cases]
    return list(dict.fromkeys(datasets))


def available(datasets: Sequence[str], sources: Sources) -> list[str]:
    """Leave out, with a message, datasets whose files are not here and cannot be downloaded."""
    found = []
    for name in datasets:
        try:
            if name == "arxiv":  # the files of all others are downloaded
                check_arxiv(data_root(sources.root))
            found.append(name)
        except DatasetError as problem:
            print_problem(f"{name} is left out", str(problem), "bold yellow")
    return found


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read --seeds: a number means so many of the paper's seeds, a list means itself.

    >>> parse_seeds("2"), parse_seeds("7,8"), parse_seeds("7,")
    ((10, 20), (7, 8), (7,))
    """
    numbers = [_parse_whole("--seeds", item) for item in split_names(text)]
    if not numbers or ("," not in text and numbers[0] == 0):
        raise SettingError(f"--seeds must be a number of seeds, or a list of them such as 1,2,3; got {text!r}")
    return tuple(dict.fromkeys(numbers)) if "," in text else paper_seeds(numbers[0])


def parse_splits(text: str) -> list[str]:
    """Read --splits: own, a number of split seeds, or a list.

    >>> parse_splits("own"), parse_splits("3"), parse_splits("own,7")
    (['own'], ['0', '1', '2'], ['own', '7'])
    """
    splits = split_names(text)
    if not splits:
        raise SettingError(f"--splits must be own, a number, or a list such as own,0,1; got {text!r}")
    if "," not in text and text.strip() != DEFAULT_SPLIT:
        count = _parse_whole("--splits", text)
        if count == 0:
            raise SettingError("--splits must be own, or 1 or more; got 0")
        return [str(seed) for seed in range(count)]
    return list(
        dict.fromkeys(split if split == DEFAULT_SPLIT else str(_parse_whole("--splits", split)) for split in splits)
    )


def _parse_whole(option: str, text: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit():
        raise SettingError(f"{option}: expected a whole number, not negative; got {text!r}")
    return int(text)


def parse_settings(texts: Sequence[str], methods: Sequence[str]) -> dict[str, Any]:
    """Read --set NAME=VALUE; a value has the type of the setting's default in the first method that has it."""
    defaults: dict[str, Any] = {}
    for method in methods:
        defaults = detector(method).get_params() | defaults
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in defaults or name in ("random_state", "device"):
            raise SettingError(
                f"--set {text}: expected NAME=VALUE with a setting of the methods{nearest(name, defaults)}"
            )
        settings[name] = parse_value(value, defaults[name])
    return settings
