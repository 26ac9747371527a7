"""The one reader of JSON files: what lies in the place of a file is read or refused, at once."""

import json
import os
import sys

import pytest

from recoslip.base.json_files import JsonFileError, read_json


@pytest.mark.parametrize("value", [{}, {"a": [1, 2.5, None, "é", {"b": []}]}, {"names": ["[", "{", '"[', "\\"]}])
def test_a_value_comes_back(value, tmp_path):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        (tmp_path / "a.json").write_text(text, encoding="utf-8")
        assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must hold an object, and holds list"),
        (b"null", "must hold an object"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": \xff}', "cannot be read"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'"' + b"a" * 1_000_000, "not JSON"),
    ],
    ids=range(9),
)
def test_other_content_is_refused(content, reason, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(JsonFileError, match=reason):
        read_json(tmp_path / "a.json")


def test_no_file_is_said_to_be_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "a.json")


def test_what_is_no_file_is_refused_without_being_opened(tmp_path):
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    places = ["folder.json"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.json")  # whoever opened it would wait for a writer
        places.append("pipe.json")
    if sys.platform != "win32":  # links need a right there
        for name in ("real", "link to link", "nowhere"):
            (tmp_path / f"link to {name}.json").symlink_to(f"{name}.json")
            places.append(f"link to {name}.json")
    for name in places:
        with pytest.raises(JsonFileError, match="not a file"):
            read_json(tmp_path / name)
