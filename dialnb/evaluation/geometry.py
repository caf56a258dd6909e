"""Shape of an embedding space: alignment, uniformity, anisotropy, whitening, and how faithful a projection is."""

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from dialnb.errors import DataError
from dialnb.evaluation.vectors import label_ids, normalise


def alignment(vectors: ndarray, labels: Sequence) -> float:
    """Mean squared distance over unordered pairs of equal label, on normalised vectors (lower is tighter).

    Per class the sum over pairs is ``size * sum |f - centre|^2``, so the exact mean costs one pass, not n^2.

    >>> round(alignment(np.array([[1, 0], [0.8, 0.6], [0, 1]]), [0, 0, 1]), 6)
    0.4
    """
    points = normalise(np.asarray(vectors, np.float64))
    names, (ids,) = label_ids(labels)
    sizes = np.bincount(ids, minlength=len(names))
    pairs = int((sizes * (sizes - 1) // 2).sum())
    if not pairs:
        raise DataError("alignment is undefined: no two vectors share a label")
    order = np.argsort(ids, kind="stable")
    total = 0.0
    for rows in np.split(order, np.cumsum(sizes)[:-1]):
        total += len(rows) * float(((points[rows] - points[rows].mean(0)) ** 2).sum())
    return total / pairs


def uniformity(vectors: ndarray, block: int = 1024) -> float:
    """``log mean exp(-2 |f_i - f_j|^2)`` over unordered pairs i < j, on normalised vectors (lower is more uniform)."""
    points = _points(vectors, "uniformity")
    n = len(points)
    total = 0.0
    for start in range(0, n, block):
        rows = points[start : start + block]
        for other in range(start, n, block):
            columns = points[other : other + block]
            kernel = np.exp(4 * np.minimum(rows @ columns.T, 1) - 4)
            total += float(np.triu(kernel, 1).sum() if other == start else kernel.sum())
    return float(np.log(total / (n * (n - 1) / 2)))


def anisotropy(vectors: ndarray) -> float:
    """Mean cosine over unordered pairs of vectors: 0 where directions are spread evenly, 1 where all are the same.

    >>> round(anisotropy(np.array([[1, 0], [1, 0], [0, 2]])), 4)
    0.3333
    """
    points = _points(vectors, "anisotropy")
    n = len(points)
    return float((np.square(points.sum(0)).sum() - np.square(points).sum()) / (n * (n - 1)))


def _points(vectors: ndarray, what: str) -> ndarray:
    if len(vectors) < 2:
        raise DataError(f"{what} needs at least two vectors, got {len(vectors)}")
    return normalise(np.asarray(vectors, np.float64))


def whiten(vectors: ndarray) -> ndarray:
    """The whitening baseline: centred vectors times ``U Lambda^(-1/2)`` of their own covariance.

    Directions without variance are dropped.
    """
    centred = np.asarray(vectors, np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    kept = singular > singular.max(initial=0) * 1e-7
    return (centred @ directions[kept].T * (np.sqrt(len(centred)) / singular[kept])).astype(np.float32)


def neighbourhood_preservation(vectors: ndarray, projection: ndarray, neighbours: int = 10) -> float:
    """Trustworthiness of a projection in [0, 1]: are neighbours in the picture neighbours (by cosine) in the space?"""
    from sklearn.manifold import trustworthiness

    return float(trustworthiness(normalise(vectors), np.asarray(projection), n_neighbors=neighbours))
