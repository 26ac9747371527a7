"""The one table of methods: where each comes from, what it looks at, and the class that implements it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from recoslip.detectors.base import Detector


@dataclass(frozen=True)
class Method:
    """One row of the table. Calling it builds the detector; the class is imported when it is first needed."""

    name: str
    implementation: str  # "module:Class"
    paper: str  # where the method is from
    inputs: str = "features and edges"
    trains: bool = True  # whether it trains a network; if not, all seeds give the same
    uses_paper_settings: bool = True  # whether a bench gives it the settings that the paper chose for a dataset
    presets: Mapping[str, Any] = field(default_factory=dict)  # settings that the name stands for

    @property
    def kind(self) -> type[Detector]:
        """The class that implements it."""
        module, _, name = self.implementation.partition(":")
        kind: type[Detector] = getattr(import_module(module), name)
        return kind

    def __call__(self, **params: Any) -> Detector:
        """Build a detector."""
        return self.kind(**(dict(self.presets) | params))


def _ours(name: str, implementation: str, paper: str, **more: Any) -> Method:
    return Method(name, f"recoslip.detectors.{implementation}", paper, **more)


_RECO_SLIP = ("reco_slip:RecoSlip", "Chung et al. 2024")
_BASELINE = "baseline of Chung et al. 2024"

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            _ours("scan", "scan:Scan", "this package", uses_paper_settings=False),
            _ours("thorough", "thorough:Thorough", "this package", uses_paper_settings=False),
            _ours("reco-slip-plus", "reco_slip_plus:RecoSlipPlus", "this package", uses_paper_settings=False),
            _ours("reco-slip", *_RECO_SLIP),
            _ours("reco-slip-none", *_RECO_SLIP, presets={"links": "none"}),
            _ours("reco-slip-all", *_RECO_SLIP, presets={"links": "all"}),
            _ours("reco-slip-target", *_RECO_SLIP, presets={"links": "target"}),
            _ours("domain-discriminator", "discriminators:DomainDiscriminator", _BASELINE),
            _ours("oracle", "discriminators:Oracle", _BASELINE, inputs="features, edges and the truth"),
            _ours("upu", "pu_methods:UPU", "du Plessis et al. 2014"),
            _ours("nnpu", "pu_methods:NNPU", "Kiryo et al. 2017"),
            _ours("sar-em", "sar_em:SarEM", "Bekker et al. 2019"),
            _ours("lp-pul", "graph_rules:LpPul", "Carnevali et al. 2021", inputs="edges", trains=False),
            _ours("pu-gnn", "pu_methods:PuGnn", "Yang et al. 2023"),
            _ours("conoc", "conoc:CoNoC", "Wald & Saria 2023"),
            _ours("dist-pu", "pu_methods:DistPU", "Zhao et al. 2022"),
            _ours("elkan-noto", "discriminators:ElkanNoto", "Elkan & Noto 2008"),
            _ours("energy", "anomaly:EnergyOOD", "Liu et al. 2020, Wu et al. 2023"),
            _ours("nearest-source", "graph_rules:NearestSource", "this package", trains=False),
            _ours("dominant", "anomaly:Dominant", "Ding et al. 2019"),
        )
    }
)

AUTO = "auto"  # stands for the default method
DEFAULT = "scan"
Effort = Literal["quick", "thorough"]
EFFORTS: Mapping[str, str] = MappingProxyType({"quick": "scan", "thorough": "thorough"})  # the method of each
