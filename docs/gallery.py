"""The demo and the tutorials, run as they are written -> the pages that they make, for the site's gallery.

python docs/gallery.py docs/gallery              # demo.html, tables-out.html, ...: report.html of each folder
python docs/gallery.py docs/gallery --pictures   # and the pictures that gallery.md and README.md show; needs Chromium
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
RECOSLIP = Path(sys.executable).parent / "recoslip"
ALARM = 10  # the exit code of a watch that raises an alarm, as one of a tutorial does

# A picture: its file, the page, the element at its top, and its height; without one, it shows that element alone.
PICTURES = (
    ("page-headline.png", "tables-out", "body", 660),
    ("page-map.png", "tables-out", "#map-canvas", None),
    ("page-level.png", "tables-out", "#scores-title", 720),
    ("page-digits.png", "demo", "body", 660),
    ("page-cells.png", "cells-out", "body", 1060),
    ("page-watch.png", "watch-shop", "body", 930),
)
WIDTH = 1000


def scripts(tutorial: str) -> dict[str, str]:
    """Return the Python files that a tutorial shows, by name: blocks of code that begin with `# name.py`."""
    return dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", tutorial, re.DOTALL))


def commands(tutorial: str) -> list[list[str]]:
    """Return the commands that a tutorial shows, in their order: the lines that begin with `$`."""
    return [shlex.split(line) for line in re.findall(r"^\$ (.*)$", tutorial, re.MULTILINE)]


def run(tutorial: str, folder: Path) -> None:
    """Run the scripts and commands of a tutorial in a folder."""
    for name, code in scripts(tutorial).items():
        (folder / name).write_text(code, encoding="utf-8")
    for program, *arguments in commands(tutorial):
        start = sys.executable if program == "python" else RECOSLIP
        result = subprocess.run([start, *arguments], cwd=folder, capture_output=True, text=True)
        if result.returncode not in (0, ALARM):
            sys.exit(f"{shlex.join([program, *arguments])} ended with {result.returncode}:\n{result.stderr}")


def make_pages(out: Path) -> None:
    """Run the demo and all tutorials, and collect their pages."""
    with tempfile.TemporaryDirectory() as temporary:
        found = {}
        demo = Path(temporary, "demo")
        print("recoslip demo", flush=True)
        subprocess.run([RECOSLIP, "demo", "--out", demo, "--quiet"], check=True)
        found["demo"] = demo / "report.html"
        for path in sorted((DOCS / "tutorials").glob("*.md")):
            print(f"tutorials/{path.name}", flush=True)
            folder = Path(temporary, path.stem)
            folder.mkdir()
            run(path.read_text(encoding="utf-8"), folder)
            found |= {f"{path.stem}-{page.parent.name}": page for page in sorted(folder.glob("*/report.html"))}
        out.mkdir(parents=True, exist_ok=True)
        for name, page in found.items():
            shutil.copyfile(page, out / f"{name}.html")
            print(out / f"{name}.html")


def take_pictures(pages: Path) -> None:
    """Take the pictures of the pages."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("pictures need a Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, page_name, element, height in PICTURES:
            page = browser.new_page(viewport={"width": WIDTH, "height": height or WIDTH})
            page.goto((pages / f"{page_name}.html").resolve().as_uri())
            page.wait_for_timeout(1000)  # the map is drawn
            shown = page.locator(element)
            shown.evaluate("element => element.scrollIntoView()")
            (shown if height is None else page).screenshot(path=DOCS / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the pages")
    parser.add_argument("--pictures", action="store_true", help="take the pictures, too")
    arguments = parser.parse_args()
    make_pages(arguments.out)
    if arguments.pictures:
        take_pictures(arguments.out)
