"""AU-ROC of RECO-SLIP+ on cases of the panel, with one of its elements removed or replaced at a time.

python benchmarks/committee_elements.py --root data --jobs 12
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np
import torch

from recoslip import RecoSlipPlus
from recoslip.base.errors import RecoslipWarning
from recoslip.data.datasets.load import load_labelled, load_panel_case
from recoslip.inference.metrics import auroc
from recoslip.learning.base import Scores
from recoslip.learning.networks.reco_slip_plus import CoTraining

GRAPHS = ("acmv9", "blogcatalog", "citationv1", "coauthor_cs", "flickr")
CASES = ("mixed1", "grown")
CO_TRAINING = "recoslip.learning.networks.reco_slip_plus"


class LastRound(RecoSlipPlus):
    """Scored by the last round alone."""

    def scoring_stages(self, rejected: bool) -> Sequence[int]:
        """Return the last stage."""
        return super().scoring_stages(rejected)[-1:]


class AllStages(RecoSlipPlus):
    """Scored by the proposals and all rounds."""

    def scoring_stages(self, rejected: bool) -> Sequence[int]:
        """Return the rounds and the proposals."""
        return super().scoring_stages(rejected) if rejected else range(self.rounds + 1)


VARIANTS: dict[str, Callable[..., RecoSlipPlus]] = {
    "complete": RecoSlipPlus,
    "GCN alone": lambda **given: RecoSlipPlus(encoder="gcn", **given),
    "MLP alone": lambda **given: RecoSlipPlus(encoder="mlp", **given),
    "GCN, GraphSAGE and MLP": lambda **given: RecoSlipPlus(encoder=("gcn", "sage", "mlp"), **given),
    "equal weights": RecoSlipPlus,
    "proposals alone (`rounds=0`)": lambda **given: RecoSlipPlus(rounds=0, **given),
    "one round (`rounds=1`)": lambda **given: RecoSlipPlus(rounds=1, **given),
    "scored by the last round alone": LastRound,
    "scored by the proposals, too": AllStages,
    "no isolation": RecoSlipPlus,
    "no smoothing (`smoothing=0`)": lambda **given: RecoSlipPlus(smoothing=0, **given),
    "no folds (`folds=1`)": lambda **given: RecoSlipPlus(folds=1, **given),
    "no input dropout (`input_dropout=0`)": lambda **given: RecoSlipPlus(input_dropout=0, **given),
}
REPLACED = {  # parts that no setting turns off
    "equal weights": ("encoder_weights", lambda auroc: np.full(len(auroc), 1 / len(auroc))),
    "no isolation": ("Nearness.isolation", lambda nearness: np.zeros(len(nearness.is_target))),
}
INDEPENDENT = "independent members"  # the GCN's and the MLP's own fits, averaged with the committee's weights


def fit(graph: str, case: str, variant: str, root: str | None) -> tuple[Scores, Scores]:
    """Fit one variant on one case; return the margins of all nodes, and the weights of the encoders."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RecoslipWarning)
    data = load_panel_case(graph, load_labelled(graph, root), case)
    name, value = REPLACED.get(variant, ("CoTraining", CoTraining))
    with patch(f"{CO_TRAINING}.{name}", value):
        fitted = VARIANTS[variant](random_state=10).fit(data.graph, data.split)
    f = fitted.scores_.clip(1e-9, 1 - 1e-9)
    return np.log(f / (1 - f)), fitted.encoders_["weight"].to_numpy()


def main() -> None:
    """Print one row per variant: the mean AU-ROC of each kind of case, and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--root", default=None)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    keys = [(g, c, v) for v in arguments.variants for g in arguments.graphs for c in arguments.cases]
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        futures = {key: pool.submit(fit, *key, arguments.root) for key in keys}
        fits = {key: future.result() for key, future in futures.items()}
    values = defaultdict(dict)
    for graph in arguments.graphs:
        labelled = load_labelled(graph, arguments.root)
        for case in arguments.cases:
            data = load_panel_case(graph, labelled, case)
            own = {variant: fits[graph, case, variant][0] for variant in arguments.variants}
            if {"complete", "GCN alone", "MLP alone"} <= own.keys():
                weights = fits[graph, case, "complete"][1]
                own[INDEPENDENT] = weights[0] * own["GCN alone"] + weights[1] * own["MLP alone"]
            for variant, margin in own.items():
                values[variant][graph, case] = auroc(data.novel, margin, data.judged)
    print(f"| | {' | '.join(arguments.cases)} | mean |\n{'|---' * (len(arguments.cases) + 2)}|")
    for variant, of_cases in values.items():
        kinds = [np.mean([value for (_, c), value in of_cases.items() if c == case]) for case in arguments.cases]
        print(f"| {variant} | {' | '.join(f'{v:.3f}' for v in (*kinds, np.mean(list(of_cases.values()))))} |")


if __name__ == "__main__":
    main()
