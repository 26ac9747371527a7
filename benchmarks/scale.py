"""Time and memory against the size of the graph: csbm, 64 features, average degree 20, the default detector in batches.

python benchmarks/scale.py            # 10,000 to 1,000,000 nodes
python benchmarks/scale.py --quick    # 10,000 to 100,000 nodes and fewer epochs
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

QUICK = {"epochs": 40, "round_epochs": 20}


def measure(nodes: int, settings: dict[str, object]) -> dict[str, float]:
    """Make a graph, fit and score it, in this process; return seconds of each and the highest memory, in GiB."""
    from recoslip import detector, load_dataset
    from recoslip.insight.metrics import auroc

    begin = time.perf_counter()
    data = load_dataset("csbm", nodes=nodes, features=64, degree=20.0, categories=8, noise=3.0, split_seed=0)
    made = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fitted = detector("auto", **settings).fit(data.graph, data.split)
    done = time.perf_counter()
    return {
        "nodes": nodes,
        "edges": data.graph.num_edges,
        "make": made - begin,
        "fit": done - made,
        "GiB to make": memory / 2**20,
        "GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "AU-ROC": auroc(data.novel, fitted.scores_, data.split.test),
    }


def exponent(sizes: list[float], values: list[float]) -> float:
    """Return the slope of values against sizes where both are logarithms: 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main() -> None:
    """Measure each size in a process of its own and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--batch-size", type=int, default=2048, help="0 trains on the whole graph")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        given = json.loads(arguments.one)
        print(json.dumps(measure(given.pop("nodes"), given)))
        return
    sizes = [10_000, 30_000, 100_000] if arguments.quick else arguments.nodes
    settings = {"batch_size": arguments.batch_size} | (QUICK if arguments.quick else {})
    titles = ("nodes", "edges", "make, s", "fit and score, s", "peak GiB, made", "peak GiB, fitted", "AU-ROC")
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    rows = []
    for nodes in sizes:
        command = [sys.executable, __file__, "--one", json.dumps({"nodes": nodes} | settings)]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"| {row['nodes']:,} | {row['edges']:,} | {row['make']:.1f} | {row['fit']:.1f} | {row['GiB to make']:.2f} "
            f"| {row['GiB']:.2f} | {row['AU-ROC']:.3f} |",
            flush=True,
        )
    for what in ("fit", "GiB"):
        slope = exponent([row["nodes"] for row in rows], [row[what] for row in rows])
        print(f"{what} grows as nodes^{slope:.2f}")


if __name__ == "__main__":
    main()
