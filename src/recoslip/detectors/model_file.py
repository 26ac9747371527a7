"""What a detector is set to and has learned <-> a folder of JSON and safetensors, checked on the way back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from recoslip.detectors.params import Number, Whole
from recoslip.errors import ModelFileError
from recoslip.json_files import read_json
from recoslip.shift import Split
from recoslip.storage import atomic_folder

FORMAT, FORMAT_VERSION = "recoslip-detector", 3
DOCUMENT, TENSORS = "model.json", "model.safetensors"
FILES = (DOCUMENT, TENSORS)
SPLIT = ("train", "validation", "test")
LOWEST_THRESHOLD = -5e-324  # below every score: all target nodes are listed


class SavedDetector(NamedTuple):
    """A folder's content."""

    name: str  # of the detector in the registry
    settings: dict[str, Any]
    attributes: dict[str, Any]  # that every fitted detector has
    values: dict[str, Any]  # what detectors of this class learned besides
    tensors: dict[str, Tensor]


def write(
    folder: str | os.PathLike[str],
    name: str,
    settings: Mapping[str, Any],
    attributes: Mapping[str, Any],
    values: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a fitted detector; the arguments are the fields of `SavedDetector`."""
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "detector": name,
        "settings": settings,
        "seed": attributes["seed_"],
        "threshold": attributes["threshold_"],
        "calibrated": attributes["calibrated_"],
        "features": attributes["n_features_in_"],
        "feature_names": attributes["feature_names_in_"],
        "encoding": attributes["encoding_"],
        "learned": values,
    }
    stored = dict(tensors) | {
        "scores": torch.from_numpy(attributes["scores_"]),
        "is_target": torch.from_numpy(attributes["is_target_"]),
        "calibration": torch.from_numpy(attributes["calibration_"]),
        **{f"split.{subset}": torch.from_numpy(getattr(attributes["split_"], subset).copy()) for subset in SPLIT},
    }
    with atomic_folder(folder, ours=FILES, replace=True) as temporary:
        content = save({key: t.detach().cpu().contiguous() for key, t in stored.items()})
        (temporary / TENSORS).write_bytes(content)  # safetensors takes no path that is not UTF-8
        document["sha256"] = checksum(document, temporary / TENSORS)
        (temporary / DOCUMENT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read(folder: str | os.PathLike[str]) -> SavedDetector:
    """Read what `write` wrote; raise ModelFileError unless it is whole and of this format.

    Raises KeyError, TypeError or ValueError where the checksum is right but the content does not fit together.
    """
    path = Path(folder).expanduser()
    _check_files(folder, path)
    try:
        document = read_json(path / DOCUMENT)
        tensors = load((path / TENSORS).read_bytes())
        found = checksum(document, path / TENSORS)
    except (OSError, ValueError, SafetensorError) as problem:
        raise ModelFileError(f"{folder} cannot be read, it is truncated or not recoslip's: {problem}") from problem
    if document.get("format") != FORMAT:
        raise ModelFileError(f'{folder}/{DOCUMENT} is not recoslip\'s (expected "format": "{FORMAT}")')
    if document.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{folder} has format version {document.get('format_version')!r}, this recoslip reads "
            f"{FORMAT_VERSION}; use the recoslip version that wrote it, or fit again"
        )
    if document.get("sha256") != found:
        raise ModelFileError(
            f"{folder} is damaged: it is not what was saved (its checksum differs); copy or fit it again"
        )
    _check_content(document, tensors)
    names = document["feature_names"]
    attributes = {
        "scores_": tensors["scores"].numpy(),
        "is_target_": tensors["is_target"].numpy(),
        "calibration_": tensors["calibration"].numpy(),
        "split_": Split(*(tensors[f"split.{subset}"].numpy() for subset in SPLIT)),
        "seed_": document["seed"],
        "threshold_": float(document["threshold"]),
        "calibrated_": document["calibrated"],
        "n_features_in_": document["features"],
        "feature_names_in_": None if names is None else tuple(names),
        "encoding_": document["encoding"],
    }
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in document["settings"].items()}
    return SavedDetector(document["detector"], settings, attributes, document["learned"], tensors)


def _check_files(folder: str | os.PathLike[str], path: Path) -> None:
    for name in FILES:
        if not (path / name).exists():
            raise ModelFileError(
                f"{folder} is not a saved detector: {name} is missing; give the folder that save wrote"
            )
        if (path / name).is_symlink() or not (path / name).is_file():
            raise ModelFileError(
                f"{folder}/{name} must be a file; it is a link, a folder or a device, copy the file there"
            )


def _check_content(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise unless what every detector stores has the types and sizes it is saved with."""
    kinds = {"settings": dict, "learned": dict, "threshold": float, "calibrated": bool, "features": int, "seed": int}
    for name, kind in kinds.items():
        if type(document[name]) is not kind:
            raise TypeError(f"{name} must be {kind.__name__}, got {document[name]!r}")
    Whole(0, 2**63 - 1)("seed", document["seed"])
    Whole(1)("features", document["features"])
    Number(LOWEST_THRESHOLD, 1)("threshold", document["threshold"])
    names, encoding = document["feature_names"], document["encoding"]
    if names is not None and (type(names) is not list or len(names) != document["features"]):
        raise TypeError(f"feature_names must be a list of {document['features']}")
    if names is not None and not all(type(name) is str for name in names):
        raise TypeError("feature_names must be texts")
    if encoding is not None and not (
        type(encoding) is dict and all(type(statistics) is str for statistics in encoding.values())
    ):
        raise TypeError("encoding must give a text for each column")
    scores = tensors["scores"]
    if scores.ndim != 1 or scores.dtype != torch.float64 or not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError("scores must be numbers between 0 and 1, one per node")
    for name in ("is_target", "calibration", *(f"split.{subset}" for subset in SPLIT)):
        if tensors[name].dtype != torch.bool or tensors[name].shape != scores.shape:
            raise ValueError(f"{name} must say true or false, once per node")


def checksum(document: Mapping[str, Any], tensors: Path) -> str:
    """Hash a saved detector, all but the hash itself. It detects damage, not malice: an attacker can hash as well."""
    with tensors.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    content = {name: value for name, value in document.items() if name != "sha256"}
    digest.update(json.dumps(content, sort_keys=True).encode())
    return digest.hexdigest()


def tensors_below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the tensors whose names begin with `prefix`, and remove it from their names."""
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not found:
        raise ModelFileError(f"no tensors named {prefix}*")
    return found
