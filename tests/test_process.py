"""What surrounds a command never decides over its output: streams, signals, locales, other processes, links."""

import html
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from recoslip.base.files import output_lock
from recoslip.data.datasets.block_model import csbm
from recoslip.products.cli import app

RECOSLIP = [sys.executable, "-c", "from recoslip.products.cli import main; main()"]
WHOLE = {"recoslip.json", "scores.csv", "summary.json", "model", "report.html", "report.json"}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="streams and signals as Linux has them")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    graph = csbm(nodes=120, categories=3, features=3, seed=1)
    columns = {f"x{k}": graph.x[:, k] for k in range(3)}
    pl.DataFrame({"id": range(120), "domain": graph.is_target.astype(int), **columns}).write_csv(folder / "nodes.csv")
    pl.DataFrame({"a": graph.edge_index[0], "b": graph.edge_index[1]}).write_csv(folder / "edges.csv")
    return folder


def detect(tables, out, *more, nodes=None):
    return [*RECOSLIP, "detect", nodes or tables / "nodes.csv", tables / "edges.csv", "--method", "lp-pul",
            "--out", out, *more]  # fmt: skip


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("redirection", "json_too"), [(">&- 2>&-", []), (">/dev/full", ["--json"]), ("| true", [])])
def test_what_cannot_be_printed_does_not_lose_the_run(tables, tmp_path, redirection, json_too):
    command = " ".join(f"'{part}'" for part in detect(tables, tmp_path / "out", *json_too))
    script = f"set -o pipefail; {command} {redirection}"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
    assert result.returncode == 0, result.stderr
    assert names(tmp_path / "out") == WHOLE
    assert names(tmp_path) == {"out"}


def test_an_error_in_the_input_is_code_2_though_nobody_can_read_it(tables, tmp_path):
    command = " ".join(f"'{part}'" for part in detect(tables, tmp_path / "out", "--fdr", "7"))
    assert subprocess.run(["bash", "-c", f"{command} >/dev/full 2>&-"], check=False).returncode == 2
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_training_with_one_line_and_nothing_left(tables, tmp_path, number, code):
    command = detect(tables, tmp_path / "out", "--method", "domain-discriminator", "--epochs", "1000000",
                     "--patience", "1000000")  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "NodeGraph" not in process.stdout.readline():
            pass  # read until the tables have been
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == code
    assert errors == "interrupted; nothing was written\n"
    assert not any(tmp_path.iterdir())


EARLY = """
import signal, sys
import recoslip.products.cli as process
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "recoslip.products.cli.commands":
            signal.raise_signal(int(sys.argv.pop(1)))
sys.meta_path.insert(0, Finder())
process.main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_the_first_moments_ends_the_same_way(number, code):
    result = subprocess.run(
        [sys.executable, "-c", EARLY, str(int(number)), "pack"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (code, "interrupted; nothing was written\n")


def run(command):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(part) for part in command[len(RECOSLIP) :]])


def test_two_runs_into_one_folder_are_told_apart(tables, tmp_path):
    out = tmp_path / "out"

    def refused(*commands):
        """Run commands while another thread holds the folder, which is the same to them as another process."""
        held, released = threading.Event(), threading.Event()

        def hold():
            with output_lock(out):
                held.set()
                released.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        results = [run(command) for command in commands]
        released.set()
        thread.join()
        for result in results:
            assert result.exit_code == 2
            assert "another process is writing" in result.output.replace("\n", " ")

    refused(detect(tables, out), detect(tables, out, "--force"), [*RECOSLIP, "demo", "--out", out])
    assert not any(tmp_path.iterdir())
    assert run(detect(tables, out, "-q")).exit_code == 0
    refused([*RECOSLIP, "report", out], detect(tables, out, "--force"))


def test_text_leaves_as_utf_8_in_any_locale(tables, tmp_path):
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    nodes = pl.read_csv(tables / "nodes.csv").rename({"x0": "größe"})
    nodes.write_csv(tmp_path / "knöten.csv")
    more = ["--title", "Où est l'été?", "--features", "größe,x1"]
    command = detect(tables, tmp_path / "out", *more, nodes=tmp_path / "knöten.csv")
    result = subprocess.run(command, capture_output=True, env=os.environ | ascii_locale, check=False)
    assert result.returncode == 0, result.stderr
    assert "größe: number" in result.stdout.decode("utf-8")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<title>Où est l'été?</title>" in html.unescape(page)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["feature_names"] == ["größe", "x1"]


def test_names_that_are_not_utf_8_are_read_and_written(tables, tmp_path):
    odd = os.fsdecode(b"caf\xe9.csv")
    (tmp_path / odd).write_bytes((tables / "nodes.csv").read_bytes())
    out = tmp_path / os.fsdecode(b"sortie\xff")
    result = run(detect(tables, out, nodes=tmp_path / odd))
    assert result.exit_code == 0, result.output
    assert names(out) == WHOLE
    assert "caf\\xe9.csv" in (out / "report.html").read_text(encoding="utf-8")


def test_a_link_as_output_is_written_through_and_stays(tables, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    for more in ([], ["--force"]):
        assert run(detect(tables, tmp_path / "out", "-q", *more)).exit_code == 0
        assert (tmp_path / "out").is_symlink()
        assert names(tmp_path / "real") == WHOLE


@pytest.mark.parametrize("damage", ["deep", "fifo", "link", "list", "text", "nothing"])
def test_damaged_json_ends_no_command_in_a_traceback_or_a_hang(tables, tmp_path, damage):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("report.json", "summary.json"):
        path = out / name
        if damage == "fifo":
            os.mkfifo(path)
        elif damage == "link":
            path.symlink_to(tables / "nodes.csv")
        else:
            path.write_text({"deep": "[" * 100_000, "list": "[]", "text": '{"format": ', "nothing": ""}[damage])
    result = run([*RECOSLIP, "report", out])
    assert result.exit_code == 2
    assert "report.json cannot be read" in result.output.replace("\n", " ")
    result = run([*RECOSLIP, "demo", "--out", out])
    assert result.exit_code == 2  # it has no manifest, so it is not replaced
    assert "was not written by this version" in result.output.replace("\n", " ")


def test_a_signal_after_the_output_is_in_place_leaves_code_0(tables, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("recoslip.products.cli.detect.print_result", interrupt)
    result = run(detect(tables, tmp_path / "out"))
    assert result.exit_code == 0
    assert "interrupted, after" in result.output
    assert "nothing was written" not in result.output
    assert names(tmp_path / "out") == WHOLE
    monkeypatch.setattr("recoslip.pipeline.result.payload", interrupt)
    result = run(detect(tables, tmp_path / "other"))
    assert result.exit_code == 130
    assert "interrupted; nothing was written" in result.output
    assert names(tmp_path) == {"out"}


AGAIN = """
import os, signal
from recoslip.products.cli.signals import exit_code, raise_on_signals
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
raise_on_signals()
try:
    os.kill(os.getpid(), signal.SIGHUP)
