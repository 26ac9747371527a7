"""Methods with the paper's settings: test AU-ROC over seeds beside the paper's figure, and the seconds it takes.

    python benchmarks/accuracy.py --datasets cora-s citeseer-s computers-s photo-s
    python benchmarks/accuracy.py --methods all --json results.jsonl

RECO-SLIP is 10 seeds x 5 recall targets = 50 models of 1000 epochs for each dataset, trained as one fleet.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recoslip
from recoslip.datasets import Dataset
from recoslip.detectors import DETECTORS
from recoslip.errors import RecoslipWarning
from recoslip.fleet.device import resolve_device
from recoslip.insight.metrics import auroc

# The paper's tables: mean test AU-ROC over 10 seeds.
COLUMNS = ("cora-s", "citeseer-s", "computers-s", "photo-s", "arxiv")
PAPER = {
    "oracle": (0.953, 0.864, 0.986, 0.985, 0.847),
    "domain-discriminator": (0.705, 0.717, 0.877, 0.671, 0.628),
    "upu": (0.705, 0.701, 0.834, 0.677, 0.628),
    "nnpu": (0.705, 0.701, 0.830, 0.676, 0.629),
    "sar-em": (0.740, 0.695, 0.721, 0.607, 0.615),
    "lp-pul": (0.666, 0.638, 0.830, 0.256, 0.658),
    "pu-gnn": (0.705, 0.701, 0.833, 0.678, 0.627),
    "reco-slip-none": (0.755, 0.714, 0.946, 0.795, 0.703),
    "reco-slip-all": (0.750, 0.719, 0.943, 0.793, 0.693),
    "reco-slip-target": (0.767, 0.723, 0.943, 0.812, 0.699),
    "reco-slip": (0.770, 0.745, 0.948, 0.810, 0.710),
}


def settings(method: str, data: Dataset) -> dict[str, Any]:
    """Pick the paper's settings for a dataset, as far as a method has them."""
    s = data.settings
    known = recoslip.detector(method).get_params()
    wanted = s.reco_slip() | {"negatives_per_edge": s.negatives_per_edge}
    return {key: value for key, value in wanted.items() if key in known}


def measure(method: str, data: Dataset, seeds: list[int], device: str) -> dict[str, Any]:
    """Fit all seeds together and score them on the test nodes."""
    detector = recoslip.detector(method, **settings(method, data), device=device)
    truth = {"novel": data.novel} if "truth" in detector.needs else {}
    if not detector.trains:
        seeds = seeds[:1]
    begin = time.perf_counter()
    fitted = detector.fit_seeds(data.graph, seeds, data.split, **truth)
    seconds = time.perf_counter() - begin
    values = [auroc(data.novel, copy.scores_, data.split.test) for copy in fitted]
    paper = dict(zip(COLUMNS, PAPER.get(method, ()), strict=False)).get(data.name)
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return {
        "dataset": data.name,
        "method": method,
        "auroc": float(np.mean(values)),
        "error": error,
        "paper": paper,
        "seconds": seconds,
        "values": values,
        "known_share": [getattr(copy, "prior_", None) for copy in fitted],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s", "citeseer-s", "computers-s", "photo-s"])
    parser.add_argument("--methods", nargs="+", default=["reco-slip"], help="registry names, or all")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10, 101, 10)))
    parser.add_argument("--split-seed", type=int, default=None, help="default: the authors' split")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--root", default=None)
    parser.add_argument("--json", type=Path, default=None, help="append every result to this file of JSON lines")
    args = parser.parse_args()
    device = resolve_device(args.device)
    methods = list(DETECTORS) if args.methods == ["all"] else args.methods
    warnings.simplefilter("ignore", RecoslipWarning)
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{hardware}, torch {torch.__version__}, {len(args.seeds)} seeds")
    print(f"{'dataset':12} {'method':>22} {'test AU-ROC':>15} {'paper':>7} {'seconds':>9}")
    total = 0.0
    for name in args.datasets:
        data = recoslip.load_dataset(name, root=args.root, split_seed=args.split_seed)
        for method in methods:
            result = measure(method, data, args.seeds, args.device)
            total += result["seconds"]
            paper = "-" if result["paper"] is None else f"{result['paper']:.3f}"
            figure = f"{result['auroc']:.3f} ± {result['error']:.3f}"
            print(f"{name:12} {method:>22} {figure:>15} {paper:>7} {result['seconds']:>9.1f}", flush=True)
            if args.json is not None:
                with args.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
    print(f"{'together':12} {'':>22} {'':>15} {'':>7} {total:>9.1f}")


if __name__ == "__main__":
    main()
