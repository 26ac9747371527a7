"""Name -> detector: the methods of the catalogue, and those that installed packages offer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from recoslip.detectors.catalogue import AUTO, DEFAULT, METHODS, Method
from recoslip.errors import RecoslipWarning, SettingError, nearest
from recoslip.memory import memory_errors

if TYPE_CHECKING:
    from recoslip.detectors.base import Detector

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
    from recoslip.detectors.base import Detector

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
            described = {name: getattr(kind, name) for name in ("inputs", "trains") if hasattr(kind, name)}
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
