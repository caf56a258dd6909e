"""Embedding spaces on paper: seeded t-SNE and UMAP, each with a number that says how far the picture can be trusted."""

import warnings

import numpy as np
from numpy import ndarray
from pandas import DataFrame

from dialnb.errors import DataError, DialnbError, check_known
from dialnb.evaluation.geometry import neighbourhood_preservation
from dialnb.evaluation.vectors import normalise

NEIGHBOURS = 10
"""Of a point, that a projection should preserve."""
METHODS = {"tsne": "t-SNE", "umap": "UMAP"}


def project(vectors: ndarray, method: str = "tsne", *, seed: int, perplexity: float = 30) -> DataFrame:
    """One row per vector: x, y, the method, and the neighbourhood preservation of the whole picture (same in each row).

    Cosine geometry: vectors are normalised first. Both methods start from the principal components, run on one thread
    and draw from ``seed``, so that the same vectors give the same picture. ``perplexity`` is the size of neighbourhood
    that t-SNE balances; UMAP takes half of it (30 gives its usual 15). UMAP compiles itself once per process, which
    takes longer than the projection: about 15 seconds.
    """
    check_known("projection", method, METHODS)
    points = np.asarray(vectors, np.float32)
    if points.ndim != 2 or points.shape[1] < 2 or not np.isfinite(points).all():
        raise DataError(f"a projection needs finite vectors [n, d >= 2]; got {points.shape}, or NaN or infinity in it")
    fewest = int(max(perplexity, 2 * NEIGHBOURS)) + 1
    if len(points) < fewest:
        raise DataError(
            f"perplexity {perplexity:g} and {NEIGHBOURS} neighbours need at least {fewest} points, got {len(points)}; "
            "project more points or ask for smaller neighbourhoods"
        )
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        points = normalise(points)
        start = _principal(points)
        if method == "umap":
            places = _umap(points, start, seed, perplexity)
        else:
            places = TSNE(perplexity=perplexity, init=start, random_state=seed, n_jobs=1).fit_transform(points)
        kept = neighbourhood_preservation(points, places, NEIGHBOURS)
    frame = DataFrame(places.astype(np.float64), columns=["x", "y"])
    return frame.assign(method=METHODS[method], preservation=kept)


def _principal(points: ndarray) -> ndarray:
    """The first two principal components, tiny (as t-SNE wants its start) and with settled signs."""
    centred = points - points.mean(0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1)
    start = centred @ (directions * np.where(largest < 0, -1, 1)).T
    return (start * (1e-4 / max(float(start[:, 0].std()), 1e-12))).astype(np.float32)


def _umap(points: ndarray, start: ndarray, seed: int, perplexity: float) -> ndarray:
    """UMAP on exact neighbours: its own search for them takes longest to compile."""
    try:
        from umap import UMAP
    except ImportError as error:
        raise DialnbError(
            f"UMAP needs the package umap-learn, which cannot be imported here ({error}): "
            "`pip install umap-learn`, or project with method='tsne'"
        ) from error
    from sklearn.neighbors import NearestNeighbors

    size = max(2, round(perplexity / 2))
    distances, nearest = NearestNeighbors(n_neighbors=size, n_jobs=1).fit(points).kneighbors(points)
    known = nearest.astype(np.int32), distances.astype(np.float32)
    umap = UMAP(size, init=start, n_epochs=500, random_state=seed, n_jobs=1, precomputed_knn=known)
    with warnings.catch_warnings(action="ignore"):  # it could not place further points
        return umap.fit_transform(points)
