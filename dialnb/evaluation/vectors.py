"""From texts to vectors, and large products of vectors in bounded memory."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy import ndarray
from scipy import sparse

from dialnb.data.records import IntentUtterance
from dialnb.errors import DataError
from dialnb.evaluation.foreign import as_encoder
from dialnb.files import Values
from dialnb.tokens import Integers, Numbers

BLOCK_ELEMENTS = 1 << 26
"""Most numbers held at once by a blocked product (256 MB in float32)."""


class SupportsEncode(Protocol):
    """Anything that turns n texts into an array [n, d]: an Encoder, or a baseline of one's own."""

    @property
    def encode(self) -> Callable[..., ndarray]: ...


class EncodeOnce:
    """An encoder that remembers: a text that was encoded before with the same settings is not encoded again."""

    def __init__(self, encoder: SupportsEncode) -> None:
        self.encoder = encoder = as_encoder(encoder)
        self.known: dict[str, dict[str, ndarray]] = {}
        if hasattr(encoder, "asking"):
            self.asking = encoder.asking

    def encode(self, texts: Sequence[str], **settings: Any) -> ndarray:
        if not len(texts):
            return self.encoder.encode([], **settings)
        known = self.known.setdefault(repr(sorted(settings.items())), {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, self.encoder.encode(new, **settings)))
        rows = [known[text] for text in texts]
        return sparse.vstack(rows, "csr") if sparse.issparse(rows[0]) else np.stack(rows)


def encode_unique(
    encoder: SupportsEncode, texts: Sequence[str], by: Callable[..., Any] | None = None, **settings: Any
) -> tuple[ndarray, ndarray]:
    """Vectors of the distinct texts and, for each text, its row among them.

    Equal texts share one vector, so that they tie exactly; blank texts become "." as in the papers' code. ``by`` is
    called in place of ``encoder.encode``.
    """
    names, (rows,) = label_ids([text if text.strip() else "." for text in texts])
    vectors = (by or as_encoder(encoder).encode)(names, **settings)
    vectors = vectors if sparse.issparse(vectors) else np.asarray(vectors)
    if vectors.ndim != 2 or vectors.shape[0] != len(names):
        raise DataError(f"the encoder returned an array of shape {vectors.shape} for {len(names)} texts, not [n, d]")
    return vectors, rows


def encode(encoder: SupportsEncode, texts: Sequence[str], max_length: int = 64, **settings: Any) -> ndarray:
    """One vector per text, in order (each distinct text is encoded once)."""
    vectors, rows = encode_unique(encoder, texts, max_length=max_length, **settings)
    return vectors[rows]


def normalise(vectors: Any) -> Any:
    """Rows scaled to unit length (zero rows stay zero), in float32, or float64 where that came in."""
    if sparse.issparse(vectors):
        norms = np.sqrt(np.asarray(vectors.multiply(vectors).sum(1)))
        return vectors.multiply(1 / np.maximum(norms, np.finfo(np.float64).tiny)).tocsr()
    vectors = np.asarray(vectors)
    if vectors.dtype != np.float64:
        vectors = vectors.astype(np.float32 if vectors.dtype.kind == "f" else np.float64, copy=False)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise DataError(f"{int((~np.isfinite(norms)).sum())} of {len(vectors)} vectors hold NaN or infinite values")
    return vectors / np.maximum(norms, np.finfo(vectors.dtype).tiny)


def pair_scores(first: ndarray, second: ndarray, rows: ndarray, columns: ndarray) -> ndarray:
    """Dot products of ``first[rows[i]]`` with ``second[columns[i]]`` for every i, gathered block by block."""
    scores = np.empty(len(rows), np.result_type(first, second))
    step = max(1, BLOCK_ELEMENTS // max(1, 2 * first.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        left = first[rows[part]]
        right = second[columns[part]]
        if sparse.issparse(left):
            scores[part] = np.asarray(left.multiply(right).sum(1)).ravel()
        else:
            scores[part] = np.einsum("ij,ij->i", left, right)
    return scores


def cosines(encoder: SupportsEncode, *columns: Sequence[str], **settings: Any) -> list[ndarray]:
    """The cosine of each text of the first column with the one in the same place of each other column."""
    vectors, rows = encode_unique(encoder, [text for column in columns for text in column], **settings)
    vectors = normalise(vectors)
    first, *others = rows.reshape(len(columns), -1)
    return [pair_scores(vectors, vectors, first, other) for other in others]


def nearest(queries: ndarray, references: ndarray, k: int = 1) -> tuple[ndarray, ndarray]:
    """Exact k nearest references by cosine: similarities and indices [n, k], most similar first.

    Equal similarities come in order of the reference index.
    """
    count = references.shape[0]
    if not 1 <= k <= count:
        raise DataError(f"asked for {k} neighbours among {count} references; k must be between 1 and that")
    queries = normalise(queries)
    others = normalise(references).T
    step = max(1, BLOCK_ELEMENTS // count)
    similarities = [np.empty((0, k))]
    indices = [np.empty((0, k), np.int64)]
    for start in range(0, queries.shape[0], step):
        scores = queries[start : start + step] @ others
        scores = scores.toarray() if sparse.issparse(scores) else scores
        bound = scores.max(1) if k == 1 else np.partition(scores, count - k, axis=1)[:, count - k]
        row, index = np.nonzero(scores >= bound[:, None])  # the k nearest, and what ties with the last of them
        order = np.lexsort((index, -scores[row, index], row))
        first = np.searchsorted(row, np.arange(len(scores)))
        best = index[order[first[:, None] + np.arange(k)]]
        indices.append(best)
        similarities.append(np.take_along_axis(scores, best, 1))
    return np.concatenate(similarities), np.concatenate(indices)


def listed_scores(
    encoder: SupportsEncode,
    asked: Sequence[str],
    listed: Sequence[str],
    sizes: Integers,
    query_settings: Values,
    settings: Values,
) -> ndarray:
    """The score of every listed text with its query, ``sizes`` of them for each: their cosine, or, of an encoder with
    vectors of its own for what is asked (``asking``), their dot product."""
    ask = getattr(encoder, "asking", None)
    queries, query_ids = encode_unique(encoder, asked, ask, **query_settings)
    responses, response_ids = encode_unique(encoder, listed, **settings)
    if not ask:
        queries = normalise(queries)
        responses = normalise(responses)
    return pair_scores(queries, responses, np.repeat(query_ids, sizes), response_ids)


class Labelled(NamedTuple):
    """Texts with their labels, and these as numbers."""

    texts: list[str]
    labels: list[str]
    ids: ndarray


Examples = Sequence[IntentUtterance]


def labelled(*parts: Examples) -> list[Labelled]:
    """Labelled utterances, part by part; all share the numbers of labels."""
    if not all(map(len, parts)):
        raise DataError("expected labelled utterances to learn from and to test on, found none of one of them")
    texts = [[example.text for example in part] for part in parts]
    labels = [[example.intent for example in part] for part in parts]
    return list(map(Labelled, texts, labels, label_ids(*labels)[1]))


def label_ids(*columns: Sequence) -> tuple[list, list[ndarray]]:
    """Distinct labels in order of first appearance over all columns, and each column as integers."""
    numbers = Numbers()
    ids = [numbers.of(column) for column in columns]
    return list(numbers), ids
