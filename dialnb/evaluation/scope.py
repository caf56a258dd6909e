"""Out-of-scope detection with prototypes and a threshold on the best similarity (DSE T3 and T8).

Three protocols, which differ in what the threshold may see:

- ``code``: out-of-scope training examples form a prototype of their own, each row of the query × prototype matrix is
  L2-normalised, and mean and (population) standard deviation of the best scores are taken over the *test* samples;
- ``paper``: in-scope prototypes only, raw similarities, the same test-set statistics;
- ``clean``: as ``paper``, but the statistics come from the held-out in-scope validation half of the few-shot split, so
  a sample is judged without looking at any other test sample.

Rows of protocol ``floor`` are the two trivial detectors: always reject, and never reject.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy import ndarray

from dialnb.errors import DataError
from dialnb.evaluation.intent import class_prototypes, few_shot_vectors
from dialnb.evaluation.metrics import Scores, accuracy, evaluator
from dialnb.evaluation.sampling import few_shot_splits, parts_of
from dialnb.evaluation.vectors import SupportsEncode, encode, labelled, normalise
from dialnb.examples.readings import Limit

OUT = -1
"""The class number of out-of-scope samples."""

PROTOCOLS = ("code", "paper", "clean")


def thresholds(best: ndarray) -> dict[str, float]:
    """The two thresholds of the paper from best similarities: their mean, and one standard deviation below it."""
    mean = float(np.mean(best, dtype=np.float64))
    spread = float(np.std(best, dtype=np.float64))
    return {"mean": mean, "mean-std": mean - spread}


def detect(scores: ndarray, classes: ndarray, threshold: float) -> ndarray:
    """The best class where its score is strictly above the threshold, else :data:`OUT`."""
    return np.where(scores.max(1) > threshold, np.asarray(classes)[scores.argmax(1)], OUT)


def scope_metrics(predictions: ndarray, labels: ndarray) -> dict[str, float]:
    """Accuracy over all samples and over the in-scope ones, in/out accuracy, out-of-scope recall, and their mean."""
    inside = labels != OUT
    if inside.all() or not inside.any():
        raise DataError("out-of-scope metrics need both in-scope and out-of-scope test samples")
    values = {
        "Accuracy": accuracy(predictions, labels),
        "In-Accuracy": accuracy(predictions[inside], labels[inside]),
        "OOS-Accuracy": accuracy(predictions != OUT, inside),
        "OOS-Recall": accuracy(predictions[~inside], labels[~inside]),
    }
    return values | {"Ave": sum(values.values()) / 4}


@evaluator("out-of-scope")
def evaluate_scope(
    encoder: SupportsEncode,
    records: Any,
    *,
    dataset: str,
    limit: Limit = None,
    shots: Iterable[int] = (1, 5),
    seeds: Iterable[int] = range(10),
    out_label: str = "oos",
    protocols: Sequence[str] = PROTOCOLS,
) -> Scores:
    """All metrics for every protocol, threshold, number of shots and seed, with one encoding pass over the texts."""
    known, asked = labelled(*parts_of(records, limit=limit))
    if "code" in protocols and out_label not in known.labels:
        raise DataError(
            f"the 'code' protocol needs out-of-scope training examples, but no training label is {out_label!r}; "
            "load the variant that has them or leave this protocol out"
        )
    train_ids, test_ids = (np.where(np.array(part.labels) == out_label, OUT, part.ids) for part in (known, asked))
    queries = normalise(encode(encoder, asked.texts))
    every = len(test_ids)
    out = int((test_ids == OUT).sum())
    n = {"Accuracy": every, "In-Accuracy": every - out, "OOS-Accuracy": every, "OOS-Recall": out, "Ave": every}
    splits = few_shot_splits(known.labels, shots, seeds)
    vectors = few_shot_vectors(encoder, known.texts, splits.values(), ("train", "validation"))
    for ((k, seed), split), (support, held_out) in zip(splits.items(), vectors):
        classes, means = class_prototypes(normalise(support), train_ids[split.train])
        scores = queries @ means.T
        inside = train_ids[split.validation] != OUT
        held_out_scores = normalise(held_out)[inside] @ means[classes != OUT].T
        for protocol in (*protocols, "floor"):
            for threshold, predicted in _detections(protocol, scores, classes, held_out_scores).items():
                settings = {"protocol": protocol, "seed": seed, "n": n, "shots": k, "threshold": threshold}
                yield scope_metrics(predicted, test_ids), settings


def _detections(protocol: str, scores: ndarray, classes: ndarray, held_out_scores: ndarray) -> dict[str, ndarray]:
    """Predictions under each threshold of one protocol."""
    if protocol == "code":
        scores = normalise(scores)
    else:
        scores = scores[:, classes != OUT]
        classes = classes[classes != OUT]
    limits = {"always-reject": np.inf, "never-reject": -np.inf}
    if protocol != "floor":
        reference = held_out_scores if protocol == "clean" else scores
        if not reference.shape[0]:
            raise DataError("a threshold needs at least one sample to take its statistics from")
        limits = thresholds(reference.max(1))
    return {name: detect(scores, classes, limit) for name, limit in limits.items()}


@evaluator("out-of-scope")
def reject_all(
    encoder: Any, records: Any, *, dataset: str, shots: Iterable[int], seeds: Sequence[int], limit: Limit = None
) -> Scores:
    """The floor of T3 and T8: every utterance is of the largest class, out of scope, whatever the protocol."""
    _, test = parts_of(records, limit=limit)
    labels = np.array([OUT if example.intent == "oos" else 0 for example in test])
    values = scope_metrics(np.full(len(test), OUT), labels)
    for protocol, threshold, k, seed in product(PROTOCOLS, ("mean", "mean-std"), shots, seeds):
        yield values, {"protocol": protocol, "seed": seed, "n": len(test), "shots": k, "threshold": threshold}
