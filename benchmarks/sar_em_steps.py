"""Test AU-ROC of SAR-EM after each EM step.

python benchmarks/sar_em_steps.py --datasets photo-s --steps 8
"""

import argparse

from formatting import mean_and_error

import recoslip
from recoslip.inference.metrics import auroc
from recoslip.learning.networks import pu_methods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["photo-s"])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 20, 30, 40])
    parser.add_argument("--root", default=None)
    args = parser.parse_args()
    posterior = pu_methods.posterior_known
    for name in args.datasets:
        data = recoslip.load_dataset(name, root=args.root)
        step = 0

        def printing_posterior(s, p, e, data=data, name=name):  # type: ignore[no-untyped-def]
            nonlocal step
            f = (1 - p).double().cpu().numpy()
            values = [auroc(data.novel, f[:, m], data.split.test) for m in range(f.shape[1])]
            print(f"{name}, EM step {step}: {mean_and_error(values)}", flush=True)
            step += 1
            return posterior(s, p, e)

        pu_methods.posterior_known = printing_posterior
        model = recoslip.detector("sar-em", **data.settings.network(), em_steps=args.steps + 1)
        model.fit_seeds(data.graph, args.seeds, data.split)


if __name__ == "__main__":
    main()
