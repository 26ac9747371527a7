"""One file per method, one estimator contract, one registry."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from recoslip.detectors.base import Detector
    from recoslip.detectors.conoc import CoNoC
    from recoslip.detectors.dist_pu import DistPU
    from recoslip.detectors.domain_discriminator import DomainDiscriminator
    from recoslip.detectors.dominant import Dominant
    from recoslip.detectors.elkan_noto import ElkanNoto
    from recoslip.detectors.energy import EnergyOOD
    from recoslip.detectors.loading import load_detector
    from recoslip.detectors.lp_pul import LpPul
    from recoslip.detectors.nnpu import NNPU
    from recoslip.detectors.oracle import Oracle
    from recoslip.detectors.pu_gnn import PuGnn
    from recoslip.detectors.reco_slip import RecoSlip
    from recoslip.detectors.reco_slip_plus import RecoSlipPlus
    from recoslip.detectors.registry import DETECTORS, detector
    from recoslip.detectors.sar_em import SarEM
    from recoslip.detectors.scan import Scan
    from recoslip.detectors.thorough import Thorough
    from recoslip.detectors.upu import UPU

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Detector"],
        "conoc": ["CoNoC"],
        "dist_pu": ["DistPU"],
        "domain_discriminator": ["DomainDiscriminator"],
        "dominant": ["Dominant"],
        "elkan_noto": ["ElkanNoto"],
        "energy": ["EnergyOOD"],
        "loading": ["load_detector"],
        "lp_pul": ["LpPul"],
        "nnpu": ["NNPU"],
        "oracle": ["Oracle"],
        "pu_gnn": ["PuGnn"],
        "reco_slip": ["RecoSlip"],
        "reco_slip_plus": ["RecoSlipPlus"],
        "registry": ["DETECTORS", "detector"],
        "sar_em": ["SarEM"],
        "scan": ["Scan"],
        "thorough": ["Thorough"],
        "upu": ["UPU"],
    },
)

__all__ = [
    "DETECTORS",
    "NNPU",
    "UPU",
    "CoNoC",
    "Detector",
    "DistPU",
    "DomainDiscriminator",
    "Dominant",
    "ElkanNoto",
    "EnergyOOD",
    "LpPul",
    "Oracle",
    "PuGnn",
    "RecoSlip",
    "RecoSlipPlus",
    "SarEM",
    "Scan",
    "Thorough",
    "detector",
    "load_detector",
]
