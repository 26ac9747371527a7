"""A dataset -> the proportions of its categories in source and target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recoslip.data.datasets.load import ARXIV_NAMES, Dataset


class Proportions(NamedTuple):
    """The proportions of the categories of a dataset."""

    categories: list[str]
    source: NDArray[np.float64]  # fraction of the source nodes per category
    target: NDArray[np.float64]  # fraction of the target nodes per category
    novel: list[bool]


def proportions(data: Dataset) -> Proportions:
    """Compute the proportions of a dataset's categories."""
    labels, target = data.graph.categories, data.graph.is_target
    categories, index = np.unique(labels, return_inverse=True)
    source_fractions, target_fractions = (
        np.bincount(index[domain], minlength=len(categories)) / domain.sum() for domain in (~target, target)
    )
    novel = [bool(data.novel[labels == category].all()) for category in categories]
    if data.name == "arxiv":
        return Proportions(list(ARXIV_NAMES), source_fractions, target_fractions, novel)
    numbered = np.issubdtype(categories.dtype, np.integer)
    names = [str(category + 1 if numbered else category) for category in categories.tolist()]
    return Proportions(names, source_fractions, target_fractions, novel)
