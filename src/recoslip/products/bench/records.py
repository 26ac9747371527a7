"""What is compared -> jobs, each a fleet of seeds on one split of one dataset -> their records on the disk -> means."""

import hashlib
import inspect
import json
import math
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import wilcoxon

from recoslip._version import __version__
from recoslip.base.errors import RecoslipError, SettingError
from recoslip.base.files import write_new
from recoslip.base.json_files import parse_json
from recoslip.base.settings import check_params, json_params
from recoslip.learning.base import Detector
from recoslip.learning.methods import DETECTORS, detector
from recoslip.products.bench.datasets import Sources
from recoslip.products.cli.options import NOT_LISTED

PACKAGE = Path(__file__).resolve().parents[2]
MEASURES = ("auroc", "ap", "f1", "fpr95", "seconds")
TEXTS = ("dataset", "split", "method", "settings_hash", "code", "time", "device", "torch")
FIELDS: Mapping[str, Any] = dict.fromkeys(TEXTS, str) | dict.fromkeys(MEASURES, int | float) | {"seed": int}  # read


class Key(NamedTuple):
    """What identifies a run."""

    dataset: str
    split: str  # "own" or a seed
    method: str
    settings: str  # fingerprint of the method's settings and of the data, where they are the user's
    seed: int


@dataclass(frozen=True)
class Job:
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


class Records:
    """A folder of records. Every fleet that has been trained is one file of JSON lines in it, one per seed.

    A temporary file is written, flushed to the disk and renamed, so a process that is killed leaves nothing half
    written, and any number of processes may write at once. Any tool reads them: `polars.read_ndjson("*.jsonl")`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        """Store the records of one fleet."""
        first = records[0]
        name = "{dataset}.{split}.{method}".format(**first)
        digest = fingerprint([first["settings_hash"], first["code"], [record["seed"] for record in records]])
        text = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
        path = self.folder / f"{name}.{digest}.jsonl"
        if not path.exists():  # another process was quicker
            write_new(path, text)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield every record, in the order of the files' names."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RecoslipError(
                f"{self.folder} is a file, expected a folder of records or nothing; choose another --out"
            )
        for path in sorted(path for path in self.folder.glob("[!.]*.jsonl") if path.is_file()):
            try:
                yield from (_checked(parse_json(line)) for line in path.read_text(encoding="utf-8").splitlines())
            except (OSError, ValueError, KeyError, TypeError) as problem:
                raise RecoslipError(
                    f"{path} cannot be read, it is damaged or not ours ({problem}); "
                    "move it away, and its runs will be done again"
                ) from problem


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record, or raise if a field that is read later is missing or of the wrong type."""
    for name, kind in FIELDS.items():
        if not isinstance(record[name], kind) or (kind is not str and not math.isfinite(record[name])):
            raise ValueError(f"{name} is {record[name]!r}")
    return record


def key_of(record: dict[str, Any]) -> Key:
    """Return the key of the run that a record is about."""
    return Key(*(record[name] for name in ("dataset", "split", "method", "settings_hash", "seed")))


def fingerprint(value: Any) -> str:
    """Hash a JSON value to 12 digits.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@cache
def code_version(kind: type[Detector]) -> str:
    """Return the version of the code that a detector's results depend on.

    It is the version of this package with `revision` and, for a detector of another package, a hash of its module.
    """
    ours = __version__ + revision(PACKAGE)
    module = inspect.getmodule(kind)
    if module is None or module.__name__.partition(".")[0] == PACKAGE.name:
        return ours
    return f"{ours}+{fingerprint(inspect.getsource(module))[:8]}"


def revision(folder: Path) -> str:
    """Return the last commit of a folder and a hash of what has changed since; nothing outside of a git checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments, "--", "."]
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True).stdout

    try:
        commit, changes = git("log", "-1", "--format=+g%h", "--abbrev=8").strip(), git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + (f".{fingerprint(changes)[:8]}" if changes else "")


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
            Job(dataset, split, method, *chosen[method], tuple(seeds if DETECTORS[method].varies else seeds[:1]))
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
    return {k: v for k, v in json_params(model).items() if v is not None and k not in NOT_LISTED}


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


def is_ranked(method: str) -> bool:
    """Say whether a method competes with the others: the oracle does not, because it is given the truth."""
    return method != "oracle"


class Summary(NamedTuple):
    """The result of a method on a dataset: the mean over the seeds of one split, or over the means of splits."""

    mean: float
    error: float | None  # standard error; None for a single value
    by_split: dict[str, float]  # mean over seeds
    runs: int
    planned: int

    @property
    def complete(self) -> bool:
        """Whether every planned run has a record."""
        return self.runs == self.planned

    @property
    def note(self) -> str:
        """What is said beside a mean over fewer runs than planned."""
        return "" if self.complete else f" ({self.runs} of {self.planned} runs)"


def summarise(jobs: Sequence[Job], found: Mapping[Key, dict[str, Any]], metric: str) -> dict[tuple[str, str], Summary]:
    """Summarise the records of planned jobs by method and dataset; those without any are left out."""
    by_split: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    planned: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        planned[job.method, job.dataset] += len(job.seeds)
        values = [found[key][metric] for key in job.runs() if key in found]
        if values:
            by_split[job.method, job.dataset][job.split] = values
    result = {}
    for key, splits in by_split.items():
        means = {split: float(np.mean(values)) for split, values in splits.items()}
        sample = list(means.values()) if len(means) > 1 else next(iter(splits.values()))
        error = float(np.std(sample, ddof=1) / np.sqrt(len(sample))) if len(sample) > 1 else None
        result[key] = Summary(float(np.mean(sample)), error, means, sum(map(len, splits.values())), planned[key])
    return result


Summaries: TypeAlias = Mapping[tuple[str, str], Summary]  # by method and dataset


class Comparison(NamedTuple):
    """A method against the reference, on the pairs of dataset and split that both have."""

    method: str
    pairs: int
    difference: float  # mean of the method's value minus the reference's
    wins: int
    losses: int
    p: float  # two-sided Wilcoxon signed-rank


def compare(summaries: Summaries, methods: Sequence[str], datasets: Sequence[str], reference: str) -> list[Comparison]:
    """Compare every method with the reference; those with fewer than five pairs are left out."""
    result = []
    for method in methods:
        pairs = [(summaries.get((method, dataset)), summaries.get((reference, dataset))) for dataset in datasets]
        differences = np.array(
            [
                own.by_split[split] - other.by_split[split]
                for own, other in pairs
                if own is not None and other is not None
                for split in own.by_split
                if split in other.by_split
            ]
        )
        if method == reference or not is_ranked(method) or len(differences) < 5:
            continue
        p = float(wilcoxon(differences).pvalue) if differences.any() else 1.0
        wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
        result.append(Comparison(method, len(differences), float(differences.mean()), wins, losses, p))
    return result


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons (Holm's step-down).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(np.array(p)[order] * np.arange(len(p), 0, -1)))
    return [float(value) for value in adjusted]
