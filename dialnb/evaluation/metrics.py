"""Metrics as pure functions of numpy arrays, and the tidy rows that every evaluator returns.

Units follow the papers: accuracies, F1, Top-k, retrieval MAP/MRR and correlations are percentages (0 to 100); the
R_n@k family of response selection (R_n@k, MRR, MAP, P@1 over labelled candidate lists) are fractions (0 to 1), as UMS
prints them. A row is one measured value: task, dataset, metric, protocol, seed, value, n, then setting columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from dialnb.errors import DataError

COLUMNS = ("task", "dataset", "metric", "protocol", "seed", "value", "n")
Ties = Literal["against", "file"]


def tidy_rows(
    values: Mapping[str, float],
    *,
    task: str,
    dataset: str,
    protocol: str,
    n: int | Mapping[str, int],
    seed: int = 0,
    **settings: Any,
) -> list[dict[str, Any]]:
    """One row per metric of ``values``; ``n`` is the number of test items behind all, or behind each metric."""
    rows = []
    for metric, value in values.items():
        count = n[metric] if isinstance(n, Mapping) else n
        row = {"task": task, "dataset": dataset, "metric": metric, "protocol": protocol, "seed": seed}
        rows.append(row | {"value": float(value), "n": int(count)} | settings)
    return rows


def tidy_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """A data frame of rows: the seven fixed columns first, setting columns in order of appearance."""
    frame = pd.DataFrame(list(rows))
    settings = [column for column in frame.columns if column not in COLUMNS]
    return frame.reindex(columns=[*COLUMNS, *settings])


def group_values(score: Callable[[np.ndarray], Mapping[str, float]], groups: np.ndarray) -> dict[int, dict[str, float]]:
    """One value per metric and group of test items; their mean is the score of all items, their spread its uncertainty.

    ``score`` takes row numbers, ``groups`` holds the group of every row. This is the grouped jackknife: scoring without
    each group in turn tells how far the group moves the whole. For a share of items and groups of one size the values
    are simply the shares of the groups; for an F1, which is no average over items, they still average to the whole.

    >>> hit = np.array([1, 1, 0, 1])
    >>> group_values(lambda rows: {"Accuracy": 100 * hit[rows].mean()}, np.array([0, 0, 1, 1]))
    {0: {'Accuracy': 100.0}, 1: {'Accuracy': 50.0}}
    """
    names = np.unique(groups).tolist()
    whole = score(np.arange(len(groups)))
    if len(names) == 1:
        return {names[0]: {metric: float(value) for metric, value in whole.items()}}
    without = [score(np.flatnonzero(groups != name)) for name in names]
    values: dict[int, dict[str, float]] = {name: {} for name in names}
    for metric, value in whole.items():
        left = np.array([scores[metric] for scores in without])
        moved = (len(names) - 1) * (left.mean() - left)
        for name, change in zip(names, moved):
            values[name][metric] = float(value + change)
    return values


def group_rows(
    score: Callable[[np.ndarray], Mapping[str, float]], groups: np.ndarray, **settings: Any
) -> list[dict[str, Any]]:
    """The :func:`group_values` as tidy rows, the groups numbered by ``seed``."""
    rows = []
    for group, values in group_values(score, groups).items():
        rows += tidy_rows(values, seed=group, **settings)
    return rows


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of equal entries, in percent."""
    predictions = np.asarray(predictions)
    labels = np.asarray(labels)
    if predictions.shape != labels.shape or not labels.size:
        raise DataError(
            f"accuracy needs as many predictions as labels, and at least one: {predictions.shape}, {labels.shape}"
        )
    return 100 * float(np.mean(predictions == labels))


