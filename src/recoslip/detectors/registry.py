"""Name -> detector."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

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
from recoslip.detectors.sar_em import SarEM
from recoslip.detectors.upu import UPU
from recoslip.errors import SettingError, nearest

# A name stands for a class, and for an ablation also for a setting of it.
_ENTRIES: dict[str, tuple[type[Detector], dict[str, Any]]] = {
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

DETECTORS: Mapping[str, type[Detector]] = MappingProxyType({name: kind for name, (kind, _) in _ENTRIES.items()})


def detector(name: str, **params: Any) -> Detector:
    """Build a detector by its registry name.

    >>> detector("reco-slip-none", epochs=10)
    RecoSlip(epochs=10, links='none')
    """
    if name not in _ENTRIES:
        raise SettingError(f"no method is called {name!r}{nearest(name, DETECTORS)}; known: {', '.join(DETECTORS)}")
    kind, preset = _ENTRIES[name]
    known = kind().get_params()
    for setting in params:
        if setting not in known:
            raise SettingError(
                f"{name} has no setting {setting!r}{nearest(setting, known)}; it has {', '.join(sorted(known))}"
            )
    return kind(**(preset | params))
