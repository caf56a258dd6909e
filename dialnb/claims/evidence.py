"""From tidy rows to evidence: paired differences and curves over trainings and test units, and their strata.

A *unit* is what one training is scored on: a test item where scores of items are kept (clustered by their column
`group`, a conversation or dialogue), else a value of the column `seed` (a draw, a group of test dialogues, a probe).
All rows here are those of `dialnb.claims.rows.prepared`.
"""

from collections.abc import Mapping, Sequence
from math import atanh, sqrt, tanh

import numpy as np
import pandas as pd
from numpy import ndarray
from pandas import DataFrame, Series
from scipy.special import ndtri

from dialnb.claims.papers import Fields, coded, select
from dialnb.claims.rows import check_unambiguous
from dialnb.errors import DataError
from dialnb.evaluation.intervals import Interval, Stratum, crossed_interval, slope_interval
from dialnb.files import as_list

BY = ("task", "dataset", "metric", "protocol", "shots", "threshold")
"""Columns within which two models are compared like with like; a claim may name its own."""

MEASURED = ["value", "variance", "cluster"]
"""Columns of evidence that say what came out: the value, its variance over items, the cluster of its unit."""
REPEATED = ["training", "unit"]
"""Columns of evidence that repeat a measurement; all others name its cell."""


class Lacking(DataError):
    """There are no rows to judge by; the message says which."""


def measured(rows: DataFrame, where: Fields, keys: Sequence[str]) -> DataFrame:
    """Rows that match, with the keys that they have, `REPEATED` and `MEASURED` as columns."""
    found = select(rows, where)
    if found.empty:
        raise Lacking(f"not measured: {describe(where)}")
    places = [*(name for name in keys if name in found), *REPEATED]
    if "item" not in found and found.duplicated(places).any():
        check_unambiguous(found, places)
    return found[[*places, *MEASURED]]


def cell_names(frame: DataFrame) -> list[str]:
    """The columns of evidence that name a cell."""
    return [name for name in frame if name not in (*REPEATED, *MEASURED)]


def differences(
    rows: DataFrame, better: Fields, worse: Fields, by: Sequence[str] = BY, times: float = 1.0
) -> DataFrame:
    """`times` x better - worse, cell by cell, training by training and unit by unit; columns as of `measured`.

    Columns on which the two sides differ do not pair. Where the sides were never scored on the same test items, each
    side's own variance counts, which is the careful side for models that err alike.
    """
    keys = [name for name in by if better.get(name) == worse.get(name)]
    first, second = measured(rows, better, keys), measured(rows, worse, keys)
    places = [*cell_names(first), *REPEATED]
    if first.duplicated(places).any() or second.duplicated(places).any():  # several cells on one side: their mean
        first, second = mean_within(first, places), mean_within(second, places)
    gaps = minus(first.assign(value=times * first["value"], variance=times**2 * first["variance"]), second)
    if gaps.empty:
        raise Lacking(f"no dataset and seed that both {describe(better)} and {describe(worse)} have")
    return gaps


def minus(first: DataFrame, second: DataFrame) -> DataFrame:
    """The differences of measured values in the same place."""
    places = [*cell_names(first), *REPEATED]
    place = numbers_of(pd.concat([first[places], second[places]]), places)
    found = pd.Index(place[len(first) :]).get_indexer(place[: len(first)])
    both, other = first[found >= 0], second.iloc[found[found >= 0]]
    value = both["value"] - other["value"].to_numpy()
    return both.assign(value=value, variance=both["variance"] + other["variance"].to_numpy())


def mean_within(frame: DataFrame, places: Sequence[str]) -> DataFrame:
    """The mean of measured values that share these columns."""
    groups = frame.groupby(list(places), as_index=False)
    return groups.agg({"value": "mean", "variance": "mean", "cluster": "first"})


def strata(long: DataFrame, cells_are_units: bool = False) -> list[Stratum]:
    """Paired differences by test set: cells of one dataset share their units, cells of two datasets do not."""
    if long["value"].isna().any():
        raise Lacking("a value is missing")
    keys = cell_names(long)
    cell = numbers_of(long, keys)
    if cells_are_units:
        table = long["value"].groupby([long["training"], cell]).mean().unstack().dropna()
        return [Stratum(table.to_numpy(), np.ones(table.shape[1]))]
    test_set = numbers_of(long, ["dataset"]) if "dataset" in keys else cell
    tables = []
    for number in range(test_set.max() + 1):
        here = test_set == number
        tables += _tables(long[here], cell[here], cell.max() + 1)
    trainings = sorted(set.intersection(*(set(table.index) for table, *_ in tables)))
    if not trainings:
        raise Lacking("no training that was scored on every test set")
    return [_stratum(table.loc[trainings], clusters, *weights) for table, clusters, *weights in tables]


def numbers_of(frame: DataFrame, names: Sequence[str]) -> ndarray:
    """A number for each row, the same where all these columns are, in order of appearance; quicker than a grouping."""
    numbers = np.zeros(len(frame), np.int64)
    for name in names:
        codes, values = coded(frame[name])
        numbers = pd.factorize(numbers * len(values) + codes)[0]
    return numbers


