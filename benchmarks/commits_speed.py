"""The default's fit before and after: seconds and processor seconds of an old commit and of this checkout, in turns.

    python benchmarks/commits_speed.py --root data                     # the commit before the committee of encoders
    python benchmarks/commits_speed.py --root data --old HEAD~1 --rotations 5

Each fit runs in a process of its own, old and new taking turns; medians are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
BEFORE_THE_COMMITTEE = "032e48f^"

FIT = """
import json, sys, time
import recoslip
from recoslip.inference.metrics import auroc
name, root, rotations = json.loads(sys.argv[1])
data = recoslip.load_dataset(name, root=root)
more = {"rotations": rotations} if rotations > 1 else {}
recoslip.RecoSlipPlus(epochs=2).fit(data.graph, data.split)
wall, processor = time.perf_counter(), time.process_time()
fitted = recoslip.RecoSlipPlus().fit(data.graph, data.split, **more)
wall, processor = time.perf_counter() - wall, time.process_time() - processor
print(json.dumps([wall, processor, auroc(data.novel, fitted.scores_, data.split.test)]))
"""


def source_of(commit: str, folder: Path) -> Path:
    """Write the package as it was in a commit into a folder."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=CHECKOUT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as file:
        file.extractall(folder, filter="data")
    return folder / "src"


def fit(source: Path, name: str, root: str | None, rotations: int) -> list[float]:
    """Fit in a new process; return seconds, processor seconds and AU-ROC."""
    command = [sys.executable, "-W", "ignore", "-c", FIT, json.dumps([name, root, rotations])]
    environment = os.environ | {"PYTHONPATH": str(source)}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default=BEFORE_THE_COMMITTEE)
    parser.add_argument("--datasets", nargs="+", default=["cora-s", "digits", "photo-s"])
    parser.add_argument("--rotations", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", type=os.path.abspath, default=None)
    arguments = parser.parse_args()
    print("| graph | | s | processor s | AU-ROC | old / new |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        sources = {"old": source_of(arguments.old, Path(folder)), "new": CHECKOUT / "src"}
        for name in arguments.datasets:
            runs: dict[str, list[list[float]]] = {version: [] for version in sources}
            for _ in range(arguments.rounds):
                for version, source in sources.items():
                    runs[version].append(fit(source, name, arguments.root, arguments.rotations))
            medians = {
                version: [statistics.median(values) for values in zip(*rows, strict=True)]
                for version, rows in runs.items()
            }
            ratio = medians["old"][0] / medians["new"][0]
            for version, (wall, processor, figure) in medians.items():
                note = f"{ratio:.2f}" if version == "new" else ""
                print(f"| {name} | {version} | {wall:.1f} | {processor:.1f} | {figure:.3f} | {note} |", flush=True)


if __name__ == "__main__":
    main()
