"""Settings of an estimator, each declared once: default, constraint and documentation in one place.

class Method(Detector):
    epochs: int = param(Integer(1), "how many", default=1000)
    history_: pl.DataFrame = learned("a table of every epoch")
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from recoslip.base.errors import SettingError, nearest


def plain(value: Any) -> Any:
    """Return a number or text of NumPy, or a whole number of any library, as Python's own; anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def json_value(value: Any) -> Any:
    """Return a value as JSON holds it: arrays, tuples and numbers of NumPy as lists and numbers, modules as None.

    Code is not saved, so who loads a detector with a module of their own gives the module again.
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if hasattr(value, "state_dict"):
        return None
    return [json_value(item) for item in value] if isinstance(value, tuple | list) else value


Check: TypeAlias = Callable[[str, Any], None]  # name and value of a setting; raises SettingError


@dataclass(frozen=True)
class Integer:
    """A whole number of at least `low` and at most `high`."""

    low: int
    high: int | None = None

    def __call__(self, name: str, value: Any) -> None:
        """Raise unless `value` is one."""
        if not isinstance(value, Integral) or isinstance(value, bool) or value < self.low:
            raise SettingError(f"{name} must be a whole number of at least {self.low}; got {value!r}")
        if self.high is not None and int(value) > self.high:
            raise SettingError(f"{name} must be a whole number of at most {self.high}; got {value!r}")


@dataclass(frozen=True)
class Number:
    """A finite number between `low` and `high`; with `open_ends` strictly between."""

    low: float
    high: float
    open_ends: bool = False

    def __call__(self, name: str, value: Any) -> None:
        """Raise unless `value` is one."""
        low, high, is_open = self.low, self.high, self.open_ends
        inside = isinstance(value, int | float | np.number) and (
            low < value < high if is_open else low <= value <= high
        )
        if not inside or isinstance(value, bool) or not np.isfinite(value):
            where = f"{'between' if is_open else 'in'} {low:g} {'and' if is_open else 'to'} {high:g}"
            raise SettingError(f"{name} must be a number {where}; got {value!r}")


@dataclass(frozen=True)
class Choice:
    """One of the values of a `Literal`."""

    literal: Any

    def __call__(self, name: str, value: Any) -> None:
        """Raise unless `value` is one."""
        allowed: tuple[str, ...] = get_args(self.literal)
        if value not in allowed:
            hint = nearest(value, allowed) if isinstance(value, str) else ""
            raise SettingError(f"{name} must be one of {', '.join(allowed)}; got {value!r}{hint}")


@dataclass(frozen=True)
class Optional:
    """None, or what another constraint allows."""

    check: Check

    def __call__(self, name: str, value: Any) -> None:
        """Raise unless `value` is either."""
        if value is not None:
            self.check(name, value)


@dataclass(frozen=True)
class Param:
    """A setting: what it is by default, what it may be, and what it means."""

    default: Any
    check: Check
    doc: str


@dataclass(frozen=True)
class Learned:
    """An attribute that `fit` learns."""

    doc: str
    per_node: bool  # whether it is an array with one entry per node of the graph


def param(check: Check, doc: str, *, default: Any) -> Any:
    """Declare a setting. A subclass that changes the default alone writes `name: type = default`.

    Type checkers look for the keyword `default`.
    """
    return Param(default, check, doc)


def learned(doc: str, *, per_node: bool = False, init: Literal[False] = False) -> Any:
    """Declare an attribute that `fit` learns; its name ends in `_`. Arrays over the nodes are to be marked as such.

    `init` tells type checkers that the constructor does not take it.
    """
    return Learned(doc, per_node)


def make_estimator(cls: type) -> None:
    """Give a class the keyword-only constructor and the docstring that follow from its declarations."""
    inherited = {field.name: field.metadata for field in dataclasses.fields(cls)} if _is_estimator(cls) else {}
    for name in inspect.get_annotations(cls):
        declared = cls.__dict__.get(name, dataclasses.MISSING)
        if isinstance(declared, Param):
            setattr(cls, name, dataclasses.field(default=declared.default, metadata={"param": declared}))
        elif isinstance(declared, Learned):
            setattr(cls, name, dataclasses.field(init=False, metadata={"learned": declared}))
        elif name in inherited and declared is not dataclasses.MISSING:
            setattr(cls, name, dataclasses.field(default=declared, metadata=inherited[name]))
    dataclass(kw_only=True, eq=False, repr=False)(cls)
    if cls.__doc__:
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n{_section(cls, 'param', 'Args')}"
        cls.__doc__ += _section(cls, "learned", "Attributes")


def _is_estimator(cls: type) -> bool:
    return any(dataclasses.is_dataclass(base) for base in cls.__bases__)


def _section(cls: type, kind: str, heading: str) -> str:
    """Write a section of the docstring, the declarations of the class itself before those it inherits."""
    documented = {
        name: found.metadata[kind].doc
        for base in cls.__mro__
        if dataclasses.is_dataclass(base)
        for name in inspect.get_annotations(base)
        if (found := base.__dataclass_fields__.get(name)) is not None and kind in found.metadata
    }
    lines = [f"    {name}: {doc}." for name, doc in documented.items()]
    return "\n".join(["", f"{heading}:", *lines, ""]) if lines else ""


def per_node_attributes(estimator: Any) -> set[str]:
    """Return the names of the learned arrays with one entry per node."""
    fields = dataclasses.fields(estimator)
    return {field.name for field in fields if "learned" in field.metadata and field.metadata["learned"].per_node}


def check_params(estimator: Any) -> None:
    """Raise SettingError for a setting that breaks its constraint, or for settings that exclude each other."""
    for field in dataclasses.fields(estimator):
        if "param" in field.metadata:
            field.metadata["param"].check(field.name, getattr(estimator, field.name))
    estimator._check_params_jointly()


def json_params(estimator: Any) -> dict[str, Any]:
    """Return the settings of an estimator as JSON values."""
    return {name: json_value(value) for name, value in estimator.get_params(deep=False).items()}
