"""One vector per node -> coordinates of the nodes on a plane, by t-SNE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recoslip.graph.split import Mask

MAX_LANDMARKS = 1_000  # nodes that t-SNE is run on; the others are interpolated
COMPONENTS = 30  # principal components that distances are measured in
NEAREST_LANDMARKS = 3  # that another node is interpolated from
JITTER = 0.004  # standard deviation of the noise on interpolated nodes, relative to the extent of the map


def projection(vectors: NDArray[np.float64], preferred: Mask, seed: int = 0) -> NDArray[np.float64]:
    """Project nodes to a plane, so that nodes with similar vectors are close: (nodes, 2).

    Args:
        vectors: (nodes, width).
        preferred: (nodes,) nodes that become landmarks of t-SNE before others do.
        seed: of the landmarks, t-SNE and jitter.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.preprocessing import StandardScaler

    standardised = StandardScaler().fit_transform(vectors)
    rng = np.random.default_rng(seed)
    if np.ptp(standardised, axis=0).max() < 1e-9:  # all nodes are alike
        return rng.normal(0, 1, (len(standardised), 2))
    x = PCA(min(COMPONENTS, *standardised.shape), random_state=seed).fit_transform(standardised)
    if len(x) < 10 or x.shape[1] < 2:
        return np.asarray(np.column_stack([x, np.zeros((len(x), 2))])[:, :2])
    landmarks = np.argsort(rng.random(len(x)) - preferred, kind="stable")[:MAX_LANDMARKS]
    perplexity = min(30.0, (len(landmarks) - 1) / 3)
    embedded = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=seed).fit_transform(x[landmarks])
    result = np.empty((len(x), 2)) if len(landmarks) == len(x) else _interpolated(x, x[landmarks], embedded, rng)
    result[landmarks] = embedded
    return result


def _interpolated(
    x: NDArray[np.float64], landmarks: NDArray[np.float64], embedded: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Place nodes between the nearest landmarks, weighted by inverse distance and jittered, so that none are hidden."""
    from sklearn.neighbors import NearestNeighbors

    distance, index = NearestNeighbors(n_neighbors=NEAREST_LANDMARKS).fit(landmarks).kneighbors(x)
    weight = 1 / (distance + 1e-9)
    mean = (embedded[index] * weight[..., None]).sum(axis=1) / weight.sum(axis=1, keepdims=True)
    return np.asarray(mean + rng.normal(0, JITTER * np.ptp(embedded), mean.shape))
