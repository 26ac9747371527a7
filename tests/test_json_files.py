"""The one reader of JSON files: what anybody may have put in the place of a file is read or refused, at once."""

import json
import os
import sys

import pytest

from recoslip import json_files
from recoslip.json_files import JsonFileError, read_json


@pytest.mark.parametrize(
    "value",
    [{}, {"a": [1, 2.5, None, "é", {"b": []}]}, {"names": ["[", "{", '"[', "\\", '\\"{['] * 100}, {"x": "]" * 1000}],
)
def test_a_value_comes_back(value, tmp_path):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        (tmp_path / "a.json").write_text(text, encoding="utf-8")
        assert read_json(tmp_path / "a.json") == value


def test_a_list_comes_back(tmp_path):
    (tmp_path / "a.json").write_text("[1, [2]]")
    assert read_json(tmp_path / "a.json", kind=list) == [1, [2]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must hold an object, and holds list"),
        (b"null", "must hold an object"),
        (b"true", "must hold an object"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": \xff}', "cannot be read"),
        (b"\xff\xfe{\x00}\x00", "cannot be read"),
        (b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}", "nested more than 64 deep"),
        (b"[" * 10_000_000, "nested more than 64 deep"),
        (b'{"a":' * 100_000, "nested more than 64 deep"),
        (b'"' + b"a" * 1_000_000, "not JSON"),
        (b'"' + b"\\\\" * 1_000_000, "not JSON"),
    ],
    ids=range(13),
)
def test_other_content_is_refused(content, reason, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(JsonFileError, match=reason):
        read_json(tmp_path / "a.json")


def test_a_folder_and_a_file_that_is_too_large_are_refused(tmp_path, monkeypatch):
    with pytest.raises(JsonFileError):
        read_json(tmp_path)
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(json_files.MAX_BYTES + 1)  # takes no room on the disk
    with pytest.raises(JsonFileError, match=r"1,073,741,825 bytes, and 1,073,741,824 are the most"):
        read_json(tmp_path / "a.json")


def test_no_file_is_said_to_be_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "a.json")
    (tmp_path / "file").touch()
    with pytest.raises(JsonFileError, match="cannot be opened"):
        read_json(tmp_path / "file" / "a.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(JsonFileError, match="a pipe or a device"):
        read_json(tmp_path / "a.json")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "real.json").write_text("{}")
    for target in ("real.json", "a.json", "nowhere.json"):
        (tmp_path / "a.json").symlink_to(target)
        with pytest.raises(JsonFileError, match="it is a link"):
            read_json(tmp_path / "a.json")
        (tmp_path / "a.json").unlink()


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "a.json").write_text("[" * 100)
    for _ in range(3000):
        with pytest.raises(JsonFileError):
            read_json(tmp_path / "a.json")
        with pytest.raises(JsonFileError):
            read_json(tmp_path)
