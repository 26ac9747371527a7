"""The guide does what it says, run as it is written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl

GUIDE = Path(__file__).parent.parent / "docs" / "guide.md"


def test_the_guide_runs_as_written_and_finds_the_drones(tmp_path):
    text = GUIDE.read_text(encoding="utf-8")
    for name, body in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(body, encoding="utf-8")
    commands = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["python", "recoslip", "python"]
    for command in commands:
        first, *rest = shlex.split(command)
        start = (
            [sys.executable] if first == "python" else [sys.executable, "-c", "from recoslip.cli import main; main()"]
        )
        result = subprocess.run([*start, *rest], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    listed = pl.read_csv(tmp_path / "out" / "scores.csv").filter("listed")
    counts = listed.join(pl.read_csv(tmp_path / "truth.csv"), on="id")["category"].value_counts()
    drones = dict(counts.iter_rows())["drones"]
    assert drones > 45
    assert drones > 0.5 * listed.height
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Something new: at least" in page
    assert "rotor" in page
