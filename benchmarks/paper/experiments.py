"""The paper's experiments -> `recoslip bench`: which methods on which datasets, and how the paper prints their names.

python benchmarks/paper/experiments.py shift --splits 10 --seeds 1    # further options are those of recoslip bench main

An experiment is trained into a folder (--out); render.py makes the documents of it.
"""

import subprocess
import sys

from recoslip.data.datasets.catalogue import GRAPHS
from recoslip.learning.methods import DETECTORS
from recoslip.products.bench.run import DATASETS as STRONG
from recoslip.products.bench.run import VARIANTS

TITLES = {  # in the order of the paper, then of the others
    "oracle": "Oracle",
    "domain-discriminator": "Domain discriminator",
    "upu": "uPU",
    "nnpu": "nnPU",
    "sar-em": "SAR-EM",
    "lp-pul": "LP-PUL",
    "pu-gnn": "PU-GNN",
    "reco-slip": "RECO-SLIP",
    "reco-slip-none": "w/o link prediction",
    "reco-slip-all": "w/ full link prediction",
    "reco-slip-target": "w/ target link prediction",
    "reco-slip-plus": "RECO-SLIP+",
    "scan": "Scan",
    "conoc": "CoNoC",
    "dist-pu": "Dist-PU",
    "elkan-noto": "Elkan-Noto",
    "energy": "Energy",
    "nearest-source": "Nearest source",
    "dominant": "DOMINANT",
}
HEADINGS = {
    "main": "Methods compared",
    "ablation": "Link prediction: what each variant brings",
    "shift": "Shift intensity: none (NS), minor (MS), strong (S)",
}
SHIFTS = ("ns", "ms", "s")  # versions of each graph: no, minor and strong shift
DATASETS = {
    "main": STRONG,
    "ablation": STRONG,
    "shift": tuple(f"{graph}-{shift}" for graph in GRAPHS for shift in SHIFTS),
}
METHODS = {
    "main": tuple(method for method in dict.fromkeys((*TITLES, *DETECTORS)) if method not in VARIANTS),
    "ablation": (*VARIANTS, "reco-slip"),
    "shift": ("domain-discriminator", "sar-em", "pu-gnn", "reco-slip"),
}


def title(name: str) -> str:
    """The name of a method or dataset as the paper prints it, or as it is where the paper has none."""
    graph, dash, version = name.partition("-")
    return f"{GRAPHS[graph]}{dash}{version.upper()}" if graph in GRAPHS else TITLES.get(name, name)


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in DATASETS:
        sys.exit(f"{__doc__}\nexpected one of {', '.join(DATASETS)}")
    name, options = sys.argv[1], sys.argv[2:]
    chosen = {"--datasets": DATASETS[name], "--methods": METHODS[name]}
    given = [part for option, names in chosen.items() if option not in options for part in (option, ",".join(names))]
    sys.exit(subprocess.run([sys.executable, "-m", "recoslip", "bench", "main", *given, *options]).returncode)


if __name__ == "__main__":
    main()
