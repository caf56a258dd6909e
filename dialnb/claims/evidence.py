"""From tidy rows to evidence: paired differences and curves over trainings and test units, and their strata.

A *unit* is what one training is scored on: a test item where scores of items are kept (clustered by their column
`group`, a conversation or dialogue), else a value of the column `seed` (a draw, a group of test dialogues, a probe).
All rows here are those of `dialnb.claims.rows.prepared`.
"""

from collections.abc import Mapping, Sequence
from math import atanh, sqrt, tanh
from typing import Any

import numpy as np
import pandas as pd
from numpy import ndarray
from pandas import DataFrame, Series
from scipy.special import ndtri

from dialnb.claims.intervals import Interval, Prior, Stratum, crossed_interval
from dialnb.claims.papers import Fields, coded, select
from dialnb.claims.rows import ADDED, MEASURES, check_unambiguous
from dialnb.errors import DataError
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
    return [name for name in frame if name not in (*REPEATED, *MEASURED, "side")]


def differences(
    rows: DataFrame,
    better: Fields,
    worse: Fields,
    by: Sequence[str] = BY,
    times: float = 1.0,
    one_model: bool = False,
) -> DataFrame:
    """`times` x better - worse where both were measured: columns as of `measured`, and `side`, whose trainings are its
    own. The values of the worse side are negative, so that the sides add up to the difference.

    Columns on which the two differ do not pair. What one model gives (sides that differ in the metric alone, or the
    readings of `one_model`) is a single side. Where the sides were never scored on the same test items, each side's own
    variance counts, which is the careful choice for models that err alike.
    """
    keys = [name for name in by if better.get(name) == worse.get(name)]
    parts = []
    for where, factor in ((better, times), (worse, -1.0)):
        part = measured(rows, where, keys)
        places = [*cell_names(part), *REPEATED]
        if part.duplicated(places).any():  # several cells on one side: their mean, where all were measured
            if len(as_list(where.get("model", ""))) > 1:
                sizes = part.groupby(places, observed=True)["value"].transform("size")
                part = part[sizes == sizes.max()]
            part = mean_within(part, places)
        side = "one model" if one_model else side_name(where)
        parts.append(part.assign(value=factor * part["value"], variance=factor**2 * part["variance"], side=side))
    gaps = added(parts)
    if gaps.empty:
        raise Lacking(f"no dataset and seed that both {describe(better)} and {describe(worse)} have")
    return gaps


def side_name(where: Fields) -> str:
    """What tells the trainings of a side from those of others: all that selects it but the metric."""
    return describe({name: one for name, one in where.items() if name != "metric"})


def added(parts: Sequence[DataFrame]) -> DataFrame:
    """Signed values of several sides, as far as all were measured in the same cells and units; what has the name of one
    side is added up, training by training."""
    every = pd.concat(parts, ignore_index=True)
    terms = Series([part["side"].iloc[0] for part in parts]).value_counts()
    if len(terms) < len(parts):
        places = ["side", *cell_names(every), *REPEATED]
        groups = every.groupby(places, observed=True, sort=False)
        every = every[groups["value"].transform("size") == every["side"].map(terms)]
        every = every.groupby(places, observed=True, sort=False, as_index=False)[MEASURED].agg(
            {"value": "sum", "variance": "mean", "cluster": "first"}
        )
        every["variance"] *= every["side"].map(terms)
    place = numbers_of(every, [*cell_names(every), "unit"])
    side, names = every["side"].factorize()
    seen = np.zeros((place.max(initial=-1) + 1, len(names)), bool)
    seen[place, side] = True
    return every[np.all(seen, axis=1)[place]] if len(names) == len(terms) else every[:0]


def lean(rows: DataFrame) -> DataFrame:
    """The mean of every cell over its units, training by training, with its labels."""
    labels = [name for name in rows if name not in (*MEASURES, *ADDED)]
    return rows.groupby([*labels, "training"], observed=True, as_index=False)["value"].mean()


