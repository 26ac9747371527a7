import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import recoslip
from recoslip import RecoSlip, storage
from recoslip.detectors.model_file import checksum
from recoslip.errors import ModelFileError, RecoslipError
from recoslip.storage import atomic_folder, check_output_folder, output_lock


@pytest.fixture
def saved(graph, split, tmp_path):
    settings = {
        "epochs": 6,
        "hidden_channels": 8,
        "out_channels": 8,
        "head_channels": 4,
        "max_fpr": 1.0,
        "device": "cpu",
    }
    RecoSlip(**settings).fit(graph, split).save(tmp_path / "model")
    return tmp_path / "model"


def test_candidates_and_history_survive(graph, split, tmp_path):
    fitted = RecoSlip(epochs=6, hidden_channels=8, max_fpr=1.0).fit(graph, split)
    fitted.save(tmp_path / "m")
    again = recoslip.load_detector(tmp_path / "m")
    assert again.candidates_.equals(fitted.candidates_)
    assert again.history_.equals(fitted.history_)
    assert again.threshold_ == fitted.threshold_


def test_a_saved_detector_is_json_and_safetensors_alone(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "model.safetensors"]
    json.loads((saved / "model.json").read_text())
    assert load_file(saved / "model.safetensors")


def test_saving_again_replaces_and_foreign_folders_are_left_alone(saved, tmp_path):
    recoslip.load_detector(saved).save(saved)
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.txt").write_text("do not lose")
    for name in ("model.json", "more.txt"):
        (other / name).write_text("{}")
        with pytest.raises(RecoslipError, match="which is not ours"):
            recoslip.load_detector(saved).save(other)
    assert (other / "thesis.txt").read_text() == "do not lose"


def test_a_home_folder_is_found_and_guarded(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    recoslip.load_detector("~/model").save("~/again")
    assert (tmp_path / "again" / "model.json").is_file()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("do not lose")
    with pytest.raises(RecoslipError, match="which is not ours"):
        recoslip.load_detector(saved).save("~/precious")


def test_settings_from_numpy_are_saved(graph, split, tmp_path):
    settings = {"epochs": np.int64(4), "max_fpr": np.float64(1.0), "recall_targets": np.array([0.1, 0.2])}
    RecoSlip(**settings).fit_seeds(graph, np.arange(2), split)[1].save(tmp_path / "m")
    assert recoslip.load_detector(tmp_path / "m").recall_targets == (0.1, 0.2)


def edit(saved, **changes):
    document = json.loads((saved / "model.json").read_text()) | changes
    document["sha256"] = checksum(document, saved / "model.safetensors")
    (saved / "model.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: (m / "model.json").unlink(), "model.json is missing"),
        (lambda m: (m / "model.safetensors").unlink(), "missing"),
        (lambda m: (m / "model.json").write_text("{"), "truncated"),
        (lambda m: (m / "model.json").write_text("[1]"), "not recoslip's"),
        (lambda m: (m / "model.json").write_bytes(b"\xff\xfe\x00"), "truncated or not recoslip's"),
        (lambda m: os.truncate(m / "model.safetensors", 200), "truncated"),
        (lambda m: (m / "model.safetensors").write_bytes(b"\x80\x04K\x01."), "truncated"),  # a pickle
        (lambda m: edit(m, format="other"), "not recoslip's"),
        (lambda m: edit(m, format_version=99), "format version 99"),
        (lambda m: edit(m, detector="magic"), "'magic' that this recoslip has not"),
        (lambda m: edit(m, settings={"hidden_channels": 9}), "damaged|cannot be used"),
        (lambda m: edit(m, settings={"sauce": 9}), "cannot be used"),
        (lambda m: edit(m, settings=7), "damaged"),
        (lambda m: edit(m, learned={}), "damaged"),
        (lambda m: save_file({"scores": torch.zeros(3)}, m / "model.safetensors"), "damaged"),
    ],
)
def test_damaged_and_foreign_files_give_a_clear_error(saved, damage, message):
    damage(saved)
    with pytest.raises(ModelFileError, match=message):
        recoslip.load_detector(saved)


