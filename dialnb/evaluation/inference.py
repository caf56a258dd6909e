"""Dialogue inference (DiaEval): is the last utterance consistent with what was said before?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dialnb.data.records import InferenceItem
from dialnb.evaluation.linear import fit_linear
from dialnb.evaluation.metrics import accuracy, group_rows, tidy_frame
from dialnb.evaluation.vectors import SupportsEncode, encode, label_ids


def evaluate_inference(
    encoder: SupportsEncode,
    train: Sequence[InferenceItem],
    validation: Sequence[InferenceItem],
    test: Sequence[InferenceItem],
    *,
    dataset: str,
    separator: str = "[SEP]",
    seed: int = 0,
    groups: np.ndarray | None = None,
    **encoding: Any,
) -> pd.DataFrame:
    """Accuracy of a linear layer on the frozen encoder, and the floor of always answering the majority label.

    The input is all utterances joined by the separator, truncated from the left so that the judged reply stays. The
    majority is that of the training labels. ``groups`` of test items give one row each, numbered by ``seed``.
    """
    splits = (train, validation, test)
    _, ids = label_ids(*([item.label for item in items] for items in splits))
    settings = {"max_length": 256, "truncate": "left"} | encoding
    vectors = []
    for items in splits:
        texts = [f" {separator} ".join(item.utterances) for item in items]
        vectors.append(encode(encoder, texts, **settings))

    def score(logits: np.ndarray, labels: np.ndarray) -> float:
        return accuracy(logits.argmax(1), labels)

    probe = fit_linear((vectors[0], ids[0]), (vectors[1], ids[1]), score)
    groups = np.full(len(test), seed) if groups is None else groups
    rows = answer_rows(
        probe.logits(vectors[2]).argmax(1),
        ids[2],
        groups,
        dataset=dataset,
        protocol="paper",
        method="linear probe",
        penalty=probe.penalty,
    )
    majority = np.full(len(test), np.bincount(ids[0]).argmax())
    rows += answer_rows(majority, ids[2], groups, dataset=dataset, protocol="floor", method="majority")
    return tidy_frame(rows)


def answer_rows(answers: np.ndarray, labels: np.ndarray, groups: np.ndarray, **settings: Any) -> list[dict[str, Any]]:
    """Accuracy of answers in each group of test items."""
    common = {"task": "dialogue inference", "n": len(labels)}
    return group_rows(lambda rows: {"Accuracy": accuracy(answers[rows], labels[rows])}, groups, **common, **settings)
