"""From tidy rows to evidence: paired differences and curves over trainings and test units, and what a floor says.

A *unit* is what one training is scored on: a test item where scores of items are kept (clustered by their column
`group`, a conversation or dialogue), else a value of the column `seed` (a draw, a group of test dialogues, a probe).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atanh, inf, sqrt, tanh
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dialnb.claims.comparison import check_unambiguous, item_variances
from dialnb.claims.papers import FLOORS, select
from dialnb.errors import DataError
from dialnb.evaluation.intervals import Interval, Stratum, crossed_interval, slope_interval

BY = ("task", "dataset", "metric", "protocol", "shots", "threshold")
"""Columns within which two models are compared like with like; a claim may name its own."""


@dataclass(frozen=True)
class Floor:
    """The strongest floor of a side's test sets with its score, whether the side is above every one of them, and the
    two numbers where it is least so; empty and passed where no floor was scored."""

    strongest: str = ""
    passed: bool = True
    numbers: str = ""


class Lacking(DataError):
    """There are no rows to judge by; the message says which."""


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """Tidy rows made ready to be compared many times: absent labels as empty texts, and four columns that name the
    `training` and the `unit` of a value, the `cluster` of the unit, and the `variance` over test items."""
    if rows.empty or "training" in rows:
        return rows
    scored = "item" in rows
    unit = rows["item" if scored else "seed"] if scored or "seed" in rows else pd.Series(0, index=rows.index)
    group = rows["group"] if scored and "group" in rows else unit
    training = rows["train_seed"] if "train_seed" in rows else pd.Series(0, index=rows.index)
    measures = ("value", "n", "seed", "train_seed", "item", "group")
    labels = {name: rows[name].astype(object).where(rows[name].notna(), "") for name in rows if name not in measures}
    return rows.assign(
        **labels,
        variance=np.nan if scored else item_variances(rows),
        unit=unit.fillna(0),
        training=training.fillna(0),
        cluster=group.where(group.notna(), unit),
    )


def measured(rows: pd.DataFrame, where: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    """Rows that match, indexed by keys, training and unit: `value`, its `variance` over items, and its `cluster`."""
    found = select(prepared(rows), where)
    if found.empty:
        raise Lacking(f"not measured: {describe(where)}")
    keys = [name for name in keys if name in found]
    frame = found.set_index([*keys, "training", "unit"])[["value", "variance", "cluster"]]
    if "item" not in found and frame.index.has_duplicates:
        check_unambiguous(found, keys)
    return frame


def differences(
    rows: pd.DataFrame, better: Mapping[str, Any], worse: Mapping[str, Any], by: Sequence[str] = BY, times: float = 1.0
) -> pd.DataFrame:
    """`times` x better - worse, cell by cell, training by training and unit by unit; indexed as `measured`.

    Columns on which the two sides differ do not pair. Where the sides were never scored on the same test items, each
    side's own variance counts, which is the careful side for models that err alike.
    """
    apart = {name for name in {*better, *worse} if better.get(name) != worse.get(name)}
    keys = [name for name in by if name not in apart and name in rows]
    first, second = measured(rows, better, keys), measured(rows, worse, keys)
    if first.index.has_duplicates or second.index.has_duplicates:  # several cells on one side: their mean
        first, second = (_mean_of_cells(side) for side in (first, second))
    both = first.join(second[["value", "variance"]].add_suffix("_worse"), how="inner")
    if both.empty:
        raise Lacking(f"no dataset and seed that both {describe(better)} and {describe(worse)} have")
    return both.assign(
        value=times * both.value - both.value_worse, variance=times**2 * both.variance + both.variance_worse
    )[["value", "variance", "cluster"]]


def _mean_of_cells(side: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, training and unit: the mean of those that a side has there."""
    groups = side.groupby(level=list(range(side.index.nlevels)))
    return groups[["value", "variance"]].mean().assign(cluster=groups["cluster"].first())


def strata(gaps: pd.DataFrame, cells_are_units: bool = False) -> list[Stratum]:
    """Paired differences by test set: cells of one dataset share their units, cells of two datasets do not."""
    if gaps.value.isna().any():
        raise Lacking("a value is missing")
    keys = [name for name in gaps.index.names if name not in ("training", "unit")]
    long = gaps.reset_index()
    long["cell"] = long.groupby(keys, sort=False).ngroup() if keys else 0
    if cells_are_units:
        table = long.groupby(["training", "cell"]).value.mean().unstack("cell").dropna()
        return [Stratum(table.to_numpy(), np.ones(table.shape[1]))]
    long["test_set"] = long["dataset"] if "dataset" in keys else long["cell"]
    cells, found = long.cell.nunique(), []
    for _, part in long.groupby("test_set", sort=False):
        found += _of_test_set(part, cells)
    trainings = set.intersection(*({*part.index} for part, _ in found))
    if not trainings:
        raise Lacking("no training that was scored on every test set")
    return [_stratum(table.loc[sorted(trainings, key=str)], *facts) for table, facts in found]


def _of_test_set(part: pd.DataFrame, cells: int) -> list[tuple[pd.DataFrame, tuple]]:
    """[training, unit] of the mean over the cells of one test set, or of each cell where they share no units."""
    wide = part.pivot_table(index=["training", "unit"], columns="cell", values="value")
    groups = [part] if wide.notna().all(axis=None) else [one for _, one in part.groupby("cell", sort=False)]
    found = []
    for group in groups:
        table = group.groupby(["training", "unit"]).value.mean().unstack("unit").dropna(axis=1)
        if table.empty:
            raise Lacking("no test unit that every training was scored on")
        clusters = group.groupby("unit").cluster.first().reindex(table.columns)
        found.append((table, (clusters, group.cell.nunique() / cells, float(group.variance.mean()))))
    return found