def f1_scores(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Multi-label F1 in percent from 0/1 matrices [n, classes].

    ``Macro-F1`` averages over all columns with undefined classes counted as 0, which is how the papers obtain it (its
    ceiling is then present / all columns); ``Macro-F1 present`` averages over the classes that occur in ``labels``.
    """
    labels = np.asarray(labels, bool)
    predictions = np.asarray(predictions, bool)
    if labels.shape != predictions.shape or labels.ndim != 2 or not labels.size:
        raise DataError(f"F1 needs two equal non-empty 0/1 matrices, got shapes {labels.shape} and {predictions.shape}")
    hits = 2 * (labels & predictions).sum(0)
    total = labels.sum(0) + predictions.sum(0)
    per_class = np.divide(hits, total, out=np.zeros(len(hits)), where=total > 0)
    present = labels.any(0)
    return {
        "Micro-F1": 100 * float(hits.sum() / max(total.sum(), 1)),
        "Macro-F1": 100 * float(per_class.mean()),
        "Macro-F1 present": 100 * float(per_class[present].mean()) if present.any() else 0.0,
    }


def ranked_labels(scores: np.ndarray, labels: np.ndarray, ties: Ties = "against") -> np.ndarray:
    """Labels [n, candidates] reordered by falling score. Equal scores: negatives first, or ``"file"`` order."""
    scores = np.asarray(scores)
    labels = np.asarray(labels)
    if scores.shape != labels.shape or scores.ndim != 2:
        raise DataError(f"ranking needs scores and labels of one shape [n, candidates]: {scores.shape}, {labels.shape}")
    if np.isnan(scores).any():
        raise DataError(f"cannot rank: {int(np.isnan(scores).any(1).sum())} of {len(scores)} lists hold a NaN score")
    if ties == "against":
        order = np.lexsort((labels, -scores), axis=-1)
    elif ties == "file":
        order = np.argsort(-scores, axis=-1, kind="stable")
    else:
        raise DataError(f"ties are broken 'against' the positive or in 'file' order, not {ties!r}")
    return np.take_along_axis(labels, order, axis=-1).astype(np.int64)


@dataclass(frozen=True)
class Ranking:
    """Averages over the lists that have a positive, and how many lists were left out or are trivially right."""

    values: dict[str, float]
    n: int
    without_positive: int
    all_positive: int


def ranking_metrics(
    scores: np.ndarray, labels: np.ndarray, ks: Sequence[int] = (1, 2, 5), ties: Ties = "against"
) -> Ranking:
    """R_n@k, MRR, MAP and P@1 as fractions, for lists of equal length (shorter ones: see :func:`pad_lists`).

    R_n@k is the share of a list's positives ranked at most k; MRR uses the best positive; MAP averages (order of the
    positive) / (its rank). Lists without any positive leave the denominators.
    """
    ranked = ranked_labels(scores, labels, ties)
    positives = ranked.sum(1)
    valid = np.isfinite(np.asarray(scores)).sum(1)
    kept = positives > 0
    if not kept.any():
        raise DataError(f"none of the {len(ranked)} candidate lists has a positive: there is nothing to rank")
    ranked = ranked[kept]
    total = positives[kept]
    found = ranked.cumsum(1)
    width = ranked.shape[1]
    values = {f"R{width}@{k}": float((found[:, min(k, width) - 1] / total).mean()) for k in ks}
    values["MRR"] = float((1 / (ranked.argmax(1) + 1)).mean())
    values["MAP"] = float(((found / np.arange(1, width + 1) * ranked).sum(1) / total).mean())
    values["P@1"] = float(ranked[:, 0].mean())
    return Ranking(values, int(kept.sum()), int((~kept).sum()), int((positives == valid).sum()))


def pad_lists(flat: np.ndarray, sizes: Sequence[int], fill: float) -> np.ndarray:
    """Consecutive runs of ``flat`` as rows of one matrix, filled up on the right (scores: -inf, labels: 0)."""
    sizes = np.asarray(sizes, np.int64)
    shape = len(sizes), int(sizes.max(initial=0))
    padded = np.full(shape, fill, np.result_type(np.asarray(flat).dtype, type(fill)))
    padded[np.arange(padded.shape[1]) < sizes[:, None]] = flat
    return padded


def top_k(ranks: np.ndarray, ks: Sequence[int]) -> dict[str, float]:
    """Share of ranks at most k, in percent, as ``Top-k``."""
    ranks = np.asarray(ranks)
    if not ranks.size:
        raise DataError("Top-k needs at least one rank: there are no complete blocks or lists to score")
    return {f"Top-{k}": 100 * float(np.mean(ranks <= k)) for k in ks}
