"""The page of a graph: how large it is, and how long a browser takes to show it.

python benchmarks/page.py --nodes 5000
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import recoslip
from recoslip.data.datasets.block_model import csbm


def ready_seconds(path: Path) -> float | None:
    """Return the seconds until a browser has drawn a page; None where there is no browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        milliseconds = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventStart")
    return float(milliseconds) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    options = parser.parse_args()
    graph = csbm(nodes=options.nodes, categories=6, seed=0)
    fitted = recoslip.calibrate(recoslip.detector("domain-discriminator", epochs=50), graph, rotations=3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        recoslip.analyse(fitted, graph).report().save(path)
        seconds = ready_seconds(path)
        shown = "no browser" if seconds is None else f"ready after {seconds:.2f} s"
        print(f"{options.nodes:,} nodes: {path.stat().st_size / 1e6:.2f} MB, {shown}")


if __name__ == "__main__":
    main()