def spreads(rows: DataFrame, terms: Sequence[tuple[float, Fields]], cells: DataFrame, of: Sequence[str]) -> DataFrame:
    """The variance between the trainings of a sum over these cells of lean rows, and its degrees of freedom, for each
    value of the columns `of` that has two trainings or more of every cell."""
    total: Any = None
    for factor, where in terms:
        names = [name for name in cells if name in rows]
        wanted = cells[names].drop_duplicates()
        part = select(rows, where)[["training", "value", *names, *of]].astype(dict.fromkeys([*names, *of], str))
        part = part.merge(wanted) if names else part
        means = part.groupby([*of, "training", *names])["value"].mean()
        means = means.groupby([*of, "training"]).agg(["mean", "size"])
        values = factor * means.loc[means["size"] == max(len(wanted), 1), "mean"]
        total = values if total is None else total + values
    groups = total.dropna().groupby([*of] or (lambda _: ""))
    found = DataFrame({"variance": groups.var(ddof=1), "freedom": groups.size() - 1})
    return found[found["freedom"] > 0]


def mean_within(frame: DataFrame, places: Sequence[str]) -> DataFrame:
    """The mean of measured values that share these columns."""
    groups = frame.groupby(list(places), as_index=False, observed=True)
    return groups.agg({"value": "mean", "variance": "mean", "cluster": "first"})


def strata(long: DataFrame, cells_are_units: bool = False) -> list[Stratum]:
    """Signed values by test set: cells of one dataset share their units, cells of two datasets do not."""
    if long["value"].isna().any():
        raise Lacking("a value is missing")
    keys = cell_names(long)
    cell = numbers_of(long, keys)
    if "side" not in long:
        long = long.assign(side="")
    if cells_are_units:
        table = long["value"].groupby([long["side"], long["training"], cell], sort=False).mean().unstack().dropna()
        return [Stratum([part.to_numpy() for _, part in table.groupby("side")], np.ones(table.shape[1]))]
    test_set = numbers_of(long, ["dataset"]) if "dataset" in keys else cell
    tables = []
    for number in range(test_set.max() + 1):
        here = test_set == number
        tables += _tables(long[here], cell[here], cell.max() + 1)
    scored = [[set(table.index) for table in sides] for sides, *_ in tables]
    trainings = [sorted(set.intersection(*each)) for each in zip(*scored)]
    if not all(trainings):
        raise Lacking("no training that was scored on every test set")
    found = []
    for sides, clusters, weight, variance in tables:
        kept = [table.loc[each] for table, each in zip(sides, trainings)]
        found.append(_stratum(kept, clusters, weight, variance))
    return found


def numbers_of(frame: DataFrame, names: Sequence[str]) -> ndarray:
    """A number for each row, the same where all these columns are, in order of appearance; quicker than a grouping."""
    numbers = np.zeros(len(frame), np.int64)
    for name in names:
        codes, values = coded(frame[name])
        numbers = pd.factorize(numbers * len(values) + codes)[0]
    return numbers


def _tables(part: DataFrame, cell: ndarray, cells: int) -> list[tuple[list[DataFrame], ndarray, float, float]]:
    """Means [training, unit] of every side over the cells of one test set, or of each cell where they share no units,
    with the cluster of every unit, the weight and the variance of the mean."""
    own = pd.unique(cell)
    whole = len(part) == len(own) * (numbers_of(part, ["side", *REPEATED]).max() + 1)
    found = []
    for group in [part] if whole else [part[cell == number] for number in own]:
        sides = [_means(side) for _, side in group.groupby("side")]
        clusters = group.drop_duplicates("unit").set_index("unit")["cluster"]
        units = sorted(set.intersection(*(set(table) for table in sides)))
        if not units:
            raise Lacking("no test unit that every training was scored on")
        weight = (len(own) if whole else 1) / cells
        variance = float(group.groupby("side")["variance"].mean().sum(skipna=False))
        found.append(([table[units] for table in sides], clusters[units].to_numpy(), weight, variance))
    return found


