"""What a detector is set to and has learned <-> a folder of JSON and safetensors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from recoslip.base.errors import ModelFileError
from recoslip.base.files import MANIFEST, Folder, Manifest, ManifestError, check_manifest, entry_of, put_right
from recoslip.base.json_files import read_json
from recoslip.data.split import Split

Array: TypeAlias = NDArray[Any]

FORMAT, FORMAT_VERSION = "recoslip-detector", 6
DOCUMENT, ARRAYS = "model.json", "model.safetensors"
FILES = (DOCUMENT, ARRAYS)
SPLIT = ("train", "validation", "test")


class SavedDetector(NamedTuple):
    """A folder's content."""

    name: str  # of the detector in the registry
    settings: dict[str, Any]
    attributes: dict[str, Any]  # that every fitted detector has
    rotations: list[dict[str, Any]]  # where hiding rotated, those that differ from fit to fit
    learned: list[tuple[dict[str, Any], dict[str, Array]]]  # what detectors of this class learned besides, by fit


def write(
    folder: Folder,
    below: str,
    name: str,
    settings: Mapping[str, Any],
    attributes: Mapping[str, Any],
    rotations: Sequence[Mapping[str, Any]],
    learned: Sequence[tuple[Mapping[str, Any], Mapping[str, Array]]],
) -> None:
    """Write a fitted detector; the arguments are the fields of `SavedDetector`.

    Within a folder of something else, all names begin with `below`, and a manifest of the detector's own is written.
    """
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
        "has_edges": attributes["has_edges_"],
        "has_weights": attributes["has_weights_"],
        "transferred": attributes["transferred_"],
        "rotations": [{"seed": rotation["seed_"], "threshold": rotation["threshold_"]} for rotation in rotations],
        "learned": [values for values, _ in learned],
    }
    stored = {f"{k}.{key}": array for k, (_, arrays) in enumerate(learned) for key, array in arrays.items()}
    for prefix, fit in (("", attributes), *((f"rotation.{k}.", fit) for k, fit in enumerate(rotations))):
        stored |= {f"{prefix}{key}": fit[f"{key}_"] for key in ("scores", "calibration")}
        stored |= {f"{prefix}split.{subset}": getattr(fit["split_"], subset) for subset in SPLIT}
    per_node = ("is_target", "region", "node", *(["similarity"] if "similarity_" in attributes else []))
    stored |= {key: attributes[f"{key}_"] for key in per_node}
    document["same"] = _stored_elsewhere(stored)
    own = {key: np.ascontiguousarray(array) for key, array in stored.items() if key not in document["same"]}
    content = {ARRAYS: save(own), DOCUMENT: json.dumps(document, indent=1).encode() + b"\n"}
    if below:
        manifest = Manifest("model", {file: entry_of(data) for file, data in content.items()})
        content[MANIFEST] = manifest.content()
    for file, data in content.items():
        folder.write(f"{below}{file}", data)


def read(folder: str | os.PathLike[str]) -> SavedDetector:
    """Read what `write` wrote; raise ModelFileError unless it is whole and of this format.

    What the checksum fits is trusted; another version of recoslip may have written it all the same, so that KeyError,
    TypeError or ValueError can be raised.
    """
    path = Path(folder).expanduser()
    put_right(path)
    _check_files(folder, path)
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
        check_manifest(path, "model")
    except ManifestError as problem:
        raise ModelFileError(f"{folder} is not what was saved: {problem}; copy or fit it again") from problem
    arrays = load((path / ARRAYS).read_bytes())
    arrays |= {key: arrays[other] for key, other in document["same"].items()}
    names = document["feature_names"]
    attributes = _of_fit("", document, arrays) | {
        "is_target_": arrays["is_target"],
        "region_": arrays["region"],
        "calibrated_": document["calibrated"],
        "n_features_in_": document["features"],
        "feature_names_in_": None if names is None else tuple(names),
        "encoding_": document["encoding"],
        "node_": arrays["node"],
        "has_edges_": document["has_edges"],
        "has_weights_": document["has_weights"],
        "transferred_": document["transferred"],
    }
    if "similarity" in arrays:
        attributes["similarity_"] = arrays["similarity"]
    rotations = [_of_fit(f"rotation.{k}.", fit, arrays) for k, fit in enumerate(document["rotations"])]
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in document["settings"].items()}
    learned = [
        (values, {key.removeprefix(f"{k}."): t for key, t in arrays.items() if key.startswith(f"{k}.")})
        for k, values in enumerate(document["learned"])
    ]
    return SavedDetector(document["detector"], settings, attributes, rotations, learned)


def _stored_elsewhere(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Return the arrays that are the same memory as an earlier one, which several fits share, with its name."""
    first: dict[tuple[int, ...], str] = {}
    places = {key: (a.ctypes.data, *a.strides, *a.shape) for key, a in arrays.items() if a.size}
    return {key: name for key, place in places.items() if (name := first.setdefault(place, key)) != key}


def _of_fit(prefix: str, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the attributes that differ between fits of one detector."""
    return {
        "scores_": arrays[f"{prefix}scores"],
        "calibration_": arrays[f"{prefix}calibration"],
        "split_": Split(*(arrays[f"{prefix}split.{subset}"] for subset in SPLIT)),
        "seed_": document["seed"],
        "threshold_": float(document["threshold"]),
    }


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


def arrays_below(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Select the arrays whose names begin with `prefix`, and remove it from their names."""
    found = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if not found:
        raise ModelFileError(f"no arrays named {prefix}*")
    return found
