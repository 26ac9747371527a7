"""Numbers, categories, text and vectors of one table -> the weight of each such block, so that none drowns another.

A number has variance 1 and is one direction; a text has norm 1 and many. Side by side, the number alone would decide
which nodes are alike. Each block is therefore scaled until inner products of its rows vary as much as the others' do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from recoslip.tables.columns import Encoding

PROBES = 64  # random directions that the spread of inner products is estimated by

Chunks: TypeAlias = "Callable[[], Iterable[Any]]"  # the rows of a block, some at a time, dense or sparse


def block_weights(blocks: Mapping[Encoding, Chunks], asked: Mapping[str, float]) -> dict[Encoding, float]:
    r"""Return what the features of each block are multiplied by.

    Of several blocks each is divided by $\sqrt{\|C\|_F}$, where C is its covariance matrix: then inner products of two
    rows have variance 1 in every block. A single number has weight 1. One block alone stays as it is.

    Args:
        blocks: the rows of each block.
        asked: weights that the user wants on top of that; 1 where there is none.
    """
    balanced = {name: 1 / spread_of_products(rows) for name, rows in blocks.items()} if len(blocks) > 1 else {}
    # Rounded, so that rows in another order, whose sums are rounded in another way, have the same weights.
    return {name: float(f"{balanced.get(name, 1.0) * asked.get(name, 1.0):.3g}") for name in blocks}


def spread_of_products(chunks: Chunks) -> float:
    r"""Return $\sqrt{\|C\|_F}$ of the rows' covariance matrix C, by $\|C\|_F^2 = E \|C z\|^2$ for random signs z.

    It is 1 where nothing varies.

    >>> rows = np.random.default_rng(0).standard_normal((1000, 16)) * 3
    >>> round(spread_of_products(lambda: [rows[:500], rows[500:]]) / 3, 1)  # the fourth root of 16
    2.0
    """
    count, total, products, signs = 0, np.zeros(0), np.zeros(0), np.zeros(0)
    for rows in chunks():
        if not count:
            signs = np.random.default_rng(0).choice([-1.0, 1.0], (rows.shape[1], PROBES))
            total, products = np.zeros(rows.shape[1]), np.zeros(signs.shape)
        rows = rows.astype(np.float64)
        total += np.asarray(rows.sum(axis=0)).ravel()
        products += rows.T @ (rows @ signs)
        count += rows.shape[0]
    mean = total / count
    of_covariance = products / count - np.outer(mean, mean @ signs)
    spread = float((of_covariance**2).sum(axis=0).mean() ** 0.25)
    return spread if spread > 1e-9 and np.isfinite(spread) else 1.0
