"""On a full or read-only disk: an error message of one line, exit code 2, and no incomplete output.

A full disk is simulated by a limit on the size of a file (RLIMIT_FSIZE), which the system enforces in every library.
"""

import errno
import json
import os
import resource
import shutil
import tempfile
from contextlib import contextmanager

import polars as pl
import pytest
from typer.testing import CliRunner

import recoslip
from recoslip import RecoSlipPlus, detector
from recoslip.base.errors import RecoslipError
from recoslip.data.datasets.block_model import csbm
from recoslip.products.cli import app

SIZES = [0, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 40_000]  # bytes


@contextmanager
def file_size_limit(size):
    """Limit the size of every file, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    graph = csbm(nodes=200, features=3)
    frame = pl.DataFrame({"id": range(200), "domain": graph.is_target.astype(int), "category": graph.categories})
    frame.with_columns(**{f"x{k}": graph.x[:, k] for k in range(3)}).write_csv(folder / "nodes.csv")
    text = '[datasets.shop]\nnodes = "nodes.csv"\ndomain = "domain"\ncategory = "category"\n'
    (folder / "bench.toml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def fitted():
    return RecoSlipPlus(epochs=2, hidden_channels=16, device="cpu").fit(csbm(nodes=200))


def detect(tables, out, *more):
    files = [str(tables / "nodes.csv"), "--out", str(out), "--ignore", "category"]
    return CliRunner().invoke(app, ["detect", *files, "--method", "lp-pul", "--max-fpr", "0.3", "--quiet", *more])


def assert_one_line(result):
    assert result.exit_code == 2, (result.exit_code, result.exception)
    assert result.stderr.startswith("error: cannot write")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_detect_on_a_full_disk_leaves_nothing(tables, tmp_path, size, file_format):
    with file_size_limit(size):
        result = detect(tables, tmp_path / "out", "--format", file_format)
    assert_one_line(result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", SIZES[::3])
def test_detect_on_a_full_disk_keeps_an_earlier_result(tables, tmp_path, size):
    out = tmp_path / "out"
    assert detect(tables, out).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with file_size_limit(size):
        assert_one_line(detect(tables, out, "--force", "--max-fpr", "0.5"))
    assert {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("size", [0, 100, 500, 1_000, 5_000, 10_000])
def test_save_on_a_full_disk_leaves_nothing_or_the_earlier_detector(fitted, tmp_path, size):
    fitted.save(tmp_path / "kept")
    for name in ("kept", "new"):
        with file_size_limit(size), pytest.raises(RecoslipError, match="cannot write"):
            fitted.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    recoslip.load_detector(tmp_path / "kept")


def test_report_on_a_full_disk_keeps_the_earlier_page(tables, tmp_path):
    out = tmp_path / "out"
    detect(tables, out)
    before = (out / "report.html").read_bytes()
    for size in (0, 10_000, 40_000):
        with file_size_limit(size):
            assert_one_line(CliRunner().invoke(app, ["report", str(out)]))
    assert (out / "report.html").read_bytes() == before
    assert len(list(out.iterdir())) == 6


def test_a_bench_on_a_full_disk_reports_it_and_continues_later(tables, tmp_path):
    bench = ["bench", "main", "--datasets", "shop", "--methods", "lp-pul", "--seeds", "1", "--splits", "1", "--quiet"]
    bench += ["--config", str(tables / "bench.toml"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    for size in (0, 100, 400):
        with file_size_limit(size):
            result = CliRunner().invoke(app, bench)
        assert result.exit_code in (1, 2)
        assert not isinstance(result.exception, OSError)
        assert "cannot write" in result.output
        records = [path for path in tmp_path.glob("out/records/*") if path.is_file()]
        assert all(json.loads(line) for path in records for line in path.read_text().splitlines())
        assert not list(tmp_path.glob("out/**/.*"))
    assert CliRunner().invoke(app, bench).exit_code == 0


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """A folder that cannot be written to; root may write anywhere, so for root the system's error is simulated."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
        return

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    yield folder
    monkeypatch.undo()


def test_a_read_only_folder_is_refused_before_any_work(tables, fitted, read_only):
    result = detect(tables, read_only / "out")
    assert_one_line(result)
    assert "training" not in result.stdout
    with pytest.raises(RecoslipError, match="cannot write"):
        fitted.save(read_only / "model")
    assert list(read_only.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tables, tmp_path):
    (tmp_path / "file").write_text("")
    assert_one_line(detect(tables, tmp_path / "file" / "out"))
    assert_one_line(detect(tables, "/proc/recoslip/out"))
    assert_one_line(detect(tables, tmp_path / ("x" * 300)))


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="needs the right to mount")
def test_a_small_disk_that_fills_up(tables, fitted, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=100k tmpfs {disk} 2>/dev/null"):
        pytest.skip("needs the right to mount")
    try:
        assert_one_line(detect(tables, disk / "out"))
        assert list(disk.iterdir()) == []
        assert_one_line(detect(tables, disk))  # an empty folder that is a mount point
        assert list(disk.iterdir()) == []
        little = detector("lp-pul").fit(csbm(nodes=200))  # which is small
        little.save(disk / "model")
        recoslip.load_detector(disk / "model")
        with pytest.raises(RecoslipError, match="cannot write"):
            fitted.save(disk / "large")
        assert [path.name for path in disk.iterdir()] == ["model"]
    finally:
        os.system(f"umount {disk}")
