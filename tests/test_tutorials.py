"""The tutorials, the how-to and the install page, run as they are written -> what they say."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

DOCS = Path(__file__).parent.parent / "docs"
gallery = runpy.run_path(str(DOCS / "gallery.py"))


def run(name, forked, folder, ends=None):
    """Do in a folder what a page says; return how often each program was called, and what each command printed.

    Args:
        name: of the page.
        forked: where commands run.
        folder: of its files.
        ends: exit codes other than 0, by a word of the command.
    """
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for script, body in gallery["scripts"](text).items():
        (folder / script).write_text(body, encoding="utf-8")
    printed = {}
    commands = gallery["commands"](text)
    for command in commands:
        first, *rest = command
        if first == "python":
            result = subprocess.run([sys.executable, *rest], cwd=folder, capture_output=True, text=True)
        else:
            result = forked.run(*rest, cwd=folder)
        code = next((code for word, code in (ends or {}).items() if word in command), 0)
        assert result.returncode == code, result.stdout + result.stderr
        printed[shlex.join(command)] = " ".join(result.stdout.split())
    return Counter(command[0] for command in commands), printed


def test_tables_to_a_decision_runs_as_written_and_finds_the_drones_twice(forked, tmp_path):
    programs, printed = run("tutorials/tables", forked, tmp_path)
    assert programs == {"python": 4, "recoslip": 4}
    said = printed["recoslip review out/ --decisions sample_reviewed.csv"]
    assert re.search(r"95 % sure that at least \d+ % of this list", said), said  # of a random draw
    listed = pl.read_csv(tmp_path / "out" / "scores.csv").filter("listed")
    counts = listed.join(pl.read_csv(tmp_path / "truth.csv"), on="id")["category"].value_counts()
    drones = dict(counts.iter_rows())["drones"]
    assert drones > 45
    assert drones > 0.5 * listed.height
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "known categories do not explain at least" in page
    assert "rotor" in page
    tomorrow = pl.read_csv(tmp_path / "tomorrow" / "scores.csv").filter("listed")
    new = tomorrow.join(pl.read_csv(tmp_path / "tomorrow_truth.csv"), on="id")["category"]
    assert (new == "drones").sum() >= 8
    assert (new == "drones").mean() > 0.7


def test_a_watch_on_weekly_batches_runs_as_written_and_raises_an_alarm_for_the_drones(forked, tmp_path):
    programs, printed = run("tutorials/watch", forked, tmp_path, ends={"week4.csv": 10})
    assert programs == {"python": 2, "recoslip": 8}
    assert (
        "A new category has appeared: group 1"
        in printed["recoslip watch shop/ --nodes week4.csv --edges week4_edges.csv"]
    )
    group = json.loads((tmp_path / "shop" / "watch.json").read_text())["groups"][0]
    assert group["status"] == "accepted"
    truth = pl.read_csv(tmp_path / "weeks_truth.csv").filter(pl.col("id").is_in(group["members"]))
    assert (truth["category"] == "drones").mean() > 0.9
    last = printed["recoslip watch shop/ --nodes week6.csv --edges week6_edges.csv"]
    assert "What is known grows: in the last 5 batches nodes like '" in last, last  # garden tools
    assert printed["python add_week.py"].startswith("0 False True What is known grows")  # the same batch again


def test_cells_runs_as_written_and_finds_the_b_cells(forked, tmp_path):
    pytest.importorskip("scanpy")
    programs, printed = run("tutorials/cells", forked, tmp_path)
    assert programs == {"python": 2, "recoslip": 1}
    listed = pl.read_csv(tmp_path / "out" / "scores.csv").filter("listed")
    assert listed.height > 40
    assert (listed["bulk_labels"] == "CD19+ B").mean() > 0.85
    assert "CD79A" in printed["python look.py"]
    assert "report.html, cells.h5ad" in printed[next(command for command in printed if "detect" in command)]


def test_the_how_to_runs_as_written_and_finds_the_drones(forked, tmp_path):
    pytest.importorskip("scanpy")
    programs, printed = run("how-to", forked, tmp_path)
    assert programs["recoslip"] >= 15
    for out in ("no_edges", "out", "by_time", "from_disk"):
        listed = pl.read_csv(tmp_path / out / "scores.csv").filter("listed")
        assert listed["title"].str.contains("rotor|flight|camera|remote").mean() > 0.9, out
        assert listed.height > 40, out
    assert "camera" in printed["python explain.py"]
    assert "10 nodes decided" in printed["recoslip review out --decisions decided.csv"]


def test_the_install_page_runs_as_written(forked, tmp_path):
    programs, _ = run("install", forked, tmp_path)
    assert programs == {"recoslip": 2}
    assert (tmp_path / "demo" / "report.html").exists()
