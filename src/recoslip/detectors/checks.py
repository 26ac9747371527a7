"""Settings at the door: what was expected, what came."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, get_args

import numpy as np

from recoslip.errors import SettingError, nearest


def whole(name: str, value: Any, low: int, high: int | None = None) -> None:
    """Raise unless `value` is a whole number of at least `low` and at most `high`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise SettingError(f"{name} must be a whole number of at least {low}; got {value!r}")
    if high is not None and int(value) > high:
        raise SettingError(f"{name} must be a whole number of at most {high}; got {value!r}")


def number(name: str, value: Any, low: float, high: float, *, open_ends: bool = False) -> None:
    """Raise unless `value` is a finite number between `low` and `high`; with `open_ends` strictly between."""
    inside = isinstance(value, int | float | np.number) and (low < value < high if open_ends else low <= value <= high)
    if not inside or isinstance(value, bool) or not np.isfinite(value):
        where = f"{'between' if open_ends else 'in'} {low:g} {'and' if open_ends else 'to'} {high:g}"
        raise SettingError(f"{name} must be a number {where}; got {value!r}")


def choice(name: str, value: Any, literal: Any) -> None:
    """Raise unless `value` is one of a `Literal`'s values."""
    allowed: Sequence[str] = get_args(literal)
    if value not in allowed:
        hint = nearest(value, allowed) if isinstance(value, str) else ""
        raise SettingError(f"{name} must be one of {', '.join(allowed)}; got {value!r}{hint}")
