"""A TOML file with a table `[datasets.NAME]` for each of the user's datasets -> datasets."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recoslip.console.option_values import read_toml
from recoslip.datasets.catalogue import CATALOGUE, NO_PAPER_SETTINGS
from recoslip.datasets.load import Dataset
from recoslip.datasets.panel import Labelled
from recoslip.detectors.registry import DETECTORS
from recoslip.errors import DatasetError, SettingError, TableError, nearest
from recoslip.graph import NodeGraph
from recoslip.graph.sparse import to_scipy
from recoslip.graph.split import Mask, random_split
from recoslip.read_options import current_names, declared
from recoslip.tables.read import read_graph

_READ_OPTIONS = {name: option for name, (_, option) in declared().items() if name != "category"}
_OPTION_TYPES = {"names": list, "switch": bool, "numbers": dict, "text": str}


@dataclass(frozen=True)
class UserDataset:
    """A user's tables, with a column of true categories that methods do not see."""

    name: str
    nodes: Path
    edges: Path | None
    category: str  # the column of true categories
    novel: tuple[Any, ...] | None  # values of that column; None: those that no source node has
    read_options: dict[str, Any]  # arguments of `read_graph`
    settings: dict[str, Any]  # settings of those detectors that have them

    def load(self, seed: int) -> Dataset:
        """Read the tables and draw a split."""
        graph = read_graph(self.nodes, self.edges, category=self.category, **self.read_options)
        split = random_split(graph.is_target, torch.Generator().manual_seed(seed))
        return Dataset(self.name, graph, split, self._novel_nodes(graph), NO_PAPER_SETTINGS)

    def labelled(self) -> Labelled:
        """Read the tables as a graph with categories, for cases of the panel; the domains in them do not matter."""
        graph = read_graph(self.nodes, self.edges, category=self.category, **self.read_options)
        assert graph.categories is not None
        x = graph.x.numpy() if graph.x.layout == torch.strided else to_scipy(graph.x)
        _, categories = np.unique([str(category) for category in graph.categories.tolist()], return_inverse=True)
        return Labelled(x, graph.edge_index.numpy(), categories)

    def _novel_nodes(self, graph: NodeGraph) -> Mask:
        """Return which nodes are of a novel category, or raise if that cannot be scored."""
        assert graph.categories is not None
        source = ~graph.is_target.numpy()
        if self.novel is None:
            novel = ~np.isin(graph.categories, np.unique(graph.categories[source]))
        else:
            categories = np.array([str(category) for category in graph.categories.tolist()])
            novel = np.isin(categories, [str(category) for category in self.novel])
            absent = sorted(set(map(str, self.novel)) - set(categories.tolist()))
            if absent:
                raise DatasetError(f"{self.name}: no node is of the novel category {absent[0]!r} in {self.category!r}")
        if not novel.any() or novel[source].any():
            problem = "a source node is" if novel.any() else "no node is"
            raise DatasetError(
                f"{self.name}: {problem} novel by column {self.category!r}; novel categories have target nodes only, "
                'name them: novel = ["..."]'
            )
        return novel

    def digest(self) -> str:
        """Hash the tables and how they are read, so that records of other data are told apart."""
        content = hashlib.sha256(repr((self.category, self.novel, sorted(self.read_options.items()))).encode())
        for path in (self.nodes, self.edges):
            if path is not None:
                try:
                    with path.open("rb") as file:
                        content.update(hashlib.file_digest(file, "sha256").digest())
                except OSError as problem:
                    raise TableError(f"{self.name}: cannot read {path}: {problem.strerror}") from problem
        return content.hexdigest()[:12]


def read_user_datasets(path: Path) -> dict[str, UserDataset]:
    """Read the file; the tables that it names are found beside it."""
    document = read_toml(path)
    entries = document.pop("datasets", {})
    if document or not isinstance(entries, dict):
        raise SettingError(
            f"{path}: expected tables [datasets.NAME]; got {', '.join(map(repr, document)) or entries!r}"
        )
    return {name: _read_entry(path, name, entry) for name, entry in entries.items()}


def _read_entry(path: Path, name: str, entry: Any) -> UserDataset:
    """Check a table [datasets.NAME] and return the dataset that it describes."""
    if name in CATALOGUE:
        raise SettingError(f"{path}: a dataset of the catalogue is called {name!r}; choose another name")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise SettingError(f"{path}: a dataset's name is letters, digits, - and _; got {name!r}")
    try:
        _check_entry(entry)
    except SettingError as problem:
        raise SettingError(f"{path}: [datasets.{name}] {problem}") from problem
    novel = entry.get("novel")
    return UserDataset(
        name=name,
        nodes=path.parent / entry["nodes"],
        edges=path.parent / entry["edges"] if "edges" in entry else None,
        category=entry["category"],
        novel=None if novel is None else tuple(novel) if isinstance(novel, list) else (novel,),
        read_options={
            option: value
            for option, value in current_names(entry, [*entry, *_READ_OPTIONS]).items()
            if option in _READ_OPTIONS
        },
        settings={
            setting: tuple(value) if isinstance(value, list) else value
            for setting, value in entry.get("settings", {}).items()
        },
    )


def _check_entry(entry: Any) -> None:
    """Raise SettingError for a table [datasets.NAME] that does not describe a dataset."""
    if not isinstance(entry, dict):
        raise SettingError(f"must be a table; got {entry!r}")
    for key in ("nodes", "category"):
        if not isinstance(entry.get(key), str):
            raise SettingError(f'needs {key} = "..."; got {json.dumps(entry, default=str)}')
    if not isinstance(entry.get("edges", ""), str):
        raise SettingError(f"edges must name a file; got {entry['edges']!r}")
    _check_settings(entry.get("settings", {}))
    known = ("nodes", "edges", "category", "novel", "settings", *_READ_OPTIONS)
    for option, value in current_names(entry, known).items():
        expected = _OPTION_TYPES.get(_READ_OPTIONS[option].kind) if option in _READ_OPTIONS else None
        if expected is not None and not isinstance(value, expected):
            raise SettingError(f"{option} must be a {expected.__name__}; got {value!r}")


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Raise SettingError unless each setting is one of some method."""
    if not isinstance(settings, dict):
        raise SettingError(f"settings must be a table; got {settings!r}")
    known = {name for method in DETECTORS.values() for name in method().get_params()} - {"device", "random_state"}
    for name in settings:
        if name not in known:
            raise SettingError(f"settings: no method has {name!r}{nearest(name, known)}")
