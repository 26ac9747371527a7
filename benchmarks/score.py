"""What p-values are worth for nodes that took no part in the fit; and what scoring a large table costs.

python benchmarks/score.py --root data --records docs/results/score/records.jsonl --jobs 2
python benchmarks/score.py --records docs/results/score/records.jsonl --table
python benchmarks/score.py --time

Of a case's target nodes three in ten are put aside. The detector is fitted on the rest, as `recoslip detect` does, and
`transfer` scores all nodes, those put aside among their neighbours. Beside it, the same nodes in a fit that they took
part in.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import recoslip
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.panel import panel_case, read_labelled
from recoslip.data.graph import NodeGraph
from recoslip.data.split import Mask
from recoslip.learning.methods import detector

PANEL = ("acmv9", "blogcatalog", "citationv1", "flickr")
CASES = ("mixed0", "unshifted")
CSBM = {"nodes": 2000, "categories": 6, "noise": 2.0, "homophily": 0.7}
DRAWS = 10  # of csbm, shifted and not
LEVELS = (0.01, 0.05, 0.2)


def load(name: str, case: str, draw: int, root: Path) -> tuple[NodeGraph, Mask]:
    """Return a graph and who is novel."""
    if name == "csbm":
        graph = csbm(shift=0.0 if case == "unshifted" else 0.6, seed=draw, **CSBM)
        assert graph.categories is not None
        return graph, graph.categories == graph.categories.max()
    found = panel_case(name, read_labelled(root / "panel" / f"{name}.npz"), case)
    return found.graph, found.novel


def measure(name: str, case: str, draw: int, root: Path, device: str) -> dict[str, Any]:
    """Fit without a part of the target, score it, and compare with a fit in which it took part."""
    from sklearn.metrics import roc_auc_score

    graph, novel = load(name, case, draw, root)
    rng = np.random.default_rng(draw)
    aside = graph.is_target & (rng.random(graph.num_nodes) < 0.3)
    old = graph.subgraph(np.flatnonzero(~aside))
    record: dict[str, Any] = {"graph": name, "case": case, "draw": draw, "aside": int(aside.sum())}
    for key, fitted_on in (("new", old), ("in the fit", graph)):
        fitted = recoslip.calibrate(detector("auto", device=device), fitted_on, rotations=5)
        view = fitted.transfer(graph) if key == "new" else fitted
        p = view.p_values()
        record[key] = {
            "known": {str(u): float((p[aside & ~novel] <= u * (1 + 1e-9)).mean()) for u in LEVELS},
            "novel": {str(u): float((p[aside & novel] <= u * (1 + 1e-9)).mean()) for u in LEVELS},
            "auroc": float(roc_auc_score(novel[aside], view.scores[aside])),
        }
    return record


def print_table(records: list[dict[str, Any]]) -> None:
    """Print the means over draws, by graph and case."""
    head = ("known, p ≤ 0.01 / 0.05 / 0.2", "novel, p ≤ 0.01", "AU-ROC")
    print(f"| graph | case | n | {' | '.join(f'{name} | in the fit' for name in head)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, case in sorted({(r["graph"], r["case"]) for r in records}):
        own = [r for r in records if (r["graph"], r["case"]) == (name, case)]
        parts: list[str] = []
        for value in (
            lambda r, key: " / ".join(f"{np.mean([x[key]['known'][str(u)] for x in r]):.3f}" for u in LEVELS),
            lambda r, key: f"{np.mean([x[key]['novel']['0.01'] for x in r]):.2f}",
            lambda r, key: f"{np.mean([x[key]['auroc'] for x in r]):.3f}",
        ):
            parts += [value(own, "new"), value(own, "in the fit")]
        print(f"| {name} | {case} | {len(own)} | {' | '.join(parts)} |")


def measure_time(rows: int = 100_000) -> None:
    """Fit a small table, and score one of many rows with edges by the command line, in a process of its own."""
    import polars as pl

    def tables(nodes: int, seed: int, prefix: str, folder: Path) -> tuple[Path, Path]:
        graph = csbm(nodes=nodes, features=32, seed=seed)
        left, right = graph.edge_index
        once = left < right
        domain = np.where(graph.is_target, "target", "source")
        features = {f"f{k}": graph.x[:, k] for k in range(32)}
        names = np.array([f"{prefix}{k}" for k in range(nodes)])
        paths = folder / f"{prefix}.csv", folder / f"{prefix}-edges.csv"
        pl.DataFrame({"id": names, "domain": domain, **features}).write_csv(paths[0])
        pl.DataFrame({"a": names[left[once]], "b": names[right[once]]}).write_csv(paths[1])
        return paths

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, old_edges = tables(2000, 0, "old", folder)
        new, new_edges = tables(rows, 1, "new", folder)
        command = [Path(sys.executable).parent / "recoslip"]
        out, scored = folder / "out", folder / "scored"
        subprocess.run([*command, "detect", old, old_edges, "--out", out, "-q"], check=True)
        for besides in ([], ["--with", old, old_edges]):
            begin = time.perf_counter()
            own = ["--nodes", new, "--edges", new_edges, *besides, "--out", scored, "-q", "--force"]
            subprocess.run([*command, "score", out, *own], check=True)
            seconds = time.perf_counter() - begin
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(f"{rows:,} rows{', with the old nodes' if besides else ''}: {seconds:.0f} s, at most {peak:.1f} GiB")


def main() -> None:
    """Measure the cases that have no record yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder with panel/NAME.npz")
    parser.add_argument("--records", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--time", action="store_true", help="what scoring 100,000 rows costs, and nothing else")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    if arguments.time:
        measure_time()
        return
    path: Path = arguments.records
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {(r["graph"], r["case"], r["draw"]) for r in records}
    wanted = [("csbm", case, draw) for draw in range(DRAWS) for case in CASES]
    wanted += [(name, case, 0) for name in PANEL for case in CASES]
    if not arguments.table:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file, ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
            left = [each for each in wanted if each not in done]
            more = arguments.root, arguments.device
            for future in as_completed([pool.submit(measure, *each, *more) for each in left]):
                records.append(future.result())
                file.write(json.dumps(records[-1]) + "\n")
                file.flush()
    print_table(records)


if __name__ == "__main__":
    main()
