"""pbmc68k, which scanpy ships: each of its ten types novel in turn -> AU-ROC beside distances to the reference.

    python benchmarks/cells.py --seeds 5 --workers 2 [--out docs/results/cells/records.jsonl] [--draw half shifted]

Every other type has half of its cells in the reference ("half"), or a share between 15 and 85 % of its own ("shifted").
"told" is logistic regression on the same components that is told who is novel, cross-validated over all cells.
"""

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np

K = 15  # nearest reference cells
LEVELS = (0.1, 0.2)  # false-discovery rates


def load():
    import scanpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scanpy.datasets.pbmc68k_reduced()


def measure(job: tuple[str, int, str]) -> dict:
    import torch
    from sklearn.metrics import roc_auc_score
    from sklearn.neighbors import NearestNeighbors

    import recoslip

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    novel_type, seed, draw = job
    cells = load()
    types = cells.obs["bulk_labels"].astype(str).to_numpy()
    names = sorted(set(types))
    rng = np.random.default_rng(1000 * seed + names.index(novel_type))
    share = np.full(len(names), 0.5) if draw == "half" else rng.uniform(0.15, 0.85, len(names))
    share[names.index(novel_type)] = 0
    is_query = rng.random(len(types)) >= share[[names.index(each) for each in types]]
    novel = types == novel_type
    cells.obs["batch"] = np.where(is_query, "query", "reference")
    result = recoslip.detect(cells, domain="batch", target="query", seed=seed)
    fitted = result.calibrated
    near = recoslip.detector("nearest-source", random_state=seed).fit(result.check.graph)
    vectors = cells.obsm["X_pca"]
    distance = NearestNeighbors(n_neighbors=K).fit(vectors[~is_query]).kneighbors(vectors[is_query])[0].mean(axis=1)
    record = {
        "type": novel_type,
        "seed": seed,
        "draw": draw,
        "cells": int(novel.sum()),
        "method": result.summary["method"],
    }
    for name, scores in (
        ("auto", fitted.scores[is_query]),
        ("nearest-source", near.scores_[is_query]),
        ("distance", distance),
    ):
        record[name] = float(roc_auc_score(novel[is_query], scores))
    for level in LEVELS:
        listed = fitted.select(fdr=level)
        record[f"listed {level}"] = int(listed.sum())
        record[f"false {level}"] = float((listed & ~novel).sum() / max(1, listed.sum()))
        record[f"found {level}"] = float((listed & novel).sum() / novel.sum())
    return record


def told() -> dict[str, float]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    cells = load()
    types = cells.obs["bulk_labels"].astype(str).to_numpy()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    model = LogisticRegression(C=0.1, max_iter=500, class_weight="balanced")
    return {
        name: float(
            roc_auc_score(
                types == name,
                cross_val_predict(model, cells.obsm["X_pca"], types == name, cv=folds, method="decision_function"),
            )
        )
        for name in sorted(set(types))
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--draw", nargs="+", default=["half", "shifted"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    bound = told()
    jobs = [(name, seed, draw) for draw in given.draw for seed in range(given.seeds) for name in bound]
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        records = [future.result() for future in as_completed([pool.submit(measure, job) for job in jobs])]
    records.sort(key=lambda record: (record["draw"], record["type"], record["seed"]))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text("".join(json.dumps(record) + "\n" for record in records))
    for draw in given.draw:
        print(f"\n{draw}\n| novel | cells | auto | nearest-source | distance | told | listed at 0.1, of which false |")
        print("|---|---|---|---|---|---|---|")
        for name in [*bound, None]:
            own = [each for each in records if each["draw"] == draw and name in (each["type"], None)]
            mean = {key: np.mean([each[key] for each in own]) for key in own[0] if not isinstance(own[0][key], str)}
            limit = bound[name] if name else np.mean(list(bound.values()))
            print(
                f"| {name or 'mean'} | {mean['cells']:.0f} | {mean['auto']:.3f} | {mean['nearest-source']:.3f} | "
                f"{mean['distance']:.3f} | {limit:.3f} | {mean['listed 0.1']:.0f}, {mean['false 0.1']:.3f} |"
            )


if __name__ == "__main__":
    main()