def _means(group: DataFrame) -> DataFrame:
    """Mean values [training, unit] of the units that every training was scored on."""
    (rows, trainings), (columns, units) = (pd.factorize(group[name], sort=True) for name in REPEATED)
    means = means_at(rows * len(units) + columns, group["value"], len(trainings) * len(units)).reshape(-1, len(units))
    return DataFrame(means, trainings, units).dropna(axis=1)


def means_at(places: ndarray, values: Series, size: int) -> ndarray:
    """The mean of the values at each of the places below ``size``, NaN at a place that has none."""
    with np.errstate(invalid="ignore"):
        return np.bincount(places, values, size) / np.bincount(places, minlength=size)


def _stratum(sides: Sequence[DataFrame], clusters: ndarray, weight: float, variance: float) -> Stratum:
    values = [table.to_numpy() for table in sides]
    if len(clusters) == 1 or max(np.ptp(table, axis=1).max() for table in values) <= 1e-9:
        known = variance if np.isfinite(variance) else 0.0  # one value, or repetitions that change nothing
        return Stratum([table.mean(1, keepdims=True) for table in values], np.ones(1), weight, known)
    numbers, names = pd.factorize(clusters, sort=True)
    if len(names) < len(clusters):
        totals = [table.T.groupby(numbers).sum().T.to_numpy() for table in sides]
        return Stratum(totals, np.bincount(numbers).astype(float), weight)
    return Stratum([table[:, np.argsort(numbers)] for table in values], np.ones(len(numbers)), weight)


def curves(
    rows: DataFrame, sides: Sequence[Mapping], over: str, by: Sequence[str], paired_over: str
) -> tuple[ndarray, list[ndarray]]:
    """x, and for each side y as [trainings, units, x]: the mean curve over cells; of two, the second is negative."""
    keys = [*by, over]
    first, *second = sides
    long = differences(rows, first, second[0], keys) if second else measured(rows, first, keys)
    if over not in long:
        raise Lacking(f"the rows have no column {over!r}")
    long = long.assign(**{over: pd.to_numeric(long[over].astype(object))})
    if "side" not in long:
        long["side"] = ""
    cells = [name for name in cell_names(long) if name != over]
    if paired_over == "datasets" and cells:
        long["unit"] = long.groupby(cells, sort=False, observed=True).ngroup()
    wide = long.groupby(["side", *REPEATED, over]).value.mean().unstack(over).dropna(axis=1)
    if wide.shape[1] < 3:
        raise Lacking(f"a trend needs three values of {over!r} that all units share, found {wide.shape[1]}")
    trainings = wide.groupby("side").apply(lambda part: part.index.get_level_values("training").nunique())
    shared = wide.groupby("unit").filter(lambda part: len(part) == trainings.sum()).sort_index()
    found = [shared.loc[side].to_numpy().reshape(count, -1, wide.shape[1]) for side, count in trainings.items()]
    return wide.columns.to_numpy(float), found


def slope_weights(x: ndarray, logarithmic: bool = False) -> ndarray:
    """The weights of a curve that give its least-squares slope."""
    centred = np.log(x) if logarithmic else x
    centred = centred - centred.mean()
    return centred / (centred @ centred)


def contrast(sides: Sequence[ndarray], weights: ndarray, others: Sequence[ndarray] = ()) -> Interval:
    """Interval of a weighted sum along curves [trainings, units, x] of one side or two; units that all agree to the
    digit count as one. Of the `others`, the same sum says how much trainings differ in this table."""
    values = [y @ weights for y in sides]
    if max(np.ptp(table, axis=1).max() for table in values) < 1e-9:
        values = [table[:, :1] for table in values]
    means = [table.mean(1) for table in (*values, *(y @ weights for y in others)) if len(table) > 1]
    freedom = sum(len(each) - 1 for each in means)
    prior = None
    if freedom:
        variance = sum(float(each.var(ddof=1)) * (len(each) - 1) for each in means) / freedom
        prior = Prior([variance] * len(values), freedom)
    return crossed_interval([Stratum(values, np.ones(values[0].shape[1]))], prior=prior)


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
