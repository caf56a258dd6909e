"""From tidy rows to evidence: paired differences and curves over trainings and test units, and their strata.

A *unit* is what one training is scored on: a test item where scores of items are kept (clustered by their column
`group`, a conversation or dialogue), else a value of the column `seed` (a draw, a group of test dialogues, a probe).
All rows here are those of `dialnb.claims.rows.prepared`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import atanh, nan, sqrt, tanh
from typing import Any

import numpy as np
import pandas as pd
from numpy import ndarray
from pandas import DataFrame, Index, Series
from scipy.special import ndtri

from dialnb.claims.definitions import Claim
from dialnb.claims.intervals import Interval, Prior, Stratum, crossed_interval
from dialnb.claims.papers import Fields, select
from dialnb.claims.rows import ADDED, MEASURES, check_unambiguous
from dialnb.errors import DataError
from dialnb.files import as_list

MEASURED = ["value", "variance", "cluster"]
"""Columns of evidence that say what came out: the value, its variance over items, the cluster of its unit."""
REPEATED = ["training", "unit"]
"""Columns of evidence that repeat a measurement; all others name its cell."""


class Lacking(DataError):
    """There are no rows to judge by; the message says which."""


class Unjudged(Lacking):
    """Rows are there, but they cannot carry a verdict; `qualifier` says why in a word or two."""

    def __init__(self, qualifier: str, numbers: str) -> None:
        super().__init__(f"{qualifier} ({numbers})")
        self.qualifier = qualifier
        self.numbers = numbers


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


Term = tuple[str, float, Fields]
"""What a comparison adds up: the name of the side that it is of, a factor, and what selects its rows."""


def terms_of(claim: Claim, better: Fields, worse: Fields) -> list[Term]:
    """Better less worse, the better one as often as the claim says, and less a second gain where it names one. What one
    model gives (terms that differ in the metric alone, or the readings of `one_model`) is of a single side."""
    terms = [(claim.times, better), (-1.0, worse)]
    terms += [(-1.0, claim.than["better"]), (1.0, claim.than["worse"])] if claim.than else []
    return [("one model" if claim.one_model else side_name(where), factor, where) for factor, where in terms]


def gains(rows: DataFrame, terms: Sequence[Term], by: Sequence[str]) -> DataFrame:
    """The signed values of all terms, so that the sides add up to the gain, or to the difference of two gains, where
    all were measured: columns as of `measured`, and `side`, whose trainings are its own."""
    parts = [differences(rows, terms[at : at + 2], by) for at in range(0, len(terms), 2)]
    if len(parts) == 1:
        return parts[0]
    means = [mean_within(part, [name for name in ("side", "dataset", *REPEATED) if name in part]) for part in parts]
    return added([side for part in means for _, side in part.groupby("side")])


def differences(rows: DataFrame, terms: Sequence[Term], by: Sequence[str]) -> DataFrame:
    """The signed values of two terms. Columns on which they differ do not pair. Where they were never scored on the
    same test items, each one's own variance counts, which is the careful choice for models that err alike."""
    selectors = [where for *_, where in terms]
    keys = [name for name in by if len({str(where.get(name)) for where in selectors}) == 1]
    parts = []
    for side, factor, where in terms:
        part = measured(rows, where, keys)
        places = [*cell_names(part), *REPEATED]
        if part.duplicated(places).any():  # several cells on one side: their mean, where all were measured
            if len(as_list(where.get("model", ""))) > 1:
                sizes = part.groupby(places)["value"].transform("size")
                part = part[sizes == sizes.max()]
            part = mean_within(part, places)
        parts.append(part.assign(value=factor * part["value"], variance=factor**2 * part["variance"], side=side))
    found = added(parts)
    if found.empty:
        raise Lacking(f"no dataset and seed that both {' and '.join(map(describe, selectors))} have")
    return found


def side_name(where: Fields) -> str:
    """What tells the trainings of a side from those of others: all that selects it but the metric."""
    return describe({name: one for name, one in where.items() if name != "metric"})


def added(parts: Sequence[DataFrame]) -> DataFrame:
    """Signed values of several sides, as far as all were measured in the same cells and units; what has the name of one
    side is added up, training by training."""
    every = pd.concat(parts, ignore_index=True)
    terms = Series([part["side"].iloc[0] for part in parts]).value_counts()
    if len(terms) < len(parts):
        groups = every.groupby(["side", *cell_names(every), *REPEATED], sort=False, as_index=False)
        every = every[groups["value"].transform("size") == every["side"].map(terms)]
        every = mean_within(every, ["side", *cell_names(every), *REPEATED])
        every[["value", "variance"]] = every[["value", "variance"]].mul(every["side"].map(terms), axis=0)
    sides = every.groupby([*cell_names(every), "unit"], sort=False)["side"].transform("nunique")
    return every[sides == len(terms)]


def mean_within(frame: DataFrame, places: Sequence[str]) -> DataFrame:
    """The mean of measured values that share these columns."""
    groups = frame.groupby(list(places), as_index=False)
    return groups.agg({"value": "mean", "variance": "mean", "cluster": "first"})


