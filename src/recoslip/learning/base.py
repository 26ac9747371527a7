"""NodeGraph -> scores: the contract that every detector keeps."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, cast, dataclass_transform

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from recoslip.base import settings as params
from recoslip.base.errors import Diverged, GraphError, RecoslipWarning, SettingError, TableError, need
from recoslip.base.files import Folder, writing
from recoslip.base.memory import memory_errors
from recoslip.base.progress import Progress
from recoslip.base.randomness import derive
from recoslip.base.settings import Integer, Number, learned, param
from recoslip.base.text import counted
from recoslip.data.alignment import similarity_features
from recoslip.data.graph import NodeGraph
from recoslip.data.ids import id_hashes, id_order
from recoslip.data.split import Mask, Split, hide, present, rotate
from recoslip.data.tables.new_nodes import NewNodes, read_new_nodes
from recoslip.data.tables.read import Table
from recoslip.data.tables.table_encoder import TableEncoder, describe_encoding, same_encoding
from recoslip.data.vectors import Vectors
from recoslip.learning import model_file
from recoslip.learning import p_values as conformal
from recoslip.learning.feedback import VerdictModel
from recoslip.learning.model_file import Array
from recoslip.learning.regions import merge_alike, source_regions

Scores: TypeAlias = NDArray[np.float64]
Method = TypeVar("Method", bound=Callable[..., Any])

log = logging.getLogger("recoslip")

MAX_ROTATIONS = 20  # more fits than these bring nothing
MAX_SIMILARITY = 2_000_000  # nodes whose similarities are kept: 256 MB
CALIBRATE = "Fit it with fit(graph, rotations=5), or call recoslip.detect."
MAX_RESTARTS = 2  # from other seeds, where the loss became non-finite


LearnRotations: TypeAlias = Callable[..., list[list[dict[str, Any]]]]  # called as `Detector._learn_rotations` unbound


@dataclass(frozen=True)
class Callbacks:
    """What a fit calls while it runs."""

    progress: Progress
    learn_rotations: LearnRotations | None = None  # instead of the detector's own `_learn_rotations`


def computes(method: Method) -> Method:
    """Decorate a method that computes on a graph."""

    @functools.wraps(method)
    def call(self: Any, graph: NodeGraph, *args: Any, **kwargs: Any) -> Any:
        require_graph(graph)
        with self.computing(), memory_errors(graph.nbytes):
            return method(self, graph, *args, **kwargs)

    return cast(Method, call)


def check_device(name: str, value: str) -> None:
    """Raise SettingError unless `value` names a device that can be used; `name` is that of the setting."""
    if value not in ("auto", "cpu"):
        need("torch", f"{name}={value!r}")
        from recoslip.learning.networks.device import resolve_device

        resolve_device(value)


def require_graph(graph: Any) -> None:
    """Raise unless it is a NodeGraph."""
    if not isinstance(graph, NodeGraph):
        raise GraphError(f"expected a NodeGraph; got {type(graph).__name__} (NodeGraph.from_pyg may help)")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(param, learned))
class Detector(BaseEstimator, ABC):  # type: ignore[misc]
    """A method that scores nodes by novelty: scikit-learn's parameters, `fit`, and attributes that end in `_`.

    Scores lie in [0, 1], higher is more novel, one per node in the graph's order. A subclass declares its settings
    (`recoslip.base.settings`), which its constructor stores, and implements the methods marked abstract.
    """

    name: ClassVar[str]  # in the registry
    uses_validation: ClassVar[bool] = True  # False: where calibration nodes are given, it learns from all others
    requires_truth: ClassVar[bool] = False  # whether `fit` must be told which nodes are novel
    supports_batches: ClassVar[bool] = False  # whether it can train on batches of a graph
    scores_need_source: ClassVar[bool] = False  # whether it can score only a graph that has source nodes
    has_regions: ClassVar[bool] = True  # False: bins compare a node with its own kind already, and p-values with all
    allowed_growth: ClassVar[float | None] = None  # of known categories, for the novel share; None: by its regions

    max_fpr: float = param(0.01, Number(0, 1), "fraction of the calibration nodes that may score above the threshold")
    device: str = param("auto", check_device, '"auto", "cpu", "cuda", ...')
    random_state: int = param(
        0, Integer(0, 2**63 - 1), "seed of initial weights, dropout and, where no split is given, the split"
    )

    scores_: Scores = learned("novelty of each node of the graph it was fitted on, (nodes,)", per_node=True)
    threshold_: float = learned("score above which a target node is listed")
    seed_: int = learned("the seed it was trained from: `random_state`, unless the loss became non-finite from that")
    is_target_: Mask = learned("domain of each node, (nodes,)", per_node=True)
    calibration_: Mask = learned(
        "the source nodes that p-values and threshold are computed from, (nodes,)", per_node=True
    )
    calibrated_: bool = learned("whether those were presented as target during `fit`, so that promises hold")
    region_: NDArray[np.int64] = learned(
        "region of each node, (nodes,): p-values compare a node with the calibration nodes of its own", per_node=True
    )
    rotations_: tuple[Self, ...] = learned(
        "where hiding rotated, the detectors that were fitted, each of which hid another part of the source"
    )
    split_: Split = learned("who trained, validated and tested")
    n_features_in_: int = learned("number of features")
    feature_names_in_: tuple[str, ...] | None = learned("names of the features, where they have names")
    encoding_: dict[str, dict[str, Any]] | None = learned(
        "the encoders of table columns, where features were made of such"
    )
    node_: NDArray[np.int64] = learned(
        "hash of each node's id, (nodes,), by which it is known again in another graph", per_node=True
    )
    has_edges_: bool = learned("whether the graph had edges; where it had none, those of other graphs are left out")
    has_weights_: bool = learned("whether the edges had weights; those of other graphs must then have them, too")
    similarity_: NDArray[np.float16] = learned(
        "where hiding rotated, and there are not too many nodes, vectors whose inner products are the similarities of "
        "nodes, (nodes, width)",
        per_node=True,
    )
    transferred_: bool = learned("whether scores and calibration nodes are of another graph than it was fitted on")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        params.make_estimator(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        # A setting of NumPy's type overflows, is refused by generators and cannot be saved; as Python's it is the same.
        super().__setattr__(name, params.plain(value))

    def computing(self) -> AbstractContextManager[Any]:
        """Return the state of libraries that the method computes in; by default, as it is."""
        return nullcontext()

    @abstractmethod
    def _learn(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], callbacks: Callbacks, **truth: Any
    ) -> list[dict[str, Any]]:
        """Train one model per seed and return the learned attributes of each, `scores_` at least.

        Nothing is changed on self. `truth` is empty unless the class `requires_truth`.
        """

    @abstractmethod
    def _score(self, graph: NodeGraph) -> Scores:
        """Score the nodes of a graph with what was learned."""

    @abstractmethod
    def _pack(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return what was learned beyond this class's attributes, as JSON values and arrays."""

    @abstractmethod
    def _unpack(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        """Turn what `_pack` returned back into learned attributes."""

    def _check_params_jointly(self) -> None:
        """Raise SettingError for settings that exclude each other; by default none do."""

    def check_params(self) -> None:
        """Raise SettingError for a setting that cannot be."""
        params.check_params(self)
        self._check_params_jointly()

    def fit(
        self,
        graph: NodeGraph,
        split: Split | None = None,
        *,
        calibration: float = 0.0,
        rotations: int = 1,
        progress: Progress | None = None,
        learn_rotations: LearnRotations | None = None,
        **truth: Any,
    ) -> Self:
        """Learn from the graph's features, edges and domains.

        Args:
            graph: true categories, if it has any, are not looked at.
            split: who trains and who validates; without one, 80/20 in each domain from `random_state`.
            calibration: fraction of the source nodes that are presented as target during the fit, so that p-values and
                the threshold hold as stated (docs/promises.md). 0, the default, uses the validation source nodes
                instead: scores can be ranked, and lists have no statistical guarantee.
            rotations: how many times to fit. From 2 on, each fit presents another part of the source as target, so that
                every source node calibrates once, and `calibration` is not used; scores are means over the fits.
            progress: called with steps done and steps in all.
            learn_rotations: has the fits of the rotations learned elsewhere (see `recoslip.products.cluster`).
            **truth: `novel`, a boolean array over nodes, for a detector that `requires_truth`.

        An interrupted or failed fit leaves the detector unfitted.
        """
        for attribute in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, attribute)
        (fitted,) = self.fit_seeds(
            graph,
            [self.random_state],
            split,
            calibration=calibration,
            rotations=rotations,
            progress=progress,
            learn_rotations=learn_rotations,
            **truth,
        )
        self.__dict__.update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
        return self

    @computes
    def fit_seeds(
        self,
        graph: NodeGraph,
        seeds: Sequence[int],
        split: Split | None = None,
        *,
        calibration: float = 0.0,
        rotations: int = 1,
        progress: Progress | None = None,
        learn_rotations: LearnRotations | None = None,
        **truth: Any,
    ) -> list[Self]:
        """Train one copy of this detector per seed, all together as one fleet, and return the fitted copies.

        Up to rounding, each copy is what `fit` with that `random_state` and the same split gives; with calibration, all
        have the same calibration nodes, those of this detector's `random_state`.
        """
        graph.require_both_domains()
        self.check_params()
        Number(0, 0.9)("calibration", calibration)
        Integer(1, MAX_ROTATIONS)("rotations", rotations)
        rotations = int(rotations)
        if truth and not self.requires_truth:
            raise SettingError(f"{self.name} must not see the truth; leave {', '.join(truth)} out")
        if split is not None:
            if not isinstance(split, Split):
                raise SettingError(
                    f"split must be a Split; got {type(split).__name__}: nothing is learned from labels, which are "
                    "left out, as in fit(graph)"
                )
            split.check_length(graph)
        # Every draw follows the order of ids, so that the same nodes in another order get the same scores.
        order = id_order(graph)
        if order is not None:
            graph, split = graph.permuted(order), None if split is None else split.permuted(order)
            truth = {name: _permuted_truth(values, order) for name, values in truth.items()}
        own = [clone(self).set_params(random_state=seed) for seed in seeds]
        for copy in own:
            copy.check_params()
        seeds = [copy.random_state for copy in own]
        if rotations == 1 and learn_rotations is not None:
            raise SettingError("learn_rotations is for several rotations; there is one fit")
        callbacks = Callbacks(progress or (lambda done, total: None), learn_rotations)
        if rotations == 1:
            presented, split, hidden = hide(graph, split, calibration, self.random_state)
            learning = self._learning_split(presented, split, hidden)
            learned = self.learn_presented(presented, learning, seeds, callbacks, **truth)
            fitted = self._fitted(graph, split, hidden, seeds, learned)
        else:
            fitted = self._fit_rotations(graph, split, rotations, seeds, callbacks, **truth)
        if order is not None:
            for copy in fitted:
                copy._permute(np.argsort(order))
        return fitted

    def _learning_split(self, presented: NodeGraph, split: Split, hidden: Mask) -> Split:
        """Return the split to learn with: with calibration nodes, some detectors learn from validation nodes, too."""
        split.check(presented)
        if self.uses_validation or not hidden.any():
            return split
        return Split(split.train | split.validation, np.zeros_like(hidden), split.test)

    def _fitted(
        self, graph: NodeGraph, split: Split, hidden: Mask, seeds: Sequence[int], learned: Sequence[dict[str, Any]]
    ) -> list[Self]:
        """Return one fitted copy per seed, with the hidden nodes as calibration nodes."""
        common: dict[str, Any] = {
            "is_target_": graph.is_target.copy(),
            "calibration_": hidden if hidden.any() else split.validation & ~graph.is_target,
            "calibrated_": bool(hidden.any()),
            "region_": np.zeros(graph.num_nodes, dtype=np.int64),
            "rotations_": (),
            "split_": split,
            "n_features_in_": graph.num_features,
            "feature_names_in_": graph.feature_names,
            "encoding_": graph.encoding,
            "node_": id_hashes(graph.ids),
            "has_edges_": graph.num_edges > 0,
            "has_weights_": graph.edge_weight is not None,
            "transferred_": False,
        }
        copies = []
        for seed, attributes in zip(seeds, learned, strict=True):
            copy: Self = clone(self).set_params(random_state=seed)
            copy.__dict__.update(common | attributes)
            copy.set_threshold()
            copies.append(copy)
        return copies

    def _fit_rotations(
        self,
        graph: NodeGraph,
        split: Split | None,
        rotations: int,
        seeds: Sequence[int],
        callbacks: Callbacks,
        **truth: Any,
    ) -> list[Self]:
        """Fit several times, each time with another part of the source among the target, and combine the fits."""
        similarity = self._similarities(graph)
        region = self._regions(similarity, ~graph.is_target)
        one: Self = clone(self).set_params(**self.rotation_params())
        hidden = rotate(graph, rotations, region, self.random_state)
        presented, splits = [], []
        for k, part in enumerate(hidden):
            shown, own_split = present(
                graph, split, part, np.random.default_rng([self.random_state, 3, k]), self.random_state
            )
            presented.append((shown, self._learning_split(shown, own_split, part)))
            splits.append(own_split)
        own_seeds = [[self._rotated_seed(seed, k) for seed in seeds] for k in range(rotations)]
        learn = callbacks.learn_rotations or type(one)._learn_rotations
        learned = learn(one, graph, presented, own_seeds, callbacks, **truth)
        fits = [one._fitted(graph, *each) for each in zip(splits, hidden, own_seeds, learned, strict=True)]
        copies = []
        for seed, of_seed in zip(seeds, zip(*fits, strict=True), strict=True):
            copy: Self = clone(self).set_params(random_state=seed)
            copy.__dict__.update(self._combined(of_seed, region, similarity))
            copy.set_threshold()
            copies.append(copy)
        return copies

    def _learn_rotations(
        self,
        graph: NodeGraph,
        presented: Sequence[tuple[NodeGraph, Split]],
        seeds: Sequence[Sequence[int]],
        callbacks: Callbacks,
        **truth: Any,
    ) -> list[list[dict[str, Any]]]:
        """Learn once from each of several presentations of a graph, one after the other; a class may do better."""
        learned = []
        for k, ((shown, split), own_seeds) in enumerate(zip(presented, seeds, strict=True)):
            own = replace(callbacks, progress=_nth_of(k, len(presented), callbacks.progress))
            learned.append(self.learn_presented(shown, split, own_seeds, own, **truth))
        return learned

    def _combined(
        self, fits: tuple[Self, ...], region: NDArray[np.int64], similarity: NDArray[np.float32]
    ) -> dict[str, Any]:
        """Return the learned attributes of several fits, each of which hid another part of the source.

        A target node has its mean score. A source node has the score of the fit in which it was hidden, so that the
        two can be compared.
        """
        first = fits[0]
        calibration = np.any([fit.calibration_ for fit in fits], axis=0)
        rank = np.zeros(len(region))  # of a calibration node among the target nodes of its fit
        scores = np.mean([fit.scores_ for fit in fits], axis=0)
        for fit in fits:
            ordered = np.sort(fit.scores_[fit.is_target_])
            hidden = fit.calibration_
            rank[hidden] = np.searchsorted(ordered, fit.scores_[hidden]) / max(1, len(ordered))
            scores[hidden] = fit.scores_[hidden]
        kept = {"similarity_": similarity.astype(np.float16)} if len(region) <= MAX_SIMILARITY else {}
        return (
            self.averages(fits)
            | kept
            | {
                "scores_": scores,
                "seed_": first.seed_,
                "is_target_": first.is_target_,
                "calibration_": calibration,
                "calibrated_": True,
                "region_": merge_alike(region, rank, calibration),
                "rotations_": fits,
                "split_": first.split_,
                "n_features_in_": first.n_features_in_,
                "feature_names_in_": first.feature_names_in_,
                "encoding_": first.encoding_,
                "node_": first.node_,
                "has_edges_": first.has_edges_,
                "has_weights_": first.has_weights_,
                "transferred_": first.transferred_,
            }
        )

    def _similarities(self, graph: NodeGraph) -> NDArray[np.float32]:
        """Return vectors whose inner products are the similarities of nodes, (nodes, width)."""
        return similarity_features(graph) if self.has_regions else Vectors.of(graph).summary()

    def _regions(self, similarity: NDArray[np.float32], is_source: Mask) -> NDArray[np.int64]:
        """Divide the nodes into regions, within which p-values compare them."""
        return source_regions(similarity, is_source) if self.has_regions else np.zeros(len(is_source), dtype=np.int64)

    def _rotated_seed(self, seed: int, rotation: int) -> int:
        """Return the seed of one of several fits; the first has the seed itself."""
        return seed if rotation == 0 else derive(seed, 83, rotation) & (2**63 - 1)

    def rotation_params(self) -> dict[str, Any]:
        """Return the settings that differ in each of several fits whose scores are averaged; by default none do."""
        return {}

    def averages(self, fits: Sequence[Self]) -> dict[str, Any]:
        """Return learned attributes, besides the scores, that are averages over fits; by default none are."""
        return {}

    @property
    def fits(self) -> tuple[Self, ...]:
        """The fitted detectors whose scores are averaged: this one, unless hiding rotated."""
        return self.rotations_ or (self,)

    def _permute(self, order: NDArray[np.int64]) -> None:
        """Bring the learned arrays over the nodes into another order."""
        for name in params.per_node_attributes(self) & set(vars(self)):
            setattr(self, name, getattr(self, name)[order])
        self.split_ = self.split_.permuted(order)
        for fit in self.rotations_:
            fit._permute(order)

    def set_threshold(self) -> None:
        """Compute `threshold_` from `max_fpr` and the scores of the calibration nodes."""
        # D4: not f > 1/2 but the lowest threshold that keeps the FPR, see DEVIATIONS.md
        threshold = conformal.threshold if self.calibrated_ else conformal.empirical_threshold
        self.threshold_ = threshold(self.scores_[self.calibration_], self.max_fpr)

    @computes
    def learn_presented(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], callbacks: Callbacks, **truth: Any
    ) -> list[dict[str, Any]]:
        """Learn. Seeds whose loss becomes non-finite are found one by one and replaced by seeds derived from them."""
        try:
            per_seed = self._learn(graph, split, seeds, callbacks, **truth)
            for attributes in per_seed:
                self._check_scores(attributes["scores_"])
            return [{"seed_": seed, **attributes} for seed, attributes in zip(seeds, per_seed, strict=True)]
        except Diverged as problem:
            if len(seeds) > 1:
                return [self.learn_presented(graph, split, [seed], callbacks, **truth)[0] for seed in seeds]
            diverged = problem
        for attempt in range(1, MAX_RESTARTS + 1):
            derived = derive(seeds[0], 97, attempt) & (2**63 - 1)
            with contextlib.suppress(Diverged):
                (attributes,) = self._learn(graph, split, [derived], callbacks, **truth)
                self._check_scores(attributes["scores_"])
                warnings.warn(
                    RecoslipWarning(f"training diverged from seed {seeds[0]} and was begun again from seed {derived}"),
                    stacklevel=6,
                )
                return [{"seed_": derived, **attributes}]
        raise diverged

    def decision_function(self, graph: NodeGraph | None = None) -> Scores:
        """Score the nodes of `graph`, or of the graph it was fitted on: in [0, 1], higher is more novel."""
        self.check_is_fitted()
        if graph is None:
            return self.scores_.copy()
        return np.asarray(np.mean(self._scores_by_fit(graph), axis=0))

    @computes
    def _scores_by_fit(self, graph: NodeGraph) -> list[Scores]:
        """Score the nodes of a graph by each fit, as it was presented."""
        graph, order = self._as_fitted(graph)
        return [fit._score_presented(graph)["scores_"][order] for fit in self.fits]

    def scores_and_p_values(self, graph: NodeGraph) -> tuple[Scores, Scores]:
        """Return what `decision_function` and `p_values` return of a graph, evaluating the networks once."""
        self.check_is_fitted()
        scores = self._scores_by_fit(graph)
        pairs = [(own, fit.scores_[fit.calibration_]) for own, fit in zip(scores, self.fits, strict=True)]
        p = np.where(graph.is_target, conformal.cross_p_values(pairs), np.nan)
        return np.asarray(np.mean(scores, axis=0)), p

    def calibrates(self, graph: NodeGraph) -> Mask:
        """Return which source nodes of a graph it was calibrated by, which their ids tell: (nodes,)."""
        require_graph(graph)
        calibrated_by = self.node_[self.calibration_]
        return np.asarray(np.isin(id_hashes(graph.ids), calibrated_by) & ~graph.is_target)

    def read_table(self, nodes: Table, edges: Table | None = None, **options: Any) -> NewNodes:
        """Read nodes that it was not fitted on, with the encoder of those it was fitted on.

        The arguments are those of `recoslip.data.tables.new_nodes.read_new_nodes`: among others `old_nodes` and
        `old_edges`, so that neighbourhoods are complete. Nodes that were source in the fit are source, all others
        target.
        """
        self.check_is_fitted()
        if self.encoding_ is None:
            raise TableError(
                "this detector has no encoder: it was fitted on a graph that was not read from tables, or whose "
                "features were aligned; build the graph and call decision_function, or fit again"
            )
        encoder, sources = TableEncoder.from_json(self.encoding_), self.node_[~self.is_target_]

        def is_source(ids: NDArray[Any]) -> Mask:
            return np.isin(id_hashes(ids), sources)

        return read_new_nodes(nodes, edges, encoder, is_source, **options)

    def score_table(self, nodes: Table, edges: Table | None = None, **options: Any) -> pl.DataFrame:
        """Score the nodes of another table; `read_table` has the arguments.

        Columns: id, score, p_value (null for source nodes) and listed. With old nodes, p-values are those of
        `transfer`; without, those of `p_values`.
        """
        new = self.read_table(nodes, edges, **options)
        if self.calibrates(new.graph).any():
            view = self.transfer(new.graph)
            scores, p, listed = view.scores_, view.p_values(), view.predict()
        else:
            scores, p = self.scores_and_p_values(new.graph)
            listed = p <= self.max_fpr * (1 + conformal.ROUNDING)
        frame = pl.DataFrame(
            {
                "id": pl.Series([str(name) for name in new.graph.ids.tolist()], dtype=pl.String),
                "score": scores,
                "p_value": pl.Series(p, nan_to_null=True),
                "listed": listed,
            }
        )
        return frame.filter(new.is_new)

    @computes
    def transfer(self, graph: NodeGraph, nodes: NDArray[np.int64] | None = None) -> Self:
        """Return a copy whose scores, p-values, regions and calibration nodes are those of another graph.

        A source node of the graph that was a calibration node, which its id tells, is one again: it has the score of
        the fit in which it was hidden. Other nodes have their mean score. For the graph that it was fitted on, the copy
        says the same as the detector itself.

        Args:
            graph: with the features that it was fitted with, and source nodes that it was fitted on.
            nodes: positions of the nodes that the copy shall be about; by default all. The others are neighbours alone.
        """
        self.check_is_fitted()
        graph, order = self._as_fitted(graph)
        is_target, node = graph.is_target, id_hashes(graph.ids)
        nobody = np.zeros(graph.num_nodes, dtype=bool)
        common: dict[str, Any] = {
            "is_target_": is_target.copy(),
            "node_": node,
            "region_": np.zeros(graph.num_nodes, dtype=np.int64),
            "split_": Split(nobody, nobody, ~nobody),
            "transferred_": not np.array_equal(np.sort(node), np.sort(self.node_)),
        }
        copies = []
        for fit in self.fits:
            copy: Self = clone(fit)
            copy.__dict__.update({name: value for name, value in vars(fit).items() if name.endswith("_")})
            own = fit._score_among(graph) | {"calibration_": fit.calibrates(graph), "rotations_": ()}
            copy.__dict__.update(common | own)
            copies.append(copy)
        result = copies[0]
        if self.rotations_:
            result = clone(self)
            similarity = self._similarities(graph)
            region = self._regions(similarity, ~is_target)
            result.__dict__.update(self._combined(tuple(copies), region, similarity))
        if result.calibration_.any():
            result.set_threshold()
        result._permute(order if nodes is None else order[nodes])
        return result

    def is_fitted_on(self, graph: NodeGraph) -> bool:
        """Return whether the scores are those of a graph: its nodes, in its order, and its domains."""
        self.check_is_fitted()
        require_graph(graph)
        return (
            len(self.scores_) == graph.num_nodes
            and np.array_equal(self.is_target_, graph.is_target)
            and np.array_equal(self.node_, id_hashes(graph.ids))
        )

    def _as_fitted(self, graph: NodeGraph) -> tuple[NodeGraph, NDArray[np.int64]]:
        """Return a graph as those of `fit` are, its nodes in the order of ids, and where each node of it is then."""
        self._check_features(graph)
        if not self.has_edges_ and graph.num_edges:
            log.info("edges are left out, as the graph that was fitted had none")
            graph = graph.without_edges()
        if self.has_weights_ and graph.edge_weight is None and graph.num_edges:
            raise GraphError("this detector was fitted with edge weights, and the graph has none: weight=...")
        order = id_order(graph)
        if order is None:
            return graph, np.arange(graph.num_nodes)
        return graph.permuted(order), np.argsort(order)

    def _score_presented(self, graph: NodeGraph) -> dict[str, Any]:
        """Score a graph as it was presented: where scores depend on domains, nodes that were hidden are target."""
        return self._score_all(self._as_presented(graph) if self.scores_need_source else graph)

    def _score_among(self, graph: NodeGraph) -> dict[str, Any]:
        """Score a graph that takes the place of the one that was fitted, source nodes included."""
        return self._score_presented(graph)

    def _as_presented(self, graph: NodeGraph) -> NodeGraph:
        """Return a graph in which the nodes that were hidden are target."""
        is_target, hidden = graph.is_target, self.calibrates(graph)
        if not self.calibrated_ or not hidden.any() or (hidden | is_target).all():
            return graph
        return graph.with_target(is_target | hidden)

    def _score_all(self, graph: NodeGraph) -> dict[str, Any]:
        """Return the learned attributes with one entry per node that follow from the networks: `scores_` at least."""
        scores = self._score(graph)
        self._check_scores(scores)
        return {"scores_": scores}

    def _check_features(self, graph: NodeGraph) -> None:
        """Raise unless a graph has the features it was fitted with."""
        if graph.num_features != self.n_features_in_:
            raise GraphError(
                f"this detector was fitted with {self.n_features_in_} features; the graph has {graph.num_features}"
            )
        names = self.feature_names_in_
        if names is not None and graph.feature_names is not None and names != graph.feature_names:
            known, other = next((a, b) for a, b in zip(names, graph.feature_names, strict=True) if a != b)
            raise GraphError(
                f"this detector was fitted with other features: it knows {known!r} where the graph has {other!r}; "
                "read the nodes with its encoder (recoslip.score)"
            )
        self._check_encoding(graph)
        if self.scores_need_source and bool(graph.is_target.all()):
            raise GraphError(
                f"{self.name} scores nodes by the source nodes of their graph, and this one has none; give the old "
                "nodes and edges, too (old=...)"
            )

    def _check_encoding(self, graph: NodeGraph) -> None:
        """Raise where the graph's features were made of table columns in another way than those it was fitted on."""
        own, other = self.encoding_, graph.encoding
        if own is None or other is None:
            return
        for column in {**own, **other}:
            if not same_encoding(own.get(column), other.get(column)):
                fitted, given = (describe_encoding(encoding.get(column)) for encoding in (own, other))
                raise GraphError(
                    f"this detector was fitted with column {column!r} encoded by other statistics ({fitted}) than the "
                    f"graph's ({given}), so the same value is another feature; read the nodes with its encoder "
                    "(recoslip.score)"
                )

    def predict(self, graph: NodeGraph | None = None) -> Mask:
        """Say which target nodes are novel; source nodes are known.

        On the graph it was fitted on with calibration nodes, those are the target nodes with p ≤ `max_fpr`; otherwise
        those that score above `threshold_`, which has no statistical guarantee and is logged as a warning.
        """
        self._warn_uncalibrated()
        if graph is None and self.calibrated_:
            return self.p_values() <= self.max_fpr * (1 + conformal.ROUNDING)
        scores = self.decision_function(graph)
        is_target = self.is_target_ if graph is None else graph.is_target
        return (scores > self.threshold_) & is_target

    def _warn_uncalibrated(self) -> None:
        """Log that a list has no guarantee where no source node was hidden during the fit."""
        self.check_is_fitted()
        if not self.calibrated_:
            log.warning("This %s is not calibrated: its list has no statistical guarantee. %s", self.name, CALIBRATE)

    def p_values(self, graph: NodeGraph | None = None) -> Scores:
        """Return the conformal p-value of each target node, and NaN for source nodes.

        For a known node P(p ≤ u) ≤ u, if it is like the calibration nodes of its own region, on the graph it was fitted
        on and if it was fitted with `calibration` or `rotations` (docs/promises.md has what holds for each). Otherwise
        the validation source nodes, which it learned to be source, take the place of calibration nodes, and nothing is
        promised. In another graph, nodes are compared with all calibration nodes, as they scored in the graph it was
        fitted on; `transfer` compares them within regions, and as they score there.
        """
        self.check_is_fitted()
        if graph is None:
            return self.p_values_within(self.region_)
        return self.scores_and_p_values(graph)[1]

    def p_values_within(self, part: NDArray[np.int64]) -> Scores:
        """Return the p-value of each target node among the calibration nodes of its own part of the graph.

        Args:
            part: (nodes,) the part that each node belongs to, which must not depend on its score or its domain.
        """
        self.check_is_fitted()
        rotations = [(fit.scores_, fit.calibration_) for fit in self.fits]
        return conformal.regional_p_values(rotations, part, self.is_target_)

    def select(self, fdr: float, graph: NodeGraph | None = None) -> Mask:
        """Choose target nodes of which at most a fraction `fdr` is expected to be known (Benjamini-Hochberg).

        The expectation holds where the known target nodes of a region have the source's proportions; docs/promises.md
        says what is left of it where they have not.
        """
        Number(0, 1)("fdr", fdr)
        self._warn_uncalibrated()
        p = self.p_values(graph)
        chosen = ~np.isnan(p)
        chosen[chosen] = conformal.benjamini_hochberg(p[chosen], fdr)
        return chosen

    def learn(self, confirmed: Sequence[Any], rejected: Sequence[Any]) -> Self:
        """Return a copy whose scores take verdicts on some of the target nodes into account.

        Nodes that are like confirmed ones score higher, and nodes that are like rejected ones lower; a confirmed node
        itself has 1, a rejected one 0. Threshold, p-values and what `predict` lists stay those of the fit: what a
        review promises is its own certificate. Call it on the detector that was fitted, with all verdicts so far.

        Args:
            confirmed: ids of target nodes that are novel.
            rejected: ids of target nodes that are known.
        """
        model, target, (new, known) = self._observed(confirmed, rejected)
        copy: Self = clone(self)
        copy.__dict__.update({name: value for name, value in vars(self).items() if name.endswith("_")})
        copy.scores_ = self.scores_.copy()
        copy.scores_[target] = model.scores()
        copy.scores_[new], copy.scores_[known] = 1.0, 0.0
        return copy

    def queue(
        self, confirmed: Sequence[Any], rejected: Sequence[Any], count: int = 20, *, without: Sequence[Any] = ()
    ) -> NDArray[np.int64]:
        """Return the positions of target nodes whose verdicts would teach `learn` most, given those so far.

        Args:
            confirmed: ids of target nodes that are novel.
            rejected: ids of target nodes that are known.
            count: how many.
            without: ids of further target nodes that are not to be asked about.
        """
        model, target, decided = self._observed(confirmed, rejected)
        left_out = np.concatenate([*decided, self._positions_of(without)])
        return np.asarray(target[model.queue(count, ~np.isin(target, left_out))])

    def _observed(
        self, confirmed: Sequence[Any], rejected: Sequence[Any]
    ) -> tuple[VerdictModel, NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return what verdicts say, the positions of the nodes that it is about, and those of the nodes decided on."""
        new, known = self._positions_of(confirmed), self._positions_of(rejected)
        if len(both := np.intersect1d(new, known)):
            raise SettingError(f"{counted(len(both), 'node')} confirmed and rejected at once; decide on one")
        target = np.flatnonzero(self.is_target_)
        model = VerdictModel(self.similarity_[target], self.scores_[target], self.random_state)
        model.observe(np.searchsorted(target, new), np.searchsorted(target, known))
        return model, target, (new, known)

    def _positions_of(self, ids: Sequence[Any]) -> NDArray[np.int64]:
        """Return the positions of target nodes, in ascending order."""
        self.check_is_fitted()
        if not hasattr(self, "similarity_"):
            raise SettingError(
                f"it learns from verdicts after a fit with rotations, on at most {MAX_SIMILARITY:,} nodes: "
                "fit(graph, rotations=5)"
            )
        found = np.isin(self.node_, id_hashes(ids)) & self.is_target_
        if found.sum() < (given := len({str(name) for name in ids})):
            known = set(self.node_[found].tolist())
            unknown = [name for name in ids if int(id_hashes([name])[0]) not in known]
            raise SettingError(f"{given - found.sum()} of {given} ids are no target nodes (first: {unknown[0]!r})")
        return np.flatnonzero(found)

    def fit_predict(self, graph: NodeGraph, split: Split | None = None) -> Mask:
        """Fit, then say which nodes are novel."""
        return self.fit(graph, split).predict()

    def representation(
        self, graph: NodeGraph, nodes: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.float64] | None:
        """Return what the learned networks represent some nodes by, (nodes, width); None without a network."""
        return None

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write settings and what was learned as JSON and safetensors; a saved detector there is replaced."""
        self.check_is_fitted()
        with writing(folder, "model", replace=True) as written:
            self.write_into(written)

    def write_into(self, folder: Folder, below: str = "") -> None:
        """Write what `save` writes into a folder that is being written; all names begin with `below`."""
        self.check_is_fitted()
        rotations = [vars(fit) for fit in self.rotations_]
        learned = [fit._pack() for fit in self.fits]
        model_file.write(folder, below, self.name, self.json_params(), vars(self), rotations, learned)

    def json_params(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {key: _json_value(value) for key, value in self.get_params(deep=False).items()}

    def check_is_fitted(self) -> None:
        """Raise NotFittedError unless `fit` has ended."""
        if not hasattr(self, "scores_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit(graph) first")

    def _check_scores(self, scores: Scores) -> None:
        if not ((scores >= 0) & (scores <= 1)).all():
            raise Diverged(
                f"{self.name} gave a score that is no number between 0 and 1; "
                "look for extreme values among the features"
            )


params.make_estimator(Detector)


def _nth_of(position: int, count: int, progress: Progress) -> Progress:
    """Return the progress of one of several fits."""
    return lambda done, total: progress(position * total + done, count * total)


def _permuted_truth(values: Any, order: NDArray[np.int64]) -> Any:
    """Permute an array over the nodes; what is none is left for the detector to refuse."""
    array = np.asarray(values)
    return array[order] if array.shape == order.shape else values


def _json_value(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_json_value(item) for item in value] if isinstance(value, tuple | list) else value
