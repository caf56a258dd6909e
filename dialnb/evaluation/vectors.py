"""From texts to vectors, and large products of vectors in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from scipy import sparse

from dialnb.data.records import IntentUtterance
from dialnb.errors import DataError

BLOCK_ELEMENTS = 1 << 26
"""Most numbers held at once by a blocked product (256 MB in float32)."""


class SupportsEncode(Protocol):
    """Anything that turns n texts into an array [n, d]: an Encoder, or a baseline of one's own."""

    def encode(self, texts: Sequence[str], **settings: Any) -> np.ndarray: ...


class EncodeOnce:
    """An encoder that remembers: a text that was encoded before with the same settings is not encoded again."""

    def __init__(self, encoder: SupportsEncode) -> None:
        self.encoder, self.known = encoder, {}
        if hasattr(encoder, "asking"):
            self.asking = encoder.asking

    def encode(self, texts: Sequence[str], **settings: Any) -> np.ndarray:
        known = self.known.setdefault(repr(sorted(settings.items())), {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, self.encoder.encode(new, **settings)))
        if not len(texts):
            return self.encoder.encode([], **settings)
        rows = [known[text] for text in texts]
        return sparse.vstack(rows, "csr") if sparse.issparse(rows[0]) else np.stack(rows)


def encode_unique(
    encoder: SupportsEncode, texts: Sequence[str], by: Callable[..., Any] | None = None, **settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the distinct texts and, for each text, its row among them.

    Equal texts share one vector, so that they tie exactly; blank texts become "." as in the papers' code. ``by`` is
    called in place of ``encoder.encode``.
    """
    shown = [text if text.strip() else "." for text in texts]
    row_of = {text: row for row, text in enumerate(dict.fromkeys(shown))}
    vectors = (by or encoder.encode)(list(row_of), **settings)
    vectors = vectors if sparse.issparse(vectors) else np.asarray(vectors)
    if vectors.ndim != 2 or vectors.shape[0] != len(row_of):
        raise DataError(
            f"the encoder returned an array of shape {vectors.shape} for {len(row_of)} texts, expected [n, d]"
        )
    return vectors, np.fromiter((row_of[text] for text in shown), np.int64, len(shown))


def encode(encoder: SupportsEncode, texts: Sequence[str], **settings: Any) -> np.ndarray:
    """One vector per text, in order (each distinct text is encoded once)."""
    vectors, rows = encode_unique(encoder, texts, **settings)
    return vectors[rows]


def normalise(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length (zero rows stay zero), in float32, or float64 where that came in."""
    if sparse.issparse(vectors):
        norms = np.sqrt(np.asarray(vectors.multiply(vectors).sum(1)))
        return vectors.multiply(1 / np.maximum(norms, np.finfo(np.float64).tiny)).tocsr()
    vectors = np.asarray(vectors)
    if vectors.ndim != 2:
        raise DataError(f"expected vectors as a matrix [n, d], got an array of shape {vectors.shape}")
    if vectors.dtype != np.float64:
        vectors = vectors.astype(np.float32 if vectors.dtype.kind == "f" else np.float64, copy=False)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise DataError(f"{int((~np.isfinite(norms)).sum())} of {len(vectors)} vectors hold NaN or infinite values")
    return vectors / np.maximum(norms, np.finfo(vectors.dtype).tiny)


def pair_scores(first: np.ndarray, second: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Dot products of ``first[rows[i]]`` with ``second[columns[i]]`` for every i, gathered block by block."""
    scores = np.empty(len(rows), np.result_type(first, second))
    step = max(1, BLOCK_ELEMENTS // max(1, 2 * first.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        left, right = first[rows[part]], second[columns[part]]
        if sparse.issparse(left):
            scores[part] = np.asarray(left.multiply(right).sum(1)).ravel()
        else:
            scores[part] = np.einsum("ij,ij->i", left, right)
    return scores


def nearest(queries: np.ndarray, references: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Exact k nearest references by cosine: similarities and indices [n, k], most similar first.

    Equal similarities come in order of the reference index. Per query only the chunks of references whose best score
    is among the k best of all chunks are looked into: nothing outside them can be among the k nearest.
    """
    count = references.shape[0]
    if not 1 <= k <= count:
        raise DataError(f"asked for {k} neighbours among {count} references; k must be between 1 and that")
    if sparse.issparse(references):
        return _nearest_sparse(normalise(queries), normalise(references), k)
    width = 256 if 256 * k <= count else 1
    chunks = -(-count // width)
    left, right = torch.from_numpy(normalise(queries)), torch.from_numpy(normalise(references))
    right = torch.nn.functional.pad(right, (0, 0, 0, chunks * width - count)).to(left.dtype).T
    similarities, indices = np.empty((len(left), k), np.float64), np.empty((len(left), k), np.int64)
    step = max(1, BLOCK_ELEMENTS // (chunks * width))
    buffer = torch.empty(min(step, len(left)), chunks * width, dtype=left.dtype)
    for start in range(0, len(left), step):
        rows = left[start : start + step]
        scores = torch.matmul(rows, right, out=buffer[: len(rows)])
        scores[:, count:] = -torch.inf
        tops = scores.view(len(rows), chunks, width).amax(2)
        bound = tops.amax(1) if k == 1 else tops.topk(k, 1).values[:, -1]
        row, chunk = (tops >= bound[:, None]).nonzero(as_tuple=True)
        inside = scores.view(len(rows), chunks, width)[row, chunk]
        place, offset = (inside >= bound[row, None]).nonzero(as_tuple=True)
        score, index = inside[place, offset].numpy(), (chunk[place] * width + offset).numpy()
        row = row[place].numpy()
        order = np.lexsort((index, -score, row))
        best = order[np.searchsorted(row, np.arange(len(rows)))[:, None] + np.arange(k)]
        similarities[start : start + step], indices[start : start + step] = score[best], index[best]
    return similarities, indices


def _nearest_sparse(queries: sparse.csr_matrix, references: sparse.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """As `nearest`, for sparse vectors of unit length."""
    parts = []
    for start in range(0, queries.shape[0], 256):
        scores = (queries[start : start + 256] @ references.T).toarray()
        parts.append((scores, np.argsort(-scores, axis=1, kind="stable")[:, :k]))
    indices = np.concatenate([order for _, order in parts])
    return np.concatenate([np.take_along_axis(scores, order, 1) for scores, order in parts]), indices


def listed_scores(
    encoder: SupportsEncode,
    asked: Sequence[str],
    listed: Sequence[str],
    sizes: Sequence[int],
    query_settings: dict[str, Any],
    settings: dict[str, Any],
) -> np.ndarray:
    """The score of every listed text with its query, ``sizes`` of them for each: their cosine, or, of an encoder with
    vectors of its own for what is asked (``asking``), their dot product."""
    own = getattr(encoder, "asking", None)
    unit = normalise if own is None else lambda vectors: vectors
    queries, query_ids = encode_unique(encoder, asked, own, **query_settings)
    responses, response_ids = encode_unique(encoder, listed, **settings)
    return pair_scores(unit(queries), unit(responses), np.repeat(query_ids, sizes), response_ids)


def texts_and_labels(examples: Sequence[IntentUtterance] | tuple[Sequence[str], Sequence]) -> tuple[list[str], list]:
    """Texts and labels of labelled utterances, given as records or as a pair of lists."""
    if isinstance(examples, tuple) and len(examples) == 2 and not isinstance(examples[0], IntentUtterance):
        texts, labels = list(examples[0]), list(examples[1])
    else:
        texts, labels = [e.text for e in examples], [e.intent for e in examples]
    if len(texts) != len(labels) or not texts:
        raise DataError(f"expected as many texts as labels, and at least one: found {len(texts)} and {len(labels)}")
    return texts, labels


def label_ids(*columns: Sequence) -> tuple[list, list[np.ndarray]]:
    """Distinct labels in order of first appearance over all columns, and each column as integers."""
    names = list(dict.fromkeys(label for column in columns for label in column))
    id_of = {name: i for i, name in enumerate(names)}
    return names, [np.fromiter((id_of[label] for label in column), np.int64, len(column)) for column in columns]