def _tables(part: DataFrame, cell: ndarray, cells: int) -> list[tuple[DataFrame, ndarray, float, float]]:
    """Means [training, unit] over the cells of one test set, or of each cell where they share no units, with the
    cluster of every unit, the weight and the variance of the mean."""
    own = pd.unique(cell)
    whole = len(part) == len(own) * (numbers_of(part, REPEATED).max() + 1)
    found = []
    for group in [part] if whole else [part[cell == number] for number in own]:
        table, clusters = _means(group)
        if table.empty:
            raise Lacking("no test unit that every training was scored on")
        weight = (len(own) if whole else 1) / cells
        found.append((table, clusters, weight, float(group["variance"].mean())))
    return found


def _means(group: DataFrame) -> tuple[DataFrame, ndarray]:
    """Mean values [training, unit] of the units that every training was scored on, and their clusters."""
    (rows, trainings), (columns, units) = (pd.factorize(group[name], sort=True) for name in REPEATED)
    means = means_at(rows * len(units) + columns, group["value"], len(trainings) * len(units)).reshape(-1, len(units))
    known = ~np.isnan(means).any(0)
    clusters = group["cluster"].to_numpy()[np.unique(columns, return_index=True)[1]]
    return DataFrame(means[:, known], trainings), clusters[known]


def means_at(places: ndarray, values: Series, size: int) -> ndarray:
    """The mean of the values at each of the places below ``size``, NaN at a place that has none."""
    with np.errstate(invalid="ignore"):
        return np.bincount(places, values, size) / np.bincount(places, minlength=size)


def _stratum(table: DataFrame, clusters: ndarray, weight: float, variance: float) -> Stratum:
    values = table.to_numpy()
    if values.shape[1] == 1 or np.ptp(values, axis=1).max() <= 1e-9:
        known = variance if np.isfinite(variance) else 0.0  # one value, or repetitions that change nothing
        return Stratum(values.mean(1, keepdims=True), np.ones(1), weight, known)
    numbers, names = pd.factorize(clusters, sort=True)
    if len(names) < len(clusters):
        totals = table.T.groupby(numbers).sum().T.to_numpy()
        return Stratum(totals, np.bincount(numbers).astype(float), weight)
    return Stratum(values[:, np.argsort(numbers)], np.ones(len(numbers)), weight)


def curves(
    rows: DataFrame, sides: Sequence[Mapping], over: str, by: Sequence[str], paired_over: str
) -> tuple[ndarray, ndarray]:
    """x, and y as [trainings, units, x]: the mean curve over the cells, of one side or of the difference of two."""
    keys = [*by, over]
    first, *other = sides
    found = differences(rows, first, other[0], keys) if other else measured(rows, first, keys)
    if over not in found:
        raise Lacking(f"the rows have no column {over!r}")
    long = found.assign(**{over: pd.to_numeric(found[over].astype(object))})
    cells = [name for name in cell_names(found) if name != over]
    if paired_over == "datasets" and cells:
        long["unit"] = long.groupby(cells, sort=False).ngroup()
    wide = long.groupby([*REPEATED, over]).value.mean().unstack(over).dropna(axis=1)
    if wide.shape[1] < 3:
        raise Lacking(f"a trend needs three values of {over!r} that all units share, found {wide.shape[1]}")
    trainings = wide.index.get_level_values("training").nunique()
    shared = wide.groupby("unit").filter(lambda part: len(part) == trainings).sort_index()
    return wide.columns.to_numpy(float), shared.to_numpy().reshape(trainings, -1, wide.shape[1])


def slope(x: ndarray, y: ndarray, logarithmic: bool = False) -> Interval:
    """Least-squares slope over trainings and units; with one curve only, its Theil-Sen slope."""
    x = np.log(x) if logarithmic else x
    if y.shape[:2] == (1, 1):
        return slope_interval(x, y[0, 0])
    centred = x - x.mean()
    return contrast(y, centred / (centred @ centred))


def contrast(y: ndarray, weights: ndarray) -> Interval:
    """Interval of a weighted sum along curves [trainings, units, x]; units that all agree to the digit count as one."""
    values = y @ weights
    if np.ptp(values, axis=1).max() < 1e-9:
        values = values[:, :1]
    return crossed_interval([Stratum(values, np.ones(values.shape[1]))])


def rank_agreement(rows: DataFrame, sides: Sequence[Mapping], by: Sequence[str]) -> Interval:
    """Spearman's correlation of the models' means under two measures; the interval counts models, of which there are
    few (Bonett and Wright 2000: Fisher's z with variance (1 + r²/2) / (n - 3))."""
    means = [measured(rows, side, ["model", *by]).groupby("model").value.mean() for side in sides]
    both = pd.concat(means, axis=1, join="inner")
    if len(both) < 4:
        raise Lacking(f"agreement of rankings needs four models under both measures, found {len(both)}")
    if (np.ptp(both, axis=0) == 0).any():
        raise Lacking("all models score the same under one of the measures, so that there is no order to agree with")
    found = float(both.corr("spearman").iloc[0, 1])
    centre = atanh(np.clip(found, -0.999, 0.999))
    half = float(ndtri(0.975)) * sqrt((1 + found**2 / 2) / (len(both) - 3))
    low, high = min(tanh(centre - half), found), max(tanh(centre + half), found)
    return Interval(found, low, high, len(both), "Fisher's z over models")


def describe(where: Fields) -> str:
    """Selectors in words, the model first."""
    words = {name: " or ".join(map(str, as_list(one))) for name, one in where.items()}
    model = words.pop("model", "")
    others = ", ".join(f"{name} {text}" for name, text in words.items())
    return " with ".join(filter(None, [model, others])) or "any row"
