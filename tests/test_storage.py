import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sealed import seal

import recoslip
from recoslip import RecoSlip
from recoslip.base import files as storage
from recoslip.base.errors import ModelFileError, RecoslipError
from recoslip.base.files import check_output, output_lock, put_right, update, write_new, writing
from recoslip.base.json_files import read_manifest


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


def test_a_saved_detector_is_json_and_safetensors_alone(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "model.safetensors", "recoslip.json"]
    json.loads((saved / "model.json").read_text())
    assert load_file(saved / "model.safetensors")


def test_saving_again_replaces_and_foreign_folders_are_left_alone(saved, tmp_path):
    recoslip.load_detector(saved).save(saved)
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.txt").write_text("do not lose")
    for name in ("model.json", "more.txt"):
        (other / name).write_text("{}")
        with pytest.raises(RecoslipError, match="was not written by this version"):
            recoslip.load_detector(saved).save(other)
    assert (other / "thesis.txt").read_text() == "do not lose"


def test_a_home_folder_is_found_and_guarded(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    recoslip.load_detector("~/model").save("~/again")
    assert (tmp_path / "again" / "model.json").is_file()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("do not lose")
    with pytest.raises(RecoslipError, match="was not written by this version"):
        recoslip.load_detector(saved).save("~/precious")


def test_settings_from_numpy_are_saved(graph, split, tmp_path):
    settings = {"epochs": np.int64(4), "max_fpr": np.float64(1.0), "recall_targets": np.array([0.1, 0.2])}
    RecoSlip(**settings).fit_seeds(graph, np.arange(2), split)[1].save(tmp_path / "m")
    assert recoslip.load_detector(tmp_path / "m").recall_targets == (0.1, 0.2)


def edit(saved, **changes):
    document = json.loads((saved / "model.json").read_text()) | changes
    (saved / "model.json").write_text(json.dumps(document))
    seal(saved)


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
        (lambda m: edit(m, fits=[{}]), "damaged"),
        (lambda m: save_file({"scores": torch.zeros(3)}, m / "model.safetensors"), "damaged"),
    ],
)
def test_damaged_and_foreign_files_give_a_clear_error(saved, damage, message):
    damage(saved)
    with pytest.raises(ModelFileError, match=message):
        recoslip.load_detector(saved)