def lean(rows: DataFrame) -> DataFrame:
    """The mean of every cell over its units, training by training, with its labels."""
    labels = [name for name in rows if name not in (*MEASURES, *ADDED)]
    return rows.groupby([*labels, "training"], as_index=False)["value"].mean()


def spread(rows: DataFrame, terms: Sequence[Term], cells: DataFrame, of: Sequence[str]) -> tuple[float, int]:
    """The variance between the trainings of a sum of terms over these cells of lean rows, and its degrees of freedom:
    over all values of the columns `of`, as far as they have every cell."""
    names = [name for name in cells if name in rows]
    wanted = cells[names].drop_duplicates()
    sums: Any = 0.0
    for _, factor, where in terms:
        part = select(rows, where)[["training", "value", *names, *of]].astype(dict.fromkeys([*names, *of], str))
        part = part.merge(wanted) if names else part
        means = part.groupby([*of, "training", *names])["value"].mean().groupby([*of, "training"])
        sums = sums + factor * means.mean()[means.size() == max(len(wanted), 1)]
    groups = sums.dropna().groupby([*of] or (lambda _: ""))
    freedom = groups.size() - 1
    several = int(freedom.sum())
    return float((groups.var(ddof=1) * freedom).sum()) / several if several else nan, several


def strata(long: DataFrame, cells_are_units: bool = False) -> list[Stratum]:
    """Signed values by test set: cells of one dataset share their units, cells of two datasets do not."""
    if long["value"].isna().any():
        raise Lacking("a value is missing")
    cells = cell_names(long)
    long = long.assign(side=long.get("side", ""))
    if cells_are_units:
        wide = long.pivot_table("value", ["side", "training"], cells).dropna()
        return [Stratum(sides_of(wide), np.ones(wide.shape[1]))]
    keys = ["dataset"] if "dataset" in cells else cells
    parts = [
        part for _, test_set in long.groupby(keys or (lambda _: 0), sort=False) for part in means_of(test_set, cells)
    ]
    if any(table.empty for table, *_ in parts):
        raise Lacking("no test unit that every training was scored on")
    trainings = reduce(Index.intersection, (table.index for table, *_ in parts)).sort_values()
    if trainings.unique("side").size < long["side"].nunique():
        raise Lacking("no training that was scored on every test set")
    every = sum(count for *_, count in parts)
    return [stratum(table.loc[trainings], part, count / every) for table, part, count in parts]


def means_of(test_set: DataFrame, cells: list[str]) -> Iterator[tuple[DataFrame, DataFrame, int]]:
    """Means [side and training, unit] over the cells of a test set where every unit was scored in all of them, else
    cell by cell; with the rows behind them and the number of cells."""
    count = len(test_set.drop_duplicates(cells)) if cells else 1
    groups = test_set.groupby(["side", *REPEATED])["value"]
    scored = groups.size()
    if count == 1 or (scored == count).all():
        means = np.bincount(groups.ngroup(), test_set["value"]) / scored  # that of a group has other last digits
        yield means.unstack("unit").dropna(axis=1), test_set, count
    else:
        for _, cell in test_set.groupby(cells, sort=False):
            yield from means_of(cell, cells)


def stratum(table: DataFrame, part: DataFrame, weight: float) -> Stratum:
    """Means [side and training, unit] as a stratum, units of one cluster added up; `part` says what their clusters and
    their variances are."""
    if (table.max(axis=1) - table.min(axis=1)).max() <= 1e-9:  # one value, or repetitions that change nothing
        variance = float(part.groupby("side")["variance"].mean().sum(skipna=False))
        means = table.mean(axis=1).to_frame()
        return Stratum(sides_of(means), np.ones(1), weight, variance if np.isfinite(variance) else 0.0)
    clusters = part.drop_duplicates("unit").set_index("unit")["cluster"][table.columns].to_numpy()
    groups = table.T.groupby(clusters)
    return Stratum(sides_of(groups.sum().T), groups.size().to_numpy(float), weight)


def sides_of(table: DataFrame) -> list[ndarray]:
    """The values of each side in rows of sides and trainings."""
    return [part.to_numpy() for _, part in table.groupby("side")]


def curves(
    rows: DataFrame, sides: Sequence[Mapping], over: str, by: Sequence[str], paired_over: str
) -> tuple[ndarray, list[ndarray]]:
    """x, and for each side y as [trainings, units, x]: the mean curve over cells; of two, the second is negative."""
    keys = [*by, over]
    terms = [(side_name(side), factor, side) for factor, side in zip((1.0, -1.0), sides)]
    long = differences(rows, terms, keys)
    if over not in long:
        raise Lacking(f"the rows have no column {over!r}")
    long = long.assign(**{over: pd.to_numeric(long[over].astype(object))})
    cells = [name for name in cell_names(long) if name != over]
    if paired_over == "datasets" and cells:
        long["unit"] = long.groupby(cells, sort=False).ngroup()
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
