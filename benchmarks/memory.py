"""Peak memory of a fit on a csbm with 100,000 nodes and 1,000,000 edges, with dense and with sparse features.

    python benchmarks/memory.py

Each case runs in its own process. No array of size nodes x nodes (40 GB here) and no dense copy of the sparse features
(8 GB here) is ever made.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
import scipy.sparse as sp

import recoslip
from recoslip.base.errors import RecoslipWarning
from recoslip.data.datasets.block_model import csbm

MEGABYTE = 1024**2


def peak() -> float:
    """Return the highest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


def case(nodes: int, edges: int, words: int, epochs: int) -> dict[str, float]:
    figures = {"imported": peak()}
    graph = csbm(nodes=nodes, degree=2 * edges / nodes, features=32)
    if words:  # about 20 words per node, as in a bag of words
        rng = np.random.default_rng(0)
        rows = np.repeat(np.arange(nodes), 20)
        matrix = sp.csr_array((np.ones(len(rows)), (rows, rng.integers(0, words, len(rows)))), shape=(nodes, words))
        graph = recoslip.NodeGraph(matrix, graph.edge_index, graph.is_target)
    figures["graph"] = peak()
    start = time.perf_counter()
    warnings.simplefilter("ignore", RecoslipWarning)  # that so few epochs find no network within max_fpr
    recoslip.RecoSlip(epochs=epochs, device="cpu").fit(graph)
    return figures | {"fitted": peak(), "seconds": time.perf_counter() - start, "edges": graph.num_edges}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--words", type=int, default=20_000, help="features of the sparse case")
    parser.add_argument("--case", type=int, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(case(args.nodes, args.edges, args.case, args.epochs)))
        return
    print(f"{'features':>22} {'edges':>10} {'import':>9} {'graph':>9} {'fit':>9}   peak resident memory, MB")
    for words in (0, args.words):
        options = ["--nodes", args.nodes, "--edges", args.edges, "--epochs", args.epochs, "--case", words]
        done = subprocess.run(
            [sys.executable, __file__, *map(str, options)], check=True, capture_output=True, text=True
        )
        figures = json.loads(done.stdout.splitlines()[-1])
        label = f"{words:,} sparse" if words else "32 dense"
        columns = " ".join(f"{figures[key]:>9,.0f}" for key in ("imported", "graph", "fitted"))
        rate = figures["seconds"] / args.epochs
        print(f"{label:>22} {figures['edges']:>10,.0f} {columns}   {rate:.1f} s an epoch of 5 members", flush=True)


if __name__ == "__main__":
    main()
