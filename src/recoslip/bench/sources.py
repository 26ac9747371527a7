"""A dataset's name and a split -> the dataset: one of the catalogue's, or a user's own from a TOML file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recoslip.console import read_toml
from recoslip.datasets import CATALOGUE, Dataset, Settings, load_dataset
from recoslip.detectors import DETECTORS
from recoslip.errors import DatasetError, SettingError, TableError, nearest
from recoslip.shift import random_split
from recoslip.tables import Reading, read_graph

OWN = "own"  # the split a dataset comes with: for the paper's graphs the authors'
_OWN_SEED = 42  # of datasets that come with none

_NEUTRAL = Settings(64, 32, 32, 0.1, 0.01, 50)


@dataclass(frozen=True)
class OwnDataset:
    """A user's tables, with a column of categories held back for scoring."""

    name: str
    nodes: Path
    edges: Path | None
    category: str
    novel: tuple[Any, ...] | None  # values of that column; None: those that no source node has
    options: dict[str, Any]  # of read_graph
    settings: dict[str, Any]  # of detectors, those that have them

    def load(self, seed: int) -> Dataset:
        """Read the tables and draw a split."""
        graph = read_graph(self.nodes, self.edges, category=self.category, **self.options)
        assert graph.categories is not None
        if self.novel is None:
            known = np.unique(graph.categories[~graph.is_target.numpy()])
            novel = ~np.isin(graph.categories, known)
        else:
            categories = np.array([str(category) for category in graph.categories.tolist()])
            novel = np.isin(categories, [str(category) for category in self.novel])
            absent = sorted(set(map(str, self.novel)) - set(categories.tolist()))
            if absent:
                raise DatasetError(f"{self.name}: no node is of the novel category {absent[0]!r} in {self.category!r}")
        if not novel.any() or novel[~graph.is_target.numpy()].any():
            problem = "a source node is" if novel.any() else "no node is"
            raise DatasetError(
                f"{self.name}: {problem} novel by column {self.category!r}; novel categories have target nodes only, "
                'name them: novel = ["..."]'
            )
        split = random_split(graph.is_target, torch.Generator().manual_seed(seed))
        return Dataset(self.name, graph, split, novel, _NEUTRAL)

    def digest(self) -> str:
        """Fingerprint the tables and how they are read, so that records of other data do not count."""
        content = hashlib.sha256(repr((self.category, self.novel, sorted(self.options.items()))).encode())
        for path in (self.nodes, self.edges):
            if path is not None:
                with path.open("rb") as file:
                    content.update(hashlib.file_digest(file, "sha256").digest())
        return content.hexdigest()[:12]


@dataclass(frozen=True)
class Sources:
    """Where datasets come from."""

    root: Path | None = None  # of the catalogue's files
    own: dict[str, OwnDataset] = field(default_factory=dict)

    def check(self, name: str) -> None:
        """Raise if there is no dataset of this name."""
        known = [*self.own, *CATALOGUE]
        if name not in known:
            raise DatasetError(f"no dataset is called {name!r}{nearest(name, known)}; known: {', '.join(known)}")

    def load(self, name: str, split: str) -> Dataset:
        """Load a dataset with one of its splits: OWN, or a seed."""
        seed = None if split == OWN else int(split)
        own = self.own.get(name)
        if own is not None:
            return own.load(_OWN_SEED if seed is None else seed)
        return load_dataset(name, self.root, seed)

    def settings(self, name: str, method: str) -> dict[str, Any]:
        """Return the settings that come with a dataset for a method: the paper's, or those of a user's file."""
        own = self.own.get(name)
        if own is not None:
            return own.settings
        if not DETECTORS[method].tuned:
            return {}
        settings = CATALOGUE[name].settings
        return settings.reco_slip() | {"negatives_per_edge": settings.negatives_per_edge}

    def digest(self, name: str) -> str | None:
        """Fingerprint a user's own data; the catalogue's are known by name."""
        return _digest(self.own[name]) if name in self.own else None


def _digest(own: OwnDataset) -> str:
    try:
        return own.digest()
    except OSError as problem:
        raise TableError(f"{own.name}: cannot read {problem.filename}: {problem.strerror}") from problem


def read_sources(path: Path | None, root: Path | None) -> Sources:
    """Read a bench's TOML file: a table `[datasets.NAME]` for each of the user's own.

    Args:
        path: the file; tables it names are found beside it.
        root: folder of the catalogue's data.
    """
    if path is None:
        return Sources(root)
    document = read_toml(path)
    entries = document.pop("datasets", {})
    if document or not isinstance(entries, dict):
        raise SettingError(
            f"{path}: expected tables [datasets.NAME]; got {', '.join(map(repr, document)) or entries!r}"
        )
    return Sources(root, {name: _entry(path, name, entry) for name, entry in entries.items()})


_OPTIONS = tuple(option.name for option in fields(Reading) if option.name != "category")


def _entry(path: Path, name: str, entry: Any) -> OwnDataset:
    def check(holds: bool, problem: str) -> None:
        if not holds:
            raise SettingError(f"{path}: [datasets.{name}] {problem}")

    if name in CATALOGUE:
        raise SettingError(f"{path}: a dataset of the catalogue is called {name!r}; choose another name")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise SettingError(f"{path}: a dataset's name is letters, digits, - and _; got {name!r}")
    check(isinstance(entry, dict), f"must be a table; got {entry!r}")
    given = dict(entry)
    for key in ("nodes", "category"):
        check(isinstance(given.get(key), str), f'needs {key} = "..."; got {json.dumps(entry, default=str)}')
    nodes, edges = path.parent / given.pop("nodes"), given.pop("edges", None)
    check(edges is None or isinstance(edges, str), f"edges must name a file; got {edges!r}")
    category, novel, settings = given.pop("category"), given.pop("novel", None), given.pop("settings", {})
    if novel is not None and not isinstance(novel, list):
        novel = [novel]
    check(isinstance(settings, dict), f"settings must be a table; got {settings!r}")
    known_settings = {key for kind in DETECTORS.values() for key in kind().get_params()} - {"device", "random_state"}
    for key in settings:
        check(key in known_settings, f"settings: no method has {key!r}{nearest(key, known_settings)}")
    for option, value in given.items():
        known = ("nodes", "edges", "category", "novel", "settings", *_OPTIONS)
        check(option in _OPTIONS, f"has no option {option!r}{nearest(option, known)}; it has {', '.join(known)}")
        kind = (
            list if option in ("features", "ignore", "text") else bool if option in ("drop_unknown", "impute") else None
        )
        check(kind is None or isinstance(value, kind), f"{option} must be a {kind and kind.__name__}; got {value!r}")
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return OwnDataset(
        name,
        nodes,
        None if edges is None else path.parent / edges,
        category,
        None if novel is None else tuple(novel),
        given,
        settings,
    )
