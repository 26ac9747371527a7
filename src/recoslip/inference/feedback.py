r"""Scores of a detector + verdicts on a few nodes -> scores of the others, and whose verdict would teach most.

The margin of a node is taken for a Gaussian process. Its mean is what the detector said, $m = \log \frac{f}{1 - f}$,
and two nodes deviate from it alike the nearer their similarity vectors are, which are averages over neighbourhoods:

$$ k(u, v) = A^2 \exp(-|x_u - x_v|^2 / 2 l^2). $$

A verdict on $v$ is an observation of its margin with variance $\sigma^2$, for reviewers err, too: at least $y$ if it
was confirmed, $y_v = \max(y, m_v)$, and at most $-y$ if it was rejected, $y_v = \min(-y, m_v)$. Given verdicts on $V$,

$$ m' = m + k(\cdot, V) (k(V, V) + \sigma^2)^{-1} (y_V - m_V). $$

Where the detector was as sure as a verdict already, nothing changes; far from every verdict, nothing changes either.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recoslip.base.errors import SettingError
from recoslip.base.text import counted
from recoslip.data.ids import id_hashes
from recoslip.inference.calibrated import MAX_SIMILARITY, Calibrated
from recoslip.learning.base import Scores

Positions: TypeAlias = Sequence[int] | NDArray[np.int64]

AMPLITUDE = 2.0  # A: how far the detector's margins are off, as a standard deviation
NOISE = 2.5  # sigma: how far a verdict is off
VERDICT = 3.0  # y: the margin of f = 0.95
NEAR = 0.02  # fraction of the nodes that lie within the length scale l of a node, about
MIN_NEAR = 10  # and the least number of them
MIN_LENGTH = 1e-3  # of the length scale, where nodes are equal
LOWEST = 1e-3  # where a verdict contradicts a score nearer to 0 or 1, it counts as so near
TINY = 1e-12  # keeps the margins of all others finite, and apart
MAX_SAMPLE = 20_000  # nodes that the length scale is measured among, and that a queue is chosen to teach about
MAX_ENTRIES = 2 * 10**8  # of the matrix of verdicts and nodes: of more verdicts, a sample is learned from
CANDIDATES = 200  # nodes that are compared as the next of a queue
BLOCK = 16_384  # rows at a time


class VerdictModel:
    """What verdicts say about nodes.

    Args:
        similarity: (nodes, width) vectors of length 1 whose inner products are similarities.
        scores: (nodes,) what the detector said, in [0, 1].
        seed: of the samples.
    """

    def __init__(self, similarity: NDArray[np.floating], scores: Scores, seed: int = 0) -> None:
        self.x = np.asarray(similarity, dtype=np.float32)
        self.margin = _logit(scores, TINY)
        self.rng = np.random.default_rng(seed)
        self.length = self._length_scale()
        self.nodes = np.empty(0, dtype=np.int64)  # with a verdict
        self.cholesky: NDArray[np.floating] = np.empty((0, 0))  # of the covariance of verdicts
        self.residual = np.empty(0)  # (verdicts,) of their margins, whitened

    def _length_scale(self) -> float:
        """Return the median distance of a node to so many others that are near it."""
        nodes = len(self.x)
        some = self.rng.choice(nodes, min(300, nodes), replace=False)
        among = self.rng.choice(nodes, min(MAX_SAMPLE, nodes), replace=False)
        distance = np.sqrt(_squared_distance(self.x[some], self.x[among]))
        near = min(max(MIN_NEAR, int(NEAR * len(among))), len(among) - 1)
        return max(MIN_LENGTH, float(np.median(np.partition(distance, near, axis=1)[:, near])))

    def observe(self, confirmed: Positions, rejected: Positions) -> None:
        """Take verdicts into account: the positions of nodes that are novel, and of nodes that are known."""
        nodes = np.array([*confirmed, *rejected], dtype=np.int64)
        margin = _logit(1 / (1 + np.exp(-self.margin[nodes])), LOWEST)
        is_confirmed = np.arange(len(nodes)) < len(confirmed)
        residual = np.where(is_confirmed, np.maximum(VERDICT - margin, 0), np.minimum(-VERDICT - margin, 0))
        most = max(50, MAX_ENTRIES // max(1, len(self.x)))
        if len(nodes) > most:
            kept = np.sort(self.rng.choice(len(nodes), most, replace=False))
            nodes, residual = nodes[kept], residual[kept]
        from scipy.linalg import solve_triangular

        covariance = self._kernel(nodes, nodes) + NOISE**2 * np.eye(len(nodes))
        self.nodes, self.cholesky = nodes, np.linalg.cholesky(covariance)
        self.residual = solve_triangular(self.cholesky, residual, lower=True)

    def scores(self) -> Scores:
        """Return f of all nodes, given the verdicts."""
        from scipy.linalg import solve_triangular

        weights = solve_triangular(self.cholesky, self.residual, lower=True, trans=1)
        margin = self.margin.copy()
        for begin in range(0, len(margin), BLOCK):
            rows = np.arange(begin, min(begin + BLOCK, len(margin)))
            margin[rows] += self._kernel(rows, self.nodes) @ weights
        return np.asarray(1 / (1 + np.exp(-margin)))

    def queue(self, count: int, allowed: NDArray[np.bool_]) -> list[int]:
        """Return the nodes whose verdicts teach most, one after the other.

        Each is the one that lowers the variance of margins most, summed over nodes with weight f (1 - f), which is
        highest where a verdict decides; what those before it in the queue will teach is counted already.

        Args:
            count: how many.
            allowed: (nodes,) those that may be asked about.
        """
        f = self.scores()
        doubt = f * (1 - f)
        pool = np.flatnonzero(allowed)
        pool = pool[np.argsort(-doubt[pool], kind="stable")][: 5 * CANDIDATES]
        nodes = np.union1d(np.argsort(-doubt, kind="stable")[:MAX_SAMPLE], pool)  # to learn about, and to ask about
        known = self._whitened(nodes)  # (verdicts, nodes) their part of the covariance
        variance = AMPLITUDE**2 - (known**2).sum(axis=0)
        left = np.searchsorted(nodes, pool)
        chosen: list[int] = []
        while len(chosen) < count and len(left):
            asked = np.sort(self.rng.choice(left, min(CANDIDATES, len(left)), replace=False))
            covariance = self._kernel(nodes[asked], nodes) - known[:, asked].T @ known
            spread = variance[asked] + NOISE**2
            best = int(np.argmax(covariance**2 @ doubt[nodes] / spread))
            row = covariance[best] / np.sqrt(spread[best])
            known, variance = np.vstack([known, row]), variance - row**2
            chosen.append(int(nodes[asked[best]]))
            left = left[left != asked[best]]
        return chosen

    def _whitened(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the covariances of verdicts with nodes, as if the verdicts were independent: (verdicts, nodes)."""
        from scipy.linalg import solve_triangular

        if not len(self.nodes):
            return np.empty((0, len(nodes)))
        return np.asarray(solve_triangular(self.cholesky, self._kernel(self.nodes, nodes), lower=True))

    def _kernel(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        distance = _squared_distance(self.x[rows], self.x[columns])
        return np.asarray(AMPLITUDE**2 * np.exp(-distance / (2 * self.length**2)))


def _logit(f: Scores, nearest: float) -> Scores:
    """Return the margins of scores, which are no nearer to 0 and 1 than `nearest`."""
    clipped = np.clip(f, nearest, 1 - nearest)
    return np.asarray(np.log(clipped / (1 - clipped)))


def _squared_distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)
    return np.asarray(np.maximum(0.0, lengths - 2.0 * (one @ other.T)), dtype=np.float64)


