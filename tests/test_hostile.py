"""Saved detectors that are damaged, or no saved detectors at all: refused with a reason, and nothing is run."""

import ast
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sealed import seal

import recoslip
from recoslip import detector
from recoslip.base.errors import ModelFileError
from recoslip.data.datasets.load import load_dataset
from recoslip.learning.methods import DETECTORS
from recoslip.learning.saving import FORMAT_VERSION

QUICK = {"epochs": 3, "prior_epochs": 2, "em_steps": 2, "device": "cpu"}
QUICK |= {"hidden_channels": 3, "out_channels": 3, "head_channels": 3, "categories": 3, "negatives_per_edge": 2}
FILES = ("model.json", "model.safetensors")
CLASSES = [name for name, method in DETECTORS.items() if not method.presets]  # other names only preset a setting


@pytest.fixture(scope="module")
def small_graph():
    return load_dataset("csbm", nodes=40, categories=4, features=4, split_seed=1).graph


@pytest.fixture(scope="module")
def originals(small_graph, tmp_path_factory):
    """One saved detector of each class."""
    folder = tmp_path_factory.mktemp("originals")
    novel = small_graph.is_target & (small_graph.x[:, 0] > 0)
    for name in CLASSES:
        known = detector(name).get_params()
        method = detector(name, **{key: value for key, value in QUICK.items() if key in known})
        method.fit(small_graph, **({"novel": novel} if method.requires_truth else {})).save(folder / name)
    return folder


@pytest.fixture(params=CLASSES)
def saved(request, originals, tmp_path):
    return shutil.copytree(originals / request.param, tmp_path / "model")


@pytest.fixture
def one(originals, tmp_path):
    """A saved detector of the default kind."""
    return shutil.copytree(originals / "reco-slip-plus", tmp_path / "model")


@pytest.fixture(autouse=True)
def nothing_is_unpickled(monkeypatch):
    def never(*_, **__):
        raise AssertionError("a file was unpickled")

    for module, names in ((torch, ["load"]), (pickle, ["load", "loads", "Unpickler"]), (np, ["load"])):
        for name in names:
            monkeypatch.setattr(module, name, never)


def refused(folder):
    with pytest.raises(ModelFileError) as caught:
        recoslip.load_detector(folder)
    assert len(str(caught.value)) > 30


def sealed(folder, **changes):
    """Change the document of a saved detector, and give it a manifest that fits."""
    document = json.loads((folder / "model.json").read_text()) | changes
    (folder / "model.json").write_text(json.dumps(document))
    seal(folder)


def test_a_flipped_bit_is_noticed_wherever_it_is(saved):
    for name in FILES:
        path = saved / name
        content = path.read_bytes()
        for place in np.linspace(0, len(content) - 1, 40).astype(int).tolist():
            bad = bytearray(content)
            bad[place] ^= 1 << place % 8
            path.write_bytes(bad)
            refused(saved)
        path.write_bytes(content)
    recoslip.load_detector(saved)


def test_a_cut_file_is_noticed_wherever_it_ends(saved):
    for name in FILES:
        content = (saved / name).read_bytes()
        for length in np.linspace(0, len(content) - 2, 15).astype(int).tolist():
            (saved / name).write_bytes(content[:length])
            refused(saved)
        (saved / name).write_bytes(content)


def test_more_at_the_end_is_noticed(one):
    for name in FILES:
        content = (one / name).read_bytes()
        (one / name).write_bytes(content + b"\0" * 8)
        refused(one)
        (one / name).write_bytes(content)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "NaN", '"x"', "null", "\ufeff{}", ""])
def test_json_that_is_deep_or_no_object_is_refused(one, text):
    (one / "model.json").write_text(text)
    refused(one)


def test_other_versions_are_named(one):
    for version in (FORMAT_VERSION - 1, FORMAT_VERSION + 1):
        sealed(one, format_version=version)
        with pytest.raises(ModelFileError, match=f"has format version {version}, this recoslip reads {FORMAT_VERSION}"):
            recoslip.load_detector(one)


def first(header):
    """What the header of a safetensors file says of its first array."""
    return next(header[name] for name in sorted(header) if name != "__metadata__")


@pytest.mark.parametrize(
    "change",
    [
        lambda header: first(header).update(data_offsets=[0, 2**40]),
        lambda header: first(header).update(data_offsets=[8, 16]),
        lambda header: first(header).update(data_offsets=[-8, 0]),
        lambda header: first(header).update(dtype="F7"),
        lambda header: first(header).update(shape=[2**33, 2**33]),
        lambda header: header.update(__metadata__={"a": 1}),
        lambda header: header.clear(),
    ],
)
def test_tensors_that_lie_about_themselves_are_refused_though_the_checksum_fits(one, change):
    path = one / "model.safetensors"
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    change(header)
    text = json.dumps(header).encode()
    for forged in (len(text).to_bytes(8, "little") + text + content[end:], content[:20], b"", b"\xff" * 8):
        path.write_bytes(forged)
        sealed(one)
        refused(one)


@pytest.mark.parametrize("name", ["../reco-slip", "/etc/passwd", "os.system", "reco_slip", "", "a" * 10_000])
def test_names_that_lead_elsewhere_are_no_detectors(one, name):
    sealed(one, detector=name)
    refused(one)


@pytest.mark.parametrize("name", FILES)
def test_links_folders_pipes_and_devices_are_no_files(one, tmp_path, name):
    path, elsewhere = one / name, tmp_path / "elsewhere"
    path.rename(elsewhere)
    refused(one)
    makers = [
        lambda: path.symlink_to(elsewhere),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to("/proc/self/environ"),
        lambda: path.symlink_to(path.name),
        lambda: path.symlink_to("nowhere"),
        path.mkdir,
        lambda: os.mkfifo(path),
    ]
    for make in makers:
        make()
        refused(one)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    with pytest.raises(ModelFileError):
        recoslip.load_detector(elsewhere)  # a file where the folder should be


def test_pickles_are_not_read_whatever_they_are_called(one):
    class Trap:
        def __reduce__(self):
            return os.system, ("touch /tmp/recoslip-was-here",)

    trap = pickle.dumps(Trap())
    for name in FILES:
        content = (one / name).read_bytes()
        (one / name).write_bytes(trap)
        refused(one)
        (one / name).write_bytes(content)
    assert not Path("/tmp/recoslip-was-here").exists()


def test_the_source_never_unpickles_or_evaluates():
    forbidden = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
    reading_nothing = {"Parallel", "delayed", "parallel_config", "hash"}  # of joblib
    for path in Path(recoslip.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if (alias.name, alias.asname) != ("joblib", None)]
            elif isinstance(node, ast.ImportFrom):
                is_harmless = node.module == "joblib" and {alias.name for alias in node.names} <= reading_nothing
                names = [] if is_harmless else [node.module or ""]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "joblib":
                assert node.attr in reading_nothing, path
            assert not forbidden & {name.partition(".")[0] for name in names}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                given = {k.arg: ast.unparse(k.value) for k in node.keywords}
                allowed = given.get("allow_pickle")
                assert called not in ("eval", "exec", "numpy.load"), (path, called)
                assert called != "torch.load" or given.get("weights_only") == "True", path  # which runs no code
                assert allowed in (None, "False"), path
                assert called != "np.load" or allowed == "False", path
