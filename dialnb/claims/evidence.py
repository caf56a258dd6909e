"""From tidy rows to evidence: paired differences and curves over trainings and test units, and their strata.

A *unit* is what one training is scored on: a test item where scores of items are kept (clustered by their column
`group`, a conversation or dialogue), else a value of the column `seed` (a draw, a group of test dialogues, a probe).
All rows here are those of `dialnb.claims.rows.prepared`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import atanh, sqrt, tanh

import numpy as np
import pandas as pd
from scipy import stats

from dialnb.claims.papers import Fields, select
from dialnb.claims.rows import check_unambiguous
from dialnb.errors import DataError
from dialnb.evaluation.intervals import Interval, Stratum, crossed_interval, slope_interval

BY = ("task", "dataset", "metric", "protocol", "shots", "threshold")
"""Columns within which two models are compared like with like; a claim may name its own."""

REPEATED = ["training", "unit"]
"""Index levels that repeat a measurement; those before them name its cell."""


class Lacking(DataError):
    """There are no rows to judge by; the message says which."""


def measured(rows: pd.DataFrame, where: Fields, keys: Sequence[str]) -> pd.DataFrame:
    """Rows that match, indexed by keys, training and unit: `value`, its `variance` over items, and its `cluster`."""
    found = select(rows, where)
    if found.empty:
        raise Lacking(f"not measured: {describe(where)}")
    keys = [name for name in keys if name in found]
    frame = found.set_index([*keys, *REPEATED])[["value", "variance", "cluster"]]
    if "item" not in found and frame.index.has_duplicates:
        check_unambiguous(found, keys)
    return frame


def cell_names(frame: pd.DataFrame) -> list[str]:
    """The index levels of measured rows that name a cell."""
    return [name for name in frame.index.names if name not in REPEATED]


def differences(
    rows: pd.DataFrame, better: Fields, worse: Fields, by: Sequence[str] = BY, times: float = 1.0
) -> pd.DataFrame:
    """`times` x better - worse, cell by cell, training by training and unit by unit; indexed as `measured`.

    Columns on which the two sides differ do not pair. Where the sides were never scored on the same test items, each
    side's own variance counts, which is the careful side for models that err alike.
    """
    keys = [name for name in by if better.get(name) == worse.get(name)]
    first = measured(rows, better, keys)
    second = measured(rows, worse, keys)
    if first.index.has_duplicates or second.index.has_duplicates:  # several cells on one side: their mean
        first = mean_within(first, first.index.names)
        second = mean_within(second, second.index.names)
    gaps = minus(first.assign(value=times * first.value, variance=times**2 * first.variance), second)
    if gaps.empty:
        raise Lacking(f"no dataset and seed that both {describe(better)} and {describe(worse)} have")
    return gaps


def minus(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """The differences of measured values that share their index."""
    both = first.join(second[["value", "variance"]], how="inner", rsuffix="_other")
    both["value"] -= both.pop("value_other")
    both["variance"] += both.pop("variance_other")
    return both


def mean_within(frame: pd.DataFrame, levels: Sequence[str]) -> pd.DataFrame:
    """The mean of measured values that share these index levels."""
    groups = frame.groupby(level=list(levels))
    return groups[["value", "variance"]].mean().assign(cluster=groups["cluster"].first())


def strata(gaps: pd.DataFrame, cells_are_units: bool = False) -> list[Stratum]:
    """Paired differences by test set: cells of one dataset share their units, cells of two datasets do not."""
    if gaps.value.isna().any():
        raise Lacking("a value is missing")
    keys = cell_names(gaps)
    long = gaps.reset_index()
    long["cell"] = long.groupby(keys, sort=False).ngroup() if keys else 0
    if cells_are_units:
        table = long.groupby(["training", "cell"]).value.mean().unstack("cell").dropna()
        return [Stratum(table.to_numpy(), np.ones(table.shape[1]))]
    test_sets = long.groupby("dataset" if "dataset" in keys else "cell", sort=False)
    tables = [found for _, part in test_sets for found in _tables(part, long.cell.nunique())]
    trainings = set.intersection(*(set(table.index) for table, *_ in tables))
    if not trainings:
        raise Lacking("no training that was scored on every test set")
    return [_stratum(table.loc[sorted(trainings, key=str)], *facts) for table, *facts in tables]


def _tables(part: pd.DataFrame, cells: int) -> list[tuple[pd.DataFrame, pd.Series, float, float]]:
    """Means [training, unit] over the cells of one test set, or of each cell where they share no units, with the
    cluster of every unit, the weight and the variance of the mean."""
    pairs = len(part[REPEATED].drop_duplicates())
    whole = len(part) == pairs * part.cell.nunique()
    found = []
    for group in [part] if whole else [cell for _, cell in part.groupby("cell", sort=False)]:
        table = group.groupby(REPEATED).value.mean().unstack("unit").dropna(axis=1)
        if table.empty:
            raise Lacking("no test unit that every training was scored on")
        clusters = group.drop_duplicates("unit").set_index("unit").cluster.reindex(table.columns)
        found.append((table, clusters, group.cell.nunique() / cells, float(group.variance.mean())))
    return found


def _stratum(table: pd.DataFrame, clusters: pd.Series, weight: float, variance: float) -> Stratum:
    values = table.to_numpy()
    if table.shape[1] > 1 and np.ptp(values, axis=1).max() > 1e-9:
        totals = table.T.groupby(clusters.to_numpy()).sum().T.to_numpy()
        return Stratum(totals, clusters.groupby(clusters.to_numpy()).size().to_numpy(float), weight)
    known = variance if np.isfinite(variance) else 0.0  # one value, or repetitions that change nothing
    return Stratum(values.mean(1, keepdims=True), np.ones(1), weight, known)


def curves(
    rows: pd.DataFrame, sides: Sequence[Mapping], over: str, by: Sequence[str], paired_over: str
) -> tuple[np.ndarray, np.ndarray]:
    """x, and y as [trainings, units, x]: the mean curve over the cells, of one side or of the difference of two."""
    keys = [*by, over]
    found = measured(rows, sides[0], keys)
    if len(sides) == 2:
        found = differences(rows, *sides, keys)
    if over not in found.index.names:
        raise Lacking(f"the rows have no column {over!r}")
    long = found.reset_index()
    long[over] = pd.to_numeric(long[over].astype(object))
    cells = [name for name in cell_names(found) if name != over]
    if paired_over == "datasets" and cells:
        long["unit"] = long.groupby(cells, sort=False).ngroup()
    wide = long.groupby([*REPEATED, over]).value.mean().unstack(over).dropna(axis=1)
    if wide.shape[1] < 3:
        raise Lacking(f"a trend needs three values of {over!r} that all units share, found {wide.shape[1]}")
    shared = wide.unstack("training").dropna().stack("training", future_stack=True).reorder_levels([1, 0]).sort_index()
    trainings = shared.index.get_level_values(0).nunique()
    return wide.columns.to_numpy(float), shared[wide.columns].to_numpy().reshape(trainings, -1, wide.shape[1])


def slope(x: np.ndarray, y: np.ndarray, logarithmic: bool = False) -> Interval:
    """Least-squares slope over trainings and units; with one curve only, its Theil-Sen slope."""
    x = np.log(x) if logarithmic else x
    if y.shape[:2] == (1, 1):
        return slope_interval(x, y[0, 0])
    centred = x - x.mean()
    return contrast(y, centred / (centred @ centred))


def contrast(y: np.ndarray, weights: np.ndarray) -> Interval:
    """Interval of a weighted sum along curves [trainings, units, x]; units that all agree to the digit count as one."""
    values = y @ weights
    if np.ptp(values, axis=1).max() < 1e-9:
        values = values[:, :1]
    return crossed_interval([Stratum(values, np.ones(values.shape[1]))])


def rank_agreement(rows: pd.DataFrame, sides: Sequence[Mapping], by: Sequence[str]) -> Interval:
    """Spearman's correlation of the models' means under two measures; the interval counts models, of which there are
    few (Bonett and Wright 2000: Fisher's z with variance (1 + r²/2) / (n - 3))."""
    means = [measured(rows, side, ["model", *by]).groupby("model").value.mean() for side in sides]
    both = pd.concat(means, axis=1, join="inner")
    if len(both) < 4:
        raise Lacking(f"agreement of rankings needs four models under both measures, found {len(both)}")
    if (np.ptp(both, axis=0) == 0).any():
        raise Lacking("all models score the same under one of the measures, so that there is no order to agree with")
    found = float(stats.spearmanr(both).statistic)
    centre = atanh(np.clip(found, -0.999, 0.999))
    half = float(stats.norm.ppf(0.975)) * sqrt((1 + found**2 / 2) / (len(both) - 3))
    low = tanh(centre - half)
    high = tanh(centre + half)
    return Interval(found, min(low, found), max(high, found), len(both), "Fisher's z over models")


def describe(where: Fields) -> str:
    """Selectors in words, the model first."""
    words = {name: " or ".join(map(str, one)) if isinstance(one, list) else str(one) for name, one in where.items()}
    model = words.pop("model", "")
    others = ", ".join(f"{name} {text}" for name, text in words.items())
    return " with ".join(filter(None, [model, others])) or "any row"
