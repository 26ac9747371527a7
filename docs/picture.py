"""Small graphs -> the pictures of README.md and docs/scan.md, by the name of the file.

python docs/picture.py docs/demo.svg  # the demo's digits: source and target on the left, the listed nodes on the right
python docs/picture.py docs/scan.svg  # nodes with two features: the bins of one tree at two scales, and their counts
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

import recoslip
from recoslip.data.datasets.block_model import csbm
from recoslip.data.partitions import Partitions, share_bound
from recoslip.data.split import default_rotations
from recoslip.learning.scan import CONFIDENCE

SIZE = 380
SEEDS = (8, 0)  # of the nodes and of the tree in docs/scan.svg
STYLE = """
text { font: 15px system-ui, sans-serif; fill: #444 } .small { font-size: 12.5px }
circle { stroke: none } .source { fill: #9aa4af } .target { fill: #3b82c4 } .unlisted { fill: #cfd5db }
.listed { fill: #d9480f }
.bin { fill: none; stroke: #868e96; stroke-width: 1 } .loudest { fill: #d9480f; fill-opacity: .18; stroke: #d9480f;
stroke-width: 2.5 } .count { font-size: 12.5px; font-weight: 600; text-anchor: middle; paint-order: stroke;
stroke: #fff; stroke-width: 4px; stroke-linejoin: round }
@media (prefers-color-scheme: dark) { text { fill: #ccc } .source { fill: #6b7580 } .unlisted { fill: #4a525a }
.count { stroke: #1b1e23; fill: #eee } }
"""


def demo() -> list[str]:
    """Fit as `recoslip demo` does and draw what it lists."""
    data = recoslip.load_dataset("digits")
    fitted = recoslip.detector("auto", device="cpu")
    recoslip.calibrate(fitted, data.graph, data.split, rotations=default_rotations(data.graph))
    xy = _placed(TSNE(random_state=0, init="pca").fit_transform(load_digits().data))
    target, listed = data.graph.is_target, fitted.predict()
    nines = xy[data.novel].mean(axis=0)
    precision, recall = data.novel[listed].mean(), listed[data.novel].mean()
    return [
        '<text x="10" y="22">Input: source nodes (grey) and target nodes (blue)</text>',
        f'<text x="{SIZE + 50}" y="22">Output: {listed.sum()} nodes listed as novel (orange)</text>',
        *_panel(0, _dots(xy, np.where(target, "target", "source"))),
        *_panel(SIZE + 40, _dots(xy, np.where(listed, "listed", "unlisted"))),
        f'<text class="small" x="10" y="{SIZE + 54}">Each dot is a handwritten digit. {precision:.0%} of the listed '
        f"nodes are 9s, which the source does not have; {recall:.0%} of all 9s are listed.</text>",
        f'<text x="{SIZE + 40 + nines[0] - 4:.0f}" y="{nines[1] - 2:.0f}" font-weight="bold">9</text>',
    ]


def scan() -> list[str]:
    """Divide nodes with two features into bins, and draw two levels of one tree."""
    graph = csbm(nodes=420, categories=5, features=2, noise=0.33, shift=0.6, novel_share=0.2, seed=SEEDS[0])
    xy = _placed(graph.x)
    partitions = Partitions.fit([xy.astype(np.float32)], trees=1, seed=SEEDS[1])
    is_target = graph.is_target
    counts = partitions.count(is_target)
    bound = share_bound(counts[:, 0], counts.sum(axis=1), CONFIDENCE)
    loudest = int(np.argmin(bound))
    outlines = _outlines(partitions)
    drawn = []
    for k, depth in enumerate((1, 2)):
        label = partitions.at_depth(depth)
        bins = sorted(np.unique(label), key=lambda b: b == loudest)  # the loudest is drawn on top
        shapes = [_outline(outlines[b], "bin loudest" if b == loudest else "bin") for b in bins]
        written = [_count(xy[label == b].mean(axis=0), counts[b]) for b in bins]
        dots = _dots(xy, np.where(is_target, "target", "source"))
        drawn += _panel(k * (SIZE + 40), [*dots, *shapes, *written])
    source, size, value = counts[loudest, 0], counts[loudest].sum(), -np.log(bound[loudest])
    return [
        '<text x="10" y="22">Bins of one partition, source + target nodes</text>',
        f'<text x="{SIZE + 50}" y="22">The same bins, divided again</text>',
        *drawn,
        f'<text class="small" x="10" y="{SIZE + 54}">Grey: source. Blue: target. Orange: the bin with the lowest '
        f"bound of its source share: of {size} nodes, {source} are source.</text>",
        f'<text class="small" x="10" y="{SIZE + 72}">With {CONFIDENCE:.0%} confidence its share is at most u = '
        f"{bound[loudest]:.3f}, so by this tree its nodes have the value −log u = {value:.2f}.</text>",
    ]


def _placed(xy: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale points to a panel."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    return np.asarray(10 + (SIZE - 20) * (xy - low) / (high - low), np.float64)


def _panel(left: int, drawn: list[str]) -> list[str]:
    return [f'<g transform="translate({left},34)">', *drawn, "</g>"]


def _dots(xy: NDArray[np.float64], classes: NDArray[np.str_]) -> list[str]:
    """Draw points, the more important ones last, on top."""
    return [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2.4" class="{name}"/>'
        for name in ("source", "unlisted", "target", "listed")
        for x, y in xy[classes == name]
    ]


def _outlines(partitions: Partitions) -> dict[int, NDArray[np.float64]]:
    """Return the polygon of each bin: what is nearer to its centre than to those beside it, in the bin around it."""
    found = {0: SIZE * np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])}
    for b in np.concatenate(partitions.levels()):
        around = partitions.parent[b]
        polygon = found[around]
        for other in np.flatnonzero(partitions.parent == around):
            if other != b and not np.isnan(partitions.centre[other]).any():
                polygon = _nearer(polygon, partitions.centre[b], partitions.centre[other])
        found[int(b)] = polygon
    return found


def _nearer(polygon: NDArray[np.float64], own: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cut off what is nearer to the other centre."""
    normal = (own - other).astype(np.float64)
    height = polygon @ normal - normal @ (own + other) / 2
    kept = []
    for k, (point, h) in enumerate(zip(polygon, height, strict=True)):
        if (h >= 0) != (height[k - 1] >= 0):
            kept.append(polygon[k - 1] + (point - polygon[k - 1]) * height[k - 1] / (height[k - 1] - h))
        if h >= 0:
            kept.append(point)
    return np.array(kept).reshape(-1, 2)


def _outline(polygon: NDArray[np.float64], classes: str) -> str:
    points = " ".join(f"{x:.0f},{y:.0f}" for x, y in polygon)
    return f'<polygon class="{classes}" points="{points}"/>'


def _count(place: NDArray[np.float64], count: NDArray[np.int64]) -> str:
    return f'<text class="count" x="{place[0]:.0f}" y="{place[1] + 4:.0f}">{count[0]} + {count[1]}</text>'


def main(path: Path) -> None:
    """Write the SVG."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * SIZE + 40} {SIZE + 80}">',
        f"<style>{STYLE}</style>",
        *{"demo": demo, "scan": scan}[path.stem](),
        "</svg>",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
