"""Verdicts on a few nodes, against the truth: what learning from them brings, and whether certificates hold.

python benchmarks/review.py --root data --fits fits --jobs 2 --records docs/results/review/records.jsonl
python benchmarks/review.py --fits fits --records docs/results/review/records.jsonl --coverage
python benchmarks/review.py --records docs/results/review/records.jsonl --table

Cases are those of the panel. A detector is fitted once per case, and what a review needs of it is kept in the folder
--fits: scores, p-values, similarity vectors (rounded to 1/127), the truth, and the AU-ROC of the oracle on nodes that
it was not trained on. Then reviewers are simulated: they take the queue five nodes at a time, and one verdict in
twenty is wrong. AU-ROC is that of the target nodes without a verdict, before and after, over the same nodes.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import recoslip
from recoslip.base.errors import RecoslipWarning
from recoslip.inference.feedback import VerdictModel
from recoslip.products.review.certificate import certify, draw, propose
from recoslip.products.review.decisions import Nodes

GRAPHS = ("acmv9", "blogcatalog", "citationv1", "coauthor_cs", "flickr")
CHOSEN_ON = ("acmv9", "blogcatalog", "citationv1", "flickr"), ("mixed0", "mixed1", "unshifted", "grown")  # draw 0
CASES = ("mixed0", "mixed1", "mixed2", "unshifted", "grown", "common", "rare")
VERDICTS = (10, 20, 50)
WRONG = 0.05
BATCH = 5  # nodes that a reviewer takes from the queue at once
REVIEWERS = 3
REVIEWS = 1000
LEVEL = 0.01  # false-positive rate of the lists that certificates are about

Record = dict[str, Any]


def fit_case(graph: str, case: str, draw: int, root: str | None, folder: Path) -> Path:
    """Fit the default as `detect` does, and keep what a review needs; what is there is not fitted again."""
    path = folder / f"dump_{graph}_{case}_{draw}.npz"
    if path.exists():
        return path
    import torch

    from recoslip import detector
    from recoslip.data.datasets.load import load_labelled
    from recoslip.data.datasets.panel import panel_case

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RecoslipWarning)
    made = panel_case(graph, load_labelled(graph, root), case, 7 + draw)
    fitted = recoslip.calibrate(detector("reco-slip-plus"), made.graph, rotations=5)
    target = made.graph.is_target
    similarity = np.round(127 * fitted.vectors.astype(np.float32)).astype(np.int8)
    np.savez_compressed(
        path,
        score=fitted.scores.astype(np.float32),
        p=fitted.p_values().astype(np.float32),
        target=target,
        novel=made.novel,
        sim=similarity,
        oracle=np.float32(oracle_auroc(made.graph, made.novel)),
    )
    return path


def oracle_auroc(graph: Any, novel: Any) -> float:
    """Return the oracle's AU-ROC over target nodes: each half by one that was trained on the other."""
    from recoslip import detector
    from recoslip.data.split import Split

    target = graph.is_target
    half, validates = (np.random.default_rng(seed).random(len(target)) < share for seed, share in ((0, 0.5), (1, 0.2)))
    found = []
    for own in (half, ~half):
        fitted = detector("oracle").fit(graph, Split(own & ~validates, own & validates, ~own), novel=novel)
        found.append(roc_auc_score(novel[target & ~own], fitted.scores_[target & ~own]))
    return float(np.mean(found))


def read_fit(path: Path) -> dict[str, Any]:
    """Read what was kept of a fit, of the target nodes."""
    with np.load(path, allow_pickle=False) as file:
        target = file["target"]
        kept = {name: file[name][target] for name in ("score", "p", "novel", "sim")}
        kept["oracle"] = float(file["oracle"])
    x = kept["sim"].astype(np.float32)
    kept["sim"] = x / np.maximum(1e-9, np.linalg.norm(x, axis=1, keepdims=True))
    return kept


def simulate(path: Path, reviewer: int) -> list[Record]:
    """Let a reviewer work through the queue; return AU-ROC before and after each number of verdicts."""
    fit = read_fit(path)
    score, novel = fit["score"].astype(np.float64), fit["novel"]
    rng = np.random.default_rng(reviewer)
    confirmed: list[int] = []
    rejected: list[int] = []
    undecided = np.ones(len(score), dtype=bool)
    _, graph, case, drawn = path.stem.replace("coauthor_cs", "coauthor-cs").split("_")
    records = []
    while (~undecided).sum() < max(VERDICTS):
        model = VerdictModel(fit["sim"], score, seed=reviewer)
        model.observe(confirmed, rejected)
        for node in model.queue(BATCH, undecided):
            (confirmed if novel[node] ^ (rng.random() < WRONG) else rejected).append(node)
            undecided[node] = False
        if (given := int((~undecided).sum())) in VERDICTS:
            model = VerdictModel(fit["sim"], score, seed=reviewer)
            model.observe(confirmed, rejected)
            records.append(
                {
                    "graph": graph.replace("-", "_"),
                    "case": case,
                    "draw": int(drawn),
                    "reviewer": reviewer,
                    "verdicts": given,
                    "confirmed": len(confirmed),
                    "before": roc_auc_score(novel[undecided], score[undecided]),
                    "after": roc_auc_score(novel[undecided], model.scores()[undecided]),
                    "unreviewed": roc_auc_score(novel, score),
                    "oracle": fit["oracle"],
                }
            )
    return records


