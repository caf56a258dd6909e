"""Out-of-scope detection with prototypes and a threshold on the best similarity (DSE T3 and T8).

Three protocols, which differ in what the threshold may see:

- ``code``: out-of-scope training examples form a prototype of their own, each row of the query × prototype matrix is
  L2-normalised, and mean and (population) standard deviation of the best scores are taken over the *test* samples;
- ``paper``: in-scope prototypes only, raw similarities, the same test-set statistics;
- ``clean``: as ``paper``, but the statistics come from the held-out in-scope validation half of the few-shot split, so
  a sample is judged without looking at any other test sample.

Rows of protocol ``floor`` are the two trivial detectors: always reject, and never reject.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pandas as pd

from dialnb.errors import DataError, UnknownName
from dialnb.evaluation.intent import class_prototypes
from dialnb.evaluation.metrics import accuracy, tidy_frame, tidy_rows
from dialnb.evaluation.sampling import few_shot_splits
from dialnb.evaluation.vectors import Examples, SupportsEncode, encode, labelled, normalise

OUT = -1
"""The class number of out-of-scope samples."""

Protocol = Literal["code", "paper", "clean"]
PROTOCOLS: tuple[Protocol, ...] = ("code", "paper", "clean")


def thresholds(best: np.ndarray) -> dict[str, float]:
    """The two thresholds of the paper from best similarities: their mean, and one standard deviation below it."""
    if not len(best):
        raise DataError("a threshold needs at least one sample to take its statistics from")
    mean = float(np.mean(best, dtype=np.float64))
    spread = float(np.std(best, dtype=np.float64))
    return {"mean": mean, "mean-std": mean - spread}


def detect(scores: np.ndarray, classes: np.ndarray, threshold: float) -> np.ndarray:
    """The best class where its score is strictly above the threshold, else :data:`OUT`."""
    return np.where(scores.max(1) > threshold, np.asarray(classes)[scores.argmax(1)], OUT)


def scope_metrics(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
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


def evaluate_scope(
    encoder: SupportsEncode,
    train: Examples,
    test: Examples,
    *,
    dataset: str,
    out_label: str = "oos",
    shots: Iterable[int] = (1, 5),
    seeds: Iterable[int] = range(10),
    protocols: Iterable[Protocol] = PROTOCOLS,
    **encoding: Any,
) -> pd.DataFrame:
    """All metrics for every protocol, threshold, number of shots and seed, with one encoding pass over the texts."""
    protocols = list(protocols)
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise UnknownName("protocol of out-of-scope detection", protocol, PROTOCOLS)
    known, asked = labelled(train, test)
    if "code" in protocols and out_label not in known.labels:
        raise DataError(
            f"the 'code' protocol needs out-of-scope training examples, but no training label is {out_label!r}; "
            "load the variant that has them or leave this protocol out"
        )
    train_ids = np.where(np.array(known.labels) == out_label, OUT, known.ids)
    test_ids = np.where(np.array(asked.labels) == out_label, OUT, asked.ids)
    splits = few_shot_splits(known.labels, shots, seeds)
    used = np.unique(np.concatenate([part for s in splits.values() for part in (s.train, s.validation)]))
    support = normalise(encode(encoder, [known.texts[row] for row in used], **{"max_length": 64} | encoding))
    queries = normalise(encode(encoder, asked.texts, **{"max_length": 64} | encoding))
    every = len(test_ids)
    out = int((test_ids == OUT).sum())
    n = {"Accuracy": every, "In-Accuracy": every - out, "OOS-Accuracy": every, "OOS-Recall": out, "Ave": every}
    rows = []
    for (k, seed), split in splits.items():
        classes, means = class_prototypes(support[np.searchsorted(used, split.train)], train_ids[split.train])
        scores = queries @ means.T
        held_out = split.validation[train_ids[split.validation] != OUT]
        held_out_scores = support[np.searchsorted(used, held_out)] @ means[classes != OUT].T
        for protocol in (*protocols, "floor"):
            for threshold, predicted in _detections(protocol, scores, classes, held_out_scores).items():
                common = {"task": "out-of-scope", "dataset": dataset, "protocol": protocol, "seed": seed, "n": n}
                rows += tidy_rows(scope_metrics(predicted, test_ids), shots=k, threshold=threshold, **common)
    return tidy_frame(rows)


def _detections(
    protocol: str, scores: np.ndarray, classes: np.ndarray, held_out_scores: np.ndarray
) -> dict[str, np.ndarray]:
    """Predictions under each threshold of one protocol."""
    if protocol == "code":
        scores = normalise(scores)
    else:
        scores = scores[:, classes != OUT]
        classes = classes[classes != OUT]
    limits = {"always-reject": np.inf, "never-reject": -np.inf}
    if protocol != "floor":
        reference = held_out_scores if protocol == "clean" else scores
        limits = thresholds(reference.max(1) if len(reference) else np.empty(0))
    return {name: detect(scores, classes, limit) for name, limit in limits.items()}
