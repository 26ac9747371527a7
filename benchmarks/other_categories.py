"""Test AU-ROC with each category of a graph in turn as the novel one; source ratios of the others are 0.1 or 0.9.

python benchmarks/other_categories.py --root data --datasets cora-s citeseer-s
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from recoslip import detector, load_dataset
from recoslip.base.errors import RecoslipWarning
from recoslip.base.randomness import Permutations
from recoslip.data.split import assign_source, random_split
from recoslip.inference.metrics import auroc

METHODS = ("reco-slip-plus", "reco-slip", "domain-discriminator")


def main() -> None:
    """Print one row per graph and novel category: its fraction of the target, and the test AU-ROC of each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s", "citeseer-s"])
    parser.add_argument("--root", default=None)
    arguments = parser.parse_args()
    # RECO-SLIP warns where no network keeps max_fpr; AU-ROC does not depend on it.
    warnings.simplefilter("ignore", RecoslipWarning)
    titles = ("graph", "novel category", "fraction of the target", *METHODS)
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    rows = []
    for name in arguments.datasets:
        data = load_dataset(name, root=arguments.root)
        assert data.graph.categories is not None
        categories = np.unique(data.graph.categories, return_inverse=True)[1]
        for novel in range(categories.max() + 1):
            ratios = np.random.default_rng(novel).choice([0.1, 0.9], categories.max() + 1)
            ratios[novel] = 0
            permutations = Permutations(novel)
            graph = data.graph.with_target(~assign_source(categories, ratios, permutations))
            split = random_split(graph.is_target, permutations)
            is_novel = categories == novel
            settings = {"reco-slip": data.settings.reco_slip()}
            fitted = [detector(method, **settings.get(method, {})).fit(graph, split) for method in METHODS]
            rows.append([auroc(is_novel, model.scores_, split.test) for model in fitted])
            fraction = is_novel[graph.is_target].mean()
            print(f"| {name} | {novel} | {fraction:.2f} | {' | '.join(f'{v:.3f}' for v in rows[-1])} |", flush=True)
    print(f"| mean | | | {' | '.join(f'{v:.3f}' for v in np.mean(rows, axis=0))} |")


if __name__ == "__main__":
    main()
