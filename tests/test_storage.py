import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import recoslip
from recoslip import RecoSlip
from recoslip.detectors.model_file import checksum
from recoslip.errors import ModelFileError, RecoslipError
from recoslip.storage import atomic_folder


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
    fitted = RecoSlip(epochs=6, hidden_channels=8, max_fpr=1.0, restarts=2).fit(graph, split)
    fitted.save(tmp_path / "m")
    again = recoslip.load(tmp_path / "m")
    assert again.candidates_.equals(fitted.candidates_)
    assert again.history_.equals(fitted.history_)
    assert again.threshold_ == fitted.threshold_


def test_a_saved_detector_is_json_and_safetensors_alone(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "model.safetensors"]
    json.loads((saved / "model.json").read_text())
    assert load_file(saved / "model.safetensors")


def test_saving_again_replaces_and_foreign_folders_are_left_alone(saved, tmp_path):
    recoslip.load(saved).save(saved)
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.txt").write_text("do not lose")
    for name in ("model.json", "more.txt"):
        (other / name).write_text("{}")
        with pytest.raises(RecoslipError, match="which is not ours"):
            recoslip.load(saved).save(other)
    assert (other / "thesis.txt").read_text() == "do not lose"


def test_a_home_folder_is_found_and_guarded(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    recoslip.load("~/model").save("~/again")
    assert (tmp_path / "again" / "model.json").is_file()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("do not lose")
    with pytest.raises(RecoslipError, match="which is not ours"):
        recoslip.load(saved).save("~/precious")


def test_settings_from_numpy_are_saved(graph, split, tmp_path):
    settings = {"epochs": np.int64(4), "max_fpr": np.float64(1.0), "recall_targets": np.array([0.1, 0.2])}
    RecoSlip(**settings).fit_seeds(graph, np.arange(2), split)[1].save(tmp_path / "m")
    assert recoslip.load(tmp_path / "m").recall_targets == (0.1, 0.2)


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
        recoslip.load(saved)


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
