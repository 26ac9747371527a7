"""Detector + graph -> fits that each hid another part of the source, and p-values by comparison with that part."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from recoslip.base.errors import SettingError
from recoslip.base.files import Folder, writing
from recoslip.base.progress import Progress
from recoslip.base.settings import Choice, Integer, Number, check_params, json_params
from recoslip.data.graph import NodeGraph, require_graph
from recoslip.data.ids import hashes_of
from recoslip.data.split import Mask, Split, present
from recoslip.data.vectors import F32, Vectors
from recoslip.inference import p_values as conformal
from recoslip.inference.hiding import ONE_BY_ONE, RANDOM_PARTS, Hiding, match_domains
from recoslip.learning import base, loading, saving
from recoslip.learning.base import Attributes, Detector, Presentation, Scores

Learn: TypeAlias = Callable[..., list[Attributes]]  # called as `recoslip.learning.base.learn`

MAX_FPR = 0.01  # of a list, where none is given
MAX_ROTATIONS = 20  # more fits than these bring nothing
MAX_SIMILARITY = 2_000_000  # nodes whose vectors are kept with a model: 256 MB


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A detector that was fitted several times, each time with another part of the source hidden among the target.

    The hidden nodes are known, and the detector was not told. How high they score says how high known target nodes
    score, so that each target node gets a p-value. `recoslip.calibrate` makes it.
    """

    detector: Detector  # with its settings; not fitted
    fits: tuple[Detector, ...]
    fit_scores: tuple[Scores, ...]  # (nodes,) of each fit
    hidden: tuple[Mask, ...]  # (nodes,) the source nodes that p-values compare with, of each fit
    is_target: Mask  # (nodes,)
    node: NDArray[np.int64]  # (nodes,) hashes of their ids
    is_calibrated: bool  # whether they were hidden during the fits, so that p-values hold
    hiding: Hiding = ONE_BY_ONE  # how they were chosen
    max_fpr: float = MAX_FPR  # fraction of the known target nodes that may be listed
    transferred: bool = False  # whether this is about another graph than that of the fits
    vectors: NDArray[np.floating] | None = field(default=None, repr=False)  # whose inner products are similarities

    @classmethod
    def uncalibrated(cls, fitted: Detector) -> Calibrated:
        """Compare with the validation nodes of a single fit, which learned that they are source: no guarantee."""
        check_is_fitted(fitted, "scores_")
        return cls(
            detector=clone(fitted),
            fits=(fitted,),
            fit_scores=(fitted.scores_,),
            hidden=(fitted.split_.validation & ~fitted.is_target_,),
            is_target=fitted.is_target_,
            node=fitted.node_,
            is_calibrated=False,
        )

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.detector.name

    @cached_property
    def calibration(self) -> Mask:
        """The source nodes that p-values compare with, (nodes,)."""
        return np.asarray(np.any(self.hidden, axis=0))

    @cached_property
    def scores(self) -> Scores:
        """Mean scores; a hidden node has that of the fits in which it was hidden, so that the two can be compared."""
        scores = np.mean(self.fit_scores, axis=0)
        if self.is_calibrated:
            own = np.sum([np.where(hidden, each, 0.0) for each, hidden in self._fits()], axis=0)
            scores = np.where(self.calibration, own * conformal.weights(self.hidden), scores)
        return np.asarray(scores)

    def _fits(self) -> list[tuple[Scores, Mask]]:
        """Return scores and hidden nodes of each fit."""
        return list(zip(self.fit_scores, self.hidden, strict=True))

    def p_values(self) -> Scores:
        """Return the conformal p-value of each target node, and NaN for source nodes.

        For a known node P(p ≤ u) ≤ u, if it is like the hidden source nodes (docs/guarantees.md has what holds for
        several fits, and for another graph). Without hidden nodes, nothing is promised.
        """
        return self.p_values_within(np.zeros(len(self.is_target), dtype=np.int64))

    def p_values_within(self, part: NDArray[np.integer]) -> Scores:
        """Return the p-value of each target node among the hidden nodes of its own part of the graph.

        Args:
            part: (nodes,) the part that each node belongs to, which must not depend on its score or its domain.
        """
        return conformal.p_values_within(self._fits(), part, self.is_target)

    def select(self, *, max_fpr: float | None = None, fdr: float | None = None) -> Mask:
        """Choose the target nodes to list, (nodes,).

        Args:
            max_fpr: fraction of the known target nodes that may be listed; by default what was asked for.
            fdr: instead, the expected fraction of known nodes among the listed ones (Benjamini-Hochberg).
        """
        if fdr is not None:
            Number(0, 1)("fdr", fdr)
        p = self.p_values()[self.is_target]
        chosen = self.is_target.copy()
        chosen[self.is_target] = conformal.selected(p, self.max_fpr if max_fpr is None else max_fpr, fdr)
        return chosen

    def placebo_lists(self, fdr: float) -> list[float]:
        """Return, of each fit, which fraction of its hidden nodes would be listed if they were the target.

        They are compared with the hidden nodes of the other fits, as these scored there.
        """
        weight, lists = conformal.weights(self.hidden), []
        for own, (scores, hidden) in enumerate(self._fits()):
            others = [
                (scores[hidden], other[mask], weight[mask]) for k, (other, mask) in enumerate(self._fits()) if k != own
            ]
            lists.append(float(conformal.benjamini_hochberg(conformal.cross_p_values(others), fdr).mean()))
        return lists

    def threshold(self) -> float:
        """Return the score from which on about `max_fpr` of the hidden nodes would be listed."""
        return conformal.threshold(self.scores[self.calibration], self.max_fpr)

    def hidden_in(self, graph: NodeGraph) -> list[Mask]:
        """Return, of each fit, which source nodes of a graph it hid, which their ids tell: (nodes,)."""
        require_graph(graph)
        node = hashes_of(graph)
        return [np.isin(node, self.node[hidden]) & ~graph.is_target for hidden in self.hidden]

    def decision_function(self, graph: NodeGraph | None = None) -> Scores:
        """Return mean scores of the nodes of a graph, or of the one that this is about."""
        return self.scores.copy() if graph is None else np.asarray(np.mean(self._scores_in(graph), axis=0))

    def scores_and_p_values(self, graph: NodeGraph) -> tuple[Scores, Scores]:
        """Return scores, and p-values by comparison with the hidden nodes as these scored in the fit."""
        scores, weight = self._scores_in(graph), conformal.weights(self.hidden)
        compared = [
            (own, known[hidden], weight[hidden]) for own, (known, hidden) in zip(scores, self._fits(), strict=True)
        ]
        p = np.where(graph.is_target, conformal.cross_p_values(compared), np.nan)
        return np.asarray(np.mean(scores, axis=0)), p

    def _scores_in(self, graph: NodeGraph, *, again: bool = False) -> list[Scores]:
        """Score the nodes of a graph by each fit; where domains count, the nodes that it hid are target."""
        hidden = self.hidden_in(graph)
        return [
            base.score(fit, self._as_presented(graph, own, again=again), again=again)
            for fit, own in zip(self.fits, hidden, strict=True)
        ]

    def _as_presented(self, graph: NodeGraph, hidden: Mask, *, again: bool) -> NodeGraph:
        """Return a graph with the nodes that a fit hid shown as target, where it matters."""
        is_target = graph.is_target | hidden
        matters = self.is_calibrated and hidden.any() and (again or self.detector.scores_need_source)
        return graph.with_target(is_target) if matters and not is_target.all() else graph

    def transfer(self, graph: NodeGraph, nodes: NDArray[np.int64] | None = None) -> Calibrated:
        """Return what this says of another graph: its scores, hidden nodes and p-values.

        A source node of the graph that a fit hid is hidden again. For the graph of the fits, it says the same.

        Args:
            graph: with the features that it was fitted with, and source nodes that it was fitted on.
            nodes: positions of the nodes that the result shall be about; by default all. The others are neighbours.
        """
        scores, hidden = self._scores_in(graph, again=True), self.hidden_in(graph)
        chosen = np.arange(graph.num_nodes) if nodes is None else nodes
        node = hashes_of(graph)
        return replace(
            self,
            fit_scores=tuple(own[chosen] for own in scores),
            hidden=tuple(own[chosen] for own in hidden),
            is_target=graph.is_target[chosen],
            node=node[chosen],
            transferred=not np.array_equal(np.sort(node), np.sort(self.node)),
            vectors=_vectors(graph)[chosen],
        )

    def is_about(self, graph: NodeGraph) -> bool:
        """Return whether the scores are those of a graph: its nodes, in its order, and its domains."""
        require_graph(graph)
        return (
            len(self.node) == graph.num_nodes
            and np.array_equal(self.is_target, graph.is_target)
            and np.array_equal(self.node, hashes_of(graph))
        )

    def with_settings(self, **settings: Any) -> Calibrated:
        """Return the same with other settings, which nothing learned depends on: `max_fpr`, `device`, `batch_size`."""
        max_fpr = settings.pop("max_fpr", self.max_fpr)
        Number(0, 1)("max_fpr", max_fpr)
        detector = clone(self.detector).set_params(**settings)
        check_params(detector)
        fits = []
        for fit in self.fits:
            copy = clone(fit).set_params(**settings)
            copy.__dict__.update(base.learned_attributes(fit))
            fits.append(copy)
        return replace(self, detector=detector, fits=tuple(fits), max_fpr=float(max_fpr))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write settings and what was learned as JSON and safetensors; a saved model there is replaced."""
        with writing(folder, "model", replace=True) as written:
            for name, content in self._contents().items():
                written.write(name, content)

    def save_below(self, written: Folder, name: str) -> None:
        """Write what `save` writes into a folder within one that is being written."""
        saving.save_below(written, name, self._contents())

    def _contents(self) -> dict[str, bytes]:
        values = {
            "settings": json_params(self.detector),
            "is_calibrated": self.is_calibrated,
            "max_fpr": self.max_fpr,
            "transferred": self.transferred,
            "hiding": asdict(self.hiding),
        }
        arrays: dict[str, NDArray[Any]] = {"is_target": self.is_target, "node": self.node}
        arrays |= {} if self.vectors is None else {"vectors": self.vectors}
        for k, own in enumerate(zip(self.fit_scores, self.hidden, strict=True)):
            arrays |= {f"scores.{k}": own[0], f"hidden.{k}": own[1]}
        return saving.contents(self.fits, values, arrays)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **settings: Any) -> Calibrated:
        """Read what `save` wrote, or a detector that was saved.

        Args:
            folder: what was given to `save`.
            **settings: to change: `max_fpr`, `device` and `batch_size`, and `encoder` where it was the user's own
                module, which is not saved.
        """
        max_fpr = {name: settings.pop(name) for name in ("max_fpr",) if name in settings}
        fits, values, arrays = loading.load(folder, settings)
        if not values:
            return cls.uncalibrated(fits[0]).with_settings(**max_fpr)
        own = {key: tuple(v) if isinstance(v, list) else v for key, v in values["settings"].items()}
        result = cls(
            detector=clone(fits[0]).set_params(**(own | settings)),
            fits=tuple(fits),
            fit_scores=tuple(arrays[f"scores.{k}"] for k in range(len(fits))),
            hidden=tuple(arrays[f"hidden.{k}"] for k in range(len(fits))),
            is_target=arrays["is_target"],
            node=arrays["node"],
            is_calibrated=values["is_calibrated"],
            hiding=Hiding(**values["hiding"]),
            max_fpr=values["max_fpr"],
            transferred=values["transferred"],
            vectors=arrays.get("vectors"),
        )
        return result.with_settings(**max_fpr) if max_fpr else result


def calibrate(
    detector: Detector,
    graph: NodeGraph,
    split: Split | None = None,
    *,
    rotations: int | None = None,
    hiding: Literal["matched", "random"] = "matched",
    max_fpr: float = MAX_FPR,
    progress: Progress | None = None,
    learn: Learn = base.learn,
    **truth: Any,
) -> Calibrated:
    """Fit a detector several times, each time with another part of the source shown as target.

    Args:
        detector: not changed.
        graph: true categories, if it has any, are not looked at.
        split: who trains and who validates; without one, one is drawn.
        rotations: how many times to fit; by default 5, or 12 fits of the scan where the domains follow the edges.
        hiding: what is hidden: "matched", parts of the source that follow the edges as much as the domains do; or
            "random", nodes drawn one by one, which the former are where the domains do not follow the edges.
        max_fpr: fraction of the known target nodes that a list may hold.
        progress: called with steps done and steps in all.
        learn: called instead of `recoslip.learning.base.learn`, to learn elsewhere.
        **truth: as for `Detector.fit`.

    >>> from recoslip import Scan
    >>> x = np.repeat([[0.0, 1.0], [1.0, 0.0]], 50, axis=0)
    >>> graph = NodeGraph(x, np.empty((2, 0), int), np.arange(100) >= 40)
    >>> calibrate(Scan(), graph).select(max_fpr=0.05).sum()
    np.int64(50)
    """
    if not isinstance(detector, Detector):
        raise SettingError(f"expected a detector, such as recoslip.Scan(); got {detector!r:.80}")
    if rotations is not None:
        Integer(2, MAX_ROTATIONS)("rotations", rotations)
    Choice(Literal["matched", "random"])("hiding", hiding)
    Number(0, 1)("max_fpr", max_fpr)
    require_graph(graph)
    vectors = _vectors(graph)  # before the nodes are put in another order, so that they are kept with the graph
    graph, split, truth, back = base.prepared(detector, graph, split, truth)
    one: Detector = clone(detector).set_params(**detector._rotation_params())
    chosen = match_domains(graph, detector.random_state) if hiding == "matched" else ONE_BY_ONE
    count = RANDOM_PARTS if rotations is None and not detector.fits_in_seconds else rotations
    hidden = chosen.parts(graph, count, detector.random_state)
    shown = [_presented(one, graph, split, part, k) for k, part in enumerate(hidden)]
    learned = learn(one, shown, progress or (lambda done, total: None), **truth)
    fits = []
    for each, attributes in zip(shown, learned, strict=True):
        fit = clone(one).set_params(random_state=each.seed)
        fits.append(base.permuted(base.with_learned(fit, each._replace(graph=graph), attributes), back))
    return Calibrated(
        detector=clone(detector),
        fits=tuple(fits),
        fit_scores=tuple(fit.scores_ for fit in fits),
        hidden=tuple(part if back is None else part[back] for part in hidden),
        is_target=fits[0].is_target_,
        node=fits[0].node_,
        is_calibrated=True,
        hiding=chosen,
        max_fpr=float(max_fpr),
        vectors=vectors.astype(np.float16) if graph.num_nodes <= MAX_SIMILARITY else None,
    )


def _presented(detector: Detector, graph: NodeGraph, split: Split | None, hidden: Mask, rotation: int) -> Presentation:
    """Return what a detector sees in one of several fits."""
    rng = np.random.default_rng([detector.random_state, 3, rotation])
    shown, own = present(graph, split, hidden, rng, detector.random_state)
    own.check(shown)
    if not detector.uses_validation:
        own = Split(own.train | own.validation, np.zeros_like(hidden), own.test)
    return Presentation(shown, own, detector._rotated_seed(rotation))


def _vectors(graph: NodeGraph) -> F32:
    """Return vectors whose inner products are the similarities of nodes, (nodes, width)."""
    return Vectors.of(graph).summary()


def mean_uncertainty(model: Calibrated) -> Scores | None:
    """Return the uncertainty of each score, where the method has one and the graph is that of the fits."""
    if model.transferred or not all(hasattr(fit, "uncertainty_") for fit in model.fits):
        return None
    uncertainties: Sequence[Scores] = [fit.uncertainty_ for fit in model.fits]
    return np.asarray(np.mean(uncertainties, axis=0))
