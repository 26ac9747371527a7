"""Scores and the truth -> how good the ranking is."""

import numpy as np
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score, roc_curve

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


def fpr_at_recall(novel: Mask, scores: Scores, recall: float = 0.95) -> float:
    """Share of the known nodes that must be called novel so that `recall` of the novel ones are.

    >>> fpr_at_recall(np.array([False, False, True, True]), np.array([0.1, 0.5, 0.4, 0.9]))
    0.5
    """
    fpr, tpr, _ = roc_curve(novel, scores, drop_intermediate=False)  # steps between tied scores count
    return float(fpr[np.argmax(tpr >= recall)])


def all_metrics(novel: Mask, scores: Scores, called: Mask, nodes: Mask) -> dict[str, float]:
    """AU-ROC, average precision, FPR at 95 % recall, and F1 of the nodes that were called novel, over `nodes`."""
    value = auroc(novel, scores, nodes)  # refuses nodes of one kind
    truth, chosen = novel[nodes], scores[nodes]
    return {
        "auroc": value,
        "ap": float(average_precision_score(truth, chosen)),
        "f1": float(f1_score(truth, called[nodes], zero_division=0)),
        "fpr95": fpr_at_recall(truth, chosen),
    }
