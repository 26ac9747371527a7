"""Name -> detector."""

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias

from recoslip.detectors.base import Detector
from recoslip.detectors.conoc import CoNoC
from recoslip.detectors.dist_pu import DistPU
from recoslip.detectors.domain_discriminator import DomainDiscriminator
from recoslip.detectors.dominant import Dominant
from recoslip.detectors.elkan_noto import ElkanNoto
from recoslip.detectors.energy import EnergyOOD
from recoslip.detectors.lp_pul import LpPul
from recoslip.detectors.nnpu import NNPU
from recoslip.detectors.oracle import Oracle
from recoslip.detectors.pu_gnn import PuGnn
from recoslip.detectors.reco_slip import RecoSlip
from recoslip.detectors.reco_slip_plus import RecoSlipPlus
from recoslip.detectors.sar_em import SarEM
from recoslip.detectors.upu import UPU
from recoslip.errors import RecoslipWarning, SettingError, nearest

# A name stands for a class, and for an ablation also for a setting of it.
Entry: TypeAlias = tuple[type[Detector], dict[str, Any]]
_OURS: dict[str, Entry] = {
    "reco-slip-plus": (RecoSlipPlus, {}),
    "reco-slip": (RecoSlip, {}),
    "reco-slip-none": (RecoSlip, {"links": "none"}),
    "reco-slip-all": (RecoSlip, {"links": "all"}),
    "reco-slip-target": (RecoSlip, {"links": "target"}),
    **{
        kind.name: (kind, {})
        for kind in (
            DomainDiscriminator,
            Oracle,
            UPU,
            NNPU,
            SarEM,
            LpPul,
            PuGnn,
            CoNoC,
            DistPU,
            ElkanNoto,
            EnergyOOD,
            Dominant,
        )
    },
}

AUTO = "auto"  # stands for the method to take when nothing speaks for another
DEFAULT = RecoSlipPlus.name

GROUP = "recoslip.detectors"  # the entry point group of detectors in other packages


class Registry(Mapping[str, type[Detector]]):
    """Name -> class: our detectors, and those of installed packages.

    A package offers one by an entry point: `[project.entry-points."recoslip.detectors"]`, `name = "package:Class"`.
    They are looked for at the first use, because their packages import this one.
    """

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Every name with its class and preset settings."""
        return _OURS | {p.name: (kind, {}) for p in entry_points(group=GROUP) if (kind := _offered(p)) is not None}

    def __getitem__(self, name: str) -> type[Detector]:
        return self.entries[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def _offered(point: EntryPoint) -> type[Detector] | None:
    """Load another package's detector; one that cannot be used is left out with a warning."""
    try:
        kind = point.load()
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}"
    else:
        if not (isinstance(kind, type) and issubclass(kind, Detector)):
            reason = "it is not a subclass of recoslip.Detector"
        elif getattr(kind, "name", None) != point.name:
            reason = f"its class attribute `name` is {getattr(kind, 'name', None)!r}"
        elif point.name in (*_OURS, AUTO) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", point.name):
            reason = "its name is taken, or not of the form my-method"
        else:
            return kind
    warnings.warn(f"detector {point.name!r} of {point.value} is left out: {reason}", RecoslipWarning, stacklevel=2)
    return None


DETECTORS = Registry()


def detector(name: str, **params: Any) -> Detector:
    """Build a detector by its registry name, or the default one as "auto".

    >>> detector("reco-slip-none", epochs=10)
    RecoSlip(epochs=10, links='none')
    >>> detector("auto")
    RecoSlipPlus()
    """
    name = DEFAULT if name == AUTO else name
    if name not in DETECTORS:
        raise SettingError(f"no method is called {name!r}{nearest(name, DETECTORS)}; known: {', '.join(DETECTORS)}")
    kind, preset = DETECTORS.entries[name]
    known = kind().get_params()
    for setting in params:
        if setting not in known:
            raise SettingError(
                f"{name} has no setting {setting!r}{nearest(setting, known)}; it has {', '.join(sorted(known))}"
            )
        if setting in preset and params[setting] != preset[setting]:
            raise SettingError(f"{name} means {setting}={preset[setting]!r}; for another, take {kind.name}")
    return kind(**(preset | params))
