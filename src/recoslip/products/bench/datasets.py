"""A dataset's name and a split -> the dataset: one of the catalogue, or one that the user describes in a TOML file."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recoslip.base.errors import DatasetError, RecoslipError, SettingError, TableError, nearest
from recoslip.base.randomness import Permutations
from recoslip.data.datasets import load
from recoslip.data.datasets.catalogue import CATALOGUE, NO_PAPER_SETTINGS
from recoslip.data.datasets.load import Dataset
from recoslip.data.datasets.panel import CASES, Labelled, archive_digest
from recoslip.data.graph import NodeGraph
from recoslip.data.options import ReadOptions, check_names, declared
from recoslip.data.split import Mask, random_split
from recoslip.data.tables.read import read_graph
from recoslip.learning.methods import DETECTORS
from recoslip.products.cli.options import NOT_LISTED, read_toml

DEFAULT_SPLIT = "own"  # the split that a dataset comes with: the authors' for the paper's graphs
_USER_SPLIT_SEED = 42  # the seed that stands for the default split of a user's dataset
_READ = {name: option for name, (_, option) in declared().items()}
_KINDS = {"names": list, "switch": bool, "numbers": dict, "text": str, "value": object, "pairs": dict, "count": int}
_TYPES = {name: _KINDS[option.kind] for name, option in _READ.items()} | {"since": object}
_TYPES |= {"nodes": str, "edges": str, "novel": object, "settings": dict}


@dataclass(frozen=True)
class UserDataset:
    """A user's tables, with a column of true categories that methods do not see."""

    name: str
    nodes: Path
    edges: Path | None
    novel: tuple[str, ...] | None  # novel values of the column of categories; None: those that no source node has
    read: dict[str, Any]  # arguments of `read_graph`
    settings: dict[str, Any]  # settings of those detectors that have them

    def load(self, seed: int) -> Dataset:
        """Read the tables and draw a split."""
        graph, categories = self._graph()
        split = random_split(graph.is_target, Permutations(seed))
        return Dataset(self.name, graph, split, self._novel(categories, ~graph.is_target), NO_PAPER_SETTINGS)

    def labelled(self) -> Labelled:
        """Read the tables as a graph with categories, for cases of the panel; the domains in them do not matter."""
        graph, categories = self._graph()
        return Labelled(graph.x, graph.edge_index, np.unique(categories, return_inverse=True)[1])

    def _graph(self) -> tuple[NodeGraph, Any]:
        """Return the graph and its categories as text."""
        graph = read_graph(self.nodes, self.edges, **self.read)
        assert graph.categories is not None
        return graph, np.array([str(category) for category in graph.categories.tolist()])

    def _novel(self, categories: Any, source: Mask) -> Mask:
        """Return which nodes are of a novel category, or raise if that cannot be scored."""
        column = repr(self.read["category"])
        if absent := sorted(set(self.novel or ()) - set(categories.tolist())):
            raise DatasetError(f"{self.name}: no node is of the novel category {absent[0]!r} in {column}")
        named: Any = self.novel
        novel = ~np.isin(categories, categories[source]) if named is None else np.isin(categories, named)
        if not novel.any() or novel[source].any():
            raise DatasetError(
                f"{self.name}: {'a source node is' if novel.any() else 'no node is'} novel by column {column}; novel "
                'categories have target nodes only, name them: novel = ["..."]'
            )
        return novel

    def digest(self) -> str:
        """Hash the tables and how they are read, so that records of other data are told apart."""
        read = sorted((name, value) for name, value in self.read.items() if name != "category")
        content = hashlib.sha256(repr((self.read["category"], self.novel, read)).encode())
        for path in filter(None, (self.nodes, self.edges)):
            try:
                content.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError as problem:
                raise TableError(f"{self.name}: cannot read {path}: {problem.strerror}") from problem
        return content.hexdigest()[:12]


def _read_user_datasets(path: Path) -> dict[str, UserDataset]:
    """Read the file; the tables that it names are found beside it."""
    document = read_toml(path)
    entries = document.pop("datasets", {})
    if document or not isinstance(entries, dict):
        raise SettingError(
            f"{path}: expected tables [datasets.NAME]; got {', '.join(map(repr, document)) or entries!r}"
        )
    datasets = {}
    for name, entry in entries.items():
        if name in CATALOGUE:
            raise SettingError(f"{path}: a dataset of the catalogue is called {name!r}; choose another name")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise SettingError(f"{path}: a dataset's name is letters, digits, - and _; got {name!r}")
        try:
            datasets[name] = _user_dataset(path.parent, name, entry)
        except RecoslipError as problem:
            raise SettingError(f"{path}: [datasets.{name}] {problem}") from problem
    return datasets


