"""A dataset's name and a split -> the dataset: one of the catalogue, or one that the user describes in a TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recoslip.bench.user_datasets import UserDataset, read_user_datasets
from recoslip.datasets.catalogue import CATALOGUE
from recoslip.datasets.load import (
    Dataset,
    load_dataset,
    load_labelled,
    load_panel_case,
    panel_archive,
    panel_graphs,
)
from recoslip.datasets.panel import CASES, Labelled, archive_digest
from recoslip.detectors.registry import DETECTORS
from recoslip.errors import DatasetError, nearest

DEFAULT_SPLIT = "own"  # the split that a dataset comes with: the authors' for the paper's graphs
_USER_SPLIT_SEED = 42  # the seed that stands for the default split of a user's dataset


@dataclass(frozen=True)
class Sources:
    """Where datasets come from."""

    root: Path | None = None  # folder of the catalogue's files
    user_datasets: dict[str, UserDataset] = field(default_factory=dict)

    def check(self, name: str) -> None:
        """Raise if there is no dataset of this name."""
        known = [*self.user_datasets, *CATALOGUE]
        if name not in known and self.panel_case(name) is None:
            raise DatasetError(f"no dataset is called {name!r}{nearest(name, known)}; known: {', '.join(known)}")

    def panel_graphs(self) -> list[str]:
        """Name the graphs that cases of the panel can be made of: the user's where there are any, else all."""
        return list(self.user_datasets) or panel_graphs(self.root)

    def panel_case(self, name: str) -> tuple[str, str] | None:
        """Split the name of a case of the panel, such as cora-grown, into graph and case; None for other datasets.

        A user's dataset that is called like a case is itself.
        """
        if name in self.user_datasets:
            return None
        graph, _, case = name.rpartition("-")
        known = case in CASES and graph in (*self.user_datasets, *panel_graphs(self.root))
        return (graph, case) if known else None

    def labelled(self, graph: str) -> Labelled:
        """Load a graph that cases of the panel are made of."""
        own = self.user_datasets.get(graph)
        return load_labelled(graph, self.root) if own is None else own.labelled()

    def load(self, name: str, split: str) -> Dataset:
        """Load a dataset with one of its splits: the default one, or that of a seed."""
        seed = None if split == DEFAULT_SPLIT else int(split)
        if (found := self.panel_case(name)) is not None:
            graph, case = found
            return load_panel_case(graph, self.labelled(graph), case, seed)
        if name in self.user_datasets:
            return self.user_datasets[name].load(_USER_SPLIT_SEED if seed is None else seed)
        return load_dataset(name, self.root, seed)

    def settings(self, name: str, method: str) -> dict[str, Any]:
        """Return the settings for a method that come with a dataset: the paper's, or those of the user's file."""
        if (found := self.panel_case(name)) is not None:
            own = self.user_datasets.get(found[0])
            return {} if own is None else own.settings
        if name in self.user_datasets:
            return self.user_datasets[name].settings
        if not DETECTORS[method].uses_paper_settings:
            return {}
        settings = CATALOGUE[name].settings
        return settings.reco_slip() | {"negatives_per_edge": settings.negatives_per_edge}

    def digest(self, name: str) -> str | None:
        """Hash the data of a user's dataset or of an archive; None for those that their names identify."""
        if (found := self.panel_case(name)) is not None:
            if found[0] in self.user_datasets:
                return self.user_datasets[found[0]].digest()
            archive = panel_archive(found[0], self.root)
            return archive_digest(archive) if archive.is_file() else None
        return self.user_datasets[name].digest() if name in self.user_datasets else None


def read_sources(config: Path | None, root: Path | None) -> Sources:
    """Return the catalogue's datasets with their files in `root`, and those that a TOML file describes."""
    return Sources(root, {} if config is None else read_user_datasets(config))
