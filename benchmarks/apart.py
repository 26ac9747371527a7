"""The look before training, against what was done to a graph: worlds that mix, worlds apart, and columns that leak.

python benchmarks/apart.py --root data --records docs/results/apart/records.jsonl
python benchmarks/apart.py --records docs/results/apart/records.jsonl --table

*Same* cases differ in proportions alone: those of the panel, the paper's graphs, csbm. In *apart* cases something else
was done to all target nodes: they are another network, or their edges lead anywhere, or their features have other
means, other scales or more noise. Cases of draw 0 were looked at when constants were chosen; those of draw 1 were not.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import recoslip
from recoslip import NodeGraph, check, detector
from recoslip.data.alignment import reduced_features
from recoslip.data.datasets.block_model import csbm
from recoslip.data.datasets.load import load_dataset, load_labelled, panel_graphs
from recoslip.data.datasets.panel import NOTHING, Case, Labelled, panel_case, read_labelled, supported_cases
from recoslip.inference.analysis import find_novel
from recoslip.inference.columns import check_columns
from recoslip.inference.metrics import auroc

NETWORKS = (("acmv9", "citationv1"), ("citationv1", "acmv9"))
CSBM = {"nodes": 1500, "categories": 8, "noise": 3.0, "homophily": 0.6, "degree": 6.0}
DISTORTED = {0: ("acmv9", "blogcatalog", "citationv1", "flickr", "cora"), 1: ("citeseer", "photo", "coauthor_cs")}
RANKED = ("networks", "means-csbm-mixed0", "scaled-csbm-mixed0", "noise-csbm-mixed0")  # apart cases that are ranked

Make = Callable[[], Case]


def same_cases(root: Path, draw: int) -> Iterator[tuple[str, Make]]:
    """Yield cases in which proportions alone differ."""
    for name in panel_graphs(root):
        labelled = load_labelled(name, root)
        for case in (*supported_cases(name, labelled), NOTHING):
            yield (
                f"{name}-{case}",
                lambda name=name, labelled=labelled, case=case: panel_case(name, labelled, case, 7 + draw),
            )
    for graph in ("cora", "citeseer", "computers", "photo"):
        for shift in ("s", "ms", "ns"):
            yield f"{graph}-{shift}", lambda graph=graph, shift=shift: load_shifted(f"{graph}-{shift}", root, draw)
    if draw == 0:
        yield "arxiv", lambda: load_shifted("arxiv", root, 0)
    for case in ("mixed0", "mixed1", "grown", NOTHING):
        yield f"csbm-{case}", lambda case=case: drawn(case, draw + 1)


def load_shifted(name: str, root: Path, draw: int) -> Case:
    """Load a dataset of the paper with its own split, or with another one."""
    data = load_dataset(name, root, None if draw == 0 else draw)
    return Case(data.graph, data.novel)


def drawn(case: str, seed: int) -> Case:
    """Draw a case of the panel on a random graph."""
    graph = csbm(**CSBM, seed=seed)
    assert graph.categories is not None
    return panel_case("csbm", Labelled(graph.x, graph.edge_index, graph.categories), case, 7 + seed)


def apart_cases(root: Path, draw: int) -> Iterator[tuple[str, Make]]:
    """Yield cases in which something was done to all target nodes."""
    if draw == 0:
        for pair in NETWORKS:
            for category in range(-1, 5):
                name = f"networks-{pair[0]}-{'nothing' if category < 0 else category}"
                yield name, lambda pair=pair, category=category: two_networks(root, *pair, category)
    for name in DISTORTED[draw]:
        labelled = load_labelled(name, root)
        for case in ("mixed0", NOTHING):
            made = lambda name=name, labelled=labelled, case=case: panel_case(name, labelled, case, 7 + draw)  # noqa: E731
            yield f"rewired-{name}-{case}", lambda made=made: changed(made(), rewired, draw)
            yield f"scaled-{name}-{case}", lambda made=made: changed(made(), scaled, draw)
            yield f"means-{name}-{case}", lambda made=made: changed(made(), other_means, draw)
            yield f"noise-{name}-{case}", lambda made=made: changed(made(), noisier, draw)
    for case in ("mixed0", "mixed1", NOTHING):
        for change, name in ((other_means, "means"), (scaled, "scaled"), (noisier, "noise")):
            yield f"{name}-csbm-{case}", lambda case=case, change=change: changed(drawn(case, draw), change, draw)


def two_networks(root: Path, source: str, target: str, category: int) -> Case:
    """One network without a category is the source, another one the target; no edge joins them."""
    first, second = (read_labelled(root / "panel" / f"{name}.npz") for name in (source, target))
    kept = first.categories != category
    position = np.where(kept, np.cumsum(kept) - 1, -1)
    edges = position[first.edge_index]
    edges = np.hstack([edges[:, (edges >= 0).all(axis=0)], second.edge_index + int(kept.sum())])
    categories = np.append(first.categories[kept], second.categories)
    is_target = np.arange(len(categories)) >= kept.sum()
    x = sp.csr_array(sp.vstack([first.x[kept], second.x]))
    return Case(NodeGraph(x, edges, is_target, categories=categories), categories == category)


def changed(case: Case, change: Callable[[NodeGraph, np.random.Generator], NodeGraph], seed: int) -> Case:
    """Do something to the target nodes of a case."""
    return Case(change(case.graph, np.random.default_rng(seed)), case.novel)


def rewired(graph: NodeGraph, rng: np.random.Generator) -> NodeGraph:
    """Let every edge of a target node lead to a target node drawn at random."""
    is_target = graph.is_target
    left, right = graph.edge_index
    left, right = left[left < right], right[left < right]
    touched = is_target[left] | is_target[right]
    left = np.where(touched & ~is_target[left], right, left)
    return graph.with_edges(
        np.stack([left, np.where(touched, rng.choice(np.flatnonzero(is_target), len(right)), right)])
    )


def scaled(graph: NodeGraph, rng: np.random.Generator) -> NodeGraph:
    """Multiply half of the target's columns by 3."""
    factor = np.where(rng.random(graph.num_features) < 0.5, 3.0, 1.0)
    is_target = graph.is_target
    x = sp.csr_array(graph.x)
    x = sp.diags_array((~is_target).astype(float)) @ x + sp.diags_array(is_target.astype(float)) @ x * factor
    return graph.with_features(sp.csr_array(x) if sp.issparse(graph.x) else x.toarray())


