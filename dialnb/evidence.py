"""From tidy rows to evidence: paired differences, curves and ranges, as intervals over seeds, datasets or items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dialnb.comparison import REPLICATES, check_unambiguous, item_variances
from dialnb.errors import DataError
from dialnb.papers import select
from dialnb.statistics import Interval, bootstrap_means, combined_interval, mean_interval, slope_interval

BY = ("task", "dataset", "metric", "protocol", "shots", "threshold")
"""Columns within which two models are compared like with like; a claim may name its own."""


class Lacking(DataError):
    """There are no rows to judge by; the message says which."""


def cells(rows: pd.DataFrame, where: Mapping[str, Any], by: Sequence[str]) -> pd.DataFrame:
    """Values [cell, replicate] of the rows that match, with the variance over test items of each.

    The index has one level per column of `by` that the rows have; the columns are (`value` | `variance`, replicate).
    Where several training seeds are there, they are the replicates, and draws within one are averaged.
    """
    found = select(rows, where)
    if found.empty:
        raise Lacking(f"not measured: {describe(where)}")
    keys = [name for name in by if name in found]
    repeats = [name for name in REPLICATES if name in found]
    frame = found.assign(**{name: found[name].astype(object).where(found[name].notna(), "") for name in keys})
    check_unambiguous(frame, keys)
    if "train_seed" in repeats and frame.train_seed.nunique() > 1:
        repeats = ["train_seed"]
    frame = frame.assign(
        variance=item_variances(frame),
        all=0,
        repeat=frame[repeats].astype(str).agg(" ".join, axis=1) if repeats else "",
    )
    return frame.groupby([*(keys or ["all"]), "repeat"])[["value", "variance"]].mean().unstack("repeat")


def differences(
    rows: pd.DataFrame, better: Mapping[str, Any], worse: Mapping[str, Any], by: Sequence[str] = BY
) -> pd.DataFrame:
    """`better` minus `worse`, cell by cell and seed by seed; columns on which the two sides differ do not pair."""
    apart = {name for name in {*better, *worse} if better.get(name) != worse.get(name)}
    keys = [name for name in by if name not in apart]
    first, second = cells(rows, better, keys), cells(rows, worse, keys)
    common, repeats = first.index.intersection(second.index), first.columns.intersection(second.columns)
    if common.empty or repeats.empty:
        raise Lacking(f"no dataset and seed that both {describe(better)} and {describe(worse)} have")
    first, second = first.loc[common, repeats], second.loc[common, repeats]
    return pd.concat(
        {"value": first["value"] - second["value"], "variance": first["variance"] + second["variance"]}, axis=1
    )


def interval(values: pd.DataFrame, paired_over: str = "seeds", level: float = 0.95) -> Interval:
    """Interval of the mean over cells: over datasets, over seeds, or over test items.

    Seeds count only if they change something. Items are used where the claim asks for them or one seed is all there
    is; without scores per item the two sides count as independent, which is the careful side for models that err alike.
    """
    table = values["value"]
    if paired_over == "datasets":
        return mean_interval(table.mean(axis=1).to_numpy(), level)
    complete = table.notna().all(axis=None) and table.shape[1] > 1
    if paired_over == "seeds" and complete and np.ptp(means := table.mean(axis=0).to_numpy()) > 1e-9:
        return mean_interval(means, level)
    averages, variances, seeds = [], [], []
    for (_, line), (_, sampling) in zip(table.iterrows(), values["variance"].iterrows(), strict=True):
        line = line.dropna()
        varies = len(line) > 1 and np.ptp(line) > 1e-9
        over_seeds = float(line.var(ddof=1) / len(line)) if varies else 0.0
        over_items = float(sampling.dropna().mean()) if paired_over == "items" or not varies else 0.0
        averages.append(float(line.mean()))
        variances.append(over_seeds + over_items)
        seeds.append(len(line) if varies else 1)
    if any(np.isnan(variances)):
        return Interval(float(np.mean(averages)), -inf, inf, 1, "one value")
    method = "normal, over test items (unpaired)" if max(seeds) == 1 else "normal, over seeds and test items"
    return combined_interval(averages, variances, min(seeds), method, level)


def item_interval(items: pd.DataFrame, better: Mapping, worse: Mapping, by: Sequence[str], level: float) -> Interval:
    """Paired interval over test items (rows with a column `item`), stratified by cell; seeds are averaged per item."""
    apart = {name for name in {*better, *worse} if better.get(name) != worse.get(name)}
    keys = [name for name in by if name not in apart and name in items]
    sides = [select(items, side).groupby([*keys, "item"]).value.mean() for side in (better, worse)]
    both = pd.concat(sides, axis=1, join="inner", keys=["better", "worse"])
    if both.empty:
        raise Lacking(f"no test items that both {describe(better)} and {describe(worse)} were scored on")
    gaps = both.better - both.worse
    parts = [part.to_numpy() for _, part in gaps.groupby(level=list(range(len(keys))))] if keys else [gaps.to_numpy()]
    if len(parts) == 1:
        return mean_interval(parts[0], level)
    variances = [float(part.var(ddof=1)) / len(part) for part in parts]
    means = [float(part.mean()) for part in parts]
    return combined_interval(means, variances, sum(map(len, parts)), "normal, paired over items", level)


def curves(
    rows: pd.DataFrame, where: Mapping[str, Any], over: str, by: Sequence[str], paired_over: str
) -> tuple[np.ndarray, np.ndarray]:
    """x, and y as [units, x]: the mean curve of each seed over the cells (or of each cell over the seeds)."""
    found = cells(rows, where, [*by, over])["value"]
    return _as_curves(found, over, paired_over)


def difference_curves(
    rows: pd.DataFrame, better: Mapping, worse: Mapping, over: str, by: Sequence[str], paired_over: str
) -> tuple[np.ndarray, np.ndarray]:
    """Like `curves`, of the difference between two sides."""
    return _as_curves(differences(rows, better, worse, [*by, over])["value"], over, paired_over)


def _as_curves(table: pd.DataFrame, over: str, paired_over: str) -> tuple[np.ndarray, np.ndarray]:
    if over not in table.index.names:
        raise Lacking(f"the rows have no column {over!r}")
    long = table.stack().rename("value").reset_index()
    long[over] = pd.to_numeric(long[over])
    unit = ["repeat"] if paired_over != "datasets" else [name for name in table.index.names if name != over]
    wide = long.groupby([*unit, over]).value.mean().unstack(over).dropna(axis=1)
    if wide.shape[1] < 3:
        raise Lacking(f"a trend needs three values of {over!r} that all units share, found {wide.shape[1]}")
    return wide.columns.to_numpy(np.float64), wide.to_numpy()


def slope(x: np.ndarray, curves: np.ndarray, logarithmic: bool = False) -> Interval:
    """Least-squares slope of each unit's curve; with one curve only, its Theil-Sen slope."""
    x = np.log(x) if logarithmic else x
    if len(curves) == 1:
        return slope_interval(x, curves[0])
    centred = x - x.mean()
    return mean_interval(curves @ centred / (centred @ centred))


