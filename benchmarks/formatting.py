"""Values of several runs -> text, for the tables that the benchmarks print."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import sem


def mean_and_error(values: Sequence[float]) -> str:
    """Write mean ± standard error; a single value has none.

    >>> mean_and_error([0.7, 0.8])
    '0.750 ± 0.050'
    """
    return f"{np.mean(values):.3f}" + (f" ± {sem(values):.3f}" if len(values) > 1 else "")
