"""AU-ROC and processor time of the scan, of RECO-SLIP+, whose rounds start from it, and of the mean rank of both.

python benchmarks/committee_proposals.py --root DATA cora-s citeseer-s photo-s citationv1/mixed0 citationv1/grown
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch

from recoslip import RecoSlipPlus, Scan
from recoslip.base.errors import RecoslipWarning
from recoslip.data.datasets.load import Dataset, load_dataset, load_labelled, load_panel_case
from recoslip.inference.metrics import auroc
from recoslip.learning.scan import Ranks


def load(name: str, root: str | None) -> Dataset:
    """Load a dataset of the catalogue, or GRAPH/CASE of the panel."""
    graph, _, case = name.partition("/")
    return load_panel_case(graph, load_labelled(graph, root), case) if case else load_dataset(name, root)


def main() -> None:
    """Print one row per dataset, and their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--root", default=None)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RecoslipWarning)
    print(f"| dataset | scan | RECO-SLIP+ | mean rank | processor seconds |\n{'|---' * 5}|")
    rows = []
    for name in arguments.datasets:
        data = load(name, arguments.root)
        of_seeds = []
        for seed in range(arguments.seeds):
            start = time.process_time()
            committee = RecoSlipPlus(random_state=seed, device=arguments.device).fit(data.graph, data.split).scores_
            seconds = time.process_time() - start
            scan = Scan(random_state=seed).fit(data.graph).scores_
            together = (2 * scan + Ranks.of(committee)(committee)) / 3
            of_seeds.append([*(auroc(data.novel, f, data.judged) for f in (scan, committee, together)), seconds])
        rows.append(np.mean(of_seeds, axis=0))
        _print_row(name, rows[-1])
    _print_row("mean", np.mean(rows, axis=0))


def _print_row(name: str, values: np.ndarray) -> None:
    print(f"| {name} | {' | '.join(f'{value:.3f}' for value in values[:3])} | {values[3]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
