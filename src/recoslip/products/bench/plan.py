"""What is compared, as the options say it -> the jobs: each a fleet of seeds, on one split of one dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recoslip.base.errors import DatasetError, SettingError, nearest
from recoslip.base.settings import check_params, json_params
from recoslip.data.datasets.catalogue import GRAPHS
from recoslip.data.datasets.load import check_arxiv, data_root
from recoslip.data.datasets.panel import CASES, supported_cases
from recoslip.learning.base import Detector
from recoslip.learning.methods import DETECTORS, detector
from recoslip.products.bench.datasets import DEFAULT_SPLIT, Sources
from recoslip.products.bench.options import Choices
from recoslip.products.bench.records import Job, Key, Records, fingerprint, key_of
from recoslip.products.cli.console import print_problem
from recoslip.products.cli.options import parse_value, split_names

DATASETS = (*(f"{graph}-s" for graph in GRAPHS), "arxiv")  # by default; those of the panel are the graphs that are here
VARIANTS = ("reco-slip-none", "reco-slip-all", "reco-slip-target")  # which take part where they are named
NOT_SETTINGS = ("random_state", "device")  # of a detector


def plan(
    datasets: Sequence[str],
    methods: Sequence[str],
    splits: Sequence[str],
    seeds: Sequence[int],
    sources: Sources,
    settings: Mapping[str, Any] | None = None,
) -> list[Job]:
    """List the jobs of a comparison, ordered by dataset, split and method.

    Args:
        datasets: names.
        methods: names in the registry. One that trains nothing gives the same for every seed and gets one.
        splits: "own", or seeds of splits.
        seeds: seeds of initial weights and dropout.
        sources: where datasets come from, with their settings.
        settings: settings for all methods that have them; they override those of the datasets.
    """
    jobs = []
    for dataset in datasets:
        sources.check(dataset)
        chosen = {method: _settings(dataset, method, sources, settings or {}) for method in methods}
        jobs += [
            Job(dataset, split, method, *chosen[method], tuple(seeds if DETECTORS[method].trains else seeds[:1]))
            for split in splits
            for method in methods
        ]
    return jobs


def _settings(dataset: str, method: str, sources: Sources, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the settings of a method on a dataset, and the hash that identifies its results."""
    known = detector(method).get_params()
    wanted = {**sources.settings(dataset, method), **overrides}
    chosen = {name: value for name, value in wanted.items() if name in known}
    try:
        model = detector(method, **chosen)
        check_params(model)
    except SettingError as problem:
        raise SettingError(f"{method} on {dataset}: {problem}") from problem
    effective, data = effective_settings(model), sources.digest(dataset)
    return chosen, fingerprint(effective if data is None else [effective, data])


def effective_settings(model: Detector) -> dict[str, Any]:
    """Return all settings of a method that its results depend on besides the seed, as JSON values.

    Settings that are None are left out, so that records stay valid when a method gets a new setting with that default.
    """
    return {k: v for k, v in json_params(model).items() if v is not None and k not in NOT_SETTINGS}


def missing(jobs: Sequence[Job], records: Records, *, any_version: bool = False) -> list[Job]:
    """Leave out the runs that have a record, made by the present code or, with `any_version`, by any."""
    done = {(key_of(record), None if any_version else record["code"]) for record in records}
    left = []
    for job in jobs:
        code = None if any_version else job.code()
        left.append(replace(job, seeds=tuple(key.seed for key in job.runs() if (key, code) not in done)))
    return [job for job in left if job.seeds]


def recorded(jobs: Sequence[Job], records: Records) -> dict[Key, dict[str, Any]]:
    """Return the record of each planned run: the latest by the present code, else the latest of all."""
    codes = {key: job.code() for job in jobs for key in job.runs()}
    found: dict[Key, dict[str, Any]] = {}
    for record in sorted(records, key=lambda r: (r["code"] == codes.get(key_of(r)), r["time"]), reverse=True):
        if (key := key_of(record)) in codes:
            found.setdefault(key, record)
    return found


def choose(experiment: str, choices: Choices, sources: Sources) -> tuple[list[str], list[str]]:
    """Return the datasets and the methods to compare: those that the user names, else those of the experiment."""
    every = [method for method in DETECTORS if method not in VARIANTS]
    methods = every if choices.methods is None else split_names(choices.methods)
    without = split_names(choices.without)
    for method in (*methods, *without):
        if method not in DETECTORS:
            raise SettingError(f"no method is called {method!r}{nearest(method, DETECTORS)}; see recoslip methods")
    named = None if choices.datasets is None else split_names(choices.datasets)
    if experiment == "panel":
        datasets = _panel_cases(named, sources, check=not choices.render_only)
    else:
        datasets = _available(sources, check=not choices.render_only) if named is None else named
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
            _leave_out(name, problem)
        else:
            datasets += [f"{name}-{case}" for case in cases]
    return datasets


def _available(sources: Sources, *, check: bool) -> list[str]:
    """List the datasets by default, without arxiv where its files are not here: those of all others are downloaded."""
    try:
        if check:
            check_arxiv(data_root(sources.root))
        return list(DATASETS)
    except DatasetError as problem:
        _leave_out("arxiv", problem)
        return [name for name in DATASETS if name != "arxiv"]


def _leave_out(name: str, problem: DatasetError) -> None:
    print_problem(f"{name} is left out", str(problem), "bold yellow")


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
    if not text.isascii() or not text.isdigit():
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
        if not equals or name not in defaults or name in NOT_SETTINGS:
            raise SettingError(
                f"--set {text}: expected NAME=VALUE with a setting of the methods{nearest(name, defaults)}"
            )
        settings[name] = parse_value(value, defaults[name])
    return settings
