"""Features of new rows -> how far a column moved from the table that its encoder was fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


@dataclass(frozen=True)
class Drift:
    """How far the values of a column are from those that its encoder was fitted on, beyond chance."""

    deviations: float | None = None  # of numbers: by how many standard deviations their mean moved
    moved: float | None = None  # of categories and words: the fraction of them that would have to change
    unknown: int = 0  # rows with a category that was not seen, or with a text of which no word was


def deviations_beyond_chance(moved: NDArray[np.float64], rows: int) -> float:
    """Return how far means moved, in standard deviations, in the root mean square, less what is expected of `rows`."""
    return float(np.sqrt(max(0.0, float((moved**2).mean()) - 1 / max(1, rows))))


def moved_beyond_chance(features: Any, shares: Sequence[float]) -> float:
    """Return half the sum of the differences of shares, less what is expected of so many rows, against their sum."""
    rows, fitted = features.shape[0], np.asarray(shares)
    now = np.bincount(sp.csr_array(features).indices, minlength=len(fitted)) / max(1, rows)
    chance = np.sqrt(2 * fitted * (1 - fitted) / (np.pi * max(1, rows)))
    beyond = float(np.abs(now - fitted).sum() - chance.sum())
    return max(0.0, beyond) / max(1e-12, 2 * float(fitted.sum()))
