"""A saved detector -> the detector, of whichever class in the registry."""

from __future__ import annotations

import os
from typing import Any

from polars.exceptions import PolarsError

from recoslip.detectors import model_file
from recoslip.detectors.base import Detector
from recoslip.detectors.registry import DETECTORS, detector
from recoslip.errors import ModelFileError, SettingError


def load(folder: str | os.PathLike[str], **settings: Any) -> Detector:
    """Read a detector that `save` wrote.

    Args:
        folder: what was given to `save`.
        **settings: settings to change, such as `device="cpu"`; a user's own encoder must be given again.
    """
    try:
        saved = model_file.read(folder)
        if saved.name not in list(DETECTORS):
            raise ModelFileError(f"{folder} holds a detector {saved.name!r} that this recoslip has not")
        result = detector(saved.name, **(saved.settings | settings))
        result.check_params()
        result.__dict__.update(saved.attributes)
        result.__dict__.update(result._unpack(saved.values, saved.tensors))
    except ModelFileError:
        raise
    except SettingError as problem:
        raise ModelFileError(f"{folder} cannot be used: {problem}") from problem
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError, PolarsError) as problem:
        raise ModelFileError(
            f"{folder} is damaged: its parts do not fit together ({type(problem).__name__}: {problem})"
        ) from problem
    return result
