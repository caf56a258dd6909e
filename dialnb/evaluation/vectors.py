"""From texts to vectors, and large products of vectors in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

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

    def encode(self, texts: Sequence[str], **settings: Any) -> np.ndarray:
        known = self.known.setdefault(repr(sorted(settings.items())), {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, self.encoder.encode(new, **settings)))
        return np.stack([known[text] for text in texts]) if len(texts) else self.encoder.encode([], **settings)


def encode_unique(encoder: SupportsEncode, texts: Sequence[str], **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the distinct texts and, for each text, its row among them.

    Equal texts share one vector, so that they tie exactly; blank texts become "." as in the papers' code.
    """
    shown = [text if text.strip() else "." for text in texts]
    row_of = {text: row for row, text in enumerate(dict.fromkeys(shown))}
    vectors = np.asarray(encoder.encode(list(row_of), **settings))
    if vectors.ndim != 2 or len(vectors) != len(row_of):
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
        scores[part] = np.einsum("ij,ij->i", first[rows[part]], second[columns[part]])
    return scores


def nearest(queries: np.ndarray, references: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Exact k nearest references by cosine: similarities and indices [n, k], most similar first.

    Equal similarities come in order of the reference index. Per query only the chunks of references whose best score
    is among the k best of all chunks are looked into: nothing outside them can be among the k nearest.
    """
    count = len(references)
    if not 1 <= k <= count:
        raise DataError(f"asked for {k} neighbours among {count} references; k must be between 1 and that")
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
