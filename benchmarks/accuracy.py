"""RECO-SLIP with the paper's settings: test AU-ROC over seeds, and the seconds the whole grid takes.

    python benchmarks/accuracy.py --datasets cora-s citeseer-s computers-s photo-s

Each dataset is 10 seeds x 5 recall targets = 50 models of 1000 epochs, trained as one fleet.
"""

import argparse
import time
import warnings

import numpy as np
import torch

import recoslip
from recoslip.errors import RecoslipWarning
from recoslip.fleet.device import resolve_device
from recoslip.insight.metrics import auroc

PAPER = {"cora-s": 0.770, "citeseer-s": 0.745, "computers-s": 0.948, "photo-s": 0.810, "arxiv": 0.710}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s", "citeseer-s", "computers-s", "photo-s"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10, 101, 10)))
    parser.add_argument("--split-seed", type=int, default=None, help="default: the authors' split")
    parser.add_argument("--links", default="selective")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--root", default=None)
    args = parser.parse_args()
    device = resolve_device(args.device)
    warnings.simplefilter("ignore", RecoslipWarning)
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{hardware}, torch {torch.__version__}, links={args.links}, {len(args.seeds)} seeds")
    print(f"{'dataset':12} {'test AU-ROC':>15} {'paper':>7} {'seconds':>9} {'ms/model/epoch':>15}")
    total = 0.0
    for name in args.datasets:
        data = recoslip.load_dataset(name, root=args.root, split_seed=args.split_seed)
        detector = recoslip.RecoSlip(**data.settings.reco_slip(), links=args.links, device=args.device)
        begin = time.perf_counter()
        fitted = detector.fit_seeds(data.graph, args.seeds, data.split)
        seconds = time.perf_counter() - begin
        total += seconds
        values = [auroc(data.novel, copy.scores_, data.split.test) for copy in fitted]
        error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        models = len(args.seeds) * len(detector.recall_targets)
        print(
            f"{name:12} {np.mean(values):>7.3f} ± {error:.3f} {PAPER.get(name, np.nan):>7.3f} {seconds:>9.1f} "
            f"{1000 * seconds / models / detector.epochs:>15.3f}",
            flush=True,
        )
    print(f"{'together':12} {'':>15} {'':>7} {total:>9.1f}")


if __name__ == "__main__":
    main()
