"""Scores and the truth -> how good the ranking is."""

import numpy as np
from sklearn.metrics import roc_auc_score

from recoslip.detectors.base import Scores
from recoslip.errors import SettingError
from recoslip.shift import Mask


def auroc(novel: Mask, scores: Scores, nodes: Mask | None = None) -> float:
    """Area under the ROC curve of novel against known nodes, over `nodes` (the paper's: target test nodes).

    >>> auroc(np.array([False, True, True]), np.array([0.1, 0.9, 0.2]))
    1.0
    """
    chosen = np.ones_like(novel) if nodes is None else nodes
    truth = novel[chosen]
    if truth.all() or not truth.any():
        raise SettingError(
            f"AU-ROC needs novel and known nodes; all {len(truth)} are {'novel' if truth.all() else 'known'}"
        )
    return float(roc_auc_score(truth, scores[chosen]))