def other_means(graph: NodeGraph, rng: np.random.Generator) -> NodeGraph:
    """Shift the target's columns by a random number of standard deviations, about 1; of many, singular vectors."""
    x = reduced_features(graph)
    x[graph.is_target] += x.std(axis=0) * rng.standard_normal(x.shape[1])
    return graph.with_features(x)


def noisier(graph: NodeGraph, rng: np.random.Generator) -> NodeGraph:
    """Add noise of one standard deviation to the target's columns; of many, singular vectors."""
    x = reduced_features(graph)
    is_target = graph.is_target
    x[is_target] += x.std(axis=0) * rng.standard_normal((int(is_target.sum()), x.shape[1]))
    return graph.with_features(x)


def measure(kind: str, name: str, draw: int, case: Case) -> dict[str, Any]:
    """Look at a case; of some apart cases, rank and decide as `detect` does."""
    start = time.perf_counter()
    look = check(case.graph)
    record: dict[str, Any] = {
        "kind": kind,
        "case": name,
        "draw": draw,
        "seconds": round(time.perf_counter() - start, 2),
        "situation": look.mixing.situation,
        "separability": look.mixing.separability,
        "remedy": look.remedy,
        "apart": look.is_separable,
        "method": look.method,
        "leaks": len(look.columns.leaks),
    }
    if kind == "apart" and draw == 0 and name.startswith(RANKED):
        target = case.graph.is_target
        fitted = recoslip.calibrate(detector(look.method), look.prepared, rotations=5)
        record["verdict"] = find_novel(fitted, look.prepared, check=look).verdict.kind
        if case.novel.any():
            record["auroc"] = auroc(case.novel, fitted.scores, target)
        if look.remedied and case.novel.any():
            as_it_is = recoslip.calibrate(detector(look.method), case.graph, rotations=5)
            record["auroc as it is"] = auroc(case.novel, as_it_is.scores, target)
    return record


