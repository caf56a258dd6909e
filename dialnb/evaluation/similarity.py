"""Sentence similarity: Spearman correlation with human scores (D-STS of DialogueCSE)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from dialnb.data.records import ScoredPair
from dialnb.errors import DataError
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.vectors import SupportsEncode, encode_unique, normalise, pair_scores


def spearman(gold: Sequence[float], model: Sequence[float]) -> float:
    """Spearman's rank correlation times 100, average ranks for ties; NaN where one side does not vary.

    >>> round(spearman([1, 2, 3, 4, 5], [0.1, 0.4, 0.3, 0.7, 0.6]), 6)
    80.0
    """
    gold = np.asarray(gold, np.float64)
    model = np.asarray(model, np.float64)
    if gold.shape != model.shape or gold.ndim != 1 or len(gold) < 2:
        raise DataError(f"Spearman needs two equally long lists of at least two scores: {gold.shape}, {model.shape}")
    if np.isnan(gold).any() or np.isnan(model).any():
        raise DataError("Spearman is undefined: a score is NaN")
    a, b = (ranks - ranks.mean() for ranks in (rankdata(gold), rankdata(model)))
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return 100 * float(a @ b) / scale if scale else float("nan")


def evaluate_similarity(
    encoder: SupportsEncode, pairs: Sequence[ScoredPair], *, dataset: str, max_length: int = 64, **encoding: Any
) -> pd.DataFrame:
    """Spearman between the cosine of two sentences and their human score, as ``Corr`` in percent."""
    texts = [pair.first for pair in pairs] + [pair.second for pair in pairs]
    vectors, rows = encode_unique(encoder, texts, max_length=max_length, **encoding)
    vectors = normalise(vectors)
    cosines = pair_scores(vectors, vectors, rows[: len(pairs)], rows[len(pairs) :])
    values = {"Corr": spearman([pair.score for pair in pairs], cosines)}
    return tidy_frame(tidy_rows(values, task="similarity", dataset=dataset, protocol="paper", n=len(pairs)))