class Feedback:
    """What decisions on some target nodes say about the others.

    Args:
        model: calibrated on the graph that the decisions are about.
        confirmed: ids of target nodes that are novel.
        rejected: ids of target nodes that are known.
    """

    def __init__(self, model: Calibrated, confirmed: Sequence[Any], rejected: Sequence[Any]) -> None:
        self.model, self.target = model, np.flatnonzero(model.is_target)
        self.confirmed, self.rejected = self._positions(confirmed), self._positions(rejected)
        if len(both := np.intersect1d(self.confirmed, self.rejected)):
            raise SettingError(f"{counted(len(both), 'node')} confirmed and rejected at once; decide on one")
        assert model.vectors is not None
        self.process = VerdictModel(model.vectors[self.target], model.scores[self.target], model.detector.random_state)
        self.process.observe(*(np.searchsorted(self.target, nodes) for nodes in (self.confirmed, self.rejected)))

    def _positions(self, ids: Sequence[Any]) -> NDArray[np.int64]:
        """Return the positions of target nodes, in ascending order."""
        model = self.model
        if model.vectors is None:
            raise SettingError(
                f"scores learn from decisions after recoslip.calibrate, on at most {MAX_SIMILARITY:,} nodes"
            )
        found = np.isin(model.node, id_hashes(ids)) & model.is_target
        if found.sum() < (given := len({str(name) for name in ids})):
            known = set(model.node[found].tolist())
            unknown = [name for name in ids if int(id_hashes([name])[0]) not in known]
            raise SettingError(f"{given - found.sum()} of {given} ids are no target nodes (first: {unknown[0]!r})")
        return np.flatnonzero(found)

    def scores(self) -> Scores:
        """Return the scores of all nodes, given the decisions: a confirmed node has 1, a rejected one 0.

        Nodes that are like confirmed ones score higher, and nodes that are like rejected ones lower. p-values and lists
        stay those of the model: what a review guarantees is its own certificate.
        """
        scores = self.model.scores.copy()
        scores[self.target] = self.process.scores()
        scores[self.confirmed], scores[self.rejected] = 1.0, 0.0
        return scores

    def queue(self, count: int = 20, *, without: Sequence[Any] = ()) -> NDArray[np.int64]:
        """Return the positions of the target nodes whose decisions would teach most, given those so far.

        Args:
            count: how many.
            without: ids of further target nodes that are not to be asked about.
        """
        left_out = np.concatenate([self.confirmed, self.rejected, self._positions(without)])
        return np.asarray(self.target[self.process.queue(count, ~np.isin(self.target, left_out))])
