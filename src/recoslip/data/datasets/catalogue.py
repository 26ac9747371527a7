"""The one table of datasets: where each comes from, how its proportions shift, and the paper's settings for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Settings:
    """The settings that the paper tunes per dataset (its last table)."""

    hidden_channels: int  # gcn_hidden_dim
    out_channels: int  # gcn_output_dim
    head_channels: int  # mlp_hidden_dim
    multiplier: float  # initial dual variable λ₀
    max_fpr: float  # β̃
    negatives_per_edge: int  # K of PU-GNN's structural regularisation

    def network(self) -> dict[str, Any]:
        """Return the settings of the network, as detectors name them."""
        return {
            "hidden_channels": self.hidden_channels,
            "out_channels": self.out_channels,
            "head_channels": self.head_channels,
        }

    def reco_slip(self) -> dict[str, Any]:
        """Return the settings of RECO-SLIP: `RecoSlip(**dataset.settings.reco_slip())`."""
        return {**self.network(), "multiplier": self.multiplier, "max_fpr": self.max_fpr}


@dataclass(frozen=True)
class Entry:
    """One row of the catalogue."""

    origin: str  # which loader builds the graph
    about: str
    settings: Settings
    ratios: tuple[float, ...] = ()  # source ratio per category; 0 marks the novel one; () where time decides
    split_seed: int = 42  # the seed that the authors draw source nodes and split from


_CITATION = "papers and citations; words"
_PURCHASE = "products bought together; words of reviews"

_GRAPHS: dict[str, tuple[str, str, Settings, tuple[float, ...]]] = {
    #            loader       about       hidden out head  λ₀   β̃    K   source ratios of the -s version
    "cora": ("Cora", _CITATION, Settings(16, 16, 8, 0.1, 0.01, 50), (0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0)),
    "citeseer": ("CiteSeer", _CITATION, Settings(64, 32, 4, 0.1, 0.05, 50), (0.9, 0.1, 0.9, 0.1, 0.5, 0)),
    "computers": (
        "Computers",
        _PURCHASE,
        Settings(16, 16, 8, 0.4, 0.01, 30),
        (0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.5, 0),
    ),
    "photo": (
        "Photo",
        _PURCHASE,
        Settings(64, 32, 32, 0.1, 0.05, 30),
        (0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.5, 0),
    ),
}
# The paper's name of each graph, which is also that of its loader.
GRAPHS: Mapping[str, str] = MappingProxyType({graph: origin for graph, (origin, *_) in _GRAPHS.items()})

NO_PAPER_SETTINGS = Settings(64, 32, 32, 0.1, 0.01, 50)  # what a dataset holds where the paper has no settings

# Version: description, factor on the distance of the -s ratios from 0.5, and the authors' split seed.
_VERSIONS = {"s": ("strong shift", 1.0, 42), "ms": ("minor shift", 0.5, 42), "ns": ("no shift", 0.0, 10)}


def _weakened(ratio: float, strength: float) -> float:
    """Pull a source ratio towards 0.5; a novel category's stays 0."""
    return round(0.5 + strength * (ratio - 0.5), 2) if ratio else 0.0


CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        f"{graph}-{version}": Entry(
            origin, f"{about}; {shift}", settings, tuple(_weakened(r, strength) for r in ratios), seed
        )
        for graph, (origin, about, settings, ratios) in _GRAPHS.items()
        for version, (shift, strength, seed) in _VERSIONS.items()
    }
    | {
        "arxiv": Entry(
            "ogbn_arxiv", "robotics-related papers; source before 2007", Settings(64, 64, 32, 0.2, 0.01, 50)
        ),
        "digits": Entry(
            "digits",
            "handwritten digits, 10 nearest neighbours; 9 is novel; no download",
            Settings(32, 32, 16, 0.1, 0.01, 50),
            (0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.5, 0),
        ),
        "csbm": Entry(
            "csbm",
            "synthetic contextual stochastic block model; every property settable",
            Settings(32, 32, 16, 0.1, 0.01, 50),
        ),
    }
)