def rank_agreement(rows: pd.DataFrame, first: Mapping, second: Mapping, by: Sequence[str]) -> Interval:
    """Spearman's correlation of the models' means under two measures, with an interval by bootstrap over seeds."""
    tables = [cells(rows, side, ["model", *by])["value"].groupby("model").mean() for side in (first, second)]
    models = tables[0].index.intersection(tables[1].index)
    if len(models) < 3:
        raise Lacking(f"agreement of rankings needs three models under both measures, found {len(models)}")
    if any(np.ptp(table.loc[models].mean(axis=1)) == 0 for table in tables):
        raise Lacking("all models score the same under one of the measures, so that there is no order to agree with")
    resampled = [bootstrap_means(table.loc[models].T.dropna().to_numpy(), seed) for seed, table in enumerate(tables)]
    ranks = [stats.rankdata(part[:2000], axis=1) for part in resampled]
    first, second = (part - part.mean(axis=1, keepdims=True) for part in ranks)
    scale = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    values = (first * second).sum(axis=1)[scale > 0] / scale[scale > 0]  # without draws in which all models are equal
    whole = float(stats.spearmanr(*(table.loc[models].mean(axis=1) for table in tables)).statistic)
    low, high = np.quantile(values, [0.025, 0.975])  # noise takes order away: draws may all lie below the whole
    return Interval(whole, min(float(low), whole), max(float(high), whole), len(models), "bootstrap over seeds")


def describe(where: Mapping[str, Any]) -> str:
    """Selectors in words, the model first."""
    said = {name: " or ".join(map(str, value)) if isinstance(value, list) else value for name, value in where.items()}
    parts = [str(said.pop("model"))] if "model" in said else []
    rest = ", ".join(f"{name} {value}" for name, value in said.items())
    return " with ".join([*parts, rest] if rest else parts) or "any row"
