"""The one table of methods, with those that installed packages offer: name -> detector."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from recoslip.base.errors import RecoslipWarning, SettingError, nearest
from recoslip.base.memory import memory_errors

if TYPE_CHECKING:
    from recoslip.learning.base import Detector


@dataclass(frozen=True)
class Method:
    """One row of the table. Calling it builds the detector; the class is imported when it is first needed."""

    name: str
    implementation: str  # "module:Class"
    paper: str  # where the method is from
    inputs: str = "features and edges"
    varies: bool = True  # whether its scores depend on the seed
    uses_paper_settings: bool = True  # whether a bench gives it the settings that the paper chose for a dataset
    presets: Mapping[str, Any] = field(default_factory=dict)  # settings that the name stands for

    @property
    def needs_networks(self) -> bool:
        """Whether it needs the extra `recoslip[networks]`; of other packages' detectors it is not known."""
        return self.implementation.startswith("recoslip.learning.networks.")

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
    return Method(name, f"recoslip.learning.{implementation}", paper, **more)


_RECO_SLIP = ("networks.reco_slip:RecoSlip", "Chung et al. 2024")
_BASELINE = "baseline of Chung et al. 2024"

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            _ours("scan", "scan:Scan", "this package", uses_paper_settings=False),
            _ours("thorough", "networks.reco_slip_plus:Thorough", "this package", uses_paper_settings=False),
            _ours("reco-slip-plus", "networks.reco_slip_plus:RecoSlipPlus", "this package", uses_paper_settings=False),
            _ours("reco-slip", *_RECO_SLIP),
            _ours("reco-slip-none", *_RECO_SLIP, presets={"links": "none"}),
            _ours("reco-slip-all", *_RECO_SLIP, presets={"links": "all"}),
            _ours("reco-slip-target", *_RECO_SLIP, presets={"links": "target"}),
            _ours("domain-discriminator", "networks.pu_methods:DomainDiscriminator", _BASELINE),
            _ours("oracle", "networks.pu_methods:Oracle", _BASELINE, inputs="features, edges and the truth"),
            _ours("upu", "networks.pu_methods:UPU", "du Plessis et al. 2014"),
            _ours("nnpu", "networks.pu_methods:NNPU", "Kiryo et al. 2017"),
            _ours("sar-em", "networks.pu_methods:SarEM", "Bekker et al. 2019"),
            _ours("lp-pul", "graph_rules:LpPul", "Carnevali et al. 2021", inputs="edges", varies=False),
            _ours("pu-gnn", "networks.pu_methods:PuGnn", "Yang et al. 2023"),
            _ours("conoc", "networks.reco_slip:CoNoC", "Wald & Saria 2023"),
            _ours("dist-pu", "networks.pu_methods:DistPU", "Zhao et al. 2022"),
            _ours("elkan-noto", "networks.pu_methods:ElkanNoto", "Elkan & Noto 2008"),
            _ours("energy", "networks.anomaly:EnergyOOD", "Liu et al. 2020, Wu et al. 2023"),
            _ours("nearest-source", "graph_rules:NearestSource", "this package", varies=False),
            _ours("dominant", "networks.anomaly:Dominant", "Ding et al. 2019"),
        )
    }
)

AUTO = "auto"  # stands for the default method
DEFAULT = "scan"
Effort = Literal["quick", "thorough"]
EFFORTS: Mapping[str, str] = MappingProxyType({"quick": "scan", "thorough": "thorough"})  # the method of each


GROUP = "recoslip.detectors"  # the entry point group of detectors in other packages


class Registry(Mapping[str, Method]):
    """Name -> method.

    A package offers one by an entry point: `[project.entry-points."recoslip.detectors"]`, `name = "package:Class"`.
    Entry points are loaded at the first use, because their packages import this one.
    """

    @cached_property
    def _methods(self) -> dict[str, Method]:
        offered = [_offered(point) for point in entry_points(group=GROUP)]
        return dict(METHODS) | {method.name: method for method in offered if method is not None}

    def __getitem__(self, name: str) -> Method:
        return self._methods[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)


def _offered(point: EntryPoint) -> Method | None:
    """Describe another package's detector; one that cannot be used is left out with a warning."""
    from recoslip.learning.base import Detector

    try:
        kind = point.load()
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}"
    else:
        if not (isinstance(kind, type) and issubclass(kind, Detector)):
            reason = "it is not a subclass of recoslip.Detector"
        elif getattr(kind, "name", None) != point.name:
            reason = f"its class attribute `name` is {getattr(kind, 'name', None)!r}"
        elif point.name in (*METHODS, AUTO) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", point.name):
            reason = "its name is taken, or not of the form my-method"
        else:
            described = {name: getattr(kind, name) for name in ("inputs", "varies") if hasattr(kind, name)}
            return Method(point.name, point.value, getattr(kind, "paper", ""), **described)
    warnings.warn(f"detector {point.name!r} of {point.value} is left out: {reason}", RecoslipWarning, stacklevel=2)
    return None


DETECTORS = Registry()


@memory_errors()
def detector(name: str, **params: Any) -> Detector:
    """Build a detector by its registry name, or the default one as "auto".

    >>> detector("reco-slip-none", epochs=10)
    RecoSlip(epochs=10, links='none')
    >>> detector("auto")
    Scan()
    """
    name = DEFAULT if name == AUTO else name
    if name not in DETECTORS:
        raise SettingError(f"no method is called {name!r}{nearest(name, DETECTORS)}; known: {', '.join(DETECTORS)}")
    method = DETECTORS[name]
    known = method().get_params()
    for setting in params:
        if setting not in known:
            raise SettingError(
                f"{name} has no setting {setting!r}{nearest(setting, known)}; it has {', '.join(sorted(known))}"
            )
        if setting in method.presets and params[setting] != method.presets[setting]:
            raise SettingError(
                f"{name} means {setting}={method.presets[setting]!r}; for another, take {method.kind.name}"
            )
    return method(**params)
