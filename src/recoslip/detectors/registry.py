"""Name -> detector."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from recoslip.detectors.base import Detector
from recoslip.detectors.reco_slip import RecoSlip
from recoslip.errors import SettingError, nearest

DETECTORS: Mapping[str, type[Detector]] = MappingProxyType({RecoSlip.name: RecoSlip})


def detector(name: str, **params: Any) -> Detector:
    """Build a detector by its registry name.

    >>> detector("reco-slip", epochs=10)
    RecoSlip(epochs=10)
    """
    if name not in DETECTORS:
        raise SettingError(f"no method is called {name!r}{nearest(name, DETECTORS)}; known: {', '.join(DETECTORS)}")
    known = DETECTORS[name]().get_params()
    for setting in params:
        if setting not in known:
            raise SettingError(
                f"{name} has no setting {setting!r}{nearest(setting, known)}; it has {', '.join(sorted(known))}"
            )
    return DETECTORS[name](**params)
