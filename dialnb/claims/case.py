"""What claims are judged on: results, scores of single items, and the floors that a trained model must be above."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from dialnb.claims.definitions import Claim
from dialnb.claims.evidence import MEASURED, REPEATED, Lacking, describe, mean_within, strata
from dialnb.claims.intervals import crossed_interval
from dialnb.claims.papers import FLOORS, WORDS, Fields, load_cells, matches, select
from dialnb.claims.rows import prepared
from dialnb.files import as_list


class Unjudged(Lacking):
    """Rows are there, but they cannot carry a verdict; `qualifier` says why in a word or two."""

    def __init__(self, qualifier: str, numbers: str) -> None:
        super().__init__(f"{qualifier} ({numbers})")
        self.qualifier = qualifier
        self.numbers = numbers


@dataclass(frozen=True)
class Floor:
    """The strongest floor of a side's test sets with its score, whether the side is above every one of them, the two
    numbers where it is least so, and how far it is above them on average; passed where no floor was scored.

    `words` has the two scores where word overlap is better than the side and is no floor of it.
    """

    strongest: str = ""
    passed: bool = True
    numbers: str = ""
    room: float = inf
    words: str = ""


@dataclass
class Case:
    """What is known of a run: results, scores of single items, and how they were made.

    `training` holds the share of the printed training by the name of a training. Results that a paper `printed` are
    what they are, without intervals and floors.
    """

    results: DataFrame
    slug: str = ""
    items: DataFrame | None = None
    training: Mapping[str, float] = field(default_factory=dict)
    printed: bool = False

    def __post_init__(self) -> None:
        self.floors: dict[str, Floor] = {}  # claims ask for the same again and again
        self.frames: dict[str, DataFrame] = {}
        self.results = prepared(self.results)
        if self.items is not None:
            self.items = prepared(self.items)

    def kept(self, name: str, asked: object, make: Callable[[], DataFrame]) -> DataFrame:
        """A frame that several comparisons need, made once."""
        key = json.dumps([name, asked], sort_keys=True, default=str)
        if key not in self.frames:
            self.frames[key] = make()
        return self.frames[key]

    @cached_property
    def cells(self) -> Fields:
        """The paper's cells.yaml."""
        return load_cells(self.slug) if self.slug else {}

    def trained(self, rows: DataFrame) -> bool:
        """Did any of these rows come from a model that was trained here?"""
        return not self.printed and not self._fit(rows, "untrained").all()

    def trained_rows(self, rows: DataFrame) -> DataFrame:
        """Those of models that were trained here."""
        return rows[~self._fit(rows, "untrained") & ~rows["model"].isin(FLOORS)]

    def _fit(self, rows: DataFrame, name: str) -> np.ndarray:
        """For every row whether it meets one of these conditions of cells.yaml."""
        fit = [matches(rows, where) for where in self.cells.get(name, ())]
        return np.any(fit, axis=0) if fit else np.zeros(len(rows), bool)

    def unit(self, rows: DataFrame, claim: Claim) -> str:
        """What the interval of a claim counts within one training."""
        if claim.paired_over == "datasets":
            return "datasets" if "dataset" in claim.by else "tasks"
        if claim.paired_over == "items" and self.items is not None:
            grouped = "group" in self.items and self.items["group"].notna().any()
            return "conversations" if grouped else "test items"
        units = self.cells.get("units", {})
        table = rows["table"].iloc[0] if "table" in rows else ""
        return units.get(table, units.get("default", "seeds"))

    def share(self, rows: DataFrame) -> float | None:
        """The least share of the printed training among the trained models of these rows: of those that are known, if
        one of these is small, else only if all are known."""
        rows = rows[~self._fit(rows, "untrained")]
        rules = self.cells.get("trained", [{"name": "{model}"}])
        used = {name for rule in rules for name in rule.get("rows", {})} | {"model", "table", "dataset", "augmentation"}
        known = rows[[name for name in rows if name in used]].drop_duplicates()
        shares = []
        for number in range(len(known)):
            row = known.iloc[number : number + 1]
            rule: Fields = next((rule for rule in rules if matches(row, rule.get("rows", {})).all()), {})
            shares.append(self.training.get(rule.get("name", "").format(**row.iloc[0])))
        least = min((share for share in shares if share is not None), default=None)
        return None if least is None or (None in shares and least >= 0.5) else least

    def floor(self, where: Fields, side: Fields, by: Sequence[str]) -> Floor:
        """Hold the rows that show whether a side learned against their floors: by single items where both were kept.

        Chance and the most frequent label are floors of every model, word overlap of those that were trained for the
        task (`trained_for_task` in cells.yaml says which).
        """
        key = json.dumps([where, by], sort_keys=True)
        if key in self.floors:
            return self.floors[key]
        model = side.get("model", where.get("model"))
        side = {"model": model} if model else {}
        for source in (self.items, self.results):
            if source is None or ("encoder" in where and "encoder" not in source):
                continue  # items do not say whose they are
            known = {name: value for name, value in where.items() if name in source}
            rows = select(source, known)
            floors = floor_rows(source, known)
            if len(rows) and len(floors):
                rows = select(rows, side)
                self.floors[key] = above_floor(rows, floors, side, by, self._fit(rows, "trained_for_task"))
                break
        return self.floors.setdefault(key, Floor())


