"""What detectors learned <-> JSON values and arrays, whatever the class; and the files that hold them."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from recoslip.base import files
from recoslip.base.errors import ModelFileError
from recoslip.base.json_files import read_json
from recoslip.base.settings import json_params
from recoslip.data.split import Split

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

FORMAT, FORMAT_VERSION = "recoslip-detector", 9
DOCUMENT, ARRAYS = "model.json", "model.safetensors"
TABLE = "table"  # the part that holds a data frame, as the bytes of an Arrow file


def save(
    fits: Sequence[Any],
    folder: str | os.PathLike[str],
    values: Mapping[str, Any] | None = None,
    arrays: Arrays | None = None,
) -> None:
    """Write fitted detectors of one class; a saved detector in the folder is replaced.

    Args:
        fits: one, or several of the same graph.
        folder: to write.
        values: further JSON values.
        arrays: further arrays, by name.
    """
    check_is_fitted(fits[0], "scores_")
    with files.writing(folder, "model", replace=True) as written:
        for name, content in contents(fits, values, arrays).items():
            written.write(name, content)


def save_below(written: files.Folder, name: str, content: Mapping[str, bytes]) -> None:
    """Write what `contents` returned, and a manifest of it, into a folder within one that is being written."""
    manifest = files.Manifest("model", {file: files.entry_of(data) for file, data in content.items()})
    for file, data in {**content, files.MANIFEST: manifest.content()}.items():
        written.write(f"{name}/{file}", data)


def contents(fits: Sequence[Any], values: Mapping[str, Any] | None, arrays: Arrays | None) -> dict[str, bytes]:
    """Return the content of each file that `save` writes, by its name."""
    packed = [pack(fit) for fit in fits]
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "detector": fits[0].name,
        "settings": json_params(fits[0]),
        "fits": [own | {"random_state": fit.random_state} for fit, (own, _) in zip(fits, packed, strict=True)],
        "values": values or {},
    }
    stored = {f"{k}.{name}": array for k, (_, own) in enumerate(packed) for name, array in own.items()}
    stored |= {f"more.{name}": array for name, array in (arrays or {}).items()}
    document["same"] = _stored_elsewhere(stored)
    own = {name: np.ascontiguousarray(array) for name, array in stored.items() if name not in document["same"]}
    return {ARRAYS: save_arrays(own), DOCUMENT: json.dumps(document, indent=1).encode() + b"\n"}


def pack(fitted: BaseEstimator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what a detector learned as JSON values and arrays, whatever it is."""
    values: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name in (field.name for field in fields(fitted) if "learned" in field.metadata and hasattr(fitted, field.name)):
        value = getattr(fitted, name)
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, Split):
            arrays |= {f"{name}.{subset.name}": getattr(value, subset.name) for subset in fields(value)}
        elif isinstance(value, pl.DataFrame):
            arrays[f"{name}.{TABLE}"] = np.frombuffer(value.write_ipc(None).getvalue(), np.uint8)
        elif hasattr(value, "state_dict"):  # networks
            arrays |= {f"{name}.{key}": tensor.detach().cpu().numpy() for key, tensor in value.state_dict().items()}
        elif hasattr(value, "arrays"):
            arrays |= {f"{name}.{key}": array for key, array in value.arrays().items()}
        else:
            values[name] = value
    return values, arrays


def unpack(empty: Any, values: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the learned attributes that `pack` was given; they are set on the unfitted detector, too."""
    names = [field.name for field in fields(empty) if "learned" in field.metadata]
    learned = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items() if name in names}
    learned |= {name: array for name, array in arrays.items() if name in names}
    parts = {name: own for name in names if (own := below(f"{name}.", arrays))}
    learned |= {name: pl.read_ipc(own[TABLE].tobytes()) for name, own in parts.items() if own.keys() == {TABLE}}
    empty.__dict__.update(learned)  # what the others are rebuilt with
    for name in parts.keys() - learned.keys():
        made = Split(**parts[name]) if name == "split_" else empty._restored(name, parts[name])
        learned[name] = empty.__dict__[name] = made
    return learned


def below(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Select the arrays whose names begin with `prefix`, and remove it from their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def read(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read document and arrays; raise ModelFileError unless they are whole and of this format."""
    path = Path(folder).expanduser()
    files.put_right(path)
    for name in (DOCUMENT, ARRAYS):
        if not (path / name).exists():
            raise ModelFileError(
                f"{folder} is not a saved detector: {name} is missing; give the folder that save wrote"
            )
        if (path / name).is_symlink() or not (path / name).is_file():
            raise ModelFileError(
                f"{folder}/{name} must be a file; it is a link, a folder or a device, copy the file there"
            )
    try:
        document = read_json(path / DOCUMENT)
    except (OSError, ValueError) as problem:
        raise ModelFileError(f"{folder} cannot be read, it is truncated or not recoslip's: {problem}") from problem
    if document.get("format") != FORMAT:
        raise ModelFileError(f'{folder}/{DOCUMENT} is not recoslip\'s (expected "format": "{FORMAT}")')
    if document.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{folder} has format version {document.get('format_version')!r}, this recoslip reads "
            f"{FORMAT_VERSION}; use the recoslip version that wrote it, or fit again"
        )
    try:
        files.check_manifest(path, "model")
    except files.ManifestError as problem:
        raise ModelFileError(f"{folder} is not what was saved: {problem}; copy or fit it again") from problem
    arrays = load_arrays((path / ARRAYS).read_bytes())
    return document, arrays | {name: arrays[other] for name, other in document["same"].items()}


def _stored_elsewhere(arrays: Arrays) -> dict[str, str]:
    """Return the arrays that are the same memory as an earlier one, which several fits share, with its name."""
    first: dict[tuple[int, ...], str] = {}
    places = {key: (a.ctypes.data, *a.strides, *a.shape) for key, a in arrays.items() if a.size}
    return {key: name for key, place in places.items() if (name := first.setdefault(place, key)) != key}
