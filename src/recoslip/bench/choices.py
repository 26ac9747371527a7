"""Texts of the bench's options -> datasets, methods, splits, seeds and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recoslip.bench.datasets import DEFAULT_SPLIT, Sources
from recoslip.bench.options import Choices
from recoslip.bench.plan import DATASETS, methods_of
from recoslip.console.messages import print_problem
from recoslip.console.option_values import parse_value, split_names
from recoslip.datasets.load import check_arxiv, data_root
from recoslip.datasets.panel import CASES, supported_cases
from recoslip.detectors.registry import DETECTORS, detector
from recoslip.errors import DatasetError, SettingError, nearest


def choose(experiment: str, choices: Choices, sources: Sources) -> tuple[list[str], list[str]]:
    """Return the datasets and the methods to compare: those that the user names, else those of the experiment."""
    methods = list(methods_of(experiment)) if choices.methods is None else split_names(choices.methods)
    without = split_names(choices.without)
    for method in (*methods, *without):
        if method not in DETECTORS:
            raise SettingError(f"no method is called {method!r}{nearest(method, DETECTORS)}; see recoslip methods")
    named = None if choices.datasets is None else split_names(choices.datasets)
    datasets = list(DATASETS[experiment]) if named is None else named
    if experiment == "panel":
        datasets = _panel_cases(named, sources, check=not choices.render_only)
    elif named is None and not choices.render_only:
        datasets = _available(datasets, sources)
    methods = [method for method in dict.fromkeys(methods) if method not in without]
    if not methods or not datasets:
        raise SettingError("nothing to compare: choose at least one dataset and one method")
    return list(dict.fromkeys(datasets)), methods


def _panel_cases(names: Sequence[str] | None, sources: Sources, *, check: bool) -> list[str]:
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
            cases = supported_cases(name, sources.labelled(name)) if check else list(CASES)
        except DatasetError as problem:
            if names is not None:
                raise
            print_problem(f"{name} is left out", str(problem), "bold yellow")
            continue
        datasets += [f"{name}-{case}" for case in cases]
    return datasets


def _available(datasets: Sequence[str], sources: Sources) -> list[str]:
    """Leave arxiv out, with a message, where its files are not here: those of all others are downloaded."""
    if "arxiv" in datasets:
        try:
            check_arxiv(data_root(sources.root))
        except DatasetError as problem:
            print_problem("arxiv is left out", str(problem), "bold yellow")
            return [name for name in datasets if name != "arxiv"]
    return list(datasets)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read --seeds: a number means so many of the paper's seeds, a list means itself.

    >>> parse_seeds("2"), parse_seeds("7,8"), parse_seeds("7,")
    ((10, 20), (7, 8), (7,))
    """
    numbers = [_parse_whole("--seeds", item) for item in split_names(text)]
    if not numbers or ("," not in text and numbers[0] == 0):
        raise SettingError(f"--seeds must be a number of seeds, or a list of them such as 1,2,3; got {text!r}")
    return tuple(dict.fromkeys(numbers)) if "," in text else tuple(range(10, 10 * numbers[0] + 1, 10))


def parse_splits(text: str) -> list[str]:
    """Read --splits: own, a number of split seeds, or a list.

    >>> parse_splits("own"), parse_splits("3"), parse_splits("own,7")
    (['own'], ['0', '1', '2'], ['own', '7'])
    """
    splits = [s if s == DEFAULT_SPLIT else str(_parse_whole("--splits", s)) for s in split_names(text)]
    if "," not in text and splits != [DEFAULT_SPLIT]:
        splits = [str(seed) for seed in range(int(*splits))]
    if not splits:
        raise SettingError(f"--splits must be own, 1 or more, or a list such as own,0,1; got {text!r}")
    return list(dict.fromkeys(splits))


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
