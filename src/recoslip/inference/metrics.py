"""Scores and true novelty -> AU-ROC, average precision, F1 and FPR at 95 % recall."""

import numpy as np

from recoslip.base.errors import SettingError
from recoslip.data.split import Mask
from recoslip.inference.p_values import empirical_threshold
from recoslip.learning.base import Detector, Scores


def auroc(novel: Mask, scores: Scores, nodes: Mask | None = None) -> float:
    """Area under the ROC curve of novel against known nodes, over `nodes` (in the paper, the target test nodes).

    >>> auroc(np.array([False, True, True]), np.array([0.1, 0.9, 0.2]))
    1.0
    """
    from sklearn.metrics import roc_auc_score

    chosen = np.ones_like(novel) if nodes is None else nodes
    truth = novel[chosen]
    if truth.all() or not truth.any():
        raise SettingError(
            f"AU-ROC needs novel and known nodes; all {len(truth)} are {'novel' if truth.all() else 'known'}"
        )
    return float(roc_auc_score(truth, scores[chosen]))


def fpr_at_recall(novel: Mask, scores: Scores, recall: float = 0.95) -> float:
    """Fraction of the known nodes above the highest threshold that `recall` of the novel nodes reach.

    >>> fpr_at_recall(np.array([False, False, True, True]), np.array([0.1, 0.5, 0.4, 0.9]))
    0.5
    """
    from sklearn.metrics import roc_curve

    fpr, tpr, _ = roc_curve(novel, scores, drop_intermediate=False)  # steps between tied scores count
    return float(fpr[np.argmax(tpr >= recall)])


def listed_by_validation(fitted: Detector, max_fpr: float) -> Mask:
    """Return the target nodes that score above the lowest threshold with a validation FPR of at most `max_fpr`."""
    # D4: not f > 1/2 but the lowest threshold that keeps the FPR, see DEVIATIONS.md
    known = fitted.split_.validation & ~fitted.is_target_
    return np.asarray((fitted.scores_ > empirical_threshold(fitted.scores_[known], max_fpr)) & fitted.is_target_)


def all_metrics(novel: Mask, scores: Scores, listed: Mask, nodes: Mask) -> dict[str, float]:
    """AU-ROC, average precision, F1 of the listed nodes, and FPR at 95 % recall, over `nodes`."""
    from sklearn.metrics import average_precision_score, f1_score

    area = auroc(novel, scores, nodes)  # raises unless there are both novel and known nodes
    truth, chosen = novel[nodes], scores[nodes]
    return {
        "auroc": area,
        "ap": float(average_precision_score(truth, chosen)),
        "f1": float(f1_score(truth, listed[nodes], zero_division=0)),
        "fpr95": fpr_at_recall(truth, chosen),
    }