def measure_leaks(draws: int = 20) -> dict[str, Any]:
    """Count how often a column that equals the domain, or does in 95 % of the rows, is named, and no other."""
    named = defaultdict(int)
    for seed in range(draws):
        graph = drawn("mixed0", seed).graph
        target, rng = graph.is_target, np.random.default_rng(seed)
        for wrong in (0.0, 0.05):
            leak = target ^ (rng.random(len(target)) < wrong)
            x = np.column_stack([graph.x[:, :20], leak])
            found = check_columns(graph.with_features(x, [*(f"c{k}" for k in range(20)), "leak"]))
            named[f"{1 - wrong:.0%}"] += [each.column for each in found.leaks] == ["leak"]
    return {"kind": "leak", "case": "csbm", "draw": 0, "draws": draws, "named": dict(named)}


def measure_time() -> Iterator[dict[str, Any]]:
    """Measure the look at 20,000 nodes with 2,000 features, 100,000 edges."""
    rng = np.random.default_rng(0)
    edges, target = rng.integers(0, 20_000, (2, 100_000)), rng.random(20_000) < 0.5
    sparse = sp.random_array((20_000, 2_000), density=0.02, rng=rng, dtype=np.float32).tocsr()
    for name, x in (("sparse", sparse), ("dense", rng.standard_normal((20_000, 2_000), dtype=np.float32))):
        graph = NodeGraph(x, edges, target)
        start = time.perf_counter()
        check(graph)
        seconds = round(time.perf_counter() - start, 1)
        yield {"kind": "time", "case": name, "draw": 0, "seconds": seconds, "threads": torch.get_num_threads()}


def print_table(records: list[dict[str, Any]]) -> None:
    """Print false alarms, missed cases, rankings, leaks and times."""
    for draw in (0, 1):
        same = [r for r in records if r["kind"] == "same" and r["draw"] == draw]
        apart = [r for r in records if r["kind"] == "apart" and r["draw"] == draw]
        alarms = [r["case"] for r in same if r["situation"] == "apart"]
        missed = [r["case"] for r in apart if r["situation"] != "apart"]
        highest, lowest = (
            f(r["separability"] for r in each) if each else float("nan") for f, each in ((max, same), (min, apart))
        )
        print(
            f"draw {draw}: {len(alarms)} of {len(same)} same-world cases called apart {alarms}, highest {highest:.2f}"
        )
        print(f"        {len(missed)} of {len(apart)} apart cases missed {missed}, lowest {lowest:.2f}")
        print(f"        leaks named: {sum(r['leaks'] > 0 for r in same)} of {len(same)} same-world cases")
    for kind in RANKED:
        own = [r for r in records if r["kind"] == "apart" and r["case"].startswith(kind)]
        ranked = [r for r in own if "auroc" in r]
        if ranked:
            as_it_is = [r["auroc as it is"] for r in ranked if "auroc as it is" in r]
            beside = f", as it is {np.mean(as_it_is):.3f}" if as_it_is else ""
            values = [r["auroc"] for r in ranked]
            methods = sorted({f"{r['method']} ({r['remedy'] or 'as it is'})" for r in ranked})
            print(f"{kind}: AU-ROC {np.mean(values):.3f}, worst {min(values):.3f}, of {len(values)}{beside}; {methods}")
        print(f"{kind}: verdicts with nothing novel {[r['verdict'] for r in own if 'auroc' not in r]}")
    for record in records:
        if record["kind"] == "leak":
            print(f"a column equal to the domain is the one that is named, of {record['draws']}: {record['named']}")
        elif record["kind"] == "time":
            print(f"20,000 nodes, 2,000 {record['case']} features: {record['seconds']} s, {record['threads']} threads")


def main() -> None:
    """Measure what has no record yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder of the paper's graphs, with panel/NAME.npz")
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    path: Path = arguments.records
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {(r["kind"], r["case"], r["draw"]) for r in records}
    if not arguments.table:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:

            def keep(record: dict[str, Any]) -> None:
                records.append(record)
                print(record, flush=True)
                file.write(json.dumps(record) + "\n")
                file.flush()

            if not any(r["kind"] == "time" for r in records):
                for record in measure_time():
                    keep(record)
            if not any(r["kind"] == "leak" for r in records):
                keep(measure_leaks())
            for draw in (0, 1):
                for kind, cases in (("apart", apart_cases), ("same", same_cases)):
                    for name, make in cases(arguments.root, draw):
                        if (kind, name, draw) not in done:
                            keep(measure(kind, name, draw, make()))
    print_table(records)


if __name__ == "__main__":
    main()