def interrupted_write(target, problem):
    with writing(target, "bench", replace=True) as folder:
        folder.write("half", "…")
        raise problem


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        interrupted_write(target, KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == []
    with writing(target, "bench") as folder:
        folder.write("a/file", "whole")
        folder.write("intermediate", "parts", storage.WORK)
        assert not target.exists()
    assert sorted(contents(tmp_path)) == ["out/a/file", "out/recoslip.json"]


def test_a_failed_replacement_keeps_the_old_folder(tmp_path):
    target = tmp_path / "out"
    write(target, "still here")
    before = contents(tmp_path)
    with pytest.raises(RuntimeError):
        interrupted_write(target, RuntimeError)
    assert contents(tmp_path) == before
    with writing(target, "bench", replace=True) as folder:
        folder.write("new", "here")
    assert sorted(contents(target)) == ["new", "recoslip.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_existing_folders_and_files_are_refused(tmp_path):
    write(tmp_path / "out", "x")
    (tmp_path / "file").write_text("x")
    for path, message in (("out", "holds an earlier bench"), ("file", "is a file")):
        with pytest.raises(RecoslipError, match=message), writing(tmp_path / path, "bench"):
            pass
    with pytest.raises(RecoslipError, match="holds another kind of output"):
        check_output(tmp_path / "out", "watch", replace=True)


def write(folder, text, replace=True):
    with writing(folder, "bench", replace=replace) as written:
        written.write("file", text)


FOREIGN = {
    "another file": lambda out: (out / "notes.txt").write_text("mine"),
    "a file in a new folder": lambda out: [(out / "model").mkdir(), (out / "model" / "weights.bin").write_text("mine")],
    "an empty folder": lambda out: (out / "records").mkdir(),
    "a file of ours that was changed": lambda out: (out / "file").write_text("corrected"),
    "a file of ours of the same size": lambda out: (out / "file").write_text("onE"),
    "a link": lambda out: [(out / "file").unlink(), (out / "file").symlink_to(out.parent / "precious")],
    "no manifest": lambda out: (out / "recoslip.json").unlink(),
    "a manifest of another": lambda out: (out / "recoslip.json").write_text('{"format": "mine"}'),
}


@pytest.mark.parametrize("change", FOREIGN)
def test_a_folder_with_a_file_that_recoslip_did_not_write_is_never_replaced(tmp_path, change):
    out = tmp_path / "out"
    write(out, "one")
    (tmp_path / "precious").write_text("one")
    FOREIGN[change](out)
    before = contents(tmp_path)
    with pytest.raises(RecoslipError, match="move it away, or choose another folder"):
        write(out, "two")
    assert contents(tmp_path) == before


def test_what_comes_while_a_folder_is_written_is_not_replaced(tmp_path):
    out = tmp_path / "out"

    def meanwhile(folder):
        out.mkdir(exist_ok=True)
        (out / "review.sqlite").write_text("mine")
        folder.write("file", "two")

    def replace():
        with writing(out, "bench", replace=True) as folder:
            meanwhile(folder)

    for before in ({}, {"file": b"one"}):
        with pytest.raises(RecoslipError, match=r"holds 'review\.sqlite'"):
            replace()
        found = contents(out)
        assert found.pop("review.sqlite") == b"mine"
        found.pop("recoslip.json", None)
        assert found == before
        (out / "review.sqlite").unlink()
        write(out, "one")


def test_a_forged_manifest_or_journal_removes_nothing_outside_of_the_folder(tmp_path):
    out = tmp_path / "out"
    write(out, "one")
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("mine")
    (out / "link").symlink_to(tmp_path / "elsewhere")
    size, digest = storage.entry_of(b"mine")
    for name in ("../precious", "link/precious", str(tmp_path / "precious")):
        forged = {"format": "recoslip folder", "version": 1, "kind": "bench", "files": {name: [size, digest]}}
        (out / "recoslip.json").write_text(json.dumps(forged))
        with pytest.raises(RecoslipError):
            write(out, "two")
        with pytest.raises(RecoslipError):
            update(out, {name: "two"}, "bench")
        hidden = tmp_path / ".out-forged"
        hidden.mkdir()
        (hidden / "link").symlink_to(tmp_path / "elsewhere")
        (hidden / "journal").write_text("\n".join([storage.HEADER, json.dumps(name), ""]))
        put_right(out)
        shutil.rmtree(hidden, ignore_errors=True)
    assert (tmp_path / "precious").read_text() == (tmp_path / "elsewhere" / "precious").read_text() == "mine"


def test_an_update_changes_its_files_alone(tmp_path):
    out = tmp_path / "out"
    write(out, "one")
    (out / "notes.txt").write_text("mine")
    update(out, {"page": "a", "file": "two"}, "bench")
    assert contents(out).keys() == {"file", "page", "notes.txt", "recoslip.json"}
    assert set(read_manifest(out).files) == {"file", "page"}
    before = contents(out)
    for name in ("notes.txt", "recoslip.json"):
        with pytest.raises(RecoslipError):
            update(out, {"file": "three", name: "theirs"}, "bench")
    assert contents(out) == before
    (out / "file").write_text("by hand")
    with pytest.raises(RecoslipError, match="'file', which was changed since; move it away"):
        update(out, {"file": "three"}, "bench")
    (out / "file").rename(out / "moved")  # as the message says
    update(out, {"file": "three"}, "bench")
    assert (out / "file").read_text() == "three"


KILLED = """
import sys
sys.path.insert(0, sys.argv[3])
from fork_server import kill_at_change
from recoslip.base import files as storage
storage.output_lock(sys.argv[1]).__enter__()
kill_at_change(int(sys.argv[2]))
if sys.argv[4] == "writing":
    with storage.writing(sys.argv[1], "bench", replace=True) as folder:
        folder.write("file", "two")
        folder.write("b/other", "two")
        folder.write("part", "two", storage.WORK)
else:
    storage.update(sys.argv[1], {"file": "two", "b/other": "two"}, "bench")
storage._placed.clear()
"""


@pytest.mark.parametrize("how", ["writing", "update"])
@pytest.mark.parametrize("before", ["nothing", "an empty folder", "an earlier output"])
def test_after_a_kill_at_any_change_the_next_command_finds_the_old_or_the_new(tmp_path, how, before):
    def prepare(out):
        out.parent.mkdir()
        if before == "an earlier output":
            with writing(out, "bench") as folder:
                folder.write("file", "one")
                folder.write("gone", "one")
        elif before == "an empty folder":
            out.mkdir()
        for folder in (out.parent / ".out-mine", *([out / ".recoslip-mine"] if before == "an earlier output" else [])):
            folder.mkdir()
            (folder / "journal").write_text("mine")
        return contents(out.parent)

    seen = set()
    for change in itertools.count():
        out = tmp_path / str(change) / "out"
        old = prepare(out)
        here = Path(__file__).parent
        ended = subprocess.run([sys.executable, "-c", KILLED, out, str(change), here, how], check=False)
        put_right(out)
        found = contents(out.parent)
        for name in [name for name in old if name.endswith("-mine/journal")]:
            assert found.pop(name) == old.pop(name)
        if found.get("out/file") == b"two":
            kept = {"out/gone"} if how == "update" and before == "an earlier output" else set()
            assert found.keys() == {"out/file", "out/b/other", "out/recoslip.json"} | kept
            assert found["out/b/other"] == b"two"
            assert read_manifest(out).files["file"] == storage.entry_of(b"two")
        else:
            assert found in (old, old | {name: b"" for name in found if name.endswith("/journal")})
        seen.add(found.get("out/file"))
        if ended.returncode == 0:
            break
        assert ended.returncode == -9
        write(out, "three")
        assert (out / "file").read_text() == "three"
    assert b"two" in seen
    assert 5 < change < 60


def test_what_another_output_is_written_with_is_left_alone(tmp_path):
    with writing(tmp_path / "out-2", "bench") as folder:
        folder.write("file", "two")
        write(tmp_path / "out", "one")
        put_right(tmp_path / "out")
    assert (tmp_path / "out-2" / "file").read_text() == "two"


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_or_odd_content_in_the_place_of_a_journal_stops_nothing(tmp_path):
    for name, content in ((".out-a", None), (".out-b", storage.HEADER + "\n[1]\n7\n"), (".out-c", b"\xff")):
        (tmp_path / name).mkdir()
        if content is None:
            os.mkfifo(tmp_path / name / "journal")
        else:
            (tmp_path / name / "journal").write_bytes(content if isinstance(content, bytes) else content.encode())
    write(tmp_path / "out", "one")
    assert [path.name for path in sorted(tmp_path.iterdir())] == [".out-a", ".out-b", ".out-c", "out"]


def test_a_single_file_is_written_once_or_again_by_the_process_that_wrote_it(tmp_path):
    path = tmp_path / "table.csv"
    write_new(path, "one")
    write_new(path, "two")  # a notebook's cell that is run twice
    assert path.read_text() == "two"
    path.write_text("by hand")
    with pytest.raises(RecoslipError, match="is there already"):
        write_new(path, "three")
    assert path.read_text() == "by hand"
    storage.forget_outputs()
    with pytest.raises(RecoslipError, match="is there already; choose another name, or move it away"):
        write_new(path, "three")
    with pytest.raises(RecoslipError, match="is a folder"):
        write_new(tmp_path, "three")
    path.rename(tmp_path / "moved")
    write_new(path, "three")
    assert sorted(contents(tmp_path)) == ["moved", "table.csv"]


def test_a_file_system_without_hard_links_gets_the_same_files(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_new(tmp_path / "a", "one")
    (tmp_path / "b").write_text("mine")
    with pytest.raises(RecoslipError, match="is there already"):
        write_new(tmp_path / "b", "one")
    assert contents(tmp_path) == {"a": b"one", "b": b"mine"}


def test_an_input_is_never_within_the_output(tmp_path):
    write(tmp_path / "out", "one")
    for name in ("out", "out/file", "out/deeper/still"):
        with pytest.raises(RecoslipError, match="is or holds an input"):
            check_output(tmp_path / "out", "bench", replace=True, inputs=[tmp_path / name])
    check_output(tmp_path / "out", "bench", replace=True, inputs=[tmp_path, tmp_path / "other"])


HOLD = """
import sys
from recoslip.base.files import output_lock
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
from recoslip.base.errors import RecoslipError
from recoslip.base.files import writing
for turn in range(40):
    try:
        with writing(sys.argv[1], "bench", replace=True) as folder:
            folder.write("a", f"{sys.argv[2]} {turn}")
            folder.write("b", f"{sys.argv[2]} {turn}")
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
        check_output(tmp_path / "circle", "bench", replace=True)


def test_want_of_space_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(RecoslipError, match="MiB are free there; make room"):
        check_output(tmp_path / "out", "bench", size=2**62)
    assert not any(tmp_path.iterdir())


def test_a_name_that_is_not_utf_8_is_written_to_and_shown(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    write(folder, "one")
    with pytest.raises(RecoslipError, match=r"caf\\xe9 is not empty"):
        write(folder, "two", replace=False)
