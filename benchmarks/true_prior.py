"""Test AU-ROC of uPU and nnPU with the true class prior, and of their warm-up alone.

python benchmarks/true_prior.py --root data --datasets cora-s
"""

import argparse

from formatting import mean_and_error

import recoslip
from recoslip.inference.metrics import auroc
from recoslip.learning.networks import pu_methods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10, 101, 10)))
    parser.add_argument("--root", default=None)
    args = parser.parse_args()
    for name in args.datasets:
        data = recoslip.load_dataset(name, root=args.root)
        network = data.settings.network()
        known = float(1 - data.novel[data.graph.is_target].mean())
        pu_methods.best_bin = lambda source, target, prior=known: prior
        cases = {
            "warm-up alone": recoslip.detector("domain-discriminator", **network, epochs=150, patience=150),
            f"upu with the true prior, {known:.3f}": recoslip.detector("upu", **network),
            f"nnpu with the true prior, {known:.3f}": recoslip.detector("nnpu", **network),
        }
        for label, detector in cases.items():
            fitted = detector.fit_seeds(data.graph, args.seeds, data.split)
            values = [auroc(data.novel, copy.scores_, data.split.test) for copy in fitted]
            print(f"{name:12} {label:>34} {mean_and_error(values)}", flush=True)


if __name__ == "__main__":
    main()
