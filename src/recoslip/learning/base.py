"""NodeGraph -> scores: the contract that every detector keeps."""

import contextlib
import functools
import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar, cast, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from recoslip.base import settings
from recoslip.base.errors import Diverged, GraphError, RecoslipWarning, SettingError, need
from recoslip.base.memory import memory_errors
from recoslip.base.progress import Progress
from recoslip.base.randomness import derive
from recoslip.base.settings import Integer, learned, param
from recoslip.data.graph import NodeGraph, require_graph
from recoslip.data.ids import hashes_of, id_order
from recoslip.data.split import Mask, Split, default_split
from recoslip.data.tables.table_encoder import describe_encoding, same_encoding

Scores: TypeAlias = NDArray[np.float64]
Attributes: TypeAlias = dict[str, Any]  # what one fit learned, by the names of the attributes
Method = TypeVar("Method", bound=Callable[..., Any])

log = logging.getLogger("recoslip")

MAX_RESTARTS = 2  # from other seeds, where the loss became non-finite


class Presentation(NamedTuple):
    """What a detector sees in one fit."""

    graph: NodeGraph  # in which source nodes may be shown as target
    split: Split
    seed: int


def computes(method: Method) -> Method:
    """Decorate a method of a detector, or a function of one, that computes on a graph."""

    @functools.wraps(method)
    def call(self: Any, graph: NodeGraph, *args: Any, **kwargs: Any) -> Any:
        require_graph(graph)
        with self._computing(), memory_errors(graph.nbytes):
            return method(self, graph, *args, **kwargs)

    return cast(Method, call)


def check_device(name: str, value: str) -> None:
    """Raise SettingError unless `value` names a device that can be used; `name` is that of the setting."""
    if value not in ("auto", "cpu"):
        need("torch", f"{name}={value!r}")
        from recoslip.learning.networks.device import resolve_device

        resolve_device(value)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(param, learned))
