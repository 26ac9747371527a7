"""Processor seconds of commands that compute nothing, and of `recoslip detect` until it begins to print.

python benchmarks/startup.py --repeats 5

Ratios are to `import numpy, scipy, polars` in the same run: what a Python program of this field takes anyway.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import psutil

from recoslip.data.datasets.load import load_dataset

COMMAND = ["-c", "import sys; from recoslip.products.cli import main; sys.argv[0] = 'recoslip'; main()"]
REFERENCE = "import numpy, scipy, polars"
MEASURED = {
    "pass": ["-c", "pass"],
    REFERENCE: ["-c", REFERENCE],
    "import torch": ["-c", "import torch"],
    "import recoslip": ["-c", "import recoslip"],
    "recoslip --version": [*COMMAND, "--version"],
    "recoslip --help": [*COMMAND, "--help"],
    "recoslip methods": [*COMMAND, "methods"],
    "recoslip datasets": [*COMMAND, "datasets"],
}


def processor_seconds(arguments: list[str]) -> float:
    """User and system time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_tables(folder: Path) -> None:
    """Write the demo's graph as tables."""
    graph = load_dataset("digits").graph
    columns = {f"pixel {k}": graph.x[:, k] for k in range(graph.num_features)}
    pl.DataFrame({"id": np.arange(graph.num_nodes), "domain": graph.is_target, **columns}).write_csv(folder / "n.csv")
    left, right = graph.edge_index
    pl.DataFrame({"a": left, "b": right}).write_csv(folder / "e.csv")


def until_printing(folder: Path) -> list[tuple[str, float, float]]:
    """What `detect` prints first, and what it had found before it fitted: (line, seconds, processor seconds) each."""
    command = [*COMMAND, "detect", str(folder / "n.csv"), str(folder / "e.csv"), "--out", str(folder / "out")]
    start, found = time.perf_counter(), []
    with subprocess.Popen([sys.executable, "-u", *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            used = psutil.Process(process.pid).cpu_times()
            if not found or line.startswith("NodeGraph"):
                found.append((line.strip()[:60], time.perf_counter() - start, used.user + used.system))
            if line.startswith("NodeGraph"):
                process.kill()
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    for arguments in MEASURED.values():  # the first time writes compiled files and reads the disk
        processor_seconds(arguments)
    median = {
        name: statistics.median(processor_seconds(arguments) for _ in range(repeats))
        for name, arguments in MEASURED.items()
    }
    print(f"| | processor seconds | times {REFERENCE} |\n|---|---|---|")
    for name, seconds in median.items():
        print(f"| {name} | {seconds:.3f} | {seconds / median[REFERENCE]:.2f} |")
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder))
        for _ in range(repeats):
            for line, seconds, processor in until_printing(Path(folder)):
                print(f"detect printed {line!r} after {seconds:.2f} s, {processor:.2f} s of processor time")


if __name__ == "__main__":
    main()
