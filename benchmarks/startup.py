"""Processor seconds of commands and imports that compute nothing, and their ratio to `import torch` in the same run."""

import argparse
import resource
import statistics
import subprocess
import sys

COMMAND = "import sys; from recoslip.products.cli import main; sys.argv[0] = 'recoslip'; main()"
MEASURED = {
    "import torch": ["-c", "import torch"],
    "recoslip --version": ["-c", COMMAND, "--version"],
    "recoslip --help": ["-c", COMMAND, "--help"],
    "recoslip methods": ["-c", COMMAND, "methods"],
    "recoslip datasets": ["-c", COMMAND, "datasets"],
    "import recoslip": ["-c", "import recoslip"],
    "import recoslip; recoslip.RecoSlipPlus": ["-c", "import recoslip; recoslip.RecoSlipPlus"],
}


def processor_seconds(arguments: list[str]) -> float:
    """User and system time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    for arguments in MEASURED.values():  # the first time writes compiled files and reads the disk
        processor_seconds(arguments)
    median = {
        name: statistics.median(processor_seconds(arguments) for _ in range(repeats))
        for name, arguments in MEASURED.items()
    }
    print("| | processor seconds | times import torch |\n|---|---|---|")
    for name, seconds in median.items():
        print(f"| {name} | {seconds:.2f} | {seconds / median['import torch']:.2f} |")


if __name__ == "__main__":
    main()