def interrupted_write(target, problem):
    with atomic_folder(target, ours=("old", "new"), replace=True) as temporary:
        (temporary / "half").write_text("…")
        raise problem


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        interrupted_write(target, KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(target, ours=(), replace=False) as temporary:
        (temporary / "file").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failed_replacement_keeps_the_old_folder(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("still here")
    with pytest.raises(RuntimeError):
        interrupted_write(target, RuntimeError)
    assert [path.name for path in target.iterdir()] == ["old"]
    with atomic_folder(target, ours=("old", "new"), replace=True) as temporary:
        (temporary / "new").write_text("here")
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_replacement_that_cannot_be_renamed_leaves_the_old_folder(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("still here")
    rename = Path.rename

    def refuse(self, other):
        if (self / "new").exists():
            raise PermissionError(13, "Permission denied")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", refuse)
    monkeypatch.setattr(storage, "_exchange", lambda one, other: False)  # a system without renameat2
    with (
        pytest.raises(RecoslipError, match="Permission denied"),
        atomic_folder(target, ours=("old", "new"), replace=True) as temporary,
    ):
        (temporary / "new").write_text("here")
    assert (target / "old").read_text() == "still here"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_existing_folders_and_files_are_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_text("x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecoslipError, match="not empty"), atomic_folder(tmp_path / "out", ours=("x",), replace=False):
        pass
    with pytest.raises(RecoslipError, match="is a file"), atomic_folder(tmp_path / "file", ours=(), replace=True):
        pass


def write(folder, text, replace=True):
    with atomic_folder(folder, ours=("file",), replace=replace) as temporary:
        (temporary / "file").write_text(text)


def test_a_folder_is_replaced_in_one_step_where_the_system_can(tmp_path):
    write(tmp_path / "out", "one")
    before = (tmp_path / "out").stat().st_ino
    (tmp_path / "new").mkdir()
    if not storage._exchange(tmp_path / "new", tmp_path / "out"):
        pytest.skip("no renameat2 here")
    assert (tmp_path / "new").stat().st_ino == before
    assert (tmp_path / "new" / "file").read_text() == "one"
    assert not storage._exchange(tmp_path / "new", tmp_path / "nothing")


KILLED_BETWEEN = """
import os, sys
from pathlib import Path
from recoslip import storage
storage._exchange = lambda one, other: False
rename = Path.rename
def killed(self, other):
    if "replaced" in str(other):
        rename(self, other)
        os.kill(os.getpid(), 9)
    return rename(self, other)
Path.rename = killed
with storage.atomic_folder(sys.argv[1], ours=("file",), replace=True) as temporary:
    (temporary / "file").write_text("two")
"""


def test_what_was_there_is_put_back_after_a_kill_between_two_renames(tmp_path, caplog):
    write(tmp_path / "out", "one")
    killed = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, tmp_path / "out"], check=False)
    assert killed.returncode == -9
    assert not (tmp_path / "out").exists()
    with caplog.at_level("INFO", "recoslip"), pytest.raises(RecoslipError, match="holds an earlier result"):
        check_output_folder(tmp_path / "out", ours=("file",), replace=False)
    assert "was put back: a process was killed while it replaced it" in caplog.text
    assert (tmp_path / "out" / "file").read_text() == "one"
    write(tmp_path / "out", "three")
    assert (tmp_path / "out" / "file").read_text() == "three"


HOLD = """
import sys
from recoslip.storage import output_lock
with output_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_output_has_one_writer_at_a_time(tmp_path):
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", HOLD, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RecoslipError, match="another process is writing"):
            write(out, "mine")
        write(tmp_path / "elsewhere", "mine")
        other.kill()  # the lock ends with its process, however that ends
    write(out, "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "out"]


def test_a_thread_may_hold_an_output_twice_and_another_thread_may_not(tmp_path):
    refused = []

    def other():
        try:
            write(tmp_path / "out", "two")
        except RecoslipError as problem:
            refused.append(str(problem))

    with output_lock(tmp_path / "out"):
        write(tmp_path / "out", "one")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another process" in refused[0]
    assert (tmp_path / "out" / "file").read_text() == "one"


def test_many_writers_at_once_leave_one_whole_result(tmp_path):
    script = """
import sys
from recoslip.errors import RecoslipError
from recoslip.storage import atomic_folder
for turn in range(40):
    try:
        with atomic_folder(sys.argv[1], ours=("a", "b"), replace=True) as temporary:
            (temporary / "a").write_text(f"{sys.argv[2]} {turn}")
            (temporary / "b").write_text(f"{sys.argv[2]} {turn}")
    except RecoslipError as problem:
        assert "another process" in str(problem), problem
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, tmp_path / "out", str(k)]) for k in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    assert (tmp_path / "out" / "a").read_text() == (tmp_path / "out" / "b").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_written_through_a_link_goes_where_it_leads(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "later")
    write(tmp_path / "link", "one")
    write(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "two"
    write(tmp_path / "dangling", "three")
    assert (tmp_path / "later" / "file").read_text() == "three"
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(RecoslipError, match="cannot write"):
        check_output_folder(tmp_path / "circle", ours=(), replace=True)


def test_want_of_space_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(RecoslipError, match="MiB are free there; make room"):
        check_output_folder(tmp_path / "out", ours=(), replace=False, size=2**62)
    assert not any(tmp_path.iterdir())


def test_a_name_that_is_not_utf_8_is_written_to_and_shown(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    write(folder, "one")
    with pytest.raises(RecoslipError, match=r"caf\\xe9 is not empty"):
        write(folder, "two", replace=False)
