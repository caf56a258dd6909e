"""Dialogue inference (DiaEval): is the last utterance consistent with what was said before?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dialnb.data.records import InferenceItem
from dialnb.evaluation.linear import fit_linear
from dialnb.evaluation.metrics import accuracy, group_values, tidy_frame, tidy_rows
from dialnb.evaluation.vectors import SupportsEncode, encode, label_ids


def evaluate_inference(
    encoder: SupportsEncode,
    train: Sequence[InferenceItem],
    validation: Sequence[InferenceItem],
    test: Sequence[InferenceItem],
    *,
    dataset: str,
    max_length: int = 256,
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
    settings = {"max_length": max_length, "truncate": "left"} | encoding
    vectors = [
        encode(encoder, [f" {separator} ".join(item.utterances) for item in items], **settings) for items in splits
    ]

    def score(logits: np.ndarray, labels: np.ndarray) -> float:
        return accuracy(logits.argmax(1), labels)

    probe = fit_linear((vectors[0], ids[0]), (vectors[1], ids[1]), score)
    common = {"task": "dialogue inference", "dataset": dataset, "n": len(test)}
    groups = np.full(len(test), seed) if groups is None else groups
    rows: list[dict[str, Any]] = []
    for protocol, method, answers, settings in (
        ("paper", "linear probe", probe.logits(vectors[2]).argmax(1), {"penalty": probe.penalty}),
        ("floor", "majority", np.full(len(test), np.bincount(ids[0]).argmax()), {}),
    ):
        values = group_values(lambda chosen, a=answers: {"Accuracy": accuracy(a[chosen], ids[2][chosen])}, groups)
        for group, scores in values.items():
            rows += tidy_rows(scores, protocol=protocol, method=method, seed=group, **common, **settings)
    return tidy_frame(rows)
