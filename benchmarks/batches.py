"""Training in batches against training on the whole graph: mean test AU-ROC and seconds per seed.

On cora-s and a csbm of 20,000 nodes.

python benchmarks/batches.py             # RECO-SLIP and RECO-SLIP+, five seeds
python benchmarks/batches.py --seeds 2
python benchmarks/batches.py --hard --batch-size 2048 --seeds 3    # the csbm of scale.py --hard
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from recoslip import detector, load_dataset
from recoslip.base.errors import DatasetError, RecoslipWarning
from recoslip.inference.metrics import auroc

SETTINGS = {"reco-slip": {"recall_targets": (0.05, 0.1)}, "reco-slip-plus": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--hard", action="store_true", help="a csbm on which no figure is 1.000")
    arguments = parser.parse_args()
    # RECO-SLIP warns where no network keeps max_fpr; AU-ROC does not depend on it.
    warnings.simplefilter("ignore", RecoslipWarning)
    csbm = {"nodes": 20_000, "features": 64, "degree": 20.0, "categories": 8, "noise": 3.0, "split_seed": 0}
    if arguments.hard:
        csbm |= {"degree": 8.0, "noise": 4.0, "homophily": 0.35}
    titles = ("graph", "method", "whole", "in batches", "difference", "seconds, whole", "seconds, in batches")
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    for name, options in (("cora-s", {}), ("csbm", csbm)):
        try:
            data = load_dataset(name, **options)
        except DatasetError as problem:
            print(f"{name}: {problem}")
            continue
        for method, settings in SETTINGS.items():
            means, seconds = [], []
            for batch_size in (0, arguments.batch_size):
                start = time.perf_counter()
                model = detector(method, batch_size=batch_size, **settings)
                fitted = model.fit_seeds(data.graph, range(arguments.seeds), data.split)
                seconds.append((time.perf_counter() - start) / arguments.seeds)
                means.append(np.mean([auroc(data.novel, copy.scores_, data.split.test) for copy in fitted]))
            print(
                f"| {name} | {method} | {means[0]:.3f} | {means[1]:.3f} | {means[1] - means[0]:+.3f} "
                f"| {seconds[0]:.1f} | {seconds[1]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
