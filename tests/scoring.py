"""New nodes read and scored with a fitted model, as `recoslip.score` does, with ids, p-values and lists as a table."""

import numpy as np
import polars as pl

from recoslip import Detector
from recoslip.inference.calibrated import Calibrated
from recoslip.pipeline.score import read_for


def as_calibrated(model):
    return Calibrated.uncalibrated(model) if isinstance(model, Detector) else model


def read_table(model, nodes, edges=None, **options):
    return read_for(as_calibrated(model), nodes, edges, **options)


def score_table(model, nodes, edges=None, **options):
    model, new = as_calibrated(model), read_table(model, nodes, edges, **options)
    if np.any(model.hidden_in(new.graph)):
        view = model.transfer(new.graph)
        scores, p = view.scores, view.p_values()
    else:
        scores, p = model.scores_and_p_values(new.graph)
    table = {
        "id": pl.Series([str(name) for name in new.graph.ids.tolist()], dtype=pl.String),
        "score": scores,
        "p_value": pl.Series(p, nan_to_null=True),
        "listed": p <= model.max_fpr * (1 + 1e-9),
    }
    return pl.DataFrame(table).filter(new.is_new)
