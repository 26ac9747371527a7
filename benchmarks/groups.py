"""Groups of listed nodes against planted categories: adjusted Rand index, and how many groups there are.

python benchmarks/groups.py citationv1 acmv9 cora digits --root data
python benchmarks/groups.py blogcatalog flickr coauthor_cs citeseer photo --root data
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

import recoslip
from recoslip import NodeGraph, detector
from recoslip.data.datasets.load import load_labelled
from recoslip.data.split import Mask
from recoslip.inference.groups import MIN_GROUP_SIZE, find_groups

FDR = 0.1  # that nodes are listed by
DRAWS = 2
FEWEST = 30  # novel nodes on a list that is judged
SMALLEST, LARGEST = 60, 0.3  # nodes of a category that may be novel, and fraction of all nodes


def drawn(name: str, categories: NDArray[np.int64], novel: int, draw: int) -> tuple[Mask, Mask] | None:
    """Return the target nodes and the novel ones; None of a graph with too few categories."""
    rng = np.random.default_rng([sum(map(ord, name)), novel, draw])
    sizes = np.bincount(categories)
    eligible = np.flatnonzero((sizes >= SMALLEST) & (sizes <= LARGEST * len(categories)))
    if len(eligible) < novel or (sizes > 0).sum() < novel + 2:
        return None
    chosen = rng.permutation(eligible)[:novel]
    share = rng.uniform(0.15, 0.85, len(sizes))
    share[chosen] = 0
    return rng.random(len(categories)) >= share[categories], np.isin(categories, chosen)


def judged(graph: NodeGraph, novel: Mask) -> tuple[int, int, float] | None:
    """Return novel categories on the list, groups, and their agreement over the novel nodes that are listed."""
    listed = recoslip.calibrate(detector("scan"), graph, rotations=5, max_fpr=0.01).select(fdr=FDR)
    right = listed & novel
    if right.sum() < FEWEST:
        return None
    found, categories = find_groups(graph, listed), graph.categories[right]
    label = found.label[right]
    alone = label == 0
    label[alone] = found.count + 1 + np.arange(alone.sum())
    present = int((np.bincount(categories) >= MIN_GROUP_SIZE).sum())
    return present, found.count, float(adjusted_rand_score(categories, label))


def main() -> None:
    """Write one line per graph, and one over all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--root")
    options = parser.parse_args()
    everything: list[tuple[int, int, float]] = []
    for name in options.graphs:
        labelled, own = load_labelled(name, options.root), []
        some = np.arange(len(labelled.categories)) % 2 == 0
        base = NodeGraph(labelled.x, labelled.edge_index, some, categories=labelled.categories)
        for novel in (1, 2, 3, 4):
            for draw in range(DRAWS):
                if (planted := drawn(name, labelled.categories, novel, draw)) is not None:
                    own.append(judged(base.with_target(planted[0]), planted[1]))
        everything += (kept := [each for each in own if each is not None])
        summarise(name, kept)
    summarise("all", everything)


def summarise(name: str, cases: list[tuple[int, int, float]]) -> None:
    """Write a line."""
    several = [(count / present, index) for present, count, index in cases if present > 1]
    ratio, index = np.mean(several, axis=0)
    alone = [count for present, count, _ in cases if present == 1]
    print(f"{name:12} ARI {index:.3f}, groups per category {ratio:.2f}; of one category: {alone}", flush=True)


if __name__ == "__main__":
    main()
