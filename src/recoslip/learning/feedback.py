r"""Scores of a detector + verdicts on a few nodes -> scores of the others, and whose verdict would teach most.

The margin of a node is taken for a Gaussian process. Its mean is what the detector said, $m = \log \frac{f}{1 - f}$,
and two nodes deviate from it alike the nearer their similarity vectors are, which are averages over neighbourhoods:

$$ k(u, v) = A^2 \exp(-|x_u - x_v|^2 / 2 l^2). $$

A verdict on $v$ is an observation of its margin with variance $\sigma^2$, for reviewers err, too: at least $y$ if it
was confirmed, $y_v = \max(y, m_v)$, and at most $-y$ if it was rejected, $y_v = \min(-y, m_v)$. Given verdicts on $V$,

$$ m' = m + k(\cdot, V) (k(V, V) + \sigma^2)^{-1} (y_V - m_V). $$

Where the detector was as sure as a verdict already, nothing changes; far from every verdict, nothing changes either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Scores: TypeAlias = NDArray[np.float64]
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
