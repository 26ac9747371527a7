"""The demo's digits -> the README's picture: source and target on the left, the listed nodes on the right.

python docs/picture.py docs/demo.svg
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

import recoslip
from recoslip.graph.split import default_rotations

SIZE = 380
STYLE = """
text { font: 15px system-ui, sans-serif; fill: #444 } .small { font-size: 12.5px }
circle { stroke: none } .source { fill: #9aa4af } .target { fill: #3b82c4 } .unlisted { fill: #cfd5db }
.listed { fill: #d9480f }
@media (prefers-color-scheme: dark) { text { fill: #ccc } .source { fill: #6b7580 } .unlisted { fill: #4a525a } }
"""


def main(path: Path) -> None:
    """Fit as `recoslip demo` does and write the SVG."""
    data = recoslip.load_dataset("digits")
    fitted = recoslip.detector("auto", device="cpu")
    fitted.fit(data.graph, data.split, rotations=default_rotations(data.graph))
    xy = TSNE(random_state=0, init="pca").fit_transform(load_digits().data)
    low, high = xy.min(axis=0), xy.max(axis=0)
    xy = 10 + (SIZE - 20) * (xy - low) / (high - low)
    target, listed = data.graph.is_target.numpy(), fitted.predict()
    left = np.where(target, "target", "source")
    right = np.where(listed, "listed", "unlisted")
    nines = xy[data.novel].mean(axis=0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * SIZE + 40} {SIZE + 60}">',
        f"<style>{STYLE}</style>",
        '<text x="10" y="22">Input: source nodes (grey) and target nodes (blue)</text>',
        f'<text x="{SIZE + 50}" y="22">Output: {listed.sum()} nodes listed as novel (orange)</text>',
    ]
    for offset, classes in ((0, left), (SIZE + 40, right)):
        lines.append(f'<g transform="translate({offset},34)">')
        for name in ("source", "unlisted", "target", "listed"):  # the more important ones are drawn last, on top
            lines += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2.4" class="{name}"/>' for x, y in xy[classes == name]]
        lines.append("</g>")
    precision, recall = data.novel[listed].mean(), listed[data.novel].mean()
    lines.append(
        f'<text class="small" x="10" y="{SIZE + 54}">Each dot is a handwritten digit. {precision:.0%} of the listed '
        f"nodes are 9s, which the source does not have; {recall:.0%} of all 9s are listed.</text>"
    )
    lines.append(f'<text x="{SIZE + 40 + nines[0] - 4:.0f}" y="{nines[1] - 2:.0f}" font-weight="bold">9</text></svg>')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
