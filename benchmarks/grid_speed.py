"""Seconds of the paper's main experiment: RECO-SLIP, ten seeds of five recall targets for 1000 epochs, on each graph.

    python benchmarks/grid_speed.py --root data                    # a GPU
    python benchmarks/grid_speed.py --root data --default          # beside it, one seed of RECO-SLIP+

The first fit on a GPU loads libraries, so a short one goes before and is not counted.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch

import recoslip
from recoslip.base.errors import RecoslipWarning
from recoslip.inference.metrics import auroc

DATASETS = ("cora-s", "citeseer-s", "photo-s", "computers-s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--default", action="store_true", help="RECO-SLIP+ with one seed, too")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--root", default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", RecoslipWarning)  # where no network keeps max_fpr
    print("| graph | method | seconds | AU-ROC |\n|---|---|---|---|")
    total = 0.0
    for name in arguments.datasets:
        data = recoslip.load_dataset(name, root=arguments.root)
        grid = recoslip.RecoSlip(**data.settings.reco_slip(), device=arguments.device, epochs=arguments.epochs)
        models = [(grid, range(arguments.seeds))]
        if arguments.default:
            models.append((recoslip.RecoSlipPlus(device=arguments.device), range(1)))
        for model, seeds in models:
            recoslip.detector(model.name, device=arguments.device, epochs=4).fit(data.graph, data.split)
            start = time.perf_counter()
            fitted = model.fit_seeds(data.graph, seeds, data.split)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            total += seconds if model is grid else 0.0
            figure = np.mean([auroc(data.novel, copy.scores_, data.split.test) for copy in fitted])
            print(f"| {name} | {model.name}, {len(seeds)} | {seconds:.2f} | {figure:.3f} |", flush=True)
    print(f"\nthe grid: {total:.1f} s")


if __name__ == "__main__":
    main()
