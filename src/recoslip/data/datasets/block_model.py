"""Size, homophily, noise, shift, novel share -> a graph drawn from a contextual stochastic block model."""

from operator import index

import numpy as np
from numpy.typing import NDArray

from recoslip.base.errors import SettingError
from recoslip.base.settings import Number
from recoslip.data.graph import NodeGraph


def csbm(
    *,
    nodes: int = 2000,
    categories: int = 5,
    degree: float = 8.0,
    homophily: float = 0.8,
    target_homophily: float | None = None,
    features: int = 32,
    noise: float = 1.0,
    shift: float = 0.8,
    novel_share: float = 0.15,
    novel_categories: int = 1,
    seed: int = 0,
) -> NodeGraph:
    r"""Draw a graph whose last category is novel, or whose last few are.

    A node of category c has features $\mu_c + \text{noise} \cdot \varepsilon$ with $|\mu_c| \approx 1$ and
    $\varepsilon$ standard normal of norm about 1. An edge joins two nodes of one category with probability
    `homophily`, else nodes of two. Known categories are equally large; their source ratios are
    alternately $(1 - \text{shift})/2$ and $(1 + \text{shift})/2$.

    Args:
        nodes: how many nodes.
        categories: how many categories, the novel ones included; at least one is known.
        degree: average number of neighbours, before repeated edges merge.
        homophily: fraction of edges inside a category, in [0, 1].
        target_homophily: the same for edges drawn from target nodes; by default `homophily`.
        features: how many features.
        noise: size of the features' noise against the distance of the categories.
        shift: 0 keeps the proportions of the known categories, towards 1 the shift is total.
        novel_share: fraction of the target nodes that are novel, in [0, 1).
        novel_categories: how many of the categories are novel, of equal size.
        seed: seed of numpy's generator, which everything is drawn from.
    """
    nodes, categories, features, novel_categories = map(index, (nodes, categories, features, novel_categories))
    if nodes < 4 * categories or categories < 2:
        raise SettingError(f"csbm needs 2 or more categories and 4 nodes for each; got {categories}, {nodes} nodes")
    known = categories - novel_categories
    target_homophily = homophily if target_homophily is None else target_homophily
    if novel_categories < 1 or known < 1:
        raise SettingError(
            f"csbm needs a known and a novel category; got {categories}, {novel_categories} of them novel"
        )
    shares = {"homophily": homophily, "target_homophily": target_homophily, "shift": shift, "novel_share": novel_share}
    for name, value in shares.items():
        Number(0, 1.0 if "homophily" in name else 0.99)(f"csbm's {name}", value)
    if known == 1 and novel_share == 0 and min(homophily, target_homophily) < 1:
        raise SettingError("csbm with one category alone has no edges between categories: set homophily to 1")
    if degree < 0 or noise < 0 or features < 1:
        raise SettingError("csbm's degree and noise must not be negative, and features must be at least 1")
    rng = np.random.default_rng(seed)
    sizes, source_sizes = _sizes(nodes, known, novel_categories, shift, novel_share)
    start = np.concatenate([[0], np.cumsum(sizes)])
    label = np.repeat(np.arange(categories, dtype=np.int32), sizes)  # one block per category, shuffled at the end
    is_target = np.arange(nodes) - start[label] >= source_sizes[label]

    centres = rng.standard_normal((categories, features), dtype=np.float32) / np.sqrt(features, dtype=np.float32)
    x = rng.standard_normal((nodes, features), dtype=np.float32)
    x *= np.float32(noise / np.sqrt(features))
    x += centres[label]

    node = rng.permutation(nodes)  # node of each block position
    position = np.argsort(node)  # block position of each node
    edges = _edges(
        rng, round(nodes * degree / 2), label, sizes, start, np.where(is_target, target_homophily, homophily)
    )
    return NodeGraph(x[position], node[edges], is_target[position], categories=label[position])


def _sizes(
    nodes: int, known: int, novel_categories: int, shift: float, novel_share: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of nodes and of source nodes per category, the novel ones last."""
    ratio = 0.5 + 0.5 * shift * np.where(np.arange(known) % 2, 1.0, -1.0)
    target_fraction = (1 - ratio).mean()
    novel = round(nodes / (1 + (1 - novel_share) / (novel_share * target_fraction))) if novel_share else 0
    sizes, novel_sizes = _divide_evenly(nodes - novel, known), _divide_evenly(novel, novel_categories)
    return np.append(sizes, novel_sizes), np.append((sizes * ratio).astype(np.int64), np.zeros_like(novel_sizes))


def _divide_evenly(nodes: int, categories: int) -> NDArray[np.int64]:
    return nodes // categories + (np.arange(categories) < nodes % categories)


def _edges(
    rng: np.random.Generator,
    count: int,
    label: NDArray[np.int32],
    sizes: NDArray[np.int64],
    start: NDArray[np.int64],
    homophily: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Draw the block positions of both ends of each edge, the second inside the first's category or outside it.

    Args:
        rng: the generator to draw from.
        count: how many edges.
        label: category of each position.
        sizes: nodes per category.
        start: first position of each category.
        homophily: probability, for each position, that an edge drawn from there stays inside its category.
    """
    nodes = len(label)
    left = rng.integers(0, nodes, count)
    size, block_start = sizes[label[left]], start[label[left]]
    inside = rng.random(count) < homophily[left]
    offset = (rng.random(count) * np.where(inside, size, nodes - size)).astype(np.int64)
    right = np.where(inside, block_start + offset, offset + size * (offset >= block_start))
    return np.stack([left, right])