def _stratum(table: pd.DataFrame, clusters: pd.Series, weight: float, variance: float) -> Stratum:
    values = table.to_numpy()
    if table.shape[1] > 1 and np.ptp(values, axis=1).max() > 1e-9:
        totals = table.T.groupby(clusters.to_numpy()).sum().T.to_numpy()
        return Stratum(totals, clusters.groupby(clusters.to_numpy()).size().to_numpy(float), weight)
    known = variance if np.isfinite(variance) else 0.0  # one value, or repetitions that change nothing
    return Stratum(values.mean(1, keepdims=True), np.ones(1), weight, known)


def floor_rows(results: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Rows of floors that stand for the same measurement; what a floor does not name, it does not depend on."""
    found = results[results.model.isin(FLOORS)] if "model" in results else results.iloc[:0]
    for column, wanted in where.items():
        if column in found and column not in ("model", "table"):
            found = found[(found[column] == "") | found.index.isin(select(found, {column: wanted}).index)]
    here = select(found, {"table": where["table"]}) if "table" in where and "table" in found else found
    return here if len(here) else found.drop_duplicates([name for name in found if name not in ("table", "value")])


def above_floor(rows: pd.DataFrame, floors: pd.DataFrame, side: Mapping[str, Any], by: Sequence[str]) -> Floor:
    """Hold a side against every floor, test set by test set."""
    strongest, worst = (-inf, ""), (inf, "")
    for name in dict.fromkeys(floors.model):
        of_floor = floors[floors.model == name]
        keys = [key for key in by if key in rows and key in of_floor and (of_floor[key] != "").any()]
        known = select(rows, side).groupby([*keys, "training", "unit"], as_index=False)
        known = known.agg({"value": "mean", "variance": "mean", "cluster": "first"})
        lines = of_floor.groupby(keys, as_index=False).value.mean() if keys else of_floor.value.mean()
        by_unit = of_floor.groupby([*keys, "unit"], as_index=False).value.mean().rename(columns={"value": "paired"})
        if keys:
            known, lines, by_unit = (frame.astype(dict.fromkeys(keys, object)) for frame in (known, lines, by_unit))
            known = known.merge(lines.rename(columns={"value": "floor"}), on=keys)
        else:
            known["floor"] = lines
        known = known.merge(by_unit, on=[*keys, "unit"], how="left")
        known["gap"] = known.value - (known.paired if known.paired.notna().all() else known.floor)
        known = known.set_index([*keys, "training", "unit"])
        test_sets = [key for key in ("dataset", "metric") if key in keys]
        for _, part in known.groupby(level=test_sets) if test_sets else [("", known)]:
            score, line = float(part.value.mean()), float(part.floor.mean())
            low = crossed_interval(strata(part.assign(value=part.gap))).low
            strongest = max(strongest, (line, f"{name} {_number(line)}"))
            worst = min(worst, (low, f"{describe(side)} {_number(score)}, {name} {_number(line)}"))
    return Floor(strongest[1], worst[0] > 0, worst[1])


def curves(rows: pd.DataFrame, sides: Sequence[Mapping], over: str, by: Sequence[str], paired_over: str) -> tuple:
    """x, and y as [trainings, units, x]: the mean curve over the cells, of one side or of the difference of two."""
    keys = [*by, over]
    found = measured(rows, sides[0], [name for name in keys if name in rows])
    if len(sides) == 2:
        found = differences(rows, *sides, keys)
    if over not in found.index.names:
        raise Lacking(f"the rows have no column {over!r}")
    long = found.reset_index()
    long[over] = pd.to_numeric(long[over])
    cells = [name for name in found.index.names if name not in ("training", "unit", over)]
    long["unit"] = long.groupby(cells, sort=False).ngroup() if paired_over == "datasets" and cells else long.unit
    wide = long.groupby(["training", "unit", over]).value.mean().unstack(over).dropna(axis=1)
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


def rank_agreement(rows: pd.DataFrame, first: Mapping, second: Mapping, by: Sequence[str]) -> Interval:
    """Spearman's correlation of the models' means under two measures; the interval counts models, of which there are
    few (Bonett and Wright 2000: Fisher's z with variance (1 + r²/2) / (n - 3))."""
    means = [measured(rows, side, ["model", *by]).groupby("model").value.mean() for side in (first, second)]
    models = means[0].index.intersection(means[1].index)
    if len(models) < 4:
        raise Lacking(f"agreement of rankings needs four models under both measures, found {len(models)}")
    if any(np.ptp(part.loc[models]) == 0 for part in means):
        raise Lacking("all models score the same under one of the measures, so that there is no order to agree with")
    whole = float(stats.spearmanr(*(part.loc[models] for part in means)).statistic)
    centre = atanh(np.clip(whole, -0.999, 0.999))
    half = float(stats.norm.ppf(0.975)) * sqrt((1 + whole**2 / 2) / (len(models) - 3))
    low, high = tanh(centre - half), tanh(centre + half)
    return Interval(whole, min(low, whole), max(high, whole), len(models), "Fisher's z over models")


def describe(where: Mapping[str, Any]) -> str:
    """Selectors in words, the model first."""
    said = {name: " or ".join(map(str, value)) if isinstance(value, list) else value for name, value in where.items()}
    parts = [str(said.pop("model"))] if "model" in said else []
    rest = ", ".join(f"{name} {value}" for name, value in said.items())
    return " with ".join([*parts, rest] if rest else parts) or "any row"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1.5 else f"{value:.1f}"
