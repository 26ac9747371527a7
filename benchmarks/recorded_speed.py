"""Epochs recorded as CUDA graphs against epochs launched from Python, for fleets of a few sizes; needs a GPU.

python benchmarks/recorded_speed.py --datasets cora-s computers-s
"""

import argparse
import time

import torch

import recoslip
from recoslip.data.datasets.load import Dataset
from recoslip.learning.networks.training import RecordedStep

NEVER, USUAL = 10**9, RecordedStep.WARM_UP  # warm-up epochs before the recording


def seconds(name: str, data: Dataset, members: int, epochs: int, warm_up: int) -> float:
    """Measure the wall time of training a fleet of so many seeds."""
    RecordedStep.WARM_UP = warm_up
    model = recoslip.detector(name, **data.settings.network(), epochs=epochs, patience=epochs, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    model.fit_seeds(data.graph, range(members), data.split)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora-s", "computers-s"])
    parser.add_argument("--members", nargs="+", type=int, default=[1, 10, 50])
    parser.add_argument("--epochs", type=int, default=220)
    parser.add_argument("--root", default=None)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark needs a CUDA GPU")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, ms per epoch of the domain discriminator")
    print(f"{'dataset':12} {'members':>8} {'launched':>9} {'recorded':>9} {'ratio':>6}")
    for dataset in args.datasets:
        data = recoslip.load_dataset(dataset, root=args.root)
        for members in args.members:
            taken = {}
            for warm_up in (NEVER, USUAL):
                # The difference of two lengths leaves out everything that is done once.
                short, long = (seconds("domain-discriminator", data, members, e, warm_up) for e in (20, args.epochs))
                taken[warm_up] = 1000 * (long - short) / (args.epochs - 20)
            launched, recorded = taken[NEVER], taken[USUAL]
            print(f"{dataset:12} {members:>8} {launched:>9.2f} {recorded:>9.2f} {launched / recorded:>6.1f}")


if __name__ == "__main__":
    main()
