"""Metrics as pure functions of numpy arrays, and the tidy rows that every evaluator returns.

Units follow the papers: accuracies, F1, Top-k, retrieval MAP/MRR and correlations are percentages (0 to 100); the
R_n@k family of response selection (R_n@k, MRR, MAP, P@1 over labelled candidate lists) are fractions (0 to 1), as UMS
prints them. A row is one measured value: task, dataset, metric, protocol, seed, value, n, then setting columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from math import nan, sqrt
from typing import Any, Literal, SupportsFloat

import numpy as np
from numpy import ndarray
from pandas import DataFrame, concat
from scipy.special import stdtrit

from dialnb.errors import DataError
from dialnb.files import Fields, Values

COLUMNS = ("task", "dataset", "metric", "protocol", "seed", "value", "n")
Ties = Literal["against", "file"]
Score = Callable[[ndarray, ndarray], float]
"""A validation metric: of logits and targets."""
RowsScore = Callable[[ndarray], Mapping[str, float]]
"""Values by metric: of the numbers of test rows."""
Scores = Iterator[tuple[Mapping[str, SupportsFloat], Values]]
"""What an evaluator yields: values by metric, and the settings that they were reached with (protocol, n, seed ...)."""

stacked = partial(concat, ignore_index=True)  # data frames one below the other


def tidy_rows(values: Mapping[str, SupportsFloat], *, n: int | Mapping[str, int], **settings: Any) -> list[Values]:
    """One row per metric of ``values``; ``n`` is the number of test items behind all, or behind each metric.

    The settings are task, dataset, protocol, seed where it is not 0, and whatever else tells rows apart.
    """
    rows = []
    for metric, value in values.items():
        count = n[metric] if isinstance(n, Mapping) else n
        rows.append({"seed": 0, "metric": metric, "value": float(value), "n": int(count), **settings})
    return rows


def tidy_frame(rows: Iterable[Fields]) -> DataFrame:
    """A data frame of rows: the seven fixed columns first, setting columns in order of appearance."""
    frame = DataFrame(list(rows))
    settings = [column for column in frame.columns if column not in COLUMNS]
    return frame.reindex(columns=[*COLUMNS, *settings])


def evaluator(task: str) -> Callable[[Callable[..., Scores]], Callable[..., DataFrame]]:
    """Make an evaluator of a generator of `Scores`: it returns them as tidy rows of the ``dataset``.

    ``records`` know their splits; instead of them their parts can be given one by one, and are taken as they are:
    ``evaluate(encoder, train, test, dataset="mine")``.
    """

    def make(scores: Callable[..., Scores]) -> Callable[..., DataFrame]:
        @wraps(scores)
        def evaluate(encoder: Any, records: Any, *parts: Any, dataset: str, **settings: Any) -> DataFrame:
            given = (records, *parts) if parts else records
            rows = []
            for values, labels in scores(encoder, given, dataset=dataset, **settings):
                rows += tidy_rows(values, task=task, dataset=dataset, **labels)
            return tidy_frame(rows)

        return evaluate

    return make


def group_values(score: RowsScore, groups: ndarray) -> dict[int, dict[str, float]]:
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
        return {names[0]: dict(whole)}
    without = [score(np.flatnonzero(groups != name)) for name in names]
    values: dict[Any, dict[str, float]] = {name: {} for name in names}
    for metric, value in whole.items():
        left = np.array([scores[metric] for scores in without])
        moved = (len(names) - 1) * (left.mean() - left)
        for name, change in zip(names, moved):
            values[name][metric] = float(value + change)
    return values


def each_group(evaluate: Callable[[list], DataFrame], items: Sequence, groups: ndarray) -> DataFrame:
    """Tidy rows of every group of test items, scored by itself; the groups are numbered by ``seed``."""
    rows = []
    for group in np.unique(groups).tolist():
        part = [item for item, number in zip(items, groups) if number == group]
        rows.append(evaluate(part).assign(seed=group, n=len(items)))
    return stacked(rows)


def group_scores(score: RowsScore, groups: ndarray, **settings: Any) -> Scores:
    """The :func:`group_values` with their settings, the groups numbered by ``seed``."""
    for group, values in group_values(score, groups).items():
        yield values, {"protocol": "paper", "n": len(groups), "seed": group, **settings}


def accuracy(predictions: ndarray, labels: ndarray) -> float:
    """Share of equal entries, in percent."""
    if not len(labels):
        raise DataError("accuracy needs at least one test item, found none")
    return 100 * float(np.mean(predictions == labels))


def top_accuracy(logits: ndarray, labels: ndarray) -> float:
    """Share of items whose largest logit is that of their label, in percent."""
    return accuracy(logits.argmax(1), labels)


def f1_scores(labels: ndarray, predictions: ndarray) -> dict[str, float]:
    """Multi-label F1 in percent from 0/1 matrices [n, classes].

    ``Macro-F1`` averages over all columns with undefined classes counted as 0, which is how the papers obtain it (its
    ceiling is then present / all columns); ``Macro-F1 present`` averages over the classes that occur in ``labels``.
    """
    labels = np.asarray(labels, bool)
    predictions = np.asarray(predictions, bool)
    hits = 2 * (labels & predictions).sum(0)
    total = labels.sum(0) + predictions.sum(0)
    per_class = hits / np.maximum(total, 1)
    present = labels.any(0)
    return {
        "Micro-F1": 100 * float(hits.sum() / max(total.sum(), 1)),
        "Macro-F1": 100 * float(per_class.mean()),
        "Macro-F1 present": 100 * float(per_class[present].mean()) if present.any() else 0.0,
    }


def ranked_labels(scores: ndarray, labels: ndarray, ties: Ties = "against") -> ndarray:
    """Labels [n, candidates] reordered by falling score. Equal scores: negatives first, or ``"file"`` order."""
    unknown = np.isnan(scores).any(1)
    if unknown.any():
        raise DataError(f"cannot rank: {int(unknown.sum())} of {len(scores)} lists hold a NaN score")
    before = labels if ties == "against" else np.zeros_like(labels)
    order = np.lexsort((before, -scores), axis=-1)
    return np.take_along_axis(labels, order, axis=-1).astype(np.int64)


def ranking_metrics(
    scores: ndarray, labels: ndarray, ks: Sequence[int] = (1, 2, 5), ties: Ties = "against"
) -> tuple[dict[str, float], dict[str, int]]:
    """The means of :func:`list_metrics`; and how many lists were counted (``n``), were left out
    (``without_positive``) or are trivially right (``all_positive``)."""
    positives = labels.sum(1)
    values = {metric: each.mean() for metric, each in list_metrics(scores, labels, ks, ties).items()}
    kept, full = positives > 0, positives == np.isfinite(scores).sum(1)
    return values, {"n": kept.sum(), "without_positive": (~kept).sum(), "all_positive": full.sum()}


def list_metrics(
    scores: ndarray, labels: ndarray, ks: Sequence[int] = (1, 2, 5), ties: Ties = "against"
) -> dict[str, ndarray]:
    """R_n@k, MRR, MAP and P@1 of each list, as fractions, for lists of equal length (shorter ones: see
    :func:`pad_lists`); those without any positive are left out.

    R_n@k is the share of a list's positives ranked at most k; MRR uses the best positive; MAP averages (order of the
    positive) / (its rank).
    """
    ranked = ranked_labels(scores, labels, ties)
    kept = ranked.any(1)
    if not kept.any():
        raise DataError(f"none of the {len(ranked)} candidate lists has a positive: there is nothing to rank")
    ranked = ranked[kept]
    hits = ranked.cumsum(1)
    total, width = hits[:, -1], ranked.shape[1]
    values = {f"R{width}@{k}": hits[:, min(k, width) - 1] / total for k in ks}
    values["MRR"] = 1 / (ranked.argmax(1) + 1)
    values["MAP"] = (hits / np.arange(1, width + 1) * ranked).sum(1) / total
    values["P@1"] = ranked[:, 0]
    return values


def pad_lists(flat: ndarray, sizes: Sequence[int] | ndarray, fill: float) -> ndarray:
    """Consecutive runs of ``flat`` as rows of one matrix, filled up on the right (scores: -inf, labels: 0)."""
    widths = np.asarray(sizes, np.int64)
    shape = len(widths), int(widths.max(initial=0))
    padded = np.full(shape, fill, np.result_type(np.asarray(flat).dtype, type(fill)))
    padded[np.arange(padded.shape[1]) < widths[:, None]] = flat
    return padded


def top_k(ranks: ndarray, ks: Sequence[int] = (1, 3, 5, 10)) -> dict[str, float]:
    """Share of ranks at most k, in percent, as ``Top-k``."""
    return {f"Top-{k}": 100 * float(np.mean(ranks <= k)) for k in ks}


def student_half(values: ndarray, level: float = 0.95) -> float:
    """Half the length of Student's t interval of the mean of independent values; no number for one value."""
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return nan
    quantile = float(stdtrit(len(values) - 1, (1 + level) / 2))
    return quantile * float(np.std(values, ddof=1)) / sqrt(len(values))
