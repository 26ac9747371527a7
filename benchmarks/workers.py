"""Fits by 1, 2 and 4 processes of a Ray cluster on this machine: seconds, speed-up and AU-ROC.

    python benchmarks/workers.py
    python benchmarks/workers.py --nodes 100000 --workers 1 2

Five rotations, of which each is one process's work.
A cluster is started once for each number, and is warm: a first fit of few epochs is not counted.
"""

from __future__ import annotations

import argparse
import os
import time

import recoslip
from recoslip.inference.metrics import auroc
from recoslip.products import cluster

TINY = {"epochs": 1, "rounds": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--epochs", type=float, default=0.25, help="times as many as by default")
    arguments = parser.parse_args()
    data = recoslip.load_dataset(
        "csbm", nodes=arguments.nodes, features=64, degree=8.0, categories=8, noise=4.0, homophily=0.35, split_seed=0
    )
    model = recoslip.RecoSlipPlus(device="cpu", batch_size=2048)
    epochs = {name: round(value * arguments.epochs) for name, value in model.get_params().items() if "epochs" in name}
    print(f"{data.graph!r}, {os.cpu_count()} cores\n\n| processes | s | speed-up | AU-ROC |\n{'|---' * 4}|")
    first = None
    for workers in arguments.workers:
        with cluster.cluster(cluster.LOCAL, workers):
            for settings in (epochs | TINY, epochs):
                start = time.perf_counter()
                fitted = cluster.fit(model.set_params(**settings), data.graph, data.split, workers=workers)
                seconds = time.perf_counter() - start
                model.set_params(rounds=3)
        first = seconds if first is None else first
        value = auroc(data.novel, fitted.scores, data.split.test)
        print(f"| {workers} | {seconds:.1f} | {first / seconds:.2f} | {value:.3f} |", flush=True)


if __name__ == "__main__":
    main()
