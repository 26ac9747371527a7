"""The methods, one estimator contract, one registry."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from recoslip.detectors.anomaly import Dominant as Dominant
    from recoslip.detectors.anomaly import EnergyOOD as EnergyOOD
    from recoslip.detectors.base import Detector as Detector
    from recoslip.detectors.conoc import CoNoC as CoNoC
    from recoslip.detectors.discriminators import DomainDiscriminator as DomainDiscriminator
    from recoslip.detectors.discriminators import ElkanNoto as ElkanNoto
    from recoslip.detectors.discriminators import Oracle as Oracle
    from recoslip.detectors.graph_rules import LpPul as LpPul
    from recoslip.detectors.loading import load_detector as load_detector
    from recoslip.detectors.pu_methods import NNPU as NNPU
    from recoslip.detectors.pu_methods import UPU as UPU
    from recoslip.detectors.pu_methods import DistPU as DistPU
    from recoslip.detectors.pu_methods import PuGnn as PuGnn
    from recoslip.detectors.reco_slip import RecoSlip as RecoSlip
    from recoslip.detectors.reco_slip_plus import RecoSlipPlus as RecoSlipPlus
    from recoslip.detectors.registry import DETECTORS as DETECTORS
    from recoslip.detectors.registry import detector as detector
    from recoslip.detectors.sar_em import SarEM as SarEM
    from recoslip.detectors.scan import Scan as Scan
    from recoslip.detectors.thorough import Thorough as Thorough

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "anomaly": ["Dominant", "EnergyOOD"],
        "base": ["Detector"],
        "conoc": ["CoNoC"],
        "discriminators": ["DomainDiscriminator", "ElkanNoto", "Oracle"],
        "graph_rules": ["LpPul"],
        "loading": ["load_detector"],
        "pu_methods": ["NNPU", "UPU", "DistPU", "PuGnn"],
        "reco_slip": ["RecoSlip"],
        "reco_slip_plus": ["RecoSlipPlus"],
        "registry": ["DETECTORS", "detector"],
        "sar_em": ["SarEM"],
        "scan": ["Scan"],
        "thorough": ["Thorough"],
    },
)
