"""A saved detector -> the detector, of whichever class in the registry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from polars.exceptions import PolarsError
from safetensors import SafetensorError
from sklearn.base import clone

from recoslip.base.errors import ModelFileError, SettingError
from recoslip.learning import model_file
from recoslip.learning.base import Detector
from recoslip.learning.methods import DETECTORS, detector
from recoslip.learning.model_file import Array

CHANGEABLE = ("device", "batch_size", "max_fpr")  # settings that nothing learned depends on


def load_detector(folder: str | os.PathLike[str], **settings: Any) -> Detector:
    """Read a detector that `save` wrote.

    Args:
        folder: what was given to `save`.
        **settings: settings to change: `device`, `batch_size`, `max_fpr`, which gives another threshold, and `encoder`
            where it was the user's own module, which is not saved. What was learned cannot be changed.
    """
    try:
        saved = model_file.read(folder)
        if saved.name not in list(DETECTORS):
            raise ModelFileError(f"{folder} holds a detector {saved.name!r} that this recoslip has not")
        _refuse_learned(saved.settings, settings)
        result = detector(saved.name, **(saved.settings | settings))
        result.check_params()
        result.__dict__.update(saved.attributes | {"rotations_": ()})
        if saved.rotations:
            common = {name: value for name, value in saved.attributes.items() if name != "similarity_"}
            result.rotations_ = tuple(
                _rotation(result, common | attributes, *learned)
                for attributes, learned in zip(saved.rotations, saved.learned, strict=True)
            )
            result.__dict__.update(result.averages(result.rotations_))
        else:
            result.__dict__.update(result._unpack(*saved.learned[0]))
        if "max_fpr" in settings:
            result.set_threshold()
    except ModelFileError:
        raise
    except SettingError as problem:
        raise ModelFileError(f"{folder} cannot be used: {problem}") from problem
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, PolarsError, SafetensorError) as problem:
        raise ModelFileError(
            f"{folder} is damaged: its parts do not fit together ({type(problem).__name__}: {problem})"
        ) from problem
    return result


def _rotation(
    combined: Detector, attributes: dict[str, Any], values: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Detector:
    """Build one of the fits that a detector combines."""
    fit: Detector = clone(combined).set_params(**combined.rotation_params())
    fit.__dict__.update(attributes | {"rotations_": ()})
    fit.__dict__.update(fit._unpack(values, arrays))
    return fit


def _refuse_learned(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise for a setting that what was learned depends on, unless it is given as it was."""
    for name, value in given.items():
        is_own_encoder = name == "encoder" and (saved.get(name) is None or None in saved[name])
        if name in saved and name not in CHANGEABLE and not is_own_encoder and value != saved[name]:
            raise SettingError(
                f"{name} was {saved[name]!r} when it was fitted and cannot be {value!r} now, as what it learned "
                f"depends on it; fit again, or change {', '.join(CHANGEABLE)} alone"
            )