except KeyboardInterrupt as problem:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    print("cleaned up", exit_code(problem))
"""


def test_signals_after_the_first_do_not_disturb_its_clean_up():
    result = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "cleaned up 129\n", "")


TURNED = """
import os, signal, sys
from recoslip.data.packed import writer
def pack(*_, **__):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise RecursionError("as numpy does while it is imported")
writer.pack = pack
from recoslip.products.cli import main
sys.argv[1:] = ["pack", "n.csv", "e.csv", "out"]
main()
"""


def test_a_signal_that_a_library_turns_into_its_own_error_is_a_signal():
    result = subprocess.run([sys.executable, "-c", TURNED], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (143, "interrupted; nothing was written\n")


def test_a_working_folder_that_is_gone_is_an_error_with_a_reason(tables, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    result = subprocess.run(
        detect(tables, tmp_path / "out"), cwd=gone, preexec_fn=gone.rmdir, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: the working folder does not exist any more")
    assert not any(tmp_path.iterdir())


FEW_FILES = """
import resource
from recoslip.pipeline import result
from recoslip.products.cli.commands import app
import recoslip.pipeline.detect, safetensors.torch

def limited(*arguments, write=result.write, **options):
    held = [open("/dev/null") for _ in range(9)]  # until the exception has been handled
    most = held[-1].fileno() + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # no other file can be opened
    write(*arguments, **options)

result.write = limited
app()
"""


def test_too_many_open_files_leave_nothing_behind(tables, tmp_path):
    command = [sys.executable, "-c", FEW_FILES, *detect(tables, tmp_path / "out", "-q")[len(RECOSLIP) :]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert "Too many open files" in result.stderr
    assert not any(tmp_path.iterdir())


TOO_WIDE = b"hidden_channels = 9223372036854775807"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xef\xbb\xbfepochs = 0", "epochs must be a whole number of at least 1; got 0"),  # read: editors mark UTF-8
        (b"a = " + b"[" * 3000, "is not TOML"),
        (b"a = " + b"{a=" * 3000, "is not TOML"),
        (b"epochs = " + b"9" * 5000, "is not TOML"),
        ("epochs = 2".encode("utf-16"), "in UTF-8"),
        (b"[detect]\nepochs = 2", "has no setting 'detect'"),
        (b"epochs = 2020-01-01", "epochs must be a whole number"),
        (TOO_WIDE, "reduce hidden_channels"),
    ],
    ids=["mark", "deep list", "deep table", "digits", "utf-16", "section", "date", "memory"],
)
def test_settings_that_cannot_be_are_one_line(tables, tmp_path, content, said):
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    result = run(detect(tables, tmp_path / "out", "--method", "domain-discriminator", "--config", path, "-q"))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_process_without_memory_ends_with_one_line_that_names_the_limit(tables, tmp_path):
    command = " ".join(f"'{part}'" for part in detect(tables, tmp_path / "out"))
    result = subprocess.run(["bash", "-c", f"ulimit -v 300000; {command}"], capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert "raise" in result.stderr
    assert "pack" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("path", ["/dev/zero", "/", "fifo"])
def test_settings_from_a_device_a_folder_or_a_pipe_are_refused(tables, tmp_path, path):
    if path == "fifo":
        path = tmp_path / "fifo"
        os.mkfifo(path)
    result = run(detect(tables, tmp_path / "out", "--config", path))
    assert result.exit_code == 2
    assert "is a folder, a pipe or a device" in result.output.replace("\n", " ")


def test_a_page_with_values_that_are_no_numbers_is_refused(tables, tmp_path):
    assert run(detect(tables, tmp_path / "out", "-q")).exit_code == 0
    data = json.loads((tmp_path / "out" / "report.json").read_text())
    before = (tmp_path / "out" / "report.html").read_bytes()
    (tmp_path / "out" / "report.json").write_text(json.dumps(data | {"more": float("nan")}))
    result = run([*RECOSLIP, "report", tmp_path / "out"])
    assert result.exit_code == 2
    assert "report.json cannot be read" in " ".join(result.output.split())
    assert (tmp_path / "out" / "report.html").read_bytes() == before


def test_what_the_system_refuses_is_an_error_with_its_reason(tables, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("recoslip.pipeline.detect.detect", refuse)
    result = run(detect(tables, tmp_path / "out"))
    assert result.exit_code == 2
    assert "the system refused" in result.output
    assert "No usable temporary directory" in result.output
    assert not any(tmp_path.iterdir())
