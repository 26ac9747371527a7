"""Whether what `detect` says holds: verdicts, lists and bounds against the truth, over many draws of the domains.

python benchmarks/guarantees.py --jobs 2 --draws 200 --records docs/results/guarantees/records.jsonl
python benchmarks/guarantees.py --graphs cora acmv9 --draws 20 --root data --records RECORDS
python benchmarks/guarantees.py --records docs/results/guarantees/records.jsonl --table

A draw of csbm is a new graph; a draw of another graph has new domains. Known categories have source shares between 30
and 70 %, so that none is more than 2.4 times as frequent in the target as in the source. Domains are drawn

- node by node,
- in patches: nodes around random centres are of one domain,
- along edges: the nodes are target where random values are highest that were averaged over neighbours 1, 3 or 8 times,
- by time, with the features of all categories moving steadily in one direction.

What was computed is not computed again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from recoslip.base.errors import RecoslipWarning
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.panel import Labelled
from recoslip.data.graph import NodeGraph
from recoslip.inference.analysis import find_novel
from recoslip.inference.calibrated import calibrate
from recoslip.inference.check import check_graph
from recoslip.learning.scan import Scan

KINDS = ("node by node", "patches", "edges 1", "edges 3", "edges 8", "drift")
SHARES = (0.0, 0.01, 0.05, 0.2)  # of the target that is novel, in csbm; of other graphs a category is novel, or none
KNOWN = (0.3, 0.7)  # source shares of known categories
PATCH = 20  # nodes of a patch, about
DRIFT = 2.0  # distance that features move in the whole time, against that of categories
FDR = 0.1

Record = dict[str, Any]


def draw_domains(
    labelled: Labelled, kind: str, novel: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw which nodes are target: novel ones, and of each known category a share, where random values are highest."""
    categories = labelled.categories
    values = random_values(labelled, kind, rng)
    is_target = np.isin(categories, novel)
    for category in np.setdiff1d(categories, novel):
        nodes = np.flatnonzero(categories == category)
        count = round(len(nodes) * (1 - rng.uniform(*KNOWN)))
        is_target[nodes[np.argsort(-values[nodes])[:count]]] = True
    return is_target