def coverage(path: Path) -> Record:
    """Review random samples of a list many times; return how often each statement of the certificate holds."""
    fit = read_fit(path)
    novel, listed = fit["novel"], fit["p"] <= LEVEL
    names = [str(k) for k in range(len(novel))]
    nodes = np.ones(len(novel), dtype=bool)
    ranking = Nodes(names, nodes, fit["score"], listed, np.where(listed, 1, -1), "")
    rng = np.random.default_rng(0)
    precision = share = size = 0.0
    for seed in range(REVIEWS):
        sample = draw(ranking, propose(ranking), seed)
        looked_at = sample.nodes[: rng.integers(1, len(sample.nodes) + 1)]  # a reviewer stops when she likes
        found = certify(sample, {node: bool(novel[int(node)]) for node in looked_at})
        low, high = found.share
        precision += not listed.any() or found.precision <= novel[listed].mean()
        share += low <= novel.mean() <= high
        size += len(sample.nodes)
    return {
        "fit": path.stem.removeprefix("dump_"),
        "listed": int(listed.sum()),
        "precision_holds": precision / REVIEWS,
        "share_holds": share / REVIEWS,
        "sample": size / REVIEWS,
    }


def table(records: list[Record]) -> str:
    """Return the differences of AU-ROC by case and number of verdicts, and the fraction of the way to the oracle."""
    rows: dict[tuple[str, str, int], dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        rows[record["case"], record["graph"], record["draw"]][record["verdicts"]].append(record)
    lines = ["| case | graph | before | oracle | 10 | 20 | 50 | worst |", "|---|---|---|---|---|---|---|---|"]
    for (case, graph, drawn), by_count in sorted(rows.items()):
        gains = {count: [r["after"] - r["before"] for r in own] for count, own in by_count.items()}
        first = by_count[VERDICTS[0]][0]
        mark = "" if graph in CHOSEN_ON[0] and case in CHOSEN_ON[1] and drawn == 0 else " *"
        lines.append(
            f"| {case} {drawn}{mark} | {graph} | {first['unreviewed']:.3f} | {first['oracle']:.3f} | "
            + " | ".join(f"{np.mean(gains[count]):+.3f}" for count in VERDICTS)
            + f" | {min(min(each) for each in gains.values()):+.3f} |"
        )
    for case in dict.fromkeys(case for case, _, _ in sorted(rows)):
        own = [by_count for (name, _, _), by_count in rows.items() if name == case]
        means = [np.mean([r["after"] - r["before"] for each in own for r in each[count]]) for count in VERDICTS]
        lines.append(f"| **{case}**, mean | | | | " + " | ".join(f"{value:+.3f}" for value in means) + " | |")
    behind = [
        np.mean([(r["after"] - r["before"]) / (r["oracle"] - r["unreviewed"]) for r in by_count[20]])
        for (case, _, _), by_count in rows.items()
        if case == "grown" and by_count[20][0]["oracle"] > by_count[20][0]["unreviewed"]
    ]
    lines.append(
        f"\nFraction of the distance to the oracle that 20 verdicts bring, grown cases below it: "
        f"{', '.join(f'{value:.2f}' for value in sorted(behind))}; mean {np.mean(behind):.2f}."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=None, help="folder of the panel's graphs")
    parser.add_argument("--fits", type=Path, default=Path("fits"), help="folder of what is kept of fits")
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.records.read_text().splitlines()]))
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        if options.coverage:
            for record in pool.map(coverage, sorted(options.fits.glob("dump_*.npz"))):
                print(json.dumps(record), flush=True)
            return
        options.fits.mkdir(exist_ok=True)
        if options.root is not None:
            made = [(g, c, d) for g in GRAPHS for c in options.cases for d in range(options.draws)]
            fitted = [pool.submit(fit_case, *each, options.root, options.fits) for each in made]
            for each in fitted:
                each.result()
        paths = [path for path in sorted(options.fits.glob("dump_*.npz")) for _ in range(REVIEWERS)]
        reviewers = [k % REVIEWERS for k in range(len(paths))]
        with options.records.open("w") as file:
            for records in pool.map(simulate, paths, reviewers):
                file.writelines(json.dumps(record) + "\n" for record in records)
                print(records[-1], flush=True)


if __name__ == "__main__":
    main()
