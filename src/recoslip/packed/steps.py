"""A step of packing -> its files and its result, or None if it has to be done (again)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recoslip.json_files import JsonFileError, read_json
from recoslip.packed.format import checksum, is_plain_file, remove
from recoslip.storage import atomic_write


@dataclass(frozen=True)
class Step:
    """A step of packing, which an interrupted call may have completed.

    Args:
        record: file that says that the step was completed: its result, and the size and checksum of its files.
    """

    record: Path

    def result(self) -> Any:
        """Return the result if the step was completed and its record and files are undamaged, else None."""
        try:
            content, expected = read_json(self.record, kind=list)
            if zlib.crc32(json.dumps(content).encode()) != expected:
                return None
            result, files = content
        except (FileNotFoundError, JsonFileError, TypeError, ValueError):
            return None
        return result if all(_describe(self.record.parent / file[0]) == file for file in files) else None

    def complete(self, result: Any, files: Iterable[Path]) -> Any:
        """Record that the step is completed with this result and these files; return the result."""
        content = [result, [_describe(file) for file in files]]
        remove(self.record)
        atomic_write(self.record, json.dumps([content, zlib.crc32(json.dumps(content).encode())]))
        return result


def _describe(path: Path) -> list[Any]:
    """Return the name, size and checksum of a file; a file that is missing or not plain has none."""
    if not is_plain_file(path):
        return [path.name, None, None]
    return [path.name, path.stat().st_size, checksum(path)]