def random_values(labelled: Labelled, kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw one value for each node, more or less alike along the edges."""
    nodes = len(labelled.categories)
    values = rng.normal(size=nodes)
    if kind in ("node by node", "drift"):
        return values
    ends = labelled.edge_index
    adjacency = sp.csr_array((np.ones(ends.shape[1]), tuple(ends)), shape=(nodes, nodes))
    adjacency = adjacency + adjacency.T
    if kind == "patches":
        centres = rng.choice(nodes, max(2, nodes // PATCH), replace=False)
        adjacency.data = rng.uniform(1, 2, adjacency.nnz)
        _, _, nearest = sp.csgraph.dijkstra(adjacency, indices=centres, min_only=True, return_predecessors=True)
        return values[np.where(nearest < 0, np.arange(nodes), nearest)]
    for _ in range(int(kind.split()[1])):
        values = (values + adjacency @ values) / (1 + adjacency.sum(axis=1))
    return values


def make(graph: str, kind: str, share: float, draw: int, root: str | None) -> tuple[NodeGraph, NDArray[np.bool_]]:
    """Make a graph with domains, and return which nodes are novel."""
    rng = np.random.default_rng([draw, KINDS.index(kind), round(1000 * share), sum(map(ord, graph))])
    if graph == "csbm":
        made = csbm(nodes=1500, categories=6, shift=0, novel_share=share, noise=1.5, seed=int(rng.integers(2**31)))
        assert made.categories is not None
        labelled, novel = Labelled(made.x, made.edge_index, made.categories.astype(np.int64)), np.array([5])
    else:
        from recoslip.data.datasets.load import load_labelled

        labelled = load_labelled(graph, root)
        sizes = np.bincount(labelled.categories)
        choices = np.flatnonzero((sizes >= 60) & (sizes <= 0.3 * sizes.sum()))
        novel = rng.choice(choices, 1) if share else np.empty(0, np.int64)
    is_novel = np.isin(labelled.categories, novel)
    x, times, is_target = labelled.x, None, draw_domains(labelled, kind, novel, rng)
    if kind == "drift":
        times = rng.uniform(np.where(is_target, 5, 0), np.where(is_target, 10, 5))
        direction = rng.normal(size=x.shape[1])
        x = x + np.outer(DRIFT * times / 10, direction / np.linalg.norm(direction)).astype(np.float32)
    return NodeGraph(x, labelled.edge_index, is_target, times=times), is_novel


def measure(graph: str, kind: str, share: float, draw: int, root: str | None) -> Record:
    """Do what `detect` does, and compare what it says with the truth."""
    warnings.simplefilter("ignore", RecoslipWarning)
    given, novel = make(graph, kind, share, draw, root)
    found = check_graph(given)
    model = calibrate(Scan(), found.prepared)
    findings = find_novel(model, found.prepared, grouped=False, check=found)
    target, bound = given.is_target, findings.bins.bound(findings.listed, findings.novel_share.max_growth)
    listed = model.select(fdr=FDR)
    known = target & ~novel
    return {
        "graph": graph,
        "kind": kind,
        "share": share,
        "draw": draw,
        "verdict": findings.verdict.kind,
        "supported": findings.verdict.supported,
        "guaranteed": not findings.guarantee.startswith("No "),
        "hops": model.hiding.hops,
        "truth": float(novel[target].mean()),
        "low": findings.novel_share.low,
        "high": findings.novel_share.high,
        "fpr": float(findings.listed[known].mean()),
        "listed": int(listed.sum()),
        "false": int((listed & known).sum()),
        "found": float(listed[novel].mean()) if novel.any() else None,
        "bound holds": bool(bound.new <= (findings.listed & novel).sum()),
    }


def table(records: list[Record]) -> str:
    """Return, of each kind of domains and novel share, what was said and how often it holds, as Markdown."""
    rows = defaultdict(list)
    for record in records:
        base = "csbm" if record["graph"] == "csbm" else "real"
        share = f"{record['share']:.0%}" if base == "csbm" or not record["share"] else "a category"
        rows[base, record["kind"], share].append(record)
    lines = [
        "| graphs | domains | novel | draws | novel / grown / drift / nothing / inconclusive | rate promised | "
        "FPR at 1 % | FDP at 0.1 | found | lower end holds | bound of the list holds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (base, kind, share), own in rows.items():
        kinds = ("novel", "grown", "drift", "nothing", "inconclusive")
        said = " / ".join(str(sum(r["verdict"] == each for r in own)) for each in kinds)
        judged = [r for r in own if r["supported"]]
        found = [r["found"] for r in own if r["found"] is not None]
        false = np.array([r["false"] / max(1, r["listed"]) for r in own])
        cells = [
            base,
            kind,
            share,
            str(len(own)),
            said,
            f"{np.mean([r['guaranteed'] for r in own]):.2f}",
            f"{np.mean([r['fpr'] for r in own]):.3f}",
            f"{false.mean():.3f} ± {false.std() / np.sqrt(len(own)):.3f}",
            f"{np.mean(found):.2f}" if found else "",
            f"{np.mean([r['low'] <= r['truth'] for r in judged]):.3f}" if judged else "",
            f"{np.mean([r['bound holds'] for r in judged]):.3f}" if judged else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def problems(args: argparse.Namespace, done: set[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """List the draws to make, those that were not made before."""
    wanted = [
        (graph, kind, share, draw)
        for draw in range(args.draws)
        for graph in args.graphs
        for kind in args.kinds
        for share in (SHARES if graph == "csbm" else (0.0, 1.0))
        if graph == "csbm" or kind != "drift"
    ]
    return [each for each in wanted if each not in done]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="*", default=["csbm"])
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--root", default=None)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="compute nothing")
    args = parser.parse_args()
    args.records.parent.mkdir(parents=True, exist_ok=True)
    lines = args.records.read_text().splitlines() if args.records.exists() else []
    records = [json.loads(line) for line in lines]
    todo = [] if args.table else problems(args, {(r["graph"], r["kind"], r["share"], r["draw"]) for r in records})
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool, args.records.open("a") as file:
        for future in as_completed([pool.submit(measure, *each, args.root) for each in todo]):
            records.append(future.result())
            file.write(json.dumps(records[-1]) + "\n")
            file.flush()
    print(table(records))


if __name__ == "__main__":
    main()
