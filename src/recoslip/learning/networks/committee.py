"""Encoders of different kinds -> how much each has to say on a graph, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from recoslip.base.errors import SettingError
from recoslip.data.split import Mask
from recoslip.learning.base import Scores
from recoslip.learning.networks.ensemble import Folds, out_of_fold_prediction
from recoslip.learning.networks.network_detector import check_encoder
from recoslip.learning.networks.whole_graph import Encoder

TEMPERATURE = 0.02  # difference of two domain AU-ROCs at which weights differ by a factor of e: about its error
MIN_WEIGHT = 0.1  # encoders with less weight are left out: they cost more than they bring

MAX_STAGES = 1000  # so that a stage and an encoder have a number of their own
DOMAIN_STAGE = MAX_STAGES - 1  # in which encoders learn to tell the domains apart


class CommitteeMember(NamedTuple):
    """An encoder of the committee."""

    position: int  # in the setting `encoder`
    encoder: Encoder | nn.Module

    @property
    def name(self) -> str | None:
        """Its name; None for a module of the user's own."""
        return self.encoder if isinstance(self.encoder, str) else None

    @property
    def label(self) -> str:
        """Its name, or that of the module's class."""
        return self.name or type(self.encoder).__name__

    def number(self, stage: int) -> int:
        """Return the number of a training of this encoder, which its random draws follow from."""
        return self.position * MAX_STAGES + stage


def check_encoders(name: str, value: Any) -> None:
    """Raise unless `value` is an encoder or one or more of them."""
    if isinstance(value, str | nn.Module) or value is None:
        check_encoder(name, value)
        return
    if not isinstance(value, Sequence) or not len(value):
        raise SettingError(f"{name} must be an encoder or a sequence of encoders; got {value!r}")
    for encoder in value:
        check_encoder(f"each of {name}", encoder)


def domain_auroc(margins: Sequence[Scores], folds: Folds, held_out: Folds, is_target: Mask, nodes: Mask) -> Scores:
    """Return how well each encoder's networks tell the domains of nodes that they were not trained on apart.

    That is an AU-ROC, and 0.5 for networks whose training diverged.

    Args:
        margins: (nodes, networks) of each encoder.
        folds: (nodes,) the fold of each node.
        held_out: (networks,) the fold that each network was not trained on.
        is_target: (nodes,).
        nodes: (nodes,) those that count.
    """
    from sklearn.metrics import roc_auc_score

    opinions = [out_of_fold_prediction(own, folds, held_out).margin[nodes] for own in margins]
    return np.array(
        [roc_auc_score(is_target[nodes], opinion) if np.isfinite(opinion).all() else 0.5 for opinion in opinions]
    )


def encoder_weights(auroc: Scores) -> Scores:
    """Turn the domain AU-ROC of each encoder into weights with sum 1; equal ones where it is not known.

    >>> encoder_weights(np.array([0.9, 0.88, 0.8])).round(2).tolist()
    [0.73, 0.27, 0.0]
    >>> encoder_weights(np.array([np.nan])).tolist()
    [1.0]
    """
    if np.isnan(auroc).any():
        return np.full(len(auroc), 1 / len(auroc))
    weights = np.exp((auroc - auroc.max()) / TEMPERATURE)
    weights /= weights.sum()
    weights[weights < MIN_WEIGHT] = 0
    return np.asarray(weights / weights.sum())
