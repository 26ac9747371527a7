"""NodeGraph -> scores: what every detector has in common."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from polars.exceptions import PolarsError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from torch import Tensor

from recoslip.detectors import checks
from recoslip.errors import Diverged, GraphError, ModelFileError, OutOfMemory, RecoslipWarning, SettingError
from recoslip.fleet.bits import derive
from recoslip.fleet.device import resolve_device
from recoslip.graph import NodeGraph
from recoslip.objectives import conformal
from recoslip.shift import Mask, Split, hide
from recoslip.storage import whole_folder

Scores: TypeAlias = NDArray[np.float64]
Progress: TypeAlias = Callable[[int, int], None]  # (steps done, steps in all)

FORMAT, FORMAT_VERSION = "recoslip-detector", 2
FILES = ("model.json", "model.safetensors")
WANTS_MEMORY = re.compile("out of memory|not enough memory|allocate memory|alloc_failed", re.IGNORECASE)
RESTARTS = 2  # from other seeds, where training diverged


class Detector(BaseEstimator, ABC):  # type: ignore[misc]
    """A method that scores nodes by novelty: scikit-learn's parameters, `fit`, and attributes that end in `_`.

    Scores lie in [0, 1], higher is more novel, one per node in the graph's order. A subclass stores its
    constructor's arguments and nothing else, and implements the methods marked abstract.
    """

    name: ClassVar[str]  # in the registry
    paper: ClassVar[str]  # where it is from
    needs: ClassVar[str] = "features and edges"
    trains: ClassVar[bool] = True  # whether it trains a network
    tuned: ClassVar[bool] = True  # whether a bench gives it the settings that the paper chose for a dataset
    validates: ClassVar[bool] = True  # False: with calibration it learns from validation nodes as from any
    max_fpr: float
    random_state: int
    device: str

    scores_: Scores  # (nodes,) of the graph it was fitted on
    seed_: int  # that it was trained from: random_state, unless training diverged from that
    threshold_: float  # novel is greater
    is_target_: Mask  # (nodes,)
    categories_: NDArray[np.int64]  # (nodes,) set by `recoslip.analyse`
    calibration_: Mask  # (nodes,) the source nodes that p-values are measured by
    calibrated_: bool  # whether those were hidden while it learned, so that promises hold
    split_: Split
    n_features_in_: int
    feature_names_in_: tuple[str, ...] | None

    @abstractmethod
    def _check_settings(self) -> None:
        """Raise SettingError for a setting that cannot be."""

    @abstractmethod
    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        """Train one model per seed and return what each learned, its scores_ at least; change nothing on self.

        `given` is what a method's `fit` asks for beyond the graph; all but the oracle ask for nothing.
        """

    @abstractmethod
    def _score(self, graph: NodeGraph) -> Scores:
        """Score the nodes of a graph with what was learned."""

    @abstractmethod
    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what was learned beyond this class's attributes, as JSON values and tensors."""

    @abstractmethod
    def _unpack(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Turn what `_pack` gave back into learned attributes."""

    def fit(
        self,
        graph: NodeGraph,
        split: Split | None = None,
        *,
        calibration: float = 0.0,
        progress: Progress | None = None,
        **given: Any,
    ) -> Self:
        """Learn from the graph's features, edges and domains.

        Args:
            graph: true categories, if it has any, are not looked at.
            split: who trains and who validates; without one, 80/20 in each domain from `random_state`.
            calibration: share of the source nodes that are passed off as target while learning, so that p-values and
                the threshold keep their promise (docs/promises.md). 0 measures by the validation source nodes.
            progress: called with steps done and steps in all.

        An interrupted or failed fit leaves the detector unfitted.
        """
        for learned in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, learned)
        seeds = [self.random_state]
        fitted = self.fit_seeds(graph, seeds, split, calibration=calibration, progress=progress, **given)[0]
        self.__dict__.update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
        return self

    def fit_seeds(
        self,
        graph: NodeGraph,
        seeds: Sequence[int],
        split: Split | None = None,
        *,
        calibration: float = 0.0,
        progress: Progress | None = None,
        **given: Any,
    ) -> list[Self]:
        """Train one copy of this detector per seed, all together as one fleet, and return the fitted copies.

        Up to rounding, each copy is what `fit` with that `random_state` and the same split gives; with calibration, all
        hide the same nodes, those of this detector's `random_state`.
        """
        if not isinstance(graph, NodeGraph):
            raise GraphError(f"expected a NodeGraph; got {type(graph).__name__} (NodeGraph.from_pyg may help)")
        self._check_settings()
        checks.number("calibration", calibration, 0, 0.9)
        seen, split, hidden = hide(graph, split, calibration, self.random_state)
        split.check(seen)
        seeds = [seed.item() if isinstance(seed, np.generic) else seed for seed in seeds]
        copies: list[Self] = [clone(self).set_params(random_state=seed) for seed in seeds]
        for copy in copies:
            copy._check_settings()
        parts = split
        if hidden.any() and not self.validates:  # nothing is left for validation nodes to do
            parts = Split(split.train | split.validation, np.zeros_like(hidden), split.test)
        learned = self._learn_or_restart(seen, parts, seeds, progress or (lambda done, total: None), **given)
        shared = {
            "is_target_": graph.is_target.numpy().copy(),
            # D4: not f > 1/2 but the lowest threshold that keeps the FPR, see DEVIATIONS.md
            "calibration_": hidden if hidden.any() else split.validation & ~graph.is_target.numpy(),
            "calibrated_": bool(hidden.any()),
            "split_": split,
            "n_features_in_": graph.num_features,
            "feature_names_in_": graph.feature_names,
        }
        for copy, own in zip(copies, learned, strict=True):
            copy.__dict__.update(shared | own)
            rule = conformal.threshold if hidden.any() else fpr_threshold
            copy.threshold_ = rule(copy.scores_[copy.calibration_], self.max_fpr)
        return copies

    def _learn_or_restart(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **given: Any
    ) -> list[dict[str, Any]]:
        """Learn; where training diverges, find out from which seed, and let others, which follow from it, take over."""
        try:
            with memory_errors():
                learned = self._learn(graph, split, seeds, progress, **given)
            for own in learned:
                self._check_scores(own["scores_"])
            return [{"seed_": seed, **own} for seed, own in zip(seeds, learned, strict=True)]
        except Diverged as problem:
            if len(seeds) > 1:
                return [self._learn_or_restart(graph, split, [seed], progress, **given)[0] for seed in seeds]
            first = problem
        for attempt in range(1, RESTARTS + 1):
            other = int(derive(torch.tensor(seeds[0]), 97, attempt)) & (2**63 - 1)
            with contextlib.suppress(Diverged):
                (own,) = self._learn(graph, split, [other], progress, **given)
                self._check_scores(own["scores_"])
                warnings.warn(
                    RecoslipWarning(f"training diverged from seed {seeds[0]} and was begun again from seed {other}"),
                    stacklevel=4,
                )
                return [{"seed_": other, **own}]
        raise first

    def decision_function(self, graph: NodeGraph | None = None) -> Scores:
        """Score the nodes of `graph`, or of the graph it was fitted on: in [0, 1], higher is more novel."""
        self._check_fitted()
        if graph is None:
            return self.scores_.copy()
        if graph.num_features != self.n_features_in_:
            raise GraphError(
                f"this detector was fitted with {self.n_features_in_} features; the graph has {graph.num_features}"
            )
        names = self.feature_names_in_
        if names is not None and graph.feature_names is not None and names != graph.feature_names:
            own, other = next((a, b) for a, b in zip(names, graph.feature_names, strict=True) if a != b)
            raise GraphError(
                f"this detector was fitted with other features: it knows {own!r} where the graph has {other!r}; "
                "read both graphs' nodes as one table, so that they are encoded alike"
            )
        scores = self._score(graph)
        self._check_scores(scores)
        return scores

    def predict(self, graph: NodeGraph | None = None) -> Mask:
        """Say which nodes are novel: target nodes that score above `threshold_`. Source nodes are known."""
        scores = self.decision_function(graph)
        is_target = self.is_target_ if graph is None else graph.is_target.numpy()
        return (scores > self.threshold_) & is_target

    def p_values(self, graph: NodeGraph | None = None) -> Scores:
        """Return for each target node the share of known nodes that score as high, and NaN for source nodes.

        For a known node of the source's kinds and proportions P(p ≤ u) ≤ u, on the graph it was fitted on and if it was
        fitted with `calibration`; otherwise the validation source nodes stand in, whom it took for source, and nothing
        is promised.
        """
        scores = self.decision_function(graph)
        is_target = self.is_target_ if graph is None else graph.is_target.numpy()
        return np.where(is_target, conformal.p_values(scores, self.scores_[self.calibration_]), np.nan)

    def shortlist(self, fdr: float, graph: NodeGraph | None = None) -> Mask:
        """Choose target nodes of which at most a share `fdr` is expected to be known (Benjamini-Hochberg on p-values).

        The expectation holds where the known target nodes have the source's proportions; docs/promises.md says what is
        left of it where they have not.
        """
        checks.number("fdr", fdr, 0, 1)
        p = self.p_values(graph)
        chosen = ~np.isnan(p)
        chosen[chosen] = conformal.benjamini_hochberg(p[chosen], fdr)
        return chosen

    def fit_predict(self, graph: NodeGraph, split: Split | None = None) -> Mask:
        """Fit, then say which nodes are novel."""
        return self.fit(graph, split).predict()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write settings and what was learned as JSON and safetensors; a saved detector there is replaced."""
        self._check_fitted()
        values, tensors = self._pack()
        document = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "detector": self.name,
            "settings": self._json_settings(),
            "seed": self.seed_,
            "threshold": self.threshold_,
            "calibrated": self.calibrated_,
            "features": self.n_features_in_,
            "feature_names": self.feature_names_in_,
            "learned": values,
        }
        tensors = tensors | {
            "scores": torch.from_numpy(self.scores_),
            "is_target": torch.from_numpy(self.is_target_),
            "calibration": torch.from_numpy(self.calibration_),
            **{f"split.{p}": torch.from_numpy(getattr(self.split_, p).copy()) for p in ("train", "validation", "test")},
        }
        with whole_folder(folder, ours=FILES, replace=True) as draft:
            save_file(
                {name: t.detach().cpu().contiguous() for name, t in tensors.items()},
                draft / "model.safetensors",
            )
            document["sha256"] = checksum(document, draft / "model.safetensors")
            (draft / "model.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def _check_common(self) -> None:
        """Check the settings every detector has."""
        checks.number("max_fpr", self.max_fpr, 0, 1)
        checks.whole("random_state", self.random_state, 0, 2**63 - 1)
        resolve_device(self.device)

    def _json_settings(self) -> dict[str, Any]:
        return {key: _plain(value) for key, value in self.get_params(deep=False).items()}

    def _check_scores(self, scores: Scores) -> None:
        if not ((scores >= 0) & (scores <= 1)).all():
            raise Diverged(
                f"{self.name} gave a score that is no number between 0 and 1; "
                "look for extreme values among the features"
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "scores_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit(graph) first")


@contextmanager
def memory_errors() -> Iterator[None]:
    """Say in our own words that memory did not suffice."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as problem:
        if isinstance(problem, RuntimeError) and not WANTS_MEMORY.search(str(problem)):
            raise
        raise OutOfMemory(
            "memory did not suffice; set batch_size, or a smaller one, or smaller hidden_channels, or pack the graph"
        ) from problem


def _plain(value: Any) -> Any:
    """Turn a setting into a JSON value."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def fpr_threshold(scores: Scores, max_fpr: float) -> float:
    """Return the lowest threshold that at most `max_fpr` of the scores, those of held-out source nodes, exceed.

    >>> fpr_threshold(np.array([0.1, 0.2, 0.3, 0.9]), 0.25)
    0.3
    """
    allowed = int(max_fpr * len(scores) + 1e-9)
    if allowed >= len(scores):
        return float(np.nextafter(0, -1))
    return float(np.sort(scores)[-1 - allowed])


def checksum(document: Mapping[str, Any], tensors: Path) -> str:
    """Hash a saved detector, all but the hash itself. It tells damage, not malice: who can write can hash as well."""
    with tensors.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    content = {name: value for name, value in document.items() if name != "sha256"}
    digest.update(json.dumps(content, sort_keys=True).encode())
    return digest.hexdigest()


def load(folder: str | os.PathLike[str], **settings: Any) -> Detector:
    """Read a detector that `save` wrote.

    Args:
        folder: what was given to `save`.
        **settings: settings to change, such as `device="cpu"`; a user's own encoder must be given again.
    """
    from recoslip.detectors.registry import DETECTORS, detector

    path = Path(folder).expanduser()
    for name in FILES:
        if not (path / name).exists():
            raise ModelFileError(
                f"{folder} is not a saved detector: {name} is missing; give the folder that save wrote"
            )
        if (path / name).is_symlink() or not (path / name).is_file():
            raise ModelFileError(
                f"{folder}/{name} must be a file; it is a link, a folder or a device, copy the file there"
            )
    try:
        document = json.loads((path / "model.json").read_text(encoding="utf-8"))
        tensors = load_file(path / "model.safetensors")
        found = checksum(document, path / "model.safetensors") if isinstance(document, dict) else None
    except (OSError, ValueError, RecursionError, SafetensorError) as problem:
        raise ModelFileError(f"{folder} cannot be read, it is truncated or not recoslip's: {problem}") from problem
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError(f'{folder}/model.json is not recoslip\'s (expected "format": "{FORMAT}")')
    if document.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{folder} has format version {document.get('format_version')!r}, this recoslip reads "
            f"{FORMAT_VERSION}; use the recoslip version that wrote it, or fit again"
        )
    if document.get("sha256") != found:
        raise ModelFileError(
            f"{folder} is damaged: it is not what was saved (its checksum differs); copy or fit it again"
        )
    if document.get("detector") not in list(DETECTORS):
        raise ModelFileError(f"{folder} holds a detector {document.get('detector')!r} that this recoslip has not")
    try:
        _check_stored(document, tensors)
        stored = {key: tuple(v) if isinstance(v, list) else v for key, v in document["settings"].items()}
        result = detector(document["detector"], **(stored | settings))
        result._check_settings()
        result.__dict__.update(
            scores_=tensors["scores"].numpy(),
            is_target_=tensors["is_target"].numpy(),
            calibration_=tensors["calibration"].numpy(),
            split_=Split(*(tensors[f"split.{p}"].numpy() for p in ("train", "validation", "test"))),
            seed_=document["seed"],
            threshold_=float(document["threshold"]),
            calibrated_=document["calibrated"],
            n_features_in_=document["features"],
            feature_names_in_=None if document["feature_names"] is None else tuple(document["feature_names"]),
        )
        result.__dict__.update(result._unpack(document["learned"], tensors))
    except ModelFileError:
        raise
    except SettingError as problem:
        raise ModelFileError(f"{folder} cannot be used: {problem}") from problem
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError, PolarsError) as problem:
        raise ModelFileError(
            f"{folder} is damaged: its parts do not fit together ({type(problem).__name__}: {problem})"
        ) from problem
    return result


def _check_stored(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise unless what every detector stores has the types and sizes it is saved with."""
    kinds = {"settings": dict, "learned": dict, "threshold": float, "calibrated": bool, "features": int, "seed": int}
    for name, kind in kinds.items():
        if type(document[name]) is not kind:
            raise TypeError(f"{name} must be {kind.__name__}, got {document[name]!r}")
    checks.whole("seed", document["seed"], 0, 2**63 - 1)
    names = document["feature_names"]
    if names is not None and (type(names) is not list or len(names) != document["features"]):
        raise TypeError(f"feature_names must be a list of {document['features']}")
    scores = tensors["scores"]
    if scores.ndim != 1 or scores.dtype != torch.float64 or not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError("scores must be numbers between 0 and 1, one per node")
    for name in ("is_target", "calibration", "split.train", "split.validation", "split.test"):
        if tensors[name].dtype != torch.bool or tensors[name].shape != scores.shape:
            raise ValueError(f"{name} must say true or false, once per node")
