"""The guide does what it says, run as it is written."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl

GUIDE = Path(__file__).parent.parent / "docs" / "guide.md"


def test_the_guide_runs_as_written_and_finds_the_drones_three_times(forked, tmp_path):
    text = GUIDE.read_text(encoding="utf-8")
    for name, body in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(body, encoding="utf-8")
    commands = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    assert Counter(command.split()[0] for command in commands) == {"python": 5, "recoslip": 12}
    for command in commands:
        first, *rest = shlex.split(command)
        if first == "python":
            result = subprocess.run([sys.executable, *rest], cwd=tmp_path, capture_output=True, text=True)
        else:
            result = forked.run(*rest, cwd=tmp_path)
        rings = "week4.csv" in command
        assert result.returncode == (10 if rings else 0), result.stdout + result.stderr
        if "sample_reviewed.csv" in command:
            said = " ".join(result.stdout.split())
            assert re.search(r"95 % sure that at least \d+ % of this list", said), said  # of a random draw
        if rings:
            assert "A new category has appeared: group 1" in result.stdout
    listed = pl.read_csv(tmp_path / "out" / "scores.csv").filter("listed")
    counts = listed.join(pl.read_csv(tmp_path / "truth.csv"), on="id")["category"].value_counts()
    drones = dict(counts.iter_rows())["drones"]
    assert drones > 45
    assert drones > 0.5 * listed.height
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Something new: at least" in page
    assert "rotor" in page
    tomorrow = pl.read_csv(tmp_path / "tomorrow" / "scores.csv").filter("listed")
    new = tomorrow.join(pl.read_csv(tmp_path / "tomorrow_truth.csv"), on="id")["category"]
    assert (new == "drones").sum() >= 8
    assert (new == "drones").mean() > 0.7
    group = json.loads((tmp_path / "shop" / "watch.json").read_text())["groups"][0]
    assert group["status"] == "accepted"
    truth = pl.read_csv(tmp_path / "weeks_truth.csv").filter(pl.col("id").is_in(group["members"]))
    assert (truth["category"] == "drones").mean() > 0.9