class Detector(BaseEstimator, ABC):  # type: ignore[misc]
    """A method that scores nodes by novelty: scikit-learn's parameters, `fit`, and attributes that end in `_`.

    Scores lie in [0, 1], higher is more novel, one per node in the graph's order. They rank nodes; `recoslip.calibrate`
    turns them into p-values. A subclass declares its settings (`recoslip.base.settings`), which its constructor stores,
    and implements `_score`, and `_learn_seeds`, or `_learn` to learn from several hidden parts together. One that
    learns nothing is an `UntrainedDetector` (`recoslip.learning.graph_rules`), and implements `_score` only.

    >>> import recoslip
    >>> x = np.repeat([[0.0, 1.0], [1.0, 0.0]], 50, axis=0)
    >>> graph = NodeGraph(x, np.empty((2, 0), int), np.arange(100) >= 40)
    >>> recoslip.Scan().fit(graph).decision_function().round(1)[[0, 99]].tolist()
    [0.2, 0.7]
    """

    name: ClassVar[str]  # in the registry
    uses_validation: ClassVar[bool] = True  # False: where source nodes are hidden, it learns from all others
    requires_truth: ClassVar[bool] = False  # whether `fit` must be told which nodes are novel
    supports_batches: ClassVar[bool] = False  # whether it can train on batches of a graph
    fits_in_seconds: ClassVar[bool] = False  # whether a dozen fits cost little
    scores_need_source: ClassVar[bool] = False  # whether it can score only a graph that has source nodes

    device: str = param(check_device, '"auto", "cpu", "cuda", ...', default="auto")
    random_state: int = param(
        Integer(0, 2**63 - 1), "seed of initial weights, dropout and, where no split is given, the split", default=0
    )

    scores_: Scores = learned("novelty of each node of the graph it was fitted on, (nodes,)", per_node=True)
    seed_: int = learned("the seed it was trained from: `random_state`, unless the loss became non-finite from that")
    is_target_: Mask = learned("domain of each node, (nodes,)", per_node=True)
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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        settings.make_estimator(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        # A setting of NumPy's type overflows, is refused by generators and cannot be saved; as Python's it is the same.
        super().__setattr__(name, settings.plain(value))

    def _computing(self) -> contextlib.AbstractContextManager[Any]:
        """Return the state of libraries that the method computes in; by default, as it is."""
        return contextlib.nullcontext()

    def _learn(self, shown: Sequence[Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
        """Train one model for each presentation and return the learned attributes of each, `scores_` at least.

        Nothing is changed on self. `truth` is empty unless the class `requires_truth`. By default, presentations of one
        graph and split, which follow each other, are learned from together.
        """
        groups = [list(group) for _, group in groupby(shown, lambda each: (id(each.graph), id(each.split)))]
        learned = []
        for k, group in enumerate(groups):
            report = functools.partial(_report_part, progress, k, len(groups))
            seeds = [each.seed for each in group]
            learned += self._learn_seeds(group[0].graph, group[0].split, seeds, report, **truth)
        return learned

    def _learn_seeds(
        self, graph: NodeGraph, split: Split, seeds: Sequence[int], progress: Progress, **truth: Any
    ) -> list[Attributes]:
        """Train one model for each seed; what the default `_learn` does with each graph and split."""
        raise NotImplementedError

    @abstractmethod
    def _score(self, graph: NodeGraph) -> Scores:
        """Score the nodes of a graph with what was learned."""

    def _rescore(self, graph: NodeGraph) -> Scores:
        """Score a graph that takes the place of the one that was fitted; what is counted is counted in this one."""
        return self._score(graph)

    def _restored(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Rebuild the learned attribute that is not made of plain values from the arrays that were saved of it."""
        raise KeyError(name)

    def _check_params_jointly(self) -> None:
        """Raise SettingError for settings that exclude each other; by default none do."""

    def _rotation_params(self) -> dict[str, Any]:
        """Return settings that take the place of the user's where several fits are averaged; by default none do."""
        return {}

    def _rotated_seed(self, rotation: int) -> int:
        """Return the seed of one of several fits; the first has the seed itself."""
        return self.random_state if rotation == 0 else derive(self.random_state, 83, rotation) & (2**63 - 1)

    def fit(
        self, graph: NodeGraph, split: Split | None = None, *, progress: Progress | None = None, **truth: Any
    ) -> Self:
        """Learn from the graph's features, edges and domains.

        Args:
            graph: true categories, if it has any, are not looked at.
            split: who trains and who validates; without one, 80/20 in each domain from `random_state`.
            progress: called with steps done and steps in all.
            **truth: `novel`, a boolean array over nodes, for a detector that `requires_truth`.

        An interrupted or failed fit leaves the detector unfitted.
        """
        for attribute in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, attribute)
        (fitted,) = self.fit_seeds(graph, [self.random_state], split, progress=progress, **truth)
        self.__dict__.update(learned_attributes(fitted))
        return self

    @computes
    def fit_seeds(
        self,
        graph: NodeGraph,
        seeds: Sequence[int],
        split: Split | None = None,
        *,
        progress: Progress | None = None,
        **truth: Any,
    ) -> list[Self]:
        """Train one copy of this detector per seed, all together as one fleet, and return the fitted copies.

        Up to rounding, each copy is what `fit` with that `random_state` and the same split gives.
        """
        graph, split, truth, back = prepared(self, graph, split, truth)
        split = default_split(graph, self.random_state) if split is None else split
        split.check(graph)
        own = [clone(self).set_params(random_state=seed) for seed in seeds]
        for copy in own:
            settings.check_params(copy)
        shown = [Presentation(graph, split, copy.random_state) for copy in own]
        learned = learn(self, shown, progress or (lambda done, total: None), **truth)
        fitted = [with_learned(*each) for each in zip(own, shown, learned, strict=True)]
        return [permuted(copy, back) for copy in fitted]

    def decision_function(self, graph: NodeGraph | None = None) -> Scores:
        """Score the nodes of `graph`, or of the graph it was fitted on: in [0, 1], higher is more novel."""
        check_is_fitted(self, "scores_")
        if graph is None:
            return self.scores_.copy()
        return score(self, graph)

    def representation(
        self, graph: NodeGraph, nodes: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.float64] | None:
        """Return what the learned networks represent some nodes by, (nodes, width); None without a network."""
        return None

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write settings and what was learned as JSON and safetensors; a saved detector there is replaced."""
        from recoslip.learning.saving import save

        save([self], folder)


settings.make_estimator(Detector)


def prepared(
    detector: Detector, graph: NodeGraph, split: Split | None, truth: Mapping[str, Any]
) -> tuple[NodeGraph, Split | None, dict[str, Any], NDArray[np.int64] | None]:
    """Return what a detector is fitted with, the nodes in the order of their ids; and the order that they had.

    Every draw follows the order of ids, so that the same nodes in another order get the same scores. The order that
    they had is None if it is the same. It raises unless the detector can be fitted so.
    """
    require_graph(graph)
    graph.require_both_domains()
    settings.check_params(detector)
    if truth and not detector.requires_truth:
        raise SettingError(f"{detector.name} must not see the truth; leave {', '.join(truth)} out")
    if split is not None and not isinstance(split, Split):
        raise SettingError(
            f"split must be a Split; got {type(split).__name__}: nothing is learned from labels, which are left out, "
            "as in fit(graph)"
        )
    if split is not None:
        split.check_length(graph)
    order = id_order(graph)
    if order is None:
        return graph, split, dict(truth), None
    arrays = {name: np.asarray(values) for name, values in truth.items()}
    in_order = {name: each[order] if each.shape == order.shape else truth[name] for name, each in arrays.items()}
    return graph.permuted(order), None if split is None else split.permuted(order), in_order, np.argsort(order)


def _report_part(progress: Progress, part: int, parts: int, done: int, total: int) -> None:
    progress(part * total + done, parts * total)


def learn(detector: Detector, shown: Sequence[Presentation], progress: Progress, **truth: Any) -> list[Attributes]:
    """Return what a detector learns from each presentation.

    Where the loss becomes non-finite, presentations are learned from one by one, and a seed that it became non-finite
    from is replaced by one derived from it.
    """
    with detector._computing(), memory_errors(shown[0].graph.nbytes):
        try:
            learned = detector._learn(shown, progress, **truth)
            for attributes in learned:
                check_scores(detector, attributes["scores_"])
            return [{"seed_": each.seed, **attributes} for each, attributes in zip(shown, learned, strict=True)]
        except Diverged as problem:
            if len(shown) > 1:
                return [learn(detector, [each], progress, **truth)[0] for each in shown]
            diverged = problem
        for attempt in range(1, MAX_RESTARTS + 1):
            derived = derive(shown[0].seed, 97, attempt) & (2**63 - 1)
            with contextlib.suppress(Diverged):
                (attributes,) = detector._learn([shown[0]._replace(seed=derived)], progress, **truth)
                check_scores(detector, attributes["scores_"])
                said = f"training diverged from seed {shown[0].seed} and was begun again from seed {derived}"
                warnings.warn(said, RecoslipWarning, stacklevel=6)
                return [{"seed_": derived, **attributes}]
        raise diverged


def with_learned(detector: Detector, shown: Presentation, learned: Attributes) -> Any:
    """Give an unfitted detector what it learned from a presentation, and return it."""
    graph = shown.graph
    detector.__dict__.update(
        {
            "is_target_": graph.is_target.copy(),
            "split_": shown.split,
            "n_features_in_": graph.num_features,
            "feature_names_in_": graph.feature_names,
            "encoding_": graph.encoding,
            "node_": hashes_of(graph),
            "has_edges_": graph.num_edges > 0,
            "has_weights_": graph.edge_weight is not None,
        }
        | learned
    )
    return detector


def learned_attributes(detector: Detector) -> Attributes:
    """Return what a fitted detector learned, by the names of the attributes."""
    return {name: value for name, value in vars(detector).items() if name.endswith("_")}


def permuted(detector: Any, order: NDArray[np.int64] | None) -> Any:
    """Bring the learned arrays over the nodes of a fitted detector into another order, if given, and return it."""
    if order is None:
        return detector
    for name in settings.per_node_attributes(detector) & set(vars(detector)):
        setattr(detector, name, getattr(detector, name)[order])
    detector.split_ = detector.split_.permuted(order)
    return detector


@computes
def score(detector: Detector, graph: NodeGraph, *, again: bool = False) -> Scores:
    """Score the nodes of a graph with a fitted detector.

    Args:
        detector: fitted on a graph with the same features.
        graph: its domains count for detectors that compare with the source.
        again: whether the graph takes the place of the one that was fitted, so that what is counted is counted in it.
    """
    graph, order = as_fitted(detector, graph)
    scores = (detector._rescore if again else detector._score)(graph)
    check_scores(detector, scores)
    return scores[order]


def as_fitted(detector: Detector, graph: NodeGraph) -> tuple[NodeGraph, NDArray[np.int64]]:
    """Return a graph as those of `fit` are, its nodes in the order of ids, and where each node of it is then."""
    _check_features(detector, graph)
    if not detector.has_edges_ and graph.num_edges:
        log.info("edges are left out, as the graph that was fitted had none")
        graph = graph.without_edges()
    if detector.has_weights_ and graph.edge_weight is None and graph.num_edges:
        raise GraphError("this detector was fitted with edge weights, and the graph has none: weight=...")
    order = id_order(graph)
    if order is None:
        return graph, np.arange(graph.num_nodes)
    return graph.permuted(order), np.argsort(order)


def _check_features(detector: Detector, graph: NodeGraph) -> None:
    """Raise unless a graph has the features that a detector was fitted with, made in the same way."""
    if graph.num_features != detector.n_features_in_:
        raise GraphError(
            f"this detector was fitted with {detector.n_features_in_} features; the graph has {graph.num_features}"
        )
    names = detector.feature_names_in_
    if names is not None and graph.feature_names is not None and names != graph.feature_names:
        known, other = next((a, b) for a, b in zip(names, graph.feature_names, strict=True) if a != b)
        raise GraphError(
            f"this detector was fitted with other features: it knows {known!r} where the graph has {other!r}; "
            "read the nodes with its encoder (recoslip.score)"
        )
    own, given = detector.encoding_ or {}, graph.encoding or {}
    for column in {**own, **given} if own and given else ():
        if not same_encoding(own.get(column), given.get(column)):
            fitted, new = (describe_encoding(encoding.get(column)) for encoding in (own, given))
            raise GraphError(
                f"this detector was fitted with column {column!r} encoded by other statistics ({fitted}) than the "
                f"graph's ({new}), so the same value is another feature; read the nodes with its encoder "
                "(recoslip.score)"
            )
    if detector.scores_need_source and bool(graph.is_target.all()):
        raise GraphError(
            f"{detector.name} scores nodes by the source nodes of their graph, and this one has none; give the old "
            "nodes and edges, too (old=...)"
        )


def check_scores(detector: Detector, scores: Scores) -> None:
    """Raise Diverged unless all scores are numbers between 0 and 1."""
    if not ((scores >= 0) & (scores <= 1)).all():
        raise Diverged(
            f"{detector.name} gave a score that is no number between 0 and 1; look for extreme values among the "
            "features"
        )
