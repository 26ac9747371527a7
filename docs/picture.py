"""Draw the README's picture: the demo's digits, as the detector sees them and as it scores them.

python docs/picture.py docs/demo.svg
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

import recoslip
from recoslip.insight.findings import calibration_share

SIZE = 380
STYLE = """
text { font: 15px system-ui, sans-serif; fill: #444 } .small { font-size: 12.5px }
circle { stroke: none } .source { fill: #9aa4af } .target { fill: #3b82c4 } .known { fill: #cfd5db }
.novel { fill: #d9480f }
@media (prefers-color-scheme: dark) { text { fill: #ccc } .source { fill: #6b7580 } .known { fill: #4a525a } }
"""


def main(path: Path) -> None:
    """Fit as `recoslip demo` does and write the SVG."""
    data = recoslip.load_dataset("digits")
    fitted = recoslip.detector("auto", device="cpu")
    fitted.fit(data.graph, data.split, calibration=calibration_share(data.graph))
    places = TSNE(random_state=0, init="pca").fit_transform(load_digits().data)
    low, high = places.min(axis=0), places.max(axis=0)
    places = 10 + (SIZE - 20) * (places - low) / (high - low)
    target, flagged = data.graph.is_target.numpy(), fitted.predict()
    told = np.where(target, "target", "source")
    said = np.where(flagged, "novel", "known")
    nines = places[data.novel].mean(axis=0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * SIZE + 40} {SIZE + 60}">',
        f"<style>{STYLE}</style>",
        '<text x="10" y="22">What it is told: source (grey), target (blue)</text>',
        f'<text x="{SIZE + 50}" y="22">What it says: {flagged.sum()} novel nodes (orange)</text>',
    ]
    for shift, classes in ((0, told), (SIZE + 40, said)):
        parts.append(f'<g transform="translate({shift},34)">')
        for kind in dict.fromkeys(("source", "known", "target", "novel")):  # what matters is drawn last
            chosen = places[classes == kind]
            parts += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2.4" class="{kind}"/>' for x, y in chosen]
        parts.append("</g>")
    share = data.novel[flagged].mean()
    parts.append(
        f'<text class="small" x="10" y="{SIZE + 54}">Each dot is an image of a handwritten digit. {share:.0%} of the '
        f"novel nodes are 9s, the digit nobody mentioned; {flagged[data.novel].mean():.0%} of all 9s were found.</text>"
    )
    parts.append(f'<text x="{SIZE + 40 + nines[0] - 4:.0f}" y="{nines[1] - 2:.0f}" font-weight="bold">9</text></svg>')
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