def _user_dataset(folder: Path, name: str, entry: Any) -> UserDataset:
    """Check a table [datasets.NAME] and return the dataset that it describes."""
    if not isinstance(entry, dict):
        raise SettingError(f"must be a table; got {entry!r}")
    given = dict(entry)
    check_names(given, _TYPES)
    for option in ("nodes", "category"):
        if option not in given:
            raise SettingError(f'needs {option} = "..."; got {json.dumps(entry, default=str)}')
    for option, value in given.items():
        if not isinstance(value, _TYPES[option]):
            raise SettingError(f"{option} must be a {_TYPES[option].__name__}; got {value!r}")
    read = {option: value for option, value in given.items() if option in _READ}
    ReadOptions(**read)
    novel, edges, settings = given.get("novel"), given.get("edges"), given.get("settings", {})
    known = {own for method in DETECTORS.values() for own in method().get_params()} - set(NOT_LISTED)
    if unknown := [own for own in settings if own not in known]:
        raise SettingError(f"settings: no method has {unknown[0]!r}{nearest(unknown[0], known)}")
    return UserDataset(
        name,
        folder / given["nodes"],
        None if edges is None else folder / edges,
        None if novel is None else tuple(map(str, novel if isinstance(novel, list) else [novel])),
        read,
        {own: tuple(value) if isinstance(value, list) else value for own, value in settings.items()},
    )


@dataclass(frozen=True)
class Sources:
    """Where datasets come from."""

    root: Path | None = None  # folder of the catalogue's files
    user_datasets: dict[str, UserDataset] = field(default_factory=dict)
    _last: dict[tuple[str, str], Dataset] = field(default_factory=dict, repr=False)

    def check(self, name: str) -> None:
        """Raise if there is no dataset of this name."""
        known = [*self.user_datasets, *CATALOGUE]
        if name not in known and self.panel_case(name) is None:
            raise DatasetError(f"no dataset is called {name!r}{nearest(name, known)}; known: {', '.join(known)}")

    def panel_graphs(self) -> list[str]:
        """Name the graphs that cases of the panel can be made of: the user's where there are any, else all."""
        return list(self.user_datasets) or load.panel_graphs(self.root)

    def panel_case(self, name: str) -> tuple[str, str] | None:
        """Split the name of a case of the panel, such as cora-grown, into graph and case; None for other datasets.

        A user's dataset that is called like a case is itself.
        """
        graph, _, case = name.rpartition("-")
        known = case in CASES and graph in (*self.user_datasets, *load.panel_graphs(self.root))
        return (graph, case) if known and name not in self.user_datasets else None

    def labelled(self, graph: str) -> Labelled:
        """Load a graph that cases of the panel are made of."""
        own = self.user_datasets.get(graph)
        return load.load_labelled(graph, self.root) if own is None else own.labelled()

    def load(self, name: str, split: str) -> Dataset:
        """Load a dataset with one of its splits: the default one, or that of a seed. The last one stays loaded."""
        if self._last.keys() != {(name, split)}:
            self._last.clear()
            self._last[name, split] = self._load(name, split)
        return self._last[name, split]

    def _load(self, name: str, split: str) -> Dataset:
        seed = None if split == DEFAULT_SPLIT else int(split)
        if (found := self.panel_case(name)) is not None:
            graph, case = found
            return load.load_panel_case(graph, self.labelled(graph), case, seed)
        if name in self.user_datasets:
            return self.user_datasets[name].load(_USER_SPLIT_SEED if seed is None else seed)
        return load.load_dataset(name, self.root, seed)

    def settings(self, name: str, method: str) -> dict[str, Any]:
        """Return the settings for a method that come with a dataset: the paper's, or those of the user's file."""
        graph, case = self.panel_case(name) or (name, None)
        if graph in self.user_datasets:
            return self.user_datasets[graph].settings
        if case is not None or not DETECTORS[method].uses_paper_settings:
            return {}
        settings = CATALOGUE[name].settings
        return settings.reco_slip() | {"negatives_per_edge": settings.negatives_per_edge}

    def digest(self, name: str) -> str | None:
        """Hash the data of a user's dataset or of an archive; None for those that their names identify."""
        graph, case = self.panel_case(name) or (name, None)
        if graph in self.user_datasets:
            return self.user_datasets[graph].digest()
        archive = load.panel_archive(graph, self.root)
        return archive_digest(archive) if case is not None and archive.is_file() else None


def read_sources(config: Path | None, root: Path | None) -> Sources:
    """Return the catalogue's datasets with their files in `root`, and those that a TOML file describes."""
    return Sources(root, {} if config is None else _read_user_datasets(config))
