"""One file per method, one estimator API, one registry."""

from recoslip.detectors.base import Detector, load
from recoslip.detectors.reco_slip import RecoSlip
from recoslip.detectors.registry import DETECTORS, detector

__all__ = ["DETECTORS", "Detector", "RecoSlip", "detector", "load"]
