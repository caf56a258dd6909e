"""Intent classification: prototypes (DSE), nearest neighbours (TaDSE) and few-shot fine-tuning (DSE)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import sparse

from dialnb.evaluation.finetuning import INTENTS, FineTuning, fit_classifier, in_batches
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.metrics import accuracy, tidy_frame, tidy_rows
from dialnb.evaluation.sampling import few_shot_splits
from dialnb.evaluation.vectors import Examples, SupportsEncode, encode, labelled, nearest, normalise

Form = Literal["code", "cosine"]
PROTOCOL_OF_FORM = {"code": "code", "cosine": "paper"}


def class_prototypes(support: np.ndarray, labels: np.ndarray, form: Form = "code") -> tuple[np.ndarray, np.ndarray]:
    """The classes of the support set and the mean of their normalised vectors.

    The authors' code leaves the means as they are, so that a class of scattered examples scores lower ("code"); the
    paper speaks of cosine, which normalises them again ("cosine"). With one shot the two are the same.
    """
    classes, members = np.unique(labels, return_inverse=True)
    if sparse.issparse(support):
        member_of = sparse.csr_matrix((np.ones(len(members)), (members, np.arange(len(members)))))
        means = (member_of @ normalise(support)).toarray()
    else:
        means = np.zeros((len(classes), support.shape[1]))
        np.add.at(means, members, normalise(support))
    means /= np.bincount(members)[:, None]
    return classes, normalise(means) if form == "cosine" else means


def prototype_predictions(
    queries: np.ndarray, support: np.ndarray, labels: np.ndarray, form: Form = "code"
) -> np.ndarray:
    """The class whose prototype has the largest dot product with the normalised query."""
    classes, means = class_prototypes(support, labels, form)
    return classes[(normalise(queries) @ means.T).argmax(1)]


def evaluate_prototypes(
    encoder: SupportsEncode,
    train: Examples,
    test: Examples,
    *,
    dataset: str,
    shots: Iterable[int] = (1, 5),
    seeds: Iterable[int] = range(10),
    forms: Iterable[Form] = ("code",),
    **encoding: Any,
) -> pd.DataFrame:
    """Few-shot prototype accuracy for every number of shots, seed and form, with one encoding pass over the texts."""
    known, asked = labelled(train, test)
    splits = few_shot_splits(known.labels, shots, seeds)
    used = np.unique(np.concatenate([split.train for split in splits.values()]))
    support = encode(encoder, [known.texts[row] for row in used], **{"max_length": 64} | encoding)
    queries = normalise(encode(encoder, asked.texts, **{"max_length": 64} | encoding))
    rows = []
    for (k, seed), split in splits.items():
        vectors = support[np.searchsorted(used, split.train)]
        for form in forms:
            predictions = prototype_predictions(queries, vectors, known.ids[split.train], form)
            settings = {"protocol": PROTOCOL_OF_FORM[form], "seed": seed, "shots": k, "method": f"prototype-{form}"}
            rows += _accuracy_rows(predictions, asked.ids, dataset=dataset, **settings)
    return tidy_frame(rows)


def _accuracy_rows(predictions: np.ndarray, labels: np.ndarray, **settings: Any) -> list[dict[str, Any]]:
    return tidy_rows({"Accuracy": accuracy(predictions, labels)}, task="intent", n=len(labels), **settings)


def knn_predictions(
    queries: np.ndarray, references: np.ndarray, labels: np.ndarray, ks: Sequence[int] = (1,)
) -> dict[int, np.ndarray]:
    """Most frequent label among the k most similar references (cosine), for each k of a grid and one search.

    Labels that are equally frequent are decided by their most similar member.
    """
    _, indices = nearest(queries, references, max(ks))
    neighbours = np.asarray(labels)[indices]
    votes = {}
    for k in ks:
        part = neighbours[:, :k]
        counts = sum((part == part[:, [j]]).astype(np.int32) for j in range(k))
        votes[k] = np.take_along_axis(part, counts.argmax(1)[:, None], 1)[:, 0]
    return votes


def evaluate_knn(
    encoder: SupportsEncode,
    train: Examples,
    test: Examples,
    *,
    dataset: str,
    ks: Sequence[int] = (1,),
    **encoding: Any,
) -> pd.DataFrame:
    """Accuracy of the k nearest neighbours over the full training set (TaDSE; k = 1 in its tables)."""
    known, asked = labelled(train, test)
    references = encode(encoder, known.texts, **{"max_length": 64} | encoding)
    queries = encode(encoder, asked.texts, **{"max_length": 64} | encoding)
    rows = []
    for k, predictions in knn_predictions(queries, references, known.ids, ks).items():
        rows += _accuracy_rows(predictions, asked.ids, dataset=dataset, protocol="paper", method="kNN", k=k)
    return tidy_frame(rows)


def finetune_intents(
    encoder: Any,
    train: Examples,
    test: Examples,
    *,
    dataset: str,
    shots: Iterable[int] = (1, 5),
    seeds: Iterable[int] = range(10),
    recipe: FineTuning = INTENTS,
) -> pd.DataFrame:
    """Few-shot fine-tuning (DSE T7): test accuracy of the weights that were best on each split's validation half."""
    encoder = as_trainable(encoder)
    known, asked = labelled(train, test)
    tokens = encoder.tokenize(known.texts, max_length=recipe.max_length, truncate="right")
    test_tokens = encoder.tokenize(asked.texts, max_length=recipe.max_length, truncate="right")
    rows = []
    for (k, seed), split in few_shot_splits(known.labels, shots, seeds).items():
        parts = [([tokens[row] for row in part], known.ids[part]) for part in (split.train, split.validation)]
        model = fit_classifier(encoder, *parts, lambda logits, ids: accuracy(logits.argmax(1), ids), recipe)
        predictions = in_batches(model, test_tokens).argmax(1)
        settings = {"protocol": "code", "seed": seed, "shots": k, "method": "fine-tuning"}
        rows += _accuracy_rows(predictions, asked.ids, dataset=dataset, **settings)
    return tidy_frame(rows)
