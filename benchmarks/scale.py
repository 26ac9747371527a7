"""Time, memory and quality against the size of the graph: csbm with 64 features, RECO-SLIP+ in batches or the scan.

python benchmarks/scale.py            # 10,000 to 1,000,000 nodes, average degree 20
python benchmarks/scale.py --hard     # features and edges tell less: an oracle has an AU-ROC of 0.95
python benchmarks/scale.py --hard --method scan
python benchmarks/scale.py --quick    # 10,000 to 100,000 nodes and fewer epochs
python benchmarks/scale.py --quick --nodes 2400000 --degree 50 --batch-size 2048 0   # on a GPU, in batches and whole
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

SIZES = [10_000, 30_000, 100_000, 300_000, 1_000_000]
QUICK = {"epochs": 20}


EASY = {"degree": 20.0, "noise": 3.0}
HARD = {"degree": 8.0, "noise": 4.0, "homophily": 0.35}


def measure(
    nodes: int, options: dict[str, float], batch_sizes: list[int], settings: dict[str, object], method: str
) -> None:
    """Make a graph, fit a detector and score the nodes, in this process; print seconds and peak memory as JSON."""
    if method == "scan":  # which imports no PyTorch
        cuda = None
    else:
        from torch import cuda

    from recoslip import detector, load_dataset
    from recoslip.inference.metrics import auroc

    make_start = time.perf_counter()
    data = load_dataset("csbm", nodes=nodes, features=64, categories=8, split_seed=0, **options)
    made = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for batch_size in batch_sizes:
        start, cpu_start = time.perf_counter(), time.process_time()
        if cuda and cuda.is_available():
            cuda.reset_peak_memory_stats()
        own = settings if cuda is None else settings | {"batch_size": batch_size}
        fitted = detector(method, **own).fit(data.graph, data.split)
        row = {
            "nodes": nodes,
            "edges": data.graph.num_edges,
            "batch": batch_size,
            "make": made - make_start,
            "fit": time.perf_counter() - start,
            "processor": time.process_time() - cpu_start,
            "GiB to make": memory / 2**20,
            "GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "GPU": cuda.max_memory_allocated() / 2**30 if cuda and cuda.is_available() else 0.0,
            "AU-ROC": auroc(data.novel, fitted.scores_, data.split.test),
        }
        print(json.dumps(row), flush=True)


def exponent(sizes: list[float], values: list[float]) -> float:
    """Return the slope of log(values) against log(sizes): 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main() -> None:
    """Measure each size in its own process and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", help="sizes of the graphs")
    parser.add_argument("--hard", action="store_true", help="a graph on which no figure is 1.000")
    parser.add_argument("--degree", type=float, help="average number of neighbours")
    parser.add_argument("--settings", type=json.loads, default={}, help="of the detector, as JSON")
    parser.add_argument("--method", choices=["reco-slip-plus", "scan"], default="reco-slip-plus")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[2048], help="0 trains on the whole graph")
    parser.add_argument("--quick", action="store_true", help="fewer epochs and, unless given, smaller sizes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(**json.loads(arguments.one))
        return
    sizes = arguments.nodes or SIZES[: 3 if arguments.quick else None]
    graph = (HARD if arguments.hard else EASY) | ({"degree": arguments.degree} if arguments.degree else {})
    options = {
        "options": graph,
        "batch_sizes": arguments.batch_size,
        "settings": (QUICK if arguments.quick else {}) | arguments.settings,
        "method": arguments.method,
    }
    titles = (
        "nodes", "edges", "batch", "make, s", "fit and score, s", "processor s", "peak GiB, made", "peak GiB, fitted",
        "on the GPU", "AU-ROC",
    )  # fmt: skip
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    rows = []
    for nodes in sizes:
        command = [sys.executable, __file__, "--one", json.dumps({"nodes": nodes} | options)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                row = json.loads(line)
                rows.append(row)
                print(
                    f"| {row['nodes']:,} | {row['edges']:,} | {row['batch'] or 'whole'} | {row['make']:.1f} "
                    f"| {row['fit']:.1f} | {row['processor']:.1f} | {row['GiB to make']:.2f} | {row['GiB']:.2f} "
                    f"| {row['GPU']:.2f} | {row['AU-ROC']:.3f} |",
                    flush=True,
                )
        if process.returncode:
            sys.exit(process.returncode)
    if len(sizes) > 1 and len(arguments.batch_size) == 1:
        for quantity in ("fit", "processor", "GiB"):
            slope = exponent([row["nodes"] for row in rows], [row[quantity] for row in rows])
            print(f"{quantity} grows as nodes^{slope:.2f}")


if __name__ == "__main__":
    main()
