"""Seconds of training ten seeds together, against one after another, in one run.

    python benchmarks/seeds_speed.py --datasets cora-s --methods domain-discriminator nnpu reco-slip

Both ways, every method trains for the same fixed number of epochs, so that early stopping does not blur the ratio.
"""

import argparse
import statistics
import time
import warnings
from typing import Any

import torch

import recoslip
from recoslip.base.errors import RecoslipWarning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s"])
    parser.add_argument("--methods", nargs="+", default=["domain-discriminator", "nnpu", "reco-slip"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--root", default=None)
    args = parser.parse_args()
    warnings.simplefilter("ignore", RecoslipWarning)
    seeds = list(range(args.seeds))
    print(f"{'dataset':12} {'method':>22} {'one by one, s':>15} {'together, s':>13} {'ratio':>7}")
    for name in args.datasets:
        data = recoslip.load_dataset(name, root=args.root)
        for method in args.methods:
            fixed = {"epochs": args.epochs, "patience": args.epochs, "prior_epochs": args.epochs // 2}
            known = recoslip.detector(method).get_params()
            settings: dict[str, Any] = data.settings.reco_slip() | fixed | {"device": args.device}
            detector = recoslip.detector(method, **{k: v for k, v in settings.items() if k in known})
            times: dict[str, list[float]] = {"one by one": [], "together": []}
            for _ in range(args.rounds + 1):  # the first round warms up
                for way, fleets in (("one by one", [[seed] for seed in seeds]), ("together", [seeds])):
                    start = time.perf_counter()
                    for fleet in fleets:
                        detector.fit_seeds(data.graph, fleet, data.split)
                    if torch.cuda.is_available():
                        torch.cuda.synchronize()
                    times[way].append(time.perf_counter() - start)
            one_by_one, together = (statistics.median(times[way][1:]) for way in ("one by one", "together"))
            print(
                f"{name:12} {method:>22} {one_by_one:>15.2f} {together:>13.2f} {one_by_one / together:>7.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
