"""What one training of a detector has learned <-> a safetensors file; what it depends on -> a fingerprint."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from sklearn.base import clone

from recoslip._version import __version__
from recoslip.detectors.base import Detector
from recoslip.errors import ModelFileError
from recoslip.graph.split import Mask, Split
from recoslip.storage import printable


def pack_learned(detector: Detector, attributes: dict[str, Any]) -> bytes:
    """Turn learned attributes into the content of a safetensors file, in which numbers are JSON."""
    fitted = clone(detector)
    fitted.__dict__.update(attributes)
    values, tensors = fitted._pack()
    numbers = json.dumps({"seed": attributes["seed_"], "values": values}).encode()
    own = {"scores_": torch.from_numpy(attributes["scores_"]), "json_": torch.tensor([*numbers], dtype=torch.uint8)}
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in (own | tensors).items()})


def unpack_learned(detector: Detector, features: int, content: bytes) -> dict[str, Any]:
    """Turn what `pack_learned` returned back into the learned attributes, of a graph with so many features."""
    tensors = load(content)
    numbers = json.loads(tensors.pop("json_").numpy().tobytes())
    attributes = {"seed_": numbers["seed"], "scores_": tensors.pop("scores_").numpy()}
    fitted = clone(detector)
    fitted.__dict__.update(attributes | {"n_features_in_": features})
    attributes |= fitted._unpack(numbers["values"], tensors)
    return attributes


def read_learned(detector: Detector, features: int, path: Path) -> dict[str, Any]:
    """Read the learned attributes from a file."""
    try:
        return unpack_learned(detector, features, path.read_bytes())
    except (OSError, SafetensorError, LookupError, ValueError, RuntimeError) as problem:
        raise ModelFileError(
            f"{printable(path)} is damaged ({type(problem).__name__}: {problem}); delete it and start again"
        ) from problem


def fingerprint(detector: Detector, graph: bytes, is_target: Mask, split: Split, seed: int) -> str:
    """Hash what a training depends on: version, settings, graph (by a digest of it), domains, split and seed."""
    settings = {name: value for name, value in detector.json_params().items() if name != "device"}
    digest = hashlib.sha256(json.dumps([__version__, detector.name, settings, seed], sort_keys=True).encode())
    for part in (graph, is_target.tobytes(), split.train.tobytes(), split.validation.tobytes(), split.test.tobytes()):
        digest.update(part)
    return digest.hexdigest()[:16]