def training_shares(times: DataFrame | None, slug: str, settings: Mapping[str, Any] = {}) -> dict[str, float]:
    """The share of the printed training that each training had, by its name in a run's table of training times.

    It is examples seen by examples printed where cells.yaml has the latter (`printed_examples`), else steps by those
    that all printed epochs would take; `sweeps` are other trainings of the same models, as long as a setting says.
    """
    if times is None or "printed steps" not in times:
        return {}
    cells = load_cells(slug)
    known = times.dropna(subset=["steps", "printed steps"]).set_index("model")
    shares = dict(known["steps"] / known["printed steps"])
    for name, setting in cells.get("sweeps", {}).items():
        if name in known.index and settings.get(setting):
            shares[f"{name}, {setting}"] = settings[setting] / known.loc[name, "printed steps"]
    for name, (examples, batch) in cells.get("printed_examples", {}).items():
        if name in known.index and (size := settings.get(batch, batch) or 0) and not isinstance(size, str):
            shares[name] = known.loc[name, "steps"] * size / examples
    return shares


def floor_rows(results: DataFrame, where: Fields) -> DataFrame:
    """Rows of floors that stand for the same measurement; what a floor does not name, it does not depend on, and it has
    neither the encoder nor the method of a model."""
    asked: dict[str, Any] = {"model": FLOORS}
    for name, wanted in where.items():
        if name not in ("model", "table", "encoder", "method"):
            asked[name] = [*as_list(wanted), None]
    found = select(results, asked)
    here = select(found, {"table": where["table"]}) if "table" in where else found
    return here if len(here) else found.drop_duplicates([name for name in found if name not in ("table", "value")])


def above_floor(rows: DataFrame, floors: DataFrame, side: Fields, by: Sequence[str], for_task: np.ndarray) -> Floor:
    """Hold the rows of a side against every floor, test set by test set; against word overlap only those of what was
    trained `for_task`."""
    named = [key for key in by if key in rows]
    rows, floors = (part[["model", *named, *REPEATED, *MEASURED]] for part in (rows, floors))
    strongest = (-inf, "")
    worst = (inf, "")
    rooms = []
    overlap = ""
    held = []
    for name in floors["model"].unique():
        floor = floors[floors["model"] == name]
        keys = [key for key in named if (floor[key] != "").any()]
        places = [*keys, *REPEATED]
        asked = [(rows, True)] if name not in WORDS else [(rows[for_task], True), (rows[~for_task], False)]
        for part, is_floor in asked:
            known = mean_within(part[[*places, *MEASURED]], places)
            known["floor"] = beside(known, floor, keys)
            known = known.dropna(subset=["floor"])
            if is_floor and len(known):
                held.append((name, keys, places, floor, known))
            elif len(known) and (line := known["floor"].mean()) > (score := known["value"].mean()):
                overlap = max(overlap, f"{name} {_number(line)}, {describe(side)} {_number(score)}")
    for name, keys, places, floor, known in held:
        paired = beside(known, floor, [*keys, "unit"])
        known["gap"] = known["value"] - (paired if paired.notna().all() else known["floor"])
        test_sets = [key for key in ("dataset", "metric") if key in keys]
        for _, part in known.groupby(test_sets) if test_sets else [((), known)]:
            score, line = part[["value", "floor"]].mean()
            found = crossed_interval(strata(part[[*places, *MEASURED]].assign(value=part["gap"])))
            low = found.low if found.low > -inf else found.estimate  # one training, one unit: nothing to weigh it by
            strongest = max(strongest, (line, f"{name} {_number(line)}"))
            against = f"{'not surely above ' * (score > line)}{name} {_number(line)}"
            worst = min(worst, (low, f"{describe(side)} {_number(score)}, {against}"))
            rooms.append(score - line)
    return Floor(strongest[1], worst[0] > 0, worst[1], float(np.mean(rooms or inf)), overlap)


def beside(rows: DataFrame, floor: DataFrame, keys: list[str]) -> pd.Series:
    """For each row what a floor has on average in the same place, NaN where it was not measured there."""
    if not keys:
        return pd.Series(floor["value"].mean(), rows.index)
    means = floor.groupby(keys)["value"].mean().rename("floor")
    return rows[keys].merge(means.reset_index(), how="left", on=keys)["floor"].set_axis(rows.index)


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1.5 else f"{value:.1f}"
