"""A folder that holds a saved detector -> the detector, of whichever class."""

import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from polars.exceptions import PolarsError
from safetensors import SafetensorError
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from recoslip.base.errors import ModelFileError, SettingError
from recoslip.base.settings import check_params
from recoslip.learning.base import Detector
from recoslip.learning.methods import DETECTORS, detector
from recoslip.learning.saving import Arrays, below, read, unpack

CHANGEABLE = ("device", "batch_size")  # settings that nothing learned depends on


def load(
    folder: str | os.PathLike[str], settings: Mapping[str, Any] | None = None
) -> tuple[list[Detector], dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `recoslip.learning.saving.save` wrote: the detectors, and the further values and arrays.

    Args:
        folder: what was given to `save`.
        settings: to change: `device` and `batch_size`, and `encoder` where it was the user's own module, which is not
            saved. What was learned cannot be changed.
    """
    changed = dict(settings or {})
    try:
        document, arrays = read(folder)
        if document["detector"] not in list(DETECTORS):
            raise ModelFileError(f"{folder} holds a detector {document['detector']!r} that this recoslip has not")
        saved = {key: tuple(v) if isinstance(v, list) else v for key, v in document["settings"].items()}
        _refuse_learned(saved, changed)
        empty = detector(document["detector"], **(saved | changed))
        check_params(empty)
        fits = [_fit(clone(empty), own, below(f"{k}.", arrays)) for k, own in enumerate(document["fits"])]
        return fits, document["values"], below("more.", arrays)
    except ModelFileError:
        raise
    except SettingError as problem:
        raise ModelFileError(f"{folder} cannot be used: {problem}") from problem
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, PolarsError, SafetensorError) as problem:
        raise ModelFileError(
            f"{folder} is damaged: its parts do not fit together ({type(problem).__name__}: {problem})"
        ) from problem


def load_detector(folder: str | os.PathLike[str], **settings: Any) -> Detector:
    """Read a detector that `save` wrote.

    Args:
        folder: what was given to `save`.
        **settings: settings to change: `device` and `batch_size`, and `encoder` where it was the user's own module,
            which is not saved. What was learned cannot be changed.
    """
    fits, _, _ = load(folder, settings)
    if len(fits) > 1:
        raise ModelFileError(
            f"{folder} holds {len(fits)} fits and what they were calibrated by; recoslip.Calibrated.load reads it"
        )
    return fits[0]


def _fit(empty: Detector, values: Mapping[str, Any], arrays: Arrays) -> Detector:
    """Give an unfitted detector what it learned, and return it."""
    unpack(empty, values, arrays)
    empty.random_state = values["random_state"]
    check_is_fitted(empty, "scores_")
    return empty


def _refuse_learned(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise for a setting that what was learned depends on, unless it is given as it was."""
    for name, value in given.items():
        is_own_encoder = name == "encoder" and (saved.get(name) is None or None in saved[name])
        if name in saved and name not in CHANGEABLE and not is_own_encoder and value != saved[name]:
            raise SettingError(
                f"{name} was {saved[name]!r} when it was fitted and cannot be {value!r} now, as what it learned "
                f"depends on it; fit again, or change {', '.join(CHANGEABLE)} alone"
            )
